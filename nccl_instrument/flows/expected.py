"""How many bytes each member of a group sends to each peer in an op, by algorithm (Pulse §5.1, Appendix B).

A lower bound: headers, synchronisation and retransmissions come on top. Rings send to the next member, trees to parent
and children; two trees share the data evenly. LL and LL128 send flags beside the data, which the wire carries, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


PROTOCOL_FACTORS: Final = {"SIMPLE": 1.0, "LL": 2.0, "LL128": 128 / 120}
"""Bytes on the wire per byte of data: LL has 4 of flags with 4 of data, LL128 8 of flags with 120."""

ALGORITHMS: Final = {"RING": Algorithm.RING, "TREE": Algorithm.TREE}
"""As the library calls them: its two trees, which share the channels, are one word."""
SENT_ONCE: Final = ("Send", "Recv")
TO_EACH: Final = ("SendRecv", "AlltoAll", "Gather", "Scatter")

Tree = dict[int, int]
"""Member → its parent, in order of numbers within the group; the root is not in it."""


def binary_tree(n: int) -> Tree:
    """A binary tree of n members in order of their numbers; its root, member 0, has one child."""
    found: Tree = {}
    for member in range(1, n):
        height = member & -member  # the lowest set bit
        parent = (member ^ height) | (height << 1)
        found[member] = parent if parent < n else member ^ height
    return found


def double_tree(n: int) -> tuple[Tree, Tree]:
    """NCCL's two trees: of the second the numbers are counted from the end, for odd n shifted by one, so that who is a leaf in
    the one is no leaf in the other (src/graph/trees.cc, ncclGetDtree).
    """
    first = binary_tree(n)
    if n % 2:
        return first, {(child + 1) % n: (parent + 1) % n for child, parent in first.items()}
    return first, {n - 1 - child: n - 1 - parent for child, parent in first.items()}


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


@dataclass(frozen=True, slots=True)
class OpShape:
    """A call as one rank made it. n_bytes: count × size of its type. comm_rank, root: places in the communicator, -1 unknown.
    algo, proto: as the library calls them, "" or "Unknown" where it does not say. peer: of a send or receive.
    """

    func: str
    n_bytes: int
    n_ranks: int
    algo: str = ""
    proto: str = ""
    peer: int = -1
    comm_rank: int = -1
    root: int = -1


def moved_to(
    op: OpShape, peers: Mapping[int, int], n_channels: int, algorithm: Algorithm | None = None
) -> dict[int, float]:
    """Bytes the op moves over the network to each of these peers; of those that send, from each: it is the same formula.

    peers: peer → how many of the op's channels connect it in this direction; n_channels: of the op, which its data is spread
    over evenly. algorithm: as inferred, where the library does not say. Empty where nothing is known: an algorithm of special
    hardware, or none.
    """
    factor = PROTOCOL_FACTORS.get(op.proto, 1.0)
    if op.func in SENT_ONCE:
        return {op.peer: op.n_bytes * factor} if op.peer in peers else {}
    if op.func in TO_EACH:
        return dict.fromkeys(peers, op.n_bytes * factor)
    which = ALGORITHMS.get(op.algo, algorithm)
    if which is None or op.n_ranks < 2 or n_channels < 1:
        return {}
    try:
        whole = ring_volume(op.func, op.n_bytes, op.n_ranks) if which is Algorithm.RING else float(op.n_bytes)
    except ValueError:
        return {}
    return {peer: whole * factor * min(n / n_channels, 1.0) for peer, n in peers.items() if not _is_end(op, peer)}


def _is_end(op: OpShape, peer: int) -> bool:
    """Whether this hop is the one that a broadcast or reduction has no use for: into its source, out of its sink."""
    return (op.func == "Broadcast" and peer == op.root >= 0) or (op.func == "Reduce" and op.comm_rank == op.root >= 0)
