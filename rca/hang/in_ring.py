"""Which rank of a ring that passes several of a node stands still, where the network sees only its way in and its way out.

    channel 0   ═▶ A ─▶ B ─▶ C ─▶ D ═▶      chunks that A took and chunks that D sent
    channel 1   ◀═ A ◀─ B ◀─ C ◀─ D ◀═      chunks that D took and chunks that A sent

Ranks after the one whose GPU stands still pass on all it gave them; every rank before it fills the buffers to the next, which
hold as many chunks as those to the network do. So what the way out has sent, less what the way in has taken, is a buffer less
for each rank before it, and between two channels that pass the node in opposite directions all else cancels out. Goes on
from Mycroft's MinData (Algorithm 2), which compares what the network sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import CONSUMED, GPU_READY, POSTED, RDMA_DONE
from rca.hang.pairs import FINISHED, SEEN
from rca.hang.progress import Progress
from rca.keys import Ints

NEAR_MAX = 0.5
"""Of a buffer: so far from a whole number of them it may be."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """How one channel of an op passes a node. first, last: rank positions of its way in and out. more: chunks sent less chunks
    taken. buffer: chunks that may be under way. is_through: one of the ways has all there was, and might have had more."""

    op: tuple[int, int]
    first: int
    last: int
    more: int
    buffer: int
    is_through: bool


def standing_in_ring(state: Progress, tied: Ints) -> Ints:
    """Those of these ranks (positions) of one node that may be it, by what a ring through them took and sent; all of them where
    that tells nothing."""
    node = np.unique(state.ranks.node[tied])
    if len(tied) < 2 or len(node) > 1 or node[0] < 0:
        return tied
    left = tied
    passes = _passes(state, tied)
    for op in dict.fromkeys(one.op for one in passes):
        told = _told(state, [one for one in passes if one.op == op])
        left = np.intersect1d(left, told) if told is not None else left
    return left if len(left) else tied


def _passes(state: Progress, tied: Ints) -> list[_Pass]:
    """Every channel of a collective with one way into and one way out of the node among these ranks, both counted."""
    pairs = state.pairs
    node, here = state.ranks.node, int(state.ranks.node[tied[0]])
    known = ~pairs.p2p & (pairs.comm >= 0) & (pairs.sender >= 0) & (pairs.receiver >= 0)
    is_sent, is_taken = (np.isin(end, (SEEN, FINISHED)) for end in (pairs.sender_end, pairs.receiver_end))
    goes_out = known & np.isin(pairs.sender, tied) & (node[pairs.receiver] != here) & is_sent
    comes_in = known & np.isin(pairs.receiver, tied) & (node[pairs.sender] != here) & is_taken
    found = []
    for out in np.flatnonzero(goes_out).tolist():
        same = comes_in & (pairs.key == pairs.key[out]) & (pairs.channel == pairs.channel[out])
        ways_in, ways_out = np.flatnonzero(same), goes_out & (pairs.key == pairs.key[out])
        if len(ways_in) != 1 or (ways_out & (pairs.channel == pairs.channel[out])).sum() != 1:
            continue  # a tree, or a node that the ring passes more than once
        into = int(ways_in[0])
        sent, taken = pairs.sent[out], pairs.taken[into]
        buffer = max(sent[POSTED] - sent[RDMA_DONE], taken[POSTED] - taken[CONSUMED])
        first, last = int(pairs.receiver[into]), int(pairs.sender[out])
        if first != last and buffer > 0:
            op, total = (int(pairs.comm[out]), int(pairs.op[out])), int(pairs.total[out])
            is_through = sent[GPU_READY] >= total or taken[CONSUMED] >= total
            found.append(_Pass(op, first, last, int(sent[GPU_READY] - taken[CONSUMED]), int(buffer), is_through))
    return found


def _told(state: Progress, passes: list[_Pass]) -> Ints | None:
    """The ranks of which the op says that one may be it; None where it says nothing."""
    first, last = passes[0].first, passes[0].last
    mates = _mates(state, passes[0])
    there = [one.more for one in passes if (one.first, one.last) == (first, last)]
    back = [one.more for one in passes if (one.first, one.last) == (last, first)]
    if len(there) + len(back) < len(passes) or len(mates) < 2:
        return None  # it passes the node by other ranks, too
    buffer, is_through = max(one.buffer for one in passes), any(one.is_through for one in passes)
    if there and back:
        return _at(mates, first, last, float(np.mean(back) - np.mean(there)) / buffer, is_through)
    if len(mates) > 2:
        return None
    # With one buffer between two, the way out has sent more than the way in took, its own share, or no more than it took.
    return np.array([first if np.mean(there) > 0 else last], np.int64)


def _mates(state: Progress, one: _Pass) -> Ints:
    """(m,) the op's ranks on that node, by their rank in the communicator."""
    members = state.members
    part = members.of(one.op[0])
    at = members.rank_at[part]
    here = at[(at >= 0) & (state.ranks.node[at] == state.ranks.node[one.first])]
    return np.asarray(here, np.int64)


def _at(mates: Ints, first: int, last: int, ahead: float, is_through: bool) -> Ints | None:
    """Who it may be when `ahead` more ranks lie before it than after it, on the way from `first` to `last`.

    Where a way is through, it might have gone on, and then so many ranks or more.
    """
    place = np.arange(len(mates))
    lies = 2 * place - (len(mates) - 1)  # ranks before each less ranks after it
    is_side = np.sign(lies) == np.sign(ahead)
    is_it = is_side & ((np.abs(lies) >= abs(ahead) - NEAR_MAX) if is_through else (np.abs(lies - ahead) <= NEAR_MAX))
    chosen = np.flatnonzero(is_it if is_it.any() else is_side)
    if not len(chosen) or ahead == 0:
        return None
    if {int(mates[0]), int(mates[-1])} == {
        first,
        last,
    }:  # it passes them in the order of their numbers, one way or the other
        return (mates if int(mates[0]) == first else mates[::-1])[chosen]
    between = [at for at in mates.tolist() if at not in (first, last)]
    found = ([first] if 0 in chosen else []) + ([last] if len(mates) - 1 in chosen else [])
    return np.array(found + (between if len(chosen) > len(found) else []), np.int64)
