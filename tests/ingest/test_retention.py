"""Traces are dropped when old, on every store, and what is pinned stays readable."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from ingest.models import Attempt, Boot, Node, OpRollup, PinnedWindow, Team
from ingest.read import read_rollups, read_window
from ingest.sums.sums import rollup_age
from ingest.traces import retention
from ingest.traces.database import connect
from ingest.traces.let_go import read_let_go
from ingest.traces.retention import (
    RANGES_MAX,
    UNSAVED_KEPT,
    copy_pinned,
    keep_house,
    pin_window,
    trace_age,
    unpin_window,
)
from ingest.traces.stores import active_store
from tests.builders import SECOND, WALL_NS, FakeJob, at_wall
from tests.ingest.conftest import Ingest

SENT_AT = datetime.fromtimestamp(WALL_NS / 1e9, UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
aio = sync_to_async


def n_rows(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchone()[0])


async def send_some(ingest: Ingest, n: int = 4) -> Attempt:
    for number in range(n):
        await ingest.send(FakeJob().batch(0, number))
    return await Attempt.objects.aget()


@pytest.fixture
def empty_store(no_traces: None) -> None:
    """No stretch of traces at all."""
    with connect() as plain:
        active_store().drop_before(plain, datetime(2100, 1, 1, tzinfo=UTC))


async def test_traces_older_than_a_day_are_dropped_by_the_hour(ingest: Ingest, empty_store: None) -> None:
    attempt = await send_some(ingest)
    assert (await aio(keep_house)(SENT_AT + timedelta(hours=23))).dropped == 0
    assert await aio(n_rows)("ingest_trace_batch") == 4
    assert (await aio(keep_house)(SENT_AT + timedelta(hours=26))).dropped >= 1
    assert await aio(n_rows)("ingest_trace_batch") == 0
    window = await aio(read_window)(attempt.pk, 0, 2 * WALL_NS)
    assert len(window.rows("flow")) == 0
    assert len(window.ranks) == 2  # who they were outlives what they sent


@pytest.fixture
def thirty_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roll-ups are kept as long as by default."""
    monkeypatch.delenv("DIOGENES_ROLLUP_DAYS")


async def test_roll_ups_outlive_traces_by_far_and_go_too(ingest: Ingest, empty_store: None, thirty_days: None) -> None:
    attempt = await send_some(ingest)
    await ingest.write_ledger()
    before = await aio(read_rollups)(attempt.pk, 0, 2 * WALL_NS)
    assert before
    for days in (3, 29):
        await aio(keep_house)(SENT_AT + timedelta(days=days))
        assert await aio(read_rollups)(attempt.pk, 0, 2 * WALL_NS) == before
    assert (await aio(keep_house)(SENT_AT + rollup_age() + timedelta(days=2))).rollups_dropped >= 1
    assert await aio(read_rollups)(attempt.pk, 0, 2 * WALL_NS) == []


async def test_ops_that_come_a_week_late_are_added_to_roll_ups_of_then(ingest: Ingest, empty_store: None) -> None:
    await send_some(ingest)
    await ingest.write_ledger()
    before = await aio(n_ops_then)()
    await aio(keep_house)(SENT_AT + timedelta(days=3))
    await ingest.send(FakeJob().batch(0, 4), at_ns=WALL_NS + 7 * 86_400 * SECOND)
    await ingest.write_ledger()
    after = await aio(n_ops_then)()
    assert after > before > 0
    await aio(keep_house)(SENT_AT + timedelta(days=8))
    assert await aio(n_ops_then)() == after


async def test_ops_older_than_roll_ups_are_kept_make_none(ingest: Ingest, empty_store: None, thirty_days: None) -> None:
    for days in (0, 29, 31, 5000):
        job = FakeJob(name=f"job-{days}")
        sent = at_wall(job.batch(), WALL_NS - days * 86_400 * SECOND)
        await ingest.send(sent, at_ns=WALL_NS)
    await ingest.write_ledger()
    named = [
        name
        async for name in OpRollup.objects.order_by("attempt__job__name").values_list("attempt__job__name", flat=True)
    ]
    assert sorted(set(named)) == ["job-0", "job-29"]
    n_ops = len(FakeJob().batch().rows("op"))
    assert (await ingest.health())["ops_too_old"] == 2 * n_ops
    await ingest.send(at_wall(FakeJob(name="job-31").batch(0, 1), WALL_NS - 31 * 86_400 * SECOND), at_ns=WALL_NS)
    await ingest.write_ledger()
    assert (await ingest.health())["ops_too_old"] == 3 * n_ops
    assert await aio(n_rows)("ingest_trace_batch") == 5


