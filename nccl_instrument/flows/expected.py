"""How many bytes each member of a group sends to each peer in an op, by algorithm (Pulse §5.1, Appendix B).

A lower bound: headers, synchronisation and retransmissions come on top. Rings send to the next member, trees to parent
and children; two trees share the data evenly. LL and LL128 send flags beside the data, which the wire carries, too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

Volume = npt.NDArray[np.float64]


class Algorithm(StrEnum):
    RING = "ring"
    TREE = "tree"
    DOUBLE_TREE = "double tree"
    P2P = "p2p"


PROTOCOL_FACTORS: Final = {"Simple": 1.0, "LL": 2.0, "LL128": 128 / 120}
"""Bytes on the wire per byte of data: LL has 4 of flags with 4 of data, LL128 8 of flags with 120."""

Tree = dict[int, int]
"""Member → its parent, in order of numbers within the group; the root is not in it."""


def binary_tree(n: int, *, is_shifted: bool = False) -> Tree:
    """A binary tree of n members in order of their numbers, its root with one child; shifted by one member, the leaves of
    the one are inner members of the other.
    """
    found: Tree = {}
    for member in range(1, n):
        height = member & -member  # the lowest set bit
        parent = (member ^ height) | (height << 1)
        found[member] = parent if parent < n else member ^ height
    return {(child + 1) % n: (parent + 1) % n for child, parent in found.items()} if is_shifted else found


def ring_volume(func: str, n_bytes: int, n_ranks: int) -> float:
    """Bytes a member sends to its successor. n_bytes: per rank, as the call has them: what AllReduce and Broadcast pass,
    what AllGather sends, what ReduceScatter receives. ValueError for an op that is no ring.
    """
    if n_ranks < 2:
        return 0.0
    if func == "AllReduce":
        return 2 * n_bytes * (n_ranks - 1) / n_ranks
    if func in ("AllGather", "ReduceScatter"):
        return float(n_bytes * (n_ranks - 1))
    if func in ("Broadcast", "Reduce"):
        return float(n_bytes)
    raise ValueError(f"{func} is no ring")


def ring_volumes(func: str, n_bytes: int, order: list[int]) -> Volume:
    """(n, n) bytes from member to member on a ring in this order; a broadcast's chain leaves its last link out."""
    n = len(order)
    found = np.zeros((n, n))
    for at, member in enumerate(order):
        is_last = func in ("Broadcast", "Reduce") and at == n - 1
        found[member, order[(at + 1) % n]] = 0.0 if is_last or n < 2 else ring_volume(func, n_bytes, n)
    return found


def tree_volumes(n_bytes: int, trees: list[Tree], n: int) -> Volume:
    """(n, n) bytes of an AllReduce over these trees, which share the data: up to the parent, and down again."""
    found = np.zeros((n, n))
    for tree in trees:
        for child, parent in tree.items():
            found[child, parent] += n_bytes / len(trees)
            found[parent, child] += n_bytes / len(trees)
    return found


def infer_algorithm(peers: dict[int, set[int]], n: int) -> Algorithm | None:
    """Which algorithm members use, by whom each one sends to; None when the pattern is neither.

    peers: member → members it sends to, of those that were seen. A ring has one successor each and is one circle; a tree
    joins all members without a circle, both ways; two trees together are neither.
    """
    edges = {(member, other) for member, others in peers.items() for other in others}
    if n < 2 or len(peers) < n or not edges:
        return None
    if all(len(others) == 1 for others in peers.values()):
        return Algorithm.RING if _is_circle({member: next(iter(others)) for member, others in peers.items()}) else None
    if any((other, member) not in edges for member, other in edges):
        return None
    is_joined = _reach(peers) == set(peers)
    if is_joined and len(edges) == 2 * (n - 1):
        return Algorithm.TREE
    return Algorithm.DOUBLE_TREE if is_joined and len(edges) <= 4 * (n - 1) else None


def _is_circle(successor: dict[int, int]) -> bool:
    start = at = next(iter(successor))
    for step in range(1, len(successor) + 1):
        at = successor.get(at, -1)
        if at == start:
            return step == len(successor)
    return False


def _reach(peers: dict[int, set[int]]) -> set[int]:
    found, front = set(), [next(iter(peers))]
    while front:
        member = front.pop()
        if member not in found:
            found.add(member)
            front.extend(peers.get(member, ()))
    return found
