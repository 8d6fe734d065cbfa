"""How far every rank is in every process group, and whom it therefore waits for.

Ops of a group are numbered, and every member has to enter every one. So a member that has an op in progress waits for each
member that has not entered it yet. Ring buffers forget: a number that a rank has passed counts as entered although its
entry is gone. Sends and receives have no common number: p2p.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rca.flight_recorder.recording import Recording
from rca.keys import Ints

NEVER: Final = -1


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
    def members(self) -> list[int]:
        """Ranks, in the order of their places in the group where they are declared."""
        return sorted({one.rank for one in self.standings} | set(self.unheard))

    @property
    def title(self) -> str:
        return f"{self.what} ({self.name})" if self.what else self.name


def group_progress(recording: Recording, members: Mapping[str, tuple[int, ...]] | None = None) -> list[GroupProgress]:
    """Every group in which some member has entered an op. members: group → ranks, as the launcher declares them."""
    rows = recording.entries
    found = []
    is_used = np.isin(np.arange(len(recording.groups)), rows["group"])
    order = np.flatnonzero(~rows["is_p2p"])
    order = order[np.argsort(rows["group"][order], kind="stable")]
    bounds = np.searchsorted(rows["group"][order], np.arange(len(recording.groups) + 1))
    ranks, seqs = rows["rank"].astype(np.int64), rows["seq"].astype(np.int64)
    is_finished = np.ascontiguousarray(rows["is_finished"])
    for number, group in enumerate(recording.groups):
        at = order[bounds[number] : bounds[number + 1]]
        if not is_used[number]:
            continue
        standings = _standings(ranks, seqs, is_finished, at) if len(at) else []
        declared = (members or {}).get(group.name, group.ranks)
        known = {one.rank for one in standings}
        absent = [rank for rank in declared if rank not in known]
        standings += [Standing(rank, NEVER, NEVER, -1) for rank in absent if rank in recording.ranks]
        unheard = tuple(rank for rank in absent if rank not in recording.ranks)
        found.append(GroupProgress(group.name, group.what, tuple(standings), unheard, bool(declared)))
    return found


def _standings(ranks: Ints, seqs: Ints, is_finished: npt.NDArray[np.bool_], at: Ints) -> list[Standing]:
    """Of the ranks that have entries at positions `at`, which are of one group; rows are ordered by rank."""
    of, seq, pending = ranks[at], seqs[at], ~is_finished[at]
    starts = np.flatnonzero(np.diff(of, prepend=of[0] - 1))
    found = []
    for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True):
        newest = first + int(seq[first:last].argmax())
        open_at = first + np.flatnonzero(pending[first:last])
        waits = int(open_at[seq[open_at].argmin()]) if len(open_at) else NEVER
        row = int(at[newest if waits == NEVER else waits])
        waits_in = NEVER if waits == NEVER else int(seq[waits])
        found.append(Standing(int(of[first]), int(seq[newest]), waits_in, row))
    return found


@dataclass(frozen=True, slots=True)
class Stop:
    """An op in progress: who waits in it, and which members of its group have not entered it; none: all are in.

    group: position in the groups. rows: entries of those who wait, in the same order. Of p2p alone: is_sure: that the other end
    has not entered it is counted, not taken from what a ring has left. is_joined: who is behind is in it, and held by another
    op of its batch. is_open: the members are not declared, so nobody knows whom it waits for.
    """

    group: int
    seq: int
    waiting: tuple[int, ...]
    behind: tuple[int, ...]
    rows: tuple[int, ...]
    is_p2p: bool = False
    is_sure: bool = True
    is_joined: bool = False
    is_open: bool = False


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
