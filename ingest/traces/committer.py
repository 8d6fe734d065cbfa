"""The committer: takes waiting batches, up to BATCHES_PER_COMMIT at a time, and commits each handful in one transaction.

A commit costs a disk flush however little it holds, so requests share it; each is answered after the commit it was
part of. The queue is bounded: when it is full the request is refused and the agent keeps its batch. A batch that makes
the database refuse its transaction is found by storing the handful one by one, so it cannot take others down with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import psycopg
from django.db import InterfaceError as DjangoInterfaceError
from django.db import OperationalError as DjangoOperationalError
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from ingest.door.arrival import Arrival, Columns, losses_of
from ingest.door.clock import Placement, place_batch
from ingest.door.ledger import Ledger
from ingest.door.limits import OverLimit
from ingest.door.metrics import COMMIT_BATCHES, COMMIT_SECONDS, count_batch
from ingest.door.numbers import Numbers, Scattered
from ingest.door.refusals import batch_words
from ingest.jobs.berths import Berths
from ingest.jobs.endings import gone_changes, lives_of
from ingest.jobs.roster import Berth, member_keys
from ingest.traces.database import connect
from ingest.traces.store import BerthGone, StoredBatch, store_batches
from ingest.traces.stores import FollowedStore
from ingest.traces.writers import Commit

BATCHES_PER_COMMIT: Final = 32
WAITING_MAX: Final = 512
STRANGERS_AT_ONCE: Final = 64
COMMITTERS: Final = 2
ASK_AGAIN_SECONDS: Final = 5.0
MEMBER_TABLES: Final = ("progress", "live_op", "op")

log = logging.getLogger(__name__)


class QueueFull(Exception):
    """More batches wait than may."""


class StoreAway(Exception):
    """The database cannot be reached; the batch was not stored. says: what the agent is told."""

    says = "the database is away"


class NoRoom(StoreAway):
    """The database's disk is full."""


class NotNow(StoreAway):
    """The database is there and the batch was not stored; the next try may do better."""

    says = "ingest could not store the batch this time; why is in its log"


class NotStored(Exception):
    """This batch could not be stored, though the database is there; others were not held up by it."""


