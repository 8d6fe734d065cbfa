"""The running parts of ingest: pool, committers, and the loops that write the ledger, mark attempts and keep house.

Started by the application's lifespan, or by the first request where another application mounts it and hands no
lifespan on; stopped by the lifespan, after the last ledger is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final

import psycopg
from django.db import Error as DjangoDatabaseError
from django.db import connections
from psycopg_pool import PoolTimeout

from ingest import process
from ingest.door.auth import TokenCheck
from ingest.door.crowd import CROWD
from ingest.door.ledger import Ledger
from ingest.door.listening import note_heard, note_listening
from ingest.door.marks import mark_heard
from ingest.door.metrics import BATCHES_WAITING, BYTES_HELD
from ingest.door.orders import Orders
from ingest.jobs.inferring import attempts_to_infer, infer_roster
from ingest.presence import Presence
from ingest.sums.sums import DEAD_SECONDS
from ingest.traces.committer import COMMITTERS, Committer, create_partitions
from ingest.traces.database import make_pool
from ingest.traces.retention import keep_house
from ingest.traces.space import SpaceWatch
from ingest.traces.stores import FollowedStore

LEDGER_SECONDS: Final = 1.0
ORDERS_SECONDS: Final = 1.0
INFER_SECONDS: Final = 1.0
INFER_PAUSE: Final = 19.0  # times what it took: a twentieth of a process at most
TICK_SECONDS: Final = 1.0
MARKS_SECONDS: Final = 0.1
SPACE_SECONDS: Final = 1.0
HOUSE_SECONDS: Final = 600.0  # between tries to make room while there is none
PARTITIONS_SECONDS: Final = 600.0

_RUNNING: Final = """
SELECT job_id, max(CASE WHEN state = 'running' THEN id ELSE id + 1 END) FROM ingest_attempt
WHERE (state = 'running' OR end_reason = 'silent') AND job_id = ANY(%s) GROUP BY job_id
"""
"""Job → its running attempt. One ended for silence counts as older than any: its next batch must look it up, to revive it."""

AWAY = (psycopg.Error, PoolTimeout, DjangoDatabaseError)
log = logging.getLogger(__name__)
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # _every says once that the database is away


class Server:
    """Everything of ingest that runs in one event loop."""

    def __init__(self) -> None:
        self.pool = make_pool()
        self.store = FollowedStore()
        self.ledger = Ledger()
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="ingest-roster")
        self.marker = ThreadPoolExecutor(1, thread_name_prefix="ingest-marks")
        self.tokens = TokenCheck(self.pool)
        self.committer = Committer(self.pool, self.store, self.ledger, self.worker)
        self.dumper = ThreadPoolExecutor(1, thread_name_prefix="ingest-dumps")
        self.orders = Orders()
        self.space = SpaceWatch()
        self.presence = Presence()
        self.bytes_held = 0
        self.dumps_stored = self.dumps_waiting = 0
        self.bytes_held_by: Counter[int] = Counter()  # by token id
        self._kept_house_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []
        self._marks_failed = 0
        self._writing = asyncio.Lock()

    async def start(self) -> None:
        """Start the parts; the database may still be away, requests are answered 503 until it is there."""
        await self.pool.open(wait=False)
        loops = [self.committer.welcome(), *(self.committer.run() for _ in range(COMMITTERS))]
        loops += [
            _every(TICK_SECONDS, self._tick),
            _every(LEDGER_SECONDS, self.write_ledger),
            _every(ORDERS_SECONDS, self.read_orders),
            _every(INFER_SECONDS, self._infer_at_leisure),
            _every(DEAD_SECONDS, self.ledger.writer.sum_left_behind),
            _every(MARKS_SECONDS, self._mark),
            _every(SPACE_SECONDS, self._look_for_room),
            _every(PARTITIONS_SECONDS, self._make_partitions),
        ]
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def stop(self) -> None:
        await _cancel(self._tasks)
        self.ledger.writer.is_stopping = True
        with contextlib.suppress(*AWAY):
            await self.write_ledger()
        for thread in (self.worker, self.dumper):
            await asyncio.get_running_loop().run_in_executor(thread, connections.close_all)
        await self.ledger.writer.close()
        self.worker.shutdown()
        self.dumper.shutdown()
        self.marker.shutdown()
        await self.pool.close()

    async def write_ledger(self) -> None:
        """Write what is summed in memory, notice attempts started elsewhere. When it returns, all said before is written."""
        async with self._writing, self.pool.connection() as connection:
            await note_heard(connection)  # first: what follows closes the gap that an outage left
            await self.ledger.writer.write(connection, self.counts())
            await self.ledger.write(connection)
            if not self.space.space.is_short:  # then nobody is heard, which is no silence
                await note_listening(connection)
            rows = await connection.execute(
                _RUNNING,
                [list(self.committer.berths.jobs())],
            )
            self.committer.berths.forget_outdated(dict(await rows.fetchall()))

    async def read_orders(self) -> None:
        """What the agents of which jobs are to be asked for."""
        async with self.pool.connection() as connection:
            await self.orders.read(connection)

    async def infer_rosters(self) -> None:
        """Infer what the rosters that have changed leave open."""
        await asyncio.get_running_loop().run_in_executor(self.worker, _infer_rosters)

    async def _infer_at_leisure(self) -> None:
        """The more it costs, the longer until the next time: while a large job joins, its roster changes all the time."""
        began = time.monotonic()
        await self.infer_rosters()
        await asyncio.sleep((time.monotonic() - began) * INFER_PAUSE)

    async def _tick(self) -> None:
        """The event loop came round: nothing here may wait."""
        process.tick()
        BATCHES_WAITING.set(self.committer.n_waiting)
        BYTES_HELD.set(self.bytes_held)

    async def _mark(self) -> None:
        if not self.ledger.marks:
            return
        marks, self.ledger.marks = self.ledger.marks, set()
        if not await asyncio.get_running_loop().run_in_executor(self.marker, mark_heard, marks):
            self._marks_failed += 1
            await asyncio.sleep(LEDGER_SECONDS)

    async def _look_for_room(self) -> None:
        await asyncio.to_thread(self.space.look)
        if self.space.space.is_short and time.monotonic() - self._kept_house_at > HOUSE_SECONDS:
            self._kept_house_at = time.monotonic()
            log.error("%s", self.space.space.says)
            await asyncio.get_running_loop().run_in_executor(self.worker, keep_house)

    async def _make_partitions(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self.worker, create_partitions, self.store)

    def counts(self) -> dict[str, Any]:
        """What the health answer shows."""
        return {
            "store": self.store.name,
            "batches_stored": self.ledger.batches_stored,
            "dumps_stored": self.dumps_stored,
            "requests_refused": {str(status): n for status, n in sorted(self.ledger.requests_refused.items())},
            "space": asdict(self.space.space),
            "times_disk_full": self.space.times_full,
            **self.ledger.writer.counts,
            "marks_failed": self._marks_failed,
            "bytes_held": self.bytes_held,
            "tokens_unknown": self.tokens.failures.n_counted,
            "guesses_refused": self.tokens.failures.n_refused,
            **CROWD.counts(),
        }


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel until all are done: in Python 3.11 a cancellation that meets the end of a wait_for is lost."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.5)


def _infer_rosters() -> None:
    try:
        for attempt_id in attempts_to_infer():
            infer_roster(attempt_id)
    except Exception:
        connections["default"].close()
        raise


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` for ever; the database being away is said once per spell and tried again."""
    away_since = 0.0
    while True:
        try:
            await work()
            away_since = 0.0
        except AWAY as error:
            if not away_since:
                away_since = time.monotonic()
                log.warning("ingest cannot write at the moment: %s", error)
        except Exception:
            log.exception("a regular task of ingest failed")
        await asyncio.sleep(min(seconds, 5.0) if away_since else seconds)
