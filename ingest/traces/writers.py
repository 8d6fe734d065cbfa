"""This process as a writer of traces: it numbers its commits, and sums what they stored, once a second, in a thread.

A life is a row of `ingest_writer`. It ends when the process dies, and also when the outcome of a commit is not known,
when another process has taken this one for dead, or when more waits to be summed than may: what it had not written is
then simply dropped, another life begins, and `sum_left_behind` finds in the store what is missing. So there is one way
to recover, it is the same for all that can go wrong, and it reads what is stored instead of guessing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection

from ingest.sums.repeats import Repeats
from ingest.sums.rollup import OpBatch, Rollups
from ingest.sums.sums import TakenOver, sum_left_behind, write_sums
from ingest.traces.database import connect

WAITING_ROWS_MAX: Final = 1_000_000
"""Op rows that wait to be summed; they have 170 bytes each."""
EAGER_SUMS_MAX: Final = 1000
PATIENT_SECONDS: Final = 5.0
"""More sums than that are written so often: most of them change every second, for ten seconds."""
UNWRITTEN_SECONDS_MAX: Final = 60.0
"""A life that could not write its sums for so long, a frozen process for one, commits nothing more."""

TOO_OLD_MAX: Final = 10_000
"""Sums too old to be kept that are told apart; beyond that, one that still grows may count twice."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Life:
    """One life of this process as a writer. waiting: stored and not summed, and the numbers of the commits that did.

    begun: commits of which nobody has said what became of them, with the time. rollups and summed belong to the thread:
    what is in memory and not yet in the database.
    """

    id: int
    last_number: int = 0
    waiting: list[OpBatch] = field(default_factory=list)
    n_rows_waiting: int = 0
    numbers: set[int] = field(default_factory=set)
    begun: dict[int, float] = field(default_factory=dict)
    rollups: Rollups = field(default_factory=Rollups)
    summed: set[int] = field(default_factory=set)
    written_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction that stores batches."""

    life: Life
    number: int

    @property
    def writer_id(self) -> int:
        return self.life.id


class Writer:
    """Everything of one process that has to do with sums. Methods are called in the event loop."""

    def __init__(self) -> None:
        self._life: Life | None = None
        self._beginning = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ingest-sums")
        self._connection: Connection[Any] | None = None
        self._repeats = Repeats()
        self._ops_not_summed = 0
        self._ops_too_old = 0
        self._too_old: dict[int, int] = {}
        self.is_stopping = False
        self.batches_recovered = 0

    async def begin(self, connection: AsyncConnection[Any]) -> Commit:
        """The next commit's number; to be handed to `stored`, `empty` or `unknown`. Raises psycopg.Error."""
        life = await self._living(connection)
        life.last_number += 1
        life.begun[life.last_number] = time.monotonic()
        return Commit(life, life.last_number)

    def stored(self, commit: Commit, batch: OpBatch) -> None:
        """This commit stored this batch. All of a commit are said without waiting in between."""
        self.empty(commit)
        commit.life.waiting.append(batch)
        commit.life.n_rows_waiting += len(batch.ops)
        if commit.life.n_rows_waiting > WAITING_ROWS_MAX:
            self._abandon(commit.life, "too many ops wait to be summed")

    def empty(self, commit: Commit) -> None:
        """This commit is known to have stored nothing, or nothing else."""
        commit.life.numbers.add(commit.number)
        commit.life.begun.pop(commit.number, None)

    def unknown(self, commit: Commit) -> None:
        """Nobody can say what this commit stored: its connection died with it."""
        self._abandon(commit.life, "the outcome of a commit is unknown")

    async def write(self, connection: AsyncConnection[Any], health: dict[str, Any]) -> None:
        """Sum what waits and write it, or later when it is much; also says that this process lives.

        What fails is tried again the next time.
        """
        life = await self._living(connection)
        waiting, life.waiting, life.n_rows_waiting = life.waiting, [], 0
        numbers, life.numbers = life.numbers, set()
        try:
            await self._in_thread(self._sum, life, waiting, numbers)
        except psycopg.Error:
            life.waiting[:0] = waiting
            life.n_rows_waiting += sum(len(batch.ops) for batch in waiting)
            life.numbers |= numbers
            raise
        except Exception:
            self._abandon(life, "summing failed")
            raise
        is_fresh = time.monotonic() - life.written_at < PATIENT_SECONDS
        if is_fresh and life.rollups.n_changed > EAGER_SUMS_MAX and not self.is_stopping:
            return
        try:
            await self._in_thread(self._write, life, health)
            life.written_at = time.monotonic()
        except TakenOver:
            self._abandon(life, "another process took this one for dead")

    async def sum_left_behind(self) -> None:
        """Sum what dead writers left; their batches are added to `batches_recovered`."""
        await self._in_thread(self._sum_left_behind)

    async def close(self) -> None:
        await self._in_thread(self._disconnect)
        self._thread.shutdown()

    @property
    def counts(self) -> dict[str, int]:
        """What the health answer shows."""
        waiting = self._life.rollups.ops_not_summed if self._life else 0
        return {
            "ops_not_summed": self._ops_not_summed + waiting,
            "ops_too_old": self._ops_too_old + sum(list(self._too_old.values())),
            "ops_repeated": self._repeats.ops_repeated,
            "ops_unchecked": self._repeats.ops_unchecked,
            "batches_recovered": self.batches_recovered,
        }

    async def _living(self, connection: AsyncConnection[Any]) -> Life:
        async with self._beginning:
            long_ago = time.monotonic() - UNWRITTEN_SECONDS_MAX
            if self._life and self._life.written_at < long_ago:
                self._abandon(self._life, "its sums could not be written for a minute")
            if self._life and next(iter(self._life.begun.values()), long_ago) < long_ago:
                self._abandon(self._life, "nobody said what became of a commit")
            if self._life is None:
                cursor = await connection.execute(_BEGIN, [f"{socket.gethostname()}:{os.getpid()}"])
                row = await cursor.fetchone()
                assert row is not None
                self._life = Life(row[0])
            return self._life

    def _abandon(self, life: Life, why: str) -> None:
        """What this life has not written is for `sum_left_behind`, here or in another process."""
        if self._life is life:
            log.info("writer %d ends: %s; what it had not summed is read again", life.id, why)
            self._life = None
            self._ops_not_summed += life.rollups.ops_not_summed

    async def _in_thread(self, work: Any, *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connected, work, *arguments)

    def _connected(self, work: Any, *arguments: Any) -> None:
        """In the thread, which has a connection of its own; one that fails is replaced the next time."""
        try:
            work(*arguments)
        except psycopg.Error:
            self._disconnect()
            raise

    def _sum(self, life: Life, waiting: list[OpBatch], numbers: set[int]) -> None:
        life.rollups.add(self._repeats.drop(self._database(), waiting) if waiting else [])
        life.summed |= numbers

    def _write(self, life: Life, health: dict[str, Any]) -> None:
        # By part: a sum that still grows is written whole, and left out, again and again.
        self._too_old |= write_sums(self._database(), life.id, life.rollups.changed(), life.summed, health)
        if len(self._too_old) > TOO_OLD_MAX:
            self._ops_too_old += sum(self._too_old.values())
            self._too_old = {}
        life.rollups.written()
        life.summed.clear()

    def _sum_left_behind(self) -> None:
        done = sum_left_behind(self._database(), self._repeats)
        self.batches_recovered += done.batches
        self._ops_not_summed += done.ops_not_summed
        self._ops_too_old += done.ops_too_old
        if isinstance(done.error, psycopg.Error):
            raise done.error

    def _database(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = connect()
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


_BEGIN: Final = "INSERT INTO ingest_writer (process) VALUES (%s) RETURNING id"
