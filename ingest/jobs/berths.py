"""Berths remembered: the hot path's answer to "which attempt, node and boot is this?" without a query.

A berth is looked up again when the batch says something new: comm rows not stored yet, or processes none of which is
known. When a look-up starts a new attempt, everything remembered of that job is void; when another ingest process
did, the check once a second notices.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from ingest.door.arrival import Arrival
from ingest.jobs.known_boots import pids_of
from ingest.jobs.roster import Berth, find_berths
from nccl_instrument.wire import Rows, TraceBatch

BERTHS_MAX: Final = 50_000
SEEN_MAX: Final = 20_000
JUDGED_MAX: Final = 64

Key = tuple[int, str, str, bytes]


class Berths:
    """The berths of one ingest process."""

    def __init__(self, worker: Executor) -> None:
        self._worker = worker
        self._known: OrderedDict[Key, Berth] = OrderedDict()

    async def find(self, arrival: Arrival) -> Berth:
        """The berth of `arrival`. Raises Django's database errors and OverLimit."""
        known = self._known.get(_key_of(arrival))
        if known is not None and not says_something_new(known, arrival.batch):
            return known
        (found,) = await self.find_all([arrival])
        if isinstance(found, Exception):
            raise found
        return found

    async def find_all(self, arrivals: Sequence[Arrival]) -> list[Berth | Exception]:
        """Look up the berths of those that are not remembered; of one that has none, why."""
        outcomes = await asyncio.get_running_loop().run_in_executor(self._worker, find_berths, arrivals)
        for arrival, found in zip(arrivals, outcomes, strict=True):
            if isinstance(found, Berth):
                self._remember(arrival, found)
        return outcomes

    def _remember(self, arrival: Arrival, found: Berth) -> None:
        key = _key_of(arrival)
        known = self._known.get(key)
        if found.started_attempt:
            self.forget_job(found.job_id)
        if known is not None:
            found.clock, found.asked_at = known.clock, known.asked_at
        _remember_said(found, arrival, known)
        self._known[key] = found
        self._known.move_to_end(key)
        if len(self._known) > BERTHS_MAX:
            self._known.popitem(last=False)

    def remembers(self, arrival: Arrival) -> bool:
        """Whether `find` will answer at once."""
        known = self._known.get(_key_of(arrival))
        return known is not None and not says_something_new(known, arrival.batch)

    def forget(self, arrival: Arrival) -> None:
        """Look up again where `arrival` belongs: what is remembered of it is no longer there."""
        self._known.pop(_key_of(arrival), None)

    def forget_job(self, job_id: int) -> None:
        """Look every node of this job up again."""
        for key in [key for key, berth in self._known.items() if berth.job_id == job_id]:
            del self._known[key]

    def forget_all(self) -> None:
        self._known.clear()

    def jobs(self) -> set[int]:
        return {berth.job_id for berth in self._known.values()}

    def forget_outdated(self, running: Mapping[int, int]) -> None:
        """Forget jobs whose running attempt (job id → attempt id) is newer than what is remembered of them."""
        outdated = {b.job_id for b in self._known.values() if running.get(b.job_id, 0) > b.attempt_id}
        for job_id in outdated:
            self.forget_job(job_id)


def _key_of(arrival: Arrival) -> Key:
    batch = arrival.batch
    return (arrival.team_id, batch.job, batch.node, batch.boot_id)


def says_something_new(berth: Berth, batch: TraceBatch) -> bool:
    """Comm rows or processes that this berth does not know yet."""
    rows = batch.rows("comm")
    if len(rows) and hash(rows.tobytes()) not in berth.seen and any(said not in berth.seen for said in _said(rows)):
        return True
    pids = pids_of(batch)
    return bool(pids) and pids.isdisjoint(berth.pids) and pids not in berth.judged


def _said(rows: Rows) -> Iterator[int]:
    """What each row says. A whole table that was heard before is known by its own hash: 19,000 rows would take 100 ms."""
    size, raw = rows.itemsize, rows.tobytes()
    return (hash(raw[at : at + size]) for at in range(0, len(raw), size))


def _remember_said(berth: Berth, arrival: Arrival, before: Berth | None) -> None:
    if before is not None and before.attempt_id == berth.attempt_id and len(before.seen) < SEEN_MAX:
        berth.seen |= before.seen
        berth.judged |= before.judged if len(before.judged) < JUDGED_MAX else set()
    rows = arrival.batch.rows("comm")
    berth.seen.update((hash(rows.tobytes()), *_said(rows)) if len(rows) else ())
    pids = pids_of(arrival.batch)
    if pids:
        berth.judged.add(pids)
