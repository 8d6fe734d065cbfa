"""Ranks that enqueued ops of two communicators in different orders, which no counter of the network need show.

    rank 4:  tp 96, world 24      waits in tp 96 for rank 5
    rank 5:  world 24, tp 96      waits in world 24 for everybody, rank 4 among them

Where the op of the smaller communicator stays inside the node, who waits in it is invisible; the order in which its members
enqueued the two is not. Harmless where the ops run on different streams, and then it happens all the time: orders that
differed for earlier ops of the same two communicators, which completed, prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rca.hang.progress import Progress
from rca.keys import Index, Ints, Mask, is_p2p, mix

_EARLIER = 3
_AT_BITS = 40  # rank position in front of 40 bits of nanoseconds
_NS_MAX = (1 << _AT_BITS) - 1
"""Eighteen minutes: what was enqueued longer before the newest counts as enqueued then."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """inside, over: (communicator position, op) of the two ops. over_first, inside_first: rank positions by their order.

    deviating: those whose order is not what it was for the ops before, while the others' is; () where that is not known.
    """

    inside: tuple[int, int]
    over: tuple[int, int]
    over_first: tuple[int, ...]
    inside_first: tuple[int, ...]
    deviating: tuple[int, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.over_first + self.inside_first))


class Orders:
    """The order in which the ranks around where waiting ends enqueued their collectives; built once per state."""

    def __init__(self, state: Progress, ranks: Ints) -> None:
        self.state, members = state, state.members
        self.found: dict[int, Crossing | None] = {}
        self.comms = _small(state, ranks)
        relevant = np.isin(np.arange(state.n_ranks), members.rank_at[np.isin(members.comm, self.comms)])
        parts = [_enqueued(state, table, relevant) for table in ("op", "live_op")]
        at, comm, op, ns = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self.start_ns = max(int(ns.min()), int(ns.max()) - _NS_MAX) if len(ns) else 0
        moment = at << _AT_BITS | np.maximum(ns - self.start_ns, 0)
        order = np.lexsort((comm, moment))
        self.at, self.comm, self.op, self.moment = at[order], comm[order], op[order], moment[order]
        is_new = np.ones(len(order), bool)  # an op may be among the completed and the live ones
        is_new[1:] = (np.diff(self.moment) != 0) | (np.diff(self.comm) != 0)
        self.at, self.comm, self.op, self.moment = (
            column[is_new] for column in (self.at, self.comm, self.op, self.moment)
        )
        self.ran_ns = state.ran_ns

    def crossing_at(self, ranks: tuple[int, ...]) -> Crossing | None:
        """Where these ranks, which others wait for, and their mates hold each other up by the order of two ops; None if
        nowhere. One that says whose order is another than before comes first."""
        members = self.state.members
        mine = np.intersect1d(np.unique(members.comm[np.isin(members.rank_at, ranks)]), self.comms)
        found = [one for one in (self._crossing(int(comm)) for comm in mine) if one is not None]
        return min(found, key=lambda one: (not one.deviating, len(one.ranks)), default=None)

    def _crossing(self, inside: int) -> Crossing | None:
        if inside not in self.found:
            self.found[inside] = self._find(inside)
        return self.found[inside]

    def _find(self, inside: int) -> Crossing | None:
        """The oldest op over the network that members of `inside` enqueued at different places among its ops."""
        members = self.state.members
        rows = np.flatnonzero(np.isin(self.at, members.rank_at[members.of(inside)]))
        within, over = rows[self.comm[rows] == inside], rows[self.comm[rows] != inside]
        over = over[~members.is_in_node(self.comm[over])]
        place = self._op_before(within, over)
        over, place = over[place >= 0], place[place >= 0]
        _, first, op = np.unique(mix(self.comm[over], self.op[over]), return_index=True, return_inverse=True)
        differs = np.unique(op[place != place[first][op]])
        for one in differs[np.argsort(self.moment[over[first[differs]]] & ((1 << _AT_BITS) - 1), kind="stable")]:
            found = self._checked(inside, within, over, place, int(over[first[one]]))
            if found is not None:
                return found
        return None

    def _op_before(self, within: Ints, over: Ints) -> Ints:
        """(n,) number of the op inside that the rank enqueued last before each of `over`; -1 where none is known."""
        if not len(within):
            return np.full(len(over), -1, np.int64)
        before = np.maximum(np.searchsorted(self.moment[within], self.moment[over]) - 1, 0)
        is_known = (self.at[within[before]] == self.at[over]) & (self.moment[within[before]] < self.moment[over])
        return np.where(is_known, self.op[within[before]], -1)

    def _checked(self, inside: int, within: Ints, over: Ints, place: Ints, row: int) -> Crossing | None:
        """The crossing of this op, unless it or the op inside is over, or their orders differed before without harm."""
        comm, op = int(self.comm[row]), int(self.op[row])
        same = self.comm[over] == comm
        now = same & (self.op[over] == op)
        if self._is_over(comm, op) or _differed(self.op[over[same]], place[same], op):
            return None
        at, least = self.at[over[now]], int(place[now].min())
        early = place[now] == least
        if self._has_passed(inside, least + 1, within, at[~early]):
            return None
        deviating = _deviating(self.at[over[same]], self.op[over[same]], place[same], op)
        over_first, inside_first = (tuple(np.sort(at[mask]).tolist()) for mask in (early, ~early))
        return Crossing((inside, least + 1), (comm, op), over_first, inside_first, deviating)

    def _is_over(self, comm: int, op: int) -> bool:
        """Whether some member has completed the op over the network."""
        rows = self.state.window.rows("op")
        mine = np.flatnonzero((rows["comm_id"] == self.state.members.comm_ids[comm]) & (rows["op"] == op))
        return bool((rows["done_ns"][mine[~self.state.known.op_p2p[mine]]] > 0).any())

    def _has_passed(self, inside: int, op: int, within: Ints, at: Ints) -> bool:
        """Whether one of these ranks has run something that it enqueued after this op inside: then it is over."""
        if not self.state.members.is_local[inside]:
            return self._is_over(inside, op)
        mine = within[(self.op[within] == op) & np.isin(self.at[within], at)]
        enqueued_ns = (self.moment[mine] & ((1 << _AT_BITS) - 1)) + self.start_ns
        return bool((self.ran_ns[self.at[mine]] > enqueued_ns).any())


def _small(state: Progress, ranks: Ints) -> Ints:
    """Communicators of these ranks, all but those of everybody."""
    members = state.members
    comms = np.unique(members.comm[np.isin(members.rank_at, ranks)])
    return comms[np.diff(members.first)[comms] < state.n_ranks]


def _enqueued(state: Progress, table: str, relevant: Mask) -> tuple[Ints, Ints, Ints, Ints]:
    """Rank position, communicator, number and time of enqueueing of the relevant ranks' collectives in a table."""
    rows = state.window.rows(table)
    at = state.known.op_at if table == "op" else state.ranks.position(rows["rank"])
    keep = np.flatnonzero(np.append(relevant, False)[at])
    keep = keep[~(state.known.op_p2p[keep] if table == "op" else is_p2p(rows[keep]))]
    ns, comm = rows["enqueued_ns"][keep].astype(np.int64), state.members.comm_of(rows["comm_id"][keep])
    known = (ns > 0) & (comm >= 0)
    keep, comm = keep[known], comm[known]
    return at[keep], comm, rows["op"][keep].astype(np.int64), ns[known]


def _differed(op: Ints, place: Ints, now: int) -> bool:
    """Whether members enqueued one of the last ops before this at different places."""
    for one in np.unique(op[op < now])[-_EARLIER:]:
        places = place[op == one]
        if (places != places[0]).any():
            return True
    return False


def _deviating(at: Ints, op: Ints, place: Ints, now: int) -> tuple[int, ...]:
    """Ranks with fewer or more ops inside between this op and the one before than they had between the two before.

    () unless some deviate and some keep to what they did, and all of that is known.
    """
    known = Index(mix(at, op))
    ranks = at[op == now]
    places = [known.find(mix(ranks, np.full(len(ranks), one))) for one in (now, now - 1, now - 2)]
    if any((found < 0).any() for found in places):
        return ()
    latest, before, earlier = (place[found] for found in places)
    deviates = latest - before != before - earlier
    return tuple(np.sort(ranks[deviates]).tolist()) if not deviates.all() else ()
