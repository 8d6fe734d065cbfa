"""What hypertables do that partitions do not: chunks of their own accord, and roll-ups that can be compressed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from asgiref.sync import sync_to_async

from ingest.models import OpRollup
from ingest.traces.database import connect
from ingest.traces.hypertables import COMPRESS_AFTER, Hypertables, is_hypertable, why_not
from ingest.traces.retention import keep_house
from ingest.traces.stores import active_store, store_in
from tests.builders import SECOND, WALL_NS, FakeJob
from tests.ingest.conftest import Ingest

SENT_AT = datetime.fromtimestamp(WALL_NS / 1e9, UTC)
HOUR_NS = 3_600 * SECOND
aio = sync_to_async


def chunks(table: str) -> list[tuple[bool, timedelta]]:
    """(is compressed, width) of each."""
    with connect() as plain:
        rows = plain.execute(
            "SELECT is_compressed, range_end - range_start, range_end_integer - range_start_integer"
            " FROM timescaledb_information.chunks WHERE hypertable_name = %s ORDER BY range_start, range_start_integer",
            [table],
        ).fetchall()
    return [(bool(is_on), width or timedelta(microseconds=n / 1000)) for is_on, width, n in rows]


@pytest.fixture
def empty_store(no_traces: None) -> None:
    """No chunk at all."""
    with connect() as plain:
        future = datetime(2100, 1, 1, tzinfo=UTC)
        Hypertables().drop_before(plain, future)
        Hypertables().drop_rollups_before(plain, future)


def test_a_new_database_has_hypertables_without_being_told(no_traces: None) -> None:
    assert active_store().name == "TimescaleDB hypertables"
    assert why_not() == ""
    with connect() as plain:
        assert isinstance(store_in(plain), Hypertables)
        assert [is_hypertable(plain, name) for name in ("ingest_trace_batch", "ingest_oprollup")] == [True, True]
        assert not is_hypertable(plain, "ingest_pinned_batch")


async def test_an_hour_of_traces_is_a_chunk_and_goes_alone(ingest: Ingest, empty_store: None) -> None:
    for hour in range(3):
        await ingest.send(FakeJob().batch(0, hour), at_ns=WALL_NS + hour * HOUR_NS)
    assert await aio(chunks)("ingest_trace_batch") == [(False, timedelta(hours=1))] * 3
    assert (await aio(keep_house)(SENT_AT + timedelta(hours=26))).dropped == 2
    assert len(await aio(chunks)("ingest_trace_batch")) == 1


async def test_an_hour_that_is_still_needed_stays_while_older_and_younger_ones_go(
    ingest: Ingest, empty_store: None
) -> None:
    for hour in range(3):
        await ingest.send(FakeJob().batch(0, hour), at_ns=WALL_NS + hour * HOUR_NS)

    def drop_all_but_the_second() -> int:
        with connect() as plain:
            return Hypertables().drop_before(plain, SENT_AT + timedelta(days=1), [SENT_AT + timedelta(hours=1)])

    assert await aio(drop_all_but_the_second)() == 2
    left = await aio(received_at)()
    assert [at.replace(minute=0, second=0) for at in left] == [
        (SENT_AT + timedelta(hours=1)).replace(minute=0, second=0)
    ]


def received_at() -> list[datetime]:
    with connect() as plain:
        found = plain.execute("SELECT date_trunc('second', received_at) FROM ingest_trace_batch").fetchall()
    return [at for (at,) in found]


async def test_ops_that_change_more_compressed_rows_than_a_statement_may_are_added_all_the_same(
    ingest: Ingest, empty_store: None
) -> None:
    await ingest.send(FakeJob().batch())
    await ingest.write_ledger()
    await aio(keep_house)(SENT_AT + COMPRESS_AFTER + timedelta(days=1))
    assert await aio(chunks)("ingest_oprollup") == [(True, timedelta(days=1))]
    before = sum([row.n_ops async for row in OpRollup.objects.all()])
    assert before
    await aio(limit_decompression)("SET timescaledb.max_tuples_decompressed_per_dml_transaction = 1")
    try:
        await ingest.send(FakeJob().batch(0, 1))  # the same ten seconds, the same parts
        await ingest.write_ledger()
    finally:
        await aio(limit_decompression)("RESET timescaledb.max_tuples_decompressed_per_dml_transaction")
    assert sum([row.n_ops async for row in OpRollup.objects.all()]) > before


def limit_decompression(change: str) -> None:
    with connect() as plain:  # the engine has one session, so this goes for the writer, too
        plain.execute(change)


async def test_a_day_of_roll_ups_is_compressed_and_can_still_be_changed(ingest: Ingest, empty_store: None) -> None:
    await ingest.send(FakeJob().batch())
    await ingest.write_ledger()
    before = [values async for values in OpRollup.objects.order_by("id").values()]
    await aio(keep_house)(SENT_AT)
    assert await aio(chunks)("ingest_oprollup") == [(False, timedelta(days=1))]
    later = SENT_AT + COMPRESS_AFTER + timedelta(days=1)
    await aio(keep_house)(later)
    assert await aio(chunks)("ingest_oprollup") == [(True, timedelta(days=1))]
    assert [values async for values in OpRollup.objects.order_by("id").values()] == before
    await ingest.send(FakeJob().batch(0, 1))  # the same ten seconds, the same part
    await ingest.write_ledger()
    after = [values async for values in OpRollup.objects.order_by("id").values()]
    assert [row["id"] for row in after] == [row["id"] for row in before]
    assert sum(row["n_ops"] for row in after) > sum(row["n_ops"] for row in before)
    await aio(keep_house)(later)
    assert await aio(chunks)("ingest_oprollup") == [(True, timedelta(days=1))]
    assert [values async for values in OpRollup.objects.order_by("id").values()] == after


async def test_an_attempt_can_be_deleted_with_its_compressed_roll_ups(ingest: Ingest, empty_store: None) -> None:
    await ingest.send(FakeJob().batch())
    await ingest.write_ledger()
    await aio(keep_house)(SENT_AT + COMPRESS_AFTER + timedelta(days=1))
    rollup = await OpRollup.objects.select_related("attempt__job__team").afirst()
    assert rollup is not None
    await rollup.attempt.job.adelete()
    assert await OpRollup.objects.acount() == 0


def test_the_same_sum_cannot_be_there_twice(no_traces: None) -> None:
    insert = (
        "INSERT INTO ingest_oprollup (attempt_id, comm_id, func, bucket_ns, part, n_ops, n_timed, bytes, bytes_timed,"
        " duration_sum_ns, duration_max_ns, bins) VALUES (1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, '')"
    )
    with connect() as plain:
        plain.execute(insert)
        with pytest.raises(psycopg.errors.UniqueViolation):
            plain.execute(insert)
        plain.execute("DELETE FROM ingest_oprollup")
