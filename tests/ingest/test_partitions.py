"""The native store: partitions are made ahead, for an hour each, and a long read only postpones their drop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import sync_to_async

from ingest.traces.database import connect
from ingest.traces.partitions import PARTITIONS_AHEAD, NativePartitions, partition_start
from ingest.traces.retention import keep_house
from tests.builders import WALL_NS, FakeJob
from tests.ingest.conftest import Ingest

SENT_AT = datetime.fromtimestamp(WALL_NS / 1e9, UTC)
aio = sync_to_async


def starts() -> list[datetime]:
    with connect() as plain:
        return [partition_start(name) for name in NativePartitions().partitions(plain)]


@pytest.fixture
def empty_store(no_traces: None) -> None:
    """No partition at all."""
    with connect() as plain:
        NativePartitions().drop_before(plain, datetime(2100, 1, 1, tzinfo=UTC))


def test_partitions_reach_a_day_ahead_and_are_made_once(empty_store: None) -> None:
    now = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    assert keep_house(now).created == PARTITIONS_AHEAD + 1
    assert starts()[0] == datetime(2026, 3, 4, 5, tzinfo=UTC)
    assert starts()[-1] == datetime(2026, 3, 5, 5, tzinfo=UTC)
    assert keep_house(now).created == 0
    assert keep_house(now + timedelta(hours=2)).created == 2


def test_partitions_end_where_the_next_begins(empty_store: None) -> None:
    keep_house(datetime(2026, 3, 4, 5, 6, tzinfo=UTC))
    with connect() as plain:
        bounds = plain.execute(
            "SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = 'ingest_trace_batch'::regclass ORDER BY c.relname"
        ).fetchall()
    ends = [text.split("TO ('")[1].rstrip("')") for (text,) in bounds]
    begins = [text.split("FROM ('")[1].split("')")[0] for (text,) in bounds]
    assert begins[1:] == ends[:-1]


async def test_a_batch_finds_a_partition_even_when_nobody_made_one(ingest: Ingest, empty_store: None) -> None:
    with_none = await aio(starts)()
    assert SENT_AT.replace(minute=0, second=0) not in with_none
    assert (await ingest.send(FakeJob().batch())).status == 200
    assert SENT_AT.replace(minute=0, second=0) in await aio(starts)()


def drop_while_read() -> int:
    with connect() as reader, connect() as plain:
        plain.execute("SET lock_timeout = '100ms'")
        with reader.transaction():
            reader.execute("SELECT count(*) FROM ingest_trace_batch")
            return keep_house(SENT_AT + timedelta(days=3)).dropped


async def test_a_long_read_postpones_the_drop_and_breaks_nothing(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.traces.partitions.LOCK_TIMEOUT_MS", 100)
    await ingest.send(FakeJob().batch())
    assert await aio(drop_while_read)() == 0
    assert (await aio(keep_house)(SENT_AT + timedelta(days=3))).dropped >= 1
