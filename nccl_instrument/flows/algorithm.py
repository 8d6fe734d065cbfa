"""Which algorithm an op runs, by who sends to whom (Pulse §5.1), and what a single rank can tell of it.

Rings have one way in and one way out; trees have the same peers both ways, children and a parent; two trees share the data.
Where the library says what it runs, this is the check on it: what disagrees is shown (rca/flows/algorithms.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nccl_instrument.flows.expected import Algorithm


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


def infer_at_rank(sends: Mapping[int, Collection[int]], receives: Mapping[int, Collection[int]]) -> Algorithm | None:
    """What one rank can tell by its own flows: channel → peers it sends to, and receives from, over the network.

    On a ring a channel has one way in and another one out; on a tree each of its peers is both. Two members are both at once,
    and a rank of which a channel shows only one direction is in the middle of its node's part: None, the same as for too many.
    """
    ways = [(set(sends.get(channel, ())), set(receives.get(channel, ()))) for channel in {*sends, *receives}]
    ways = [one for one in ways if one[0] and one[1]]
    if not ways:
        return None
    if all(len(to) == len(of) == 1 and to != of for to, of in ways):
        return Algorithm.RING
    is_tree = all(to == of for to, of in ways) and any(len(to) > 1 for to, _ in ways)
    return Algorithm.TREE if is_tree else None


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