def n_ops_then() -> int:
    """Ops rolled up in the minute after WALL_NS."""
    then = OpRollup.objects.filter(bucket_ns__gte=WALL_NS - 10 * SECOND, bucket_ns__lt=WALL_NS + 60 * SECOND)
    return sum(then.values_list("n_ops", flat=True))


async def test_how_long_is_a_setting(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIOGENES_TRACE_DAYS", "0.25")
    assert trace_age() == timedelta(hours=6)
    await send_some(ingest)
    assert (await aio(keep_house)(SENT_AT + timedelta(hours=8))).dropped >= 1


async def test_a_pinned_window_survives_and_reads_the_same(ingest: Ingest) -> None:
    attempt = await send_some(ingest, 6)
    start, end = WALL_NS + 2 * SECOND, WALL_NS + 4 * SECOND
    before = await aio(read_window)(attempt.pk, start, end)
    await aio(pin_window)(attempt.pk, start, end)
    assert await aio(copy_pinned)(LONG_AGO) >= 2
    both = await aio(read_window)(attempt.pk, start, end)
    await aio(keep_house)(SENT_AT + timedelta(days=3))
    after = await aio(read_window)(attempt.pk, start, end)
    assert len(before.rows("flow")) > 0
    for table in before.tables:
        expected = sorted(row.tobytes() for row in before.rows(table))
        assert sorted(row.tobytes() for row in both.rows(table)) == expected, table
        assert sorted(row.tobytes() for row in after.rows(table)) == expected, table


async def test_a_late_batch_of_a_pinned_window_is_pinned_by_the_next_pass(ingest: Ingest) -> None:
    attempt = await send_some(ingest, 3)
    await aio(pin_window)(attempt.pk, WALL_NS, WALL_NS + 10 * SECOND)
    assert await aio(copy_pinned)(LONG_AGO) == 3
    await ingest.send(FakeJob().batch(0, 5), at_ns=WALL_NS + 60 * SECOND)
    assert (await aio(keep_house)(SENT_AT)).rows_pinned == 1
    assert (await aio(keep_house)(SENT_AT)).rows_pinned == 0
    assert await aio(n_rows)("ingest_pinned_batch") == 4


async def test_a_window_pinned_before_a_long_outage_is_copied_before_its_traces_go(ingest: Ingest) -> None:
    attempt = await send_some(ingest, 6)
    await aio(pin_window)(attempt.pk, WALL_NS, WALL_NS + 10 * SECOND)
    await PinnedWindow.objects.aupdate(pinned_at=LONG_AGO)
    before = await aio(read_window)(attempt.pk, WALL_NS, WALL_NS + 10 * SECOND)
    kept = await aio(keep_house)(SENT_AT + timedelta(days=12))
    assert (kept.rows_pinned, kept.failed, kept.lost) == (6, (), 0)
    assert await aio(n_rows)("ingest_trace_batch") == 0
    after = await aio(read_window)(attempt.pk, WALL_NS, WALL_NS + 10 * SECOND)
    assert len(after.rows("flow")) == len(before.rows("flow")) > 0


@pytest.fixture
def nothing_can_be_pinned(no_traces: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ingest_pinned_batch ADD CONSTRAINT none CHECK (false) NOT VALID")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ingest_pinned_batch DROP CONSTRAINT none")


async def test_an_hour_that_cannot_be_copied_waits_a_day_and_holds_up_nothing_else(
    ingest: Ingest, nothing_can_be_pinned: None
) -> None:
    attempt = await send_some(ingest)
    await ingest.send(FakeJob().batch(0, 9000))
    await aio(pin_window)(attempt.pk, WALL_NS, WALL_NS + 10 * SECOND)
    kept = await aio(keep_house)(SENT_AT + timedelta(hours=30))
    assert kept.dropped >= 1 and kept.lost == 0
    assert ["copying a pinned window" in said for said in kept.failed] == [True]
    assert await aio(n_rows)("ingest_trace_batch") == 4
    kept = await aio(keep_house)(SENT_AT + trace_age() + UNSAVED_KEPT + timedelta(hours=2))
    assert kept.lost == 1
    assert await aio(n_rows)("ingest_trace_batch") == 0


async def test_pinning_twice_and_unpinning_leaves_what_others_need(ingest: Ingest) -> None:
    attempt = await send_some(ingest, 6)
    await aio(pin_window)(attempt.pk, WALL_NS, WALL_NS + 3 * SECOND)
    await aio(pin_window)(attempt.pk, WALL_NS, WALL_NS + 3 * SECOND)
    await aio(pin_window)(attempt.pk, WALL_NS + 2 * SECOND, WALL_NS + 6 * SECOND)
    assert await PinnedWindow.objects.acount() == 2
    await aio(copy_pinned)(LONG_AGO)
    kept = await aio(n_rows)("ingest_pinned_batch")
    await aio(unpin_window)(attempt.pk, WALL_NS, WALL_NS + 3 * SECOND)
    assert 0 < await aio(n_rows)("ingest_pinned_batch") < kept
    await aio(unpin_window)(attempt.pk, WALL_NS + 2 * SECOND, WALL_NS + 6 * SECOND)
    assert await aio(n_rows)("ingest_pinned_batch") == 0


async def test_an_empty_window_cannot_be_pinned(ingest: Ingest) -> None:
    attempt = await send_some(ingest, 1)
    with pytest.raises(ValueError, match="empty"):
        await aio(pin_window)(attempt.pk, 5, 5)


async def test_a_resent_batch_is_recognised_after_its_hour_is_gone(ingest: Ingest) -> None:
    await send_some(ingest)
    await aio(keep_house)(SENT_AT + timedelta(days=3))
    late = SENT_AT + timedelta(days=3)
    reply = await ingest.send(FakeJob().batch(0, 2), at_ns=int(late.timestamp()) * SECOND)
    assert reply.body["duplicate"] is True
    assert await aio(n_rows)("ingest_trace_batch") == 0


async def test_boots_nobody_heard_of_for_long_are_forgotten(ingest: Ingest) -> None:
    await send_some(ingest, 1)
    assert (await aio(keep_house)(SENT_AT + timedelta(days=5))).boots_forgotten == 0
    assert (await aio(keep_house)(SENT_AT + timedelta(days=9))).boots_forgotten == 1
    assert await Boot.objects.acount() == 0


def received() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM (SELECT unnest(received) FROM ingest_boot) ranges")
        return int(cursor.fetchone()[0])


def make_gaps(n: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ingest_boot SET received = (SELECT range_agg(int8range(i * 2, i * 2 + 1)) FROM generate_series(0, %s) i)",
            [n - 1],
        )


async def test_what_a_boot_remembers_is_bounded(ingest: Ingest) -> None:
    await send_some(ingest, 1)
    await aio(make_gaps)(3 * RANGES_MAX)
    await aio(keep_house)(SENT_AT)
    assert await aio(received)() == RANGES_MAX
    assert (await ingest.send(FakeJob().batch(0, 6 * RANGES_MAX - 3))).body == {"duplicate": False}
    assert (await ingest.send(FakeJob().batch(0, 6 * RANGES_MAX - 4))).body == {"duplicate": True}


async def test_a_batch_that_was_given_up_is_not_said_to_be_stored(ingest: Ingest) -> None:
    await send_some(ingest, 1)
    await aio(make_gaps)(3 * RANGES_MAX)
    await aio(keep_house)(SENT_AT)
    n_rows = (await Node.objects.aget()).batches
    for number in (1, 2):  # one that never came, and one that had
        reply = await ingest.send(FakeJob().batch(0, number))
        assert (reply.status, "given up" in reply.body["error"]) == (410, True)
    await ingest.write_ledger()
    node = await Node.objects.aget()
    assert (node.batches, node.batches_refused, (await Team.objects.aget()).batches_refused) == (n_rows, 2, 2)


async def test_what_is_let_go_of_is_counted(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PINNED_MAX_NS", 10 * SECOND)
    await send_some(ingest, 1)
    attempt = await Attempt.objects.aget()
    for start_ns in (0, 5 * SECOND):
        await aio(pin_window)(attempt.pk, start_ns, start_ns + 10 * SECOND)
    for _ in range(2):
        await aio(pin_window)(attempt.pk, 5 * SECOND, 16 * SECOND)  # again, but one second of it is not kept
    await aio(pin_window)(attempt.pk, 9 * SECOND, 30 * SECOND)
    for start_ns in (0, 5 * SECOND, 7 * SECOND):  # the last one is none
        await aio(unpin_window)(attempt.pk, start_ns, start_ns + 10 * SECOND)
    assert await aio(read_let_go)() == {"windows": 2, "windows_cut": 1, "dumps": 0, "dumps_refused": 0, "hours": 0}


async def test_the_database_refuses_two_running_attempts_of_a_job(ingest: Ingest) -> None:
    attempt = await send_some(ingest, 1)
    with pytest.raises(Exception) as refused:
        await Attempt.objects.acreate(job_id=attempt.job_id, number=2, started_at=SENT_AT, last_received_at=SENT_AT)
    assert isinstance(refused.value.__cause__, psycopg.errors.UniqueViolation)
