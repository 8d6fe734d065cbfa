"""Ranks that wait with the others and show nothing of it: a ring or tree passes them inside their node.

They have entered an op in which others are blocked, no row of theirs says what they need next, and nobody needs them. They
are victims; an edge to somebody who is blocked in the same op cannot change where waiting ends.
"""

from __future__ import annotations

import numpy as np

from rca.hang.fronts import Fronts
from rca.hang.known import Known
from rca.hang.members import Members
from rca.hang.waits import Edges, Why, edges, joined
from rca.keys import Index, Mask, in_sorted, mix


def followers(known: Known, members: Members, fronts: Fronts, found: Edges, is_cut: Mask) -> Edges:
    """Edges of ranks that `found` does not mention: to a rank that is blocked in an op they have entered, or to a mate."""
    waits, is_named = _mentioned(found, len(is_cut))
    over = _in_same_op(known, members, fronts, waits, ~is_named & ~is_cut & (known.ranks.seen_ns > 0))
    waits[over.waiter] = True
    quiet = ~is_named & ~waits & ~is_cut & (known.ranks.seen_ns > 0)
    return joined([over, _with_mates(members, waits, quiet)])


def _mentioned(found: Edges, n_ranks: int) -> tuple[Mask, Mask]:
    """(R,) ranks that wait, and ranks that wait or are waited for."""
    waits, is_named = np.zeros(n_ranks, bool), np.zeros(n_ranks, bool)
    waits[found.waiter[found.waiter < n_ranks]] = True
    is_named[found.target[found.target < n_ranks]] = True
    return waits, is_named | waits


def _in_same_op(known: Known, members: Members, fronts: Fronts, waits: Mask, quiet: Mask) -> Edges:
    """To the rank that is blocked in the oldest op of the communicator, where the quiet rank has entered that too."""
    blocked = np.flatnonzero(fronts.is_front & ~fronts.p2p & (fronts.comm >= 0) & waits[fronts.at])
    blocked = blocked[np.argsort(fronts.op[blocked], kind="stable")]
    comm, first = np.unique(fronts.comm[blocked], return_index=True)
    oldest = np.full(len(members.comm_ids) + 1, -1, np.int64)
    oldest[comm] = blocked[first]
    mine = np.flatnonzero(quiet[members.rank_at] & (oldest[members.comm] >= 0))
    at, front = members.rank_at[mine], oldest[members.comm[mine]]
    is_in = members.entered[mine] >= fronts.op[front]
    is_in &= ~in_sorted(mix(at, fronts.key[front]), known.finished)
    at, front = at[is_in], front[is_in]
    return _one_each(edges(at, fronts.at[front], Why.SAME_OP, fronts.comm[front], fronts.op[front]))


def _with_mates(members: Members, waits: Mask, quiet: Mask) -> Edges:
    """To a mate that waits, in a communicator inside the node."""
    is_local = members.is_local[members.comm]
    waiting = np.flatnonzero(is_local & waits[members.rank_at])
    mine = np.flatnonzero(is_local & quiet[members.rank_at])
    mate = Index(mix(members.comm[waiting])).find(mix(members.comm[mine]))
    mine, mate = mine[mate >= 0], mate[mate >= 0]
    at, target = members.rank_at[mine], members.rank_at[waiting[mate]] if len(waiting) else mate
    return _one_each(edges(at, target, Why.IN_NODE, members.comm[mine], members.entered[mine]))


def _one_each(found: Edges) -> Edges:
    """One edge per waiter."""
    _, first = np.unique(found.waiter, return_index=True)
    return found.where(first)
