"""How far every rank is in every process group, and whom it therefore waits for.

Ops of a group are numbered, and every member has to enter every one. So a member that has an op in progress waits for each
member that has not entered it yet. Ring buffers forget: a number that a rank has passed counts as entered although its
entry is gone. Sends and receives have no common number; they are matched by their pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from rca.flight_recorder.recording import Recording
from rca.keys import Ints

NEVER: Final = -1
_PAIR: Final = re.compile(r"(?:send|recv)\s+(\d{1,7})\s*(->|<-)\s*(\d{1,7})$")


@dataclass(frozen=True, slots=True)
class Standing:
    """One member of one group: where its collectives stand.

    entered: number of the last op it has entered, NEVER if it has none. waits_in: number of the first one that is not
    finished, NEVER if all are; row: position of that one's entry, else of the last entered, -1 if there is none.
    """

    rank: int
    entered: int
    waits_in: int
    row: int


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group and its members, those without a dump left out of `standings`. unheard: members nothing was sent by.

    is_declared: a dump or the launcher says who the members are; else they are those who recorded ops of this group, and
    one that never entered any is not known.
    """

    name: str
    what: str
    standings: tuple[Standing, ...]
    unheard: tuple[int, ...]
    is_declared: bool

    @property
    def title(self) -> str:
        return f"{self.what} ({self.name})" if self.what else self.name


def group_progress(recording: Recording, members: Mapping[str, tuple[int, ...]] | None = None) -> list[GroupProgress]:
    """Every group in which some member has entered a collective. members: group → ranks, as the launcher declares them."""
    rows = recording.entries
    found = []
    order = np.flatnonzero(~rows["is_p2p"])
    order = order[np.argsort(rows["group"][order], kind="stable")]
    bounds = np.searchsorted(rows["group"][order], np.arange(len(recording.groups) + 1))
    for number, group in enumerate(recording.groups):
        at = order[bounds[number] : bounds[number + 1]]
        if not len(at):
            continue
        standings = _standings(recording, at)
        declared = (members or {}).get(group.name, group.ranks)
        known = {one.rank for one in standings}
        absent = [rank for rank in declared if rank not in known]
        standings += [Standing(rank, NEVER, NEVER, -1) for rank in absent if rank in recording.ranks]
        unheard = tuple(rank for rank in absent if rank not in recording.ranks)
        found.append(GroupProgress(group.name, group.what, tuple(standings), unheard, bool(declared)))
    return found


def _standings(recording: Recording, at: Ints) -> list[Standing]:
    """Of the ranks that have entries among `at`, which are of one group."""
    rows = recording.entries[at]
    ranks, start = np.unique(rows["rank"], return_index=True)
    found = []
    for rank, first, last in zip(ranks.tolist(), start, [*start[1:], len(rows)], strict=True):
        mine = rows[first:last]
        newest = int(mine["seq"].argmax())
        pending = np.flatnonzero(~mine["is_finished"])
        waits = int(pending[mine["seq"][pending].argmin()]) if len(pending) else NEVER
        row = int(at[first + (waits if len(pending) else newest)])
        waits_in = int(mine["seq"][waits]) if len(pending) else NEVER
        found.append(Standing(rank, int(mine["seq"][newest]), waits_in, row))
    return found


@dataclass(frozen=True, slots=True)
class Stop:
    """An op in progress: who waits in it, and which members of its group have not entered it; none: all are in.

    group: position in the groups. rows: entries of those who wait, in the same order.
    """

    group: int
    seq: int
    waiting: tuple[int, ...]
    behind: tuple[int, ...]
    rows: tuple[int, ...]
    is_p2p: bool = False


def collective_stops(groups: list[GroupProgress]) -> list[Stop]:
    """A stop per group and number at which some member waits."""
    found = []
    for number, group in enumerate(groups):
        waiting: dict[int, list[Standing]] = {}
        for one in group.standings:
            if one.waits_in != NEVER:
                waiting.setdefault(one.waits_in, []).append(one)
        for seq, those in sorted(waiting.items()):
            behind = tuple(other.rank for other in group.standings if other.entered < seq) + group.unheard
            ranks, rows = tuple(one.rank for one in those), tuple(one.row for one in those)
            found.append(Stop(number, seq, ranks, behind, rows))
    return found


def p2p_stops(recording: Recording, groups: list[GroupProgress]) -> list[Stop]:
    """A stop per send or receive in progress; its other end is behind unless it is in progress, too.

    The dump names both ends by their rank in the group, so the members have to be known.
    """
    rows = recording.entries
    numbers = {group.name: number for number, group in enumerate(groups)}
    sides: list[tuple[int, int, tuple[int, int]]] = []
    for at in np.flatnonzero(rows["is_p2p"] & ~rows["is_finished"]).tolist():
        found = _PAIR.search(recording.names[rows["name"][at]])
        number = numbers.get(recording.groups[rows["group"][at]].name)
        if found is not None and number is not None:
            mine, other = _global_ranks(groups[number], int(found[1]), int(found[3]))
            sides.append((at, number, (mine, other) if found[2] == "->" else (other, mine)))
    posted = {(number, pair, int(rows["rank"][at])) for at, number, pair in sides}
    stops = []
    for at, number, pair in sides:
        mine = int(rows["rank"][at])
        peer = pair[1] if pair[0] == mine else pair[0]
        if peer >= 0:
            behind = () if (number, pair, peer) in posted else (peer,)
            stops.append(Stop(number, int(rows["seq"][at]), (mine,), behind, (at,), is_p2p=True))
    return stops


def _global_ranks(group: GroupProgress, *in_group: int) -> list[int]:
    """Members' ranks in the job, -1 where they are not known."""
    known = sorted({one.rank for one in group.standings} | set(group.unheard))
    return [known[one] if one < len(known) else -1 for one in in_group]
