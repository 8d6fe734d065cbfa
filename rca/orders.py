"""Ranks of one node that enqueued an op inside the node and an op over the network in opposite orders.

    rank 4:  inside 96, world 24      waits in "inside 96" for rank 5
    rank 5:  world 24, inside 96      waits in "world 24" for all, rank 4 among them

The network sees neither the op inside nor who waits in it, so no counter shows this cycle; the order in which ranks enqueued
the two does. Harmless where the ops run on different streams, and then it happens all the time: orders that differed for
earlier ops of the same two communicators, which completed, prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from rca.keys import Ints, Rows, is_p2p
from rca.progress import Progress

_NEVER = np.iinfo(np.int64).max
Enqueued = dict[int, dict[int, int]]  # rank position → op → when it was enqueued


@dataclass(frozen=True, slots=True)
class Crossing:
    """inside, over: (communicator position, op) of the two ops. over_first, inside_first: rank positions by their order."""

    inside: tuple[int, int]
    over: tuple[int, int]
    over_first: tuple[int, ...]
    inside_first: tuple[int, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.over_first + self.inside_first))


def crossing_at(state: Progress, ranks: tuple[int, ...]) -> Crossing | None:
    """Where these ranks, which others wait for, and their mates hold each other up by the order of two ops; None if nowhere."""
    members = state.members
    comms = members.comm[np.isin(members.rank_at, ranks) & members.is_local[members.comm]]
    for inside in np.unique(comms).tolist():
        mates = members.rank_at[members.of(inside)]
        fronts, enqueued = state.fronts, cache(partial(_enqueued, state, _collectives_of(state, mates)))
        mine = np.isin(fronts.at, mates) & ~fronts.p2p & (fronts.comm >= 0)
        for over, op in sorted(set(zip(fronts.comm[mine].tolist(), fronts.op[mine].tolist(), strict=True))):
            found = _crossing(state, inside, (over, op), mates, enqueued)
            if found is not None:
                return found
    return None


def _crossing(
    state: Progress, inside: int, over: tuple[int, int], mates: Ints, enqueued: Callable[[int], Enqueued]
) -> Crossing | None:
    ids = state.members.comm_ids
    inner, outer = enqueued(int(ids[inside])), enqueued(int(ids[over[0]]))
    places = {at: _ops_before(inner.get(at, {}), outer[at].get(over[1])) for at in mates.tolist() if at in outer}
    known = {at: place for at, place in places.items() if place is not None}
    if len(set(known.values())) < 2 or _differed_before(inner, outer, over[1]):
        return None
    least = min(known.values())
    over_first = tuple(sorted(at for at, place in known.items() if place == least))
    inside_first = tuple(sorted(at for at, place in known.items() if place > least))
    op = least + 1
    if any(_has_run_after(state, at, inner[at].get(op, _NEVER)) for at in inside_first):
        return None  # the op inside is over: they do not wait in it
    return Crossing((inside, op), over, over_first, inside_first)


def _collectives_of(state: Progress, mates: Ints) -> tuple[Rows, ...]:
    """Rows of the collectives these ranks enqueued, over and in progress; picked once, since a job has millions."""
    tables = (state.window.rows(table) for table in ("op", "live_op"))
    own = (rows[np.isin(rows["rank"], state.ranks.rank[mates])] for rows in tables)
    return tuple(rows[~is_p2p(rows) & (rows["enqueued_ns"] > 0)] for rows in own)


def _enqueued(state: Progress, collectives: tuple[Rows, ...], comm_id: int) -> Enqueued:
    """When the collectives of a communicator were enqueued."""
    found: Enqueued = {}
    for rows in collectives:
        mine = rows[rows["comm_id"] == comm_id]
        for place, op, ns in _cells(mine, state.ranks.position(mine["rank"])):
            found.setdefault(place, {})[op] = ns
    return found


def _cells(rows: Rows, at: Ints) -> list[tuple[int, int, int]]:
    return list(zip(at.tolist(), rows["op"].tolist(), rows["enqueued_ns"].tolist(), strict=True))


def _ops_before(inner: dict[int, int], enqueued_ns: int | None) -> int | None:
    """The number of the last op inside that was enqueued before this moment; None where that is not known."""
    if enqueued_ns is None or not inner:
        return None
    before = [op for op, ns in inner.items() if ns < enqueued_ns]
    return max(before) if before else None


def _differed_before(inner: Enqueued, outer: Enqueued, op: int) -> bool:
    """Whether members enqueued an earlier op over the network at different places among the ops inside."""
    earlier = sorted({one for of_rank in outer.values() for one in of_rank if one < op})[-3:]
    for one in earlier:
        places = {_ops_before(inner.get(at, {}), of_rank.get(one)) for at, of_rank in outer.items()}
        if len(places - {None}) > 1:
            return True
    return False


def _has_run_after(state: Progress, at: int, enqueued_ns: int) -> bool:
    """Whether the rank's GPU has run, or begun, an op over the network that it enqueued after this moment."""
    fronts, done = state.fronts, state.window.rows("op")
    mine = (fronts.at == at) & fronts.has_begun & (fronts.enqueued_ns != _NEVER)
    over = (done["rank"] == state.ranks.rank[at]) & (done["done_ns"] > 0)
    return bool((fronts.enqueued_ns[mine] > enqueued_ns).any() or (done["enqueued_ns"][over] > enqueued_ns).any())
