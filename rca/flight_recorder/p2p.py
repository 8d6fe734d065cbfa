"""Sends and receives in progress, and which of them have their other end.

They have no common number: the k-th send of a pair meets its k-th receive. Where both recordings go back to the start, that is
counted. A ring that forgot has no count: there an end has come if it is in progress, too, or was entered after this one.

    rank 0   send 0->1   send 0->1                       the third receive waits for rank 0
    rank 1   recv 1<-0   recv 1<-0   recv 1<-0 …

A batch (torch's batch_isend_irecv) ends as a whole: who waits for an end in it waits for whatever else the batch waits for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from rca.flight_recorder.columns import NOWHERE
from rca.flight_recorder.progress import GroupProgress, Stop
from rca.flight_recorder.recording import Recording
from rca.keys import Ints

_PAIR: Final = re.compile(r"(send|recv)\s+(\d{1,7})\s*(?:->|<-)\s*(\d{1,7})$")
Batch = tuple[int, int, int]
"""(rank, group, number): ops of a batch have one number, every other op has its own."""


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a transfer, in progress. peer: the rank at the other end, -1 where nobody knows.

    match: entry of the other end, NOWHERE if it has not entered it. held_by: the batch that entry is in, if it is in progress.
    """

    row: int
    batch: Batch
    peer: int
    match: int = NOWHERE
    held_by: Batch | None = None
    is_sure: bool = True


def p2p_stops(recording: Recording, groups: list[GroupProgress]) -> list[Stop]:
    """A stop per send or receive in progress. Its other end is behind if it has not entered it.

    The dump names both ends by their place in the group, so the members have to be declared; else it is not known whom a rank
    waits for (`is_open`), which is said once per batch.
    """
    ends = _ends(recording, groups)
    blocked = _blocked(ends)
    told = {end.batch for end in ends if end.peer >= 0}
    stops = []
    for end in ends:
        is_open, is_joined = end.peer < 0, end.held_by in blocked
        is_missing = not is_open and end.match == NOWHERE
        if (is_open and end.batch in told) or (
            not is_open and end.batch in blocked and not is_missing and not is_joined
        ):
            continue  # another op of its batch says it
        told.add(end.batch)
        rank, group, seq = end.batch
        behind = (end.peer,) if is_missing or is_joined else ()
        stops.append(Stop(group, seq, (rank,), behind, (end.row,), True, end.is_sure, is_joined, is_open))
    return stops


def _ends(recording: Recording, groups: list[GroupProgress]) -> list[_End]:
    """Every end in progress, in the order of the entries."""
    rows = recording.entries
    open_at = np.flatnonzero(rows["is_p2p"] & ~rows["is_finished"])
    if not len(open_at):
        return []
    numbers = {group.name: number for number, group in enumerate(groups)}
    number_of = [numbers.get(group.name, -1) for group in recording.groups]
    pairs = _Pairs(recording)
    peers = [pairs.peer(groups[number_of[rows["group"][at]]], at) for at in open_at.tolist()]
    of = pairs.entries_of([(at, peer) for at, peer in zip(open_at.tolist(), peers, strict=True) if peer >= 0])
    whole = _whole(
        recording, {rank for peer, rank in zip(peers, rows["rank"][open_at].tolist(), strict=True)} | set(peers)
    )
    found = []
    for at, peer in zip(open_at.tolist(), peers, strict=True):
        batch = _batch(recording, number_of, at)
        if peer < 0:
            found.append(_End(at, batch, peer))
            continue
        near, far = of[pairs.key(at, batch[0], is_far=False)], of[pairs.key(at, peer, is_far=True)]
        is_sure = batch[0] in whole and (peer in whole or peer not in recording.ranks)
        match = _match(recording, at, near, far, is_counted=is_sure)
        is_held = match != NOWHERE and not rows["is_finished"][match]
        found.append(_End(at, batch, peer, match, _batch(recording, number_of, match) if is_held else None, is_sure))
    return found


def _batch(recording: Recording, number_of: list[int], at: int) -> Batch:
    row = recording.entries[at]
    return int(row["rank"]), number_of[row["group"]], int(row["seq"])


