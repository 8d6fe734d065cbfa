"""Moving under load, on a server with many sessions: writers wait for a lock and find the new table behind it.

The other store is plain tables here, for this PostgreSQL has no TimescaleDB: what is tested is what every move shares.
tests/timescale/test_moving.py moves into real hypertables, where there is one session only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from psycopg import Connection

from ingest.read import read_rollups, read_window
from ingest.traces import moving
from ingest.traces.database import connect
from ingest.traces.moving import ROLLUPS, TRACES, Moved, MoveFailed, move
from ingest.traces.partitions import NativePartitions
from ingest.traces.stores import HYPERTABLES, NATIVE
from tests.builders import WALL_NS, FakeJob
from tests.ingest.conftest import Ingest
from tests.ingest.test_retention import n_rows

aio = sync_to_async


class PlainTables(NativePartitions):
    """A store that needs no room made."""

    def make_traces(self, connection: Connection[Any], table: str) -> None:
        connection.execute(
            f"CREATE TABLE {table} (LIKE ingest_trace_batch INCLUDING DEFAULTS INCLUDING STORAGE)"  # type: ignore[arg-type]
        )

    def make_room(self, connection: Connection[Any], table: str, times: list[datetime]) -> int:  # type: ignore[override]
        return 0


def move_all(store: NativePartitions) -> list[Moved]:
    with connect() as connection:
        return [moving._carry(connection, store, subject, lambda progress: None) for subject in (ROLLUPS, TRACES)]


@pytest.fixture
def partitions_again(no_traces: None) -> Iterator[None]:
    """Whatever a test does to the store, the next finds partitions."""
    yield
    with connect() as connection:
        kind = connection.execute("SELECT relkind::text FROM pg_class WHERE relname = 'ingest_trace_batch'").fetchone()
        for subject in (ROLLUPS, TRACES):
            if moving._exists(connection, subject.old):
                moving._finish(connection, PlainTables(), subject, lambda progress: None)
    if kind != ("p",):
        move_all(NATIVE)


@pytest.mark.usefixtures("partitions_again")
async def test_no_batch_and_no_op_is_lost_or_doubled_by_a_move_under_load(ingest: Ingest) -> None:
    jobs, n_sent, is_moving = [FakeJob(name=f"job-{i}") for i in range(4)], [0] * 4, True

    async def agent(i: int) -> None:
        while is_moving or n_sent[i] < 40:
            reply = await ingest.send(jobs[i].batch(0, n_sent[i]), at_ns=WALL_NS + (n_sent[i] + 2) * 10**9)
            assert reply.status in (200, 429, 503), reply  # on a busy machine an agent may have to send again
            n_sent[i] += reply.status == 200
            if n_sent[i] % 5 == 0:
                await ingest.write_ledger()
            await asyncio.sleep(0.01)

    agents = [asyncio.create_task(agent(i)) for i in range(4)]
    try:
        while min(n_sent) < 5:  # what they send is of another hour than now: only rows that are there get room for it
            await asyncio.sleep(0.01)
        for store in (PlainTables(), NATIVE):
            for moved in await aio(move_all)(store):
                assert moved.locked_seconds < moving.LOCK_TIMEOUT_MS / 1000
            await asyncio.sleep(0.2)
    finally:
        is_moving = False
        await asyncio.gather(*agents)
    await ingest.write_ledger()
    assert await aio(n_rows)("ingest_trace_batch") == sum(n_sent)
    assert await aio(total_ops)() == await aio(total_rolled_up)()


def total_ops() -> int:
    return sum(len(read_window(a, 0, 2 * WALL_NS, ["op"]).rows("op")) for a in attempts())


def total_rolled_up() -> int:
    return sum(point.n_ops for a in attempts() for point in read_rollups(a, 0, 2 * WALL_NS))


def attempts() -> list[int]:
    with connect() as connection:
        return [int(pk) for (pk,) in connection.execute("SELECT id FROM ingest_attempt").fetchall()]


async def test_a_table_in_use_is_not_taken_and_nothing_has_happened(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(moving, "SWITCH_TRIES", 1)
    await ingest.send(FakeJob().batch())

    def move_while_read() -> None:
        with connect() as reader, reader.transaction():
            reader.execute("SELECT count(*) FROM ingest_trace_batch")
            with connect() as connection, pytest.raises(MoveFailed, match="in use"):
                moving._carry(connection, PlainTables(), TRACES, lambda progress: None)
        with connect() as connection:
            connection.execute("DROP TABLE ingest_trace_batch_new")

    await aio(move_while_read)()
    assert await aio(n_rows)("ingest_trace_batch") == 1
    assert (await ingest.send(FakeJob().batch(0, 1))).status == 200


def test_two_moves_at_once_are_refused(no_traces: None) -> None:
    with connect() as first, connect() as second:
        first.execute("SELECT pg_advisory_lock(hashtext('ingest.traces.moving'))")
        with pytest.raises(MoveFailed, match="another move is running"):
            move(second, HYPERTABLES, lambda progress: None)


def test_without_the_extension_the_command_says_why(no_traces: None) -> None:
    with pytest.raises(CommandError, match="the server does not have the extension timescaledb"):
        call_command("move_traces")


def test_what_is_there_already_is_not_moved(no_traces: None) -> None:
    out = StringIO()
    call_command("move_traces", "--to", "native", stdout=out)
    assert out.getvalue() == "Everything is in native partitions already.\n"