class GivenUp(Exception):
    """So many of this boot's batches were missing for so long that nobody knows any more which were stored."""

    def __init__(self) -> None:
        super().__init__("given up: too many earlier batches of this agent were missing for too long")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a batch. resend: tables the agent should send again in full."""

    duplicate: bool
    resend: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Waiting:
    arrival: Arrival
    receipt: asyncio.Future[Receipt]


@dataclass(frozen=True, slots=True)
class _Placed:
    waiting: _Waiting
    berth: Berth
    placement: Placement
    row: StoredBatch


Outcome = Commit | Exception | None
"""The commit that stored a batch; why it was not stored; None: it was there before."""


class Committer:
    """Stores arrivals. One per ingest process; `worker` runs the slow path, one thread."""

    def __init__(self, pool: AsyncConnectionPool[Any], store: FollowedStore, ledger: Ledger, worker: Executor) -> None:
        self._pool = pool
        self._store = store
        self._ledger = ledger
        self._worker = worker
        self.berths = Berths(worker)
        self._numbers = Numbers()
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(WAITING_MAX)
        self._strangers: asyncio.Queue[_Waiting] = asyncio.Queue(WAITING_MAX)

    @property
    def n_waiting(self) -> int:
        return self._waiting.qsize() + self._strangers.qsize()

    def submit(self, arrival: Arrival) -> asyncio.Future[Receipt]:
        """The receipt to come: a Receipt after commit, or StoreAway, NotStored, OverLimit. Raises QueueFull."""
        waiting = _Waiting(arrival, asyncio.get_running_loop().create_future())
        try:
            (self._waiting if self.berths.remembers(arrival) else self._strangers).put_nowait(waiting)
        except asyncio.QueueFull as error:
            raise QueueFull from error
        return waiting.receipt

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            handful = [await self._waiting.get()]
            while len(handful) < BATCHES_PER_COMMIT and not self._waiting.empty():
                handful.append(self._waiting.get_nowait())
            try:
                await self._commit(handful)
            except Exception:
                log.exception("a commit failed in an unforeseen way; its batches are refused for now")
            finally:
                _fail([w for w in handful if not w.receipt.done()], NotNow("internal error"))

    async def welcome(self) -> None:
        """Look up the berths of those who are not remembered, as many as wait, so that nobody else waits for it."""
        while True:
            strangers = [await self._strangers.get()]
            while len(strangers) < STRANGERS_AT_ONCE and not self._strangers.empty():
                strangers.append(self._strangers.get_nowait())
            try:
                await self._introduce(strangers)
            except BaseException:
                _fail(strangers, StoreAway("ingest is stopping"))
                raise

    async def _introduce(self, strangers: Sequence[_Waiting]) -> None:
        outcomes = await self.berths.find_all([waiting.arrival for waiting in strangers])
        for waiting, outcome in zip(strangers, outcomes, strict=True):
            if isinstance(outcome, Exception):
                _no_place(waiting, outcome)
            else:
                await self._waiting.put(waiting)

    async def _commit(self, handful: Sequence[_Waiting], *, is_again: bool = False) -> None:
        placed = [one for waiting in handful if (one := await self._place(waiting)) is not None]
        if not placed:
            return
        try:
            outcomes = await self._store_all([one.row for one in placed])
        except (psycopg.OperationalError, PoolTimeout) as error:
            _fail([one.waiting for one in placed], _away(error))
            return
        self._note_stored(placed, outcomes)
        gone = []
        for one, outcome in zip(placed, outcomes, strict=True):
            if isinstance(outcome, BerthGone) and not is_again:
                self.berths.forget(one.waiting.arrival)
                gone.append(one.waiting)
            else:
                self._finish(one, outcome)
        if gone:
            await self._commit(gone, is_again=True)

    def _note_stored(self, placed: Sequence[_Placed], outcomes: Sequence[Outcome]) -> None:
        """All of a commit or none: what is not said to the writer is read from the store."""
        for one, outcome in zip(placed, outcomes, strict=True):
            if isinstance(outcome, Commit):
                try:
                    self._ledger.stored(outcome, one.row, one.waiting.arrival.batch.rows("op"))
                except BaseException:
                    self._ledger.writer.unknown(outcome)
                    raise

    async def _place(self, waiting: _Waiting) -> _Placed | None:
        """Where the batch goes. Whatever is wrong with it fails this one alone: others wait beside it."""
        try:
            berth = await self.berths.find(waiting.arrival)
            self._numbers.note(berth.boot_pk, waiting.arrival.batch.number)
            placement = _place(waiting.arrival, berth)
            return _Placed(waiting, berth, placement, _row(waiting.arrival, berth, placement))
        except Exception as error:
            _no_place(waiting, error)
            return None

    async def _store_all(self, rows: Sequence[StoredBatch]) -> list[Outcome]:
        """The commit in which each was new, None: it was there before.

        Raises OperationalError when the database is away, even for a second try.
        """
        try:
            return await self._store_twice(rows)
        except psycopg.OperationalError:
            raise
        except (psycopg.Error, BerthGone) as error:
            log.warning("a handful of %d batches was refused; storing them one by one: %s", len(rows), error)
        outcomes: list[Outcome] = []
        for row in rows:
            outcomes.append(await self._store_alone(row))
            if isinstance(outcomes[-1], StoreAway):  # what is stored stays known; the rest need not wait as long
                return outcomes + outcomes[-1:] * (len(rows) - len(outcomes))
        return outcomes

    async def _store_twice(self, rows: Sequence[StoredBatch]) -> list[Outcome]:
        try:
            return await self._store_once(rows)
        except psycopg.OperationalError:
            pass  # the pool may have handed out a connection that had died
        except psycopg.errors.CheckViolation:
            received_at = datetime.fromtimestamp(min(row.received_ns for row in rows) / 1e9, UTC)
            await asyncio.get_running_loop().run_in_executor(self._worker, create_partitions, self._store, received_at)
        return await self._store_once(rows)

    async def _store_alone(self, row: StoredBatch) -> Outcome:
        try:
            return (await self._store_once([row]))[0]
        except psycopg.OperationalError as error:
            return _away(error)
        except BerthGone as error:
            return error
        except psycopg.Error as error:
            named = {"node_id": row.node_id, "boot_pk": row.boot_pk, "number": row.number}
            log.exception("a batch was refused by the database", extra={"batch": named})
            return NotStored(str(error))

    async def _store_once(self, rows: Sequence[StoredBatch]) -> list[Outcome]:
        COMMIT_BATCHES.observe(len(rows))
        async with self._pool.connection() as connection:
            commit = await self._ledger.writer.begin(connection)
            try:
                with COMMIT_SECONDS.time():
                    is_new = await store_batches(connection, rows, commit.writer_id, commit.number)
            except BaseException as error:
                is_known = isinstance(error, psycopg.Error | BerthGone) and not connection.closed
                (self._ledger.writer.empty if is_known else self._ledger.writer.unknown)(commit)
                raise
            if not any(is_new):
                self._ledger.writer.empty(commit)
        return [GivenUp() if new is None else commit if new else None for new in is_new]

    def _finish(self, placed: _Placed, outcome: Outcome) -> None:
        arrival, berth = placed.waiting.arrival, placed.berth
        if isinstance(outcome, BerthGone):
            outcome = NotNow(str(outcome))
        if isinstance(outcome, Exception):
            _fail([placed.waiting], outcome)
            return
        count_batch(outcome is not None, placed.row.n_dropped, placed.row.losses)
        if outcome:
            self._note_gone(placed)
        if not placed.waiting.receipt.done():
            placed.waiting.receipt.set_result(Receipt(not outcome, _resend(arrival, berth)))

    def _note_gone(self, placed: _Placed) -> None:
        """Remember which processes died, or live after all; the ledger writes it."""
        berth, lives = placed.berth, lives_of(placed.waiting.arrival.batch.rows("process"))
        for pid, gone_ns in gone_changes(berth.gone, lives, placed.placement.shift_ns).items():
            self._ledger.gone[berth.node_id, pid] = gone_ns
            if gone_ns:
                berth.gone[pid] = gone_ns
            else:
                del berth.gone[pid]


def create_partitions(store: FollowedStore, since: datetime | None = None) -> int:
    """Make room from `since` (by default now) on, on a connection of its own."""
    with connect() as connection:
        return store.create_ahead(connection, since or datetime.now(UTC))


def _place(arrival: Arrival, berth: Berth) -> Placement:
    batch = arrival.batch
    placement = place_batch(berth.clock, batch.wall_ns, batch.mono_ns, arrival.received_ns, arrival.age_ns)
    berth.clock = placement.clock
    return placement


def _row(arrival: Arrival, berth: Berth, placement: Placement) -> StoredBatch:
    shift, clock = placement.shift_ns, placement.clock
    return StoredBatch(
        attempt_id=berth.attempt_id,
        node_id=berth.node_id,
        boot_pk=berth.boot_pk,
        number=arrival.batch.number,
        received_ns=arrival.received_ns,
        cut_ns=arrival.batch.mono_ns + shift,
        start_ns=arrival.start_mono_ns + shift,
        end_ns=arrival.end_mono_ns + shift,
        shift_ns=shift,
        offset_ns=placement.offset_ns,
        wrong_clock=placement.wrong_clock,
        catching_up=placement.catching_up,
        is_alive="process" in arrival.columns and bool(arrival.columns["process"]["alive"].any()),
        sync_ns=clock.sync_ns or 0,
        newest_mono_ns=clock.newest_mono_ns,
        pace=clock.pace,
        n_dropped=arrival.n_dropped,
        losses=losses_of(arrival.batch),
        **arrival.groups,
    )


def _resend(arrival: Arrival, berth: Berth) -> tuple[str, ...]:
    """("comm",) when rows speak of members this attempt does not know, at most every ASK_AGAIN_SECONDS per boot."""
    if time.monotonic() - berth.asked_at < ASK_AGAIN_SECONDS:
        return ()
    if all(_are_known(arrival.columns[table], berth) for table in MEMBER_TABLES if table in arrival.columns):
        return ()
    berth.asked_at = time.monotonic()
    return ("comm",)


def _are_known(columns: Columns, berth: Berth) -> bool:
    keys = member_keys(columns)
    if not len(berth.members):
        return not len(keys)
    at = np.searchsorted(berth.members, keys)
    at[at == len(berth.members)] = 0
    return bool((berth.members[at] == keys).all())


def _away(error: Exception) -> StoreAway:
    is_full = isinstance(error, psycopg.errors.DiskFull) or isinstance(error.__cause__, psycopg.errors.DiskFull)
    return NoRoom(str(error)) if is_full else StoreAway(str(error))


def _no_place(waiting: _Waiting, error: Exception) -> None:
    if isinstance(error, DjangoOperationalError | DjangoInterfaceError):
        error = _away(error)
    elif not isinstance(error, OverLimit | Scattered):
        log.error("no place for a batch", exc_info=error, extra={"batch": batch_words(waiting.arrival.batch)})
        error = NotStored(str(error))
    _fail([waiting], error)


def _fail(waiting: Sequence[_Waiting], error: Exception) -> None:
    for one in waiting:
        if not one.receipt.done():
            one.receipt.set_exception(error)