def _match(recording: Recording, at: int, near: Ints, far: Ints, *, is_counted: bool) -> int:
    """The entry of the other end of the transfer of entry `at`. near, far: entries of this end and of the other."""
    rows = recording.entries
    if is_counted:
        number = int(np.searchsorted(near, at))
        return int(far[number]) if number < len(far) else NOWHERE
    n_open_before = int((~rows["is_finished"][near[near < at]]).sum())
    open_far = far[~rows["is_finished"][far]]
    if len(open_far) > n_open_before:
        return int(open_far[n_open_before])
    created = int(rows["created_ns"][at])
    later = far[rows["created_ns"][far] > created] if created > 0 else far[:0]
    return int(later[-1]) if len(later) else NOWHERE


def _whole(recording: Recording, ranks: set[int]) -> set[int]:
    """Those of these ranks whose recording has everything since the start."""
    rows = recording.entries
    found = set()
    bounds = np.searchsorted(rows["rank"], [[rank, rank + 1] for rank in sorted(ranks)])
    for rank, (first, last) in zip(sorted(ranks), bounds.tolist(), strict=True):
        ids = rows["record_id"][first:last]
        if last == first or (int(ids[0]) == 0 and int(ids[-1]) == last - first - 1):
            found.add(rank)
    return found & set(recording.ranks)


def _blocked(ends: list[_End]) -> set[Batch]:
    """Batches that wait for somebody who has not come, themselves or through the batches they exchange with."""
    held: dict[Batch, list[Batch]] = {}
    for end in ends:
        if end.held_by is not None:
            held.setdefault(end.held_by, []).append(end.batch)
    found: set[Batch] = set()
    left = [end.batch for end in ends if end.peer >= 0 and end.match == NOWHERE]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += held.get(one, [])
    return found


class _Pairs:
    """Who sends to whom, by the names of the ops, and where the entries of a pair are."""

    def __init__(self, recording: Recording) -> None:
        self._rows, self._n_groups = recording.entries, max(len(recording.groups), 1)
        numbers: dict[tuple[int, int], int] = {}
        self._places: list[tuple[int, int]] = []
        """Of every name: this end's place in the group, and the other's."""
        pair_of, is_send = [], []
        for name in recording.names:
            found = _PAIR.search(name)
            mine, other = (int(found[2]), int(found[3])) if found is not None else (NOWHERE, NOWHERE)
            sends = found is not None and found[1] == "send"
            pair = (mine, other) if sends else (other, mine)
            pair_of.append(numbers.setdefault(pair, len(numbers)) if found is not None else NOWHERE)
            is_send.append(sends)
            self._places.append((mine, other))
        self._pair_of, self._is_send = np.array(pair_of, np.int64), np.array(is_send, np.int64)
        self._n_pairs = max(len(numbers), 1)

    def peer(self, group: GroupProgress, at: int) -> int:
        """The rank at the other end of entry `at`; -1 where the group's members, or their order, are not known."""
        mine, other = self._places[self._rows["name"][at]]
        members = group.members
        if not group.is_declared or not 0 <= mine < len(members) or not 0 <= other < len(members):
            return -1
        return members[other] if members[mine] == int(self._rows["rank"][at]) else -1

    def key(self, at: int, rank: int, *, is_far: bool) -> int:
        """Of one end of the transfers like entry `at`: the one at `rank`."""
        name = int(self._rows["name"][at])
        side = int(self._is_send[name]) ^ is_far
        pair = (rank * self._n_groups + int(self._rows["group"][at])) * self._n_pairs + int(self._pair_of[name])
        return pair * 2 + side

    def entries_of(self, asked: list[tuple[int, int]]) -> Mapping[int, Ints]:
        """key → positions of its entries, oldest first, of both ends of what is asked: (entry, the other rank)."""
        ranks = self._rows["rank"]
        wanted = {self.key(at, int(ranks[at]), is_far=False) for at, _ in asked}
        wanted |= {self.key(at, peer, is_far=True) for at, peer in asked}
        at = np.flatnonzero(self._rows["is_p2p"])
        names = self._rows["name"][at]
        pair, rank = self._pair_of[names], ranks[at].astype(np.int64)
        keys = ((rank * self._n_groups + self._rows["group"][at]) * self._n_pairs + pair) * 2 + self._is_send[names]
        keys[pair == NOWHERE] = NOWHERE
        order = np.argsort(keys, kind="stable")
        asked_keys = np.array(sorted(wanted), np.int64)
        first = np.searchsorted(keys[order], asked_keys)
        last = np.searchsorted(keys[order], asked_keys, side="right")
        return {int(key): at[order[a:b]] for key, a, b in zip(asked_keys, first.tolist(), last.tolist(), strict=True)}
