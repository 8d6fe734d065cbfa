"""Moving from one store to the other: both ways, while batches arrive, and interrupted anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command

from ingest.models import Attempt
from ingest.read import RollupPoint, read_rollups, read_window
from ingest.traces import moving
from ingest.traces.database import connect
from ingest.traces.hypertables import is_hypertable
from ingest.traces.moving import MoveFailed, Progress, move
from ingest.traces.retention import copy_pinned, keep_house, pin_window
from ingest.traces.store import TraceStore
from ingest.traces.stores import HYPERTABLES, NATIVE, active_store
from ingest.window import Window
from tests.builders import SECOND, WALL_NS, FakeJob
from tests.ingest.conftest import Ingest
from tests.ingest.test_retention import SENT_AT, n_rows

pytestmark = pytest.mark.usefixtures("hypertables_again")
HOUR_NS = 3_600 * SECOND
aio = sync_to_async
Report = Callable[[Progress], None]


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


@pytest.fixture(autouse=True)
def fewer_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day of them is seconds of work for the engine, and nothing here needs more than an hour."""
    monkeypatch.setattr("ingest.traces.partitions.PARTITIONS_AHEAD", 1)
    monkeypatch.setattr("ingest.traces.moving.PARTITIONS_AHEAD", 1)


@dataclass
class Held:
    """All that readers get."""

    rows: dict[str, list[bytes]]
    rollups: list[RollupPoint]
    n_pinned: int


def held() -> Held:
    attempt = Attempt.objects.latest("pk")
    window: Window = read_window(attempt.pk, 0, 2 * WALL_NS)
    rows = {table: sorted(row.tobytes() for row in window.rows(table)) for table in window.tables}
    return Held(rows, read_rollups(attempt.pk, 0, 2 * WALL_NS), n_rows("ingest_pinned_batch"))


def move_to(store: TraceStore, report: Report = lambda progress: None) -> list[moving.Moved]:
    with connect() as connection:
        return move(connection, store, report)


def shape() -> dict[str, Any]:
    """Columns and indexes of both tables, and whether they are hypertables."""
    with connect() as plain:
        indexes = plain.execute(
            "SELECT tablename, indexname FROM pg_indexes WHERE tablename IN ('ingest_trace_batch', 'ingest_oprollup')"
        ).fetchall()
        return {
            "columns": [moving._columns(plain, subject.table) for subject in (moving.TRACES, moving.ROLLUPS)],
            "indexes": {name for _, name in indexes if not name.endswith("_pkey")},
            "hypertables": [is_hypertable(plain, subject.table) for subject in (moving.TRACES, moving.ROLLUPS)],
            "left over": [
                name
                for subject in (moving.TRACES, moving.ROLLUPS)
                for name in (subject.new, subject.old)
                if moving._exists(plain, name)
            ],
        }


async def fill(ingest: Ingest, n: int = 6) -> None:
    """Batches of three hours, and their roll-ups."""
    for number in range(n):
        await ingest.send(FakeJob().batch(0, number), at_ns=WALL_NS + (number // 2) * HOUR_NS + number * SECOND)
    await ingest.write_ledger()


async def test_everything_reads_the_same_on_the_other_store_and_back(ingest: Ingest) -> None:
    await fill(ingest)
    attempt = await Attempt.objects.aget()
    await aio(pin_window)(attempt.pk, WALL_NS, WALL_NS + 3 * SECOND)
    assert await aio(copy_pinned)(SENT_AT) > 0
    before, form = await aio(held)(), await aio(shape)()
    assert before.n_pinned > 0
    assert form["hypertables"] == [True, True]
    for store, hyper in ((NATIVE, False), (HYPERTABLES, True)):
        moved = await aio(move_to)(store)
        assert {one.table: one.rows for one in moved} == {
            "ingest_trace_batch": 6,
            "ingest_oprollup": await aio(n_rows)("ingest_oprollup"),
        }
        assert (await aio(active_store)()).name == store.name
        assert await aio(held)() == before
        assert await aio(shape)() == {**form, "hypertables": [hyper, hyper]}
        assert await aio(move_to)(store) == []


async def test_ingest_goes_on_in_the_other_store(ingest: Ingest) -> None:
    await fill(ingest)
    for store, number in ((NATIVE, 10), (HYPERTABLES, 20)):
        await aio(move_to)(store)
        n_rollups = await aio(n_rows)("ingest_oprollup")
        assert (await ingest.send(FakeJob().batch(0, 1), at_ns=WALL_NS + 7 * HOUR_NS)).body["duplicate"] is True
        late = WALL_NS + (40 + number) * HOUR_NS  # an hour for which nobody has made room
        assert (await ingest.send(FakeJob().batch(0, number), at_ns=late)).body["duplicate"] is False
        await ingest.write_ledger()
        assert await aio(n_rows)("ingest_oprollup") > n_rollups
    assert await aio(n_rows)("ingest_trace_batch") == 8


async def test_what_arrives_while_it_is_moved_is_moved_too(ingest: Ingest) -> None:
    await fill(ingest)
    loop, numbers = asyncio.get_running_loop(), iter(range(100, 200))

    async def send() -> None:
        number = next(numbers)
        # Now, and in an hour that has been copied: the first is found by catching up, the second by comparing.
        await ingest.send(FakeJob().batch(0, number))
        await ingest.send(FakeJob().batch(1, number), at_ns=WALL_NS + SECOND)
        await ingest.write_ledger()

    def report(progress: Progress) -> None:
        if progress.step == "copying":
            asyncio.run_coroutine_threadsafe(send(), loop).result(60)

    for store in (NATIVE, HYPERTABLES):
        await aio(move_to)(store, report)
    n_sent = next(numbers) - 100
    assert n_sent > 4
    assert await aio(n_rows)("ingest_trace_batch") == 6 + 2 * n_sent


async def test_a_roll_up_that_grew_after_it_was_copied_is_there_as_it_is_now(ingest: Ingest) -> None:
    await fill(ingest)

    def grow(progress: Progress) -> None:
        if progress.step == "copying" and progress.table == "ingest_oprollup":
            with connect() as plain:
                plain.execute("UPDATE ingest_oprollup SET n_ops = n_ops + 1000, bytes = 7")

    for store in (NATIVE, HYPERTABLES):
        before = await aio(held)()
        await aio(move_to)(store, grow)
        after = await aio(held)()
        assert [point.n_ops for point in after.rollups] >= [point.n_ops + 1000 for point in before.rollups]
        assert {point.bytes for point in after.rollups} == {7}


STEPS = [(table, step) for table in ("ingest_oprollup", "ingest_trace_batch") for step in ("copying", "comparing")]


@pytest.mark.parametrize(("table", "step"), STEPS)
async def test_interrupted_anywhere_it_goes_on_when_called_again(ingest: Ingest, table: str, step: str) -> None:
    await fill(ingest)
    before = await aio(held)()

    def interrupt(progress: Progress) -> None:
        if (progress.table, progress.step) == (table, step) and progress.rows > 0:
            raise Interrupted

    for store in (NATIVE, HYPERTABLES):
        with pytest.raises(Interrupted):
            await aio(move_to)(store, interrupt)
        assert await aio(held)() == before
        await aio(keep_house)(SENT_AT)
        await aio(move_to)(store)
        assert await aio(held)() == before
    assert (await aio(shape)())["left over"] == []


@pytest.mark.parametrize("step", ["copying", "comparing"])
async def test_after_an_interrupted_move_one_may_turn_back(ingest: Ingest, step: str) -> None:
    await fill(ingest)
    before = await aio(held)()

    def interrupt(progress: Progress) -> None:
        if progress.step == step and progress.table == "ingest_trace_batch":
            raise Interrupted

    for there, back in ((NATIVE, HYPERTABLES), (HYPERTABLES, NATIVE)):
        with pytest.raises(Interrupted):
            await aio(move_to)(there, interrupt)
        await aio(move_to)(back)
        assert (await aio(active_store)()).name == back.name
        assert await aio(held)() == before
        await aio(move_to)(there)


async def test_interrupted_under_the_lock_nothing_has_happened(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(ingest)
    before, form = await aio(held)(), await aio(shape)()

    with monkeypatch.context() as patched:
        patched.setattr(moving, "_CONTINUE_IDS", "SELECT 1 / 0")  # the last statement before the commit
        with pytest.raises(Exception, match="division by zero"):
            await aio(move_to)(NATIVE)
    assert await aio(held)() == before
    assert (await aio(shape)())["indexes"] == form["indexes"]
    await aio(move_to)(NATIVE)
    assert await aio(held)() == before


async def test_rows_that_do_not_stay_stop_the_move_before_anything_is_dropped(ingest: Ingest) -> None:
    await fill(ingest)
    before = await aio(held)()

    def lose(progress: Progress) -> None:
        if progress.table == "ingest_trace_batch" and progress.rows == progress.rows_total:
            with connect() as plain:
                table = "ingest_trace_batch_new" if progress.step == "copying" else "ingest_trace_batch"
                plain.execute(f"DELETE FROM {table} WHERE number = 3")

    with pytest.raises(MoveFailed, match="do not stay"):
        await aio(move_to)(NATIVE, lose)
    assert await aio(n_rows)("ingest_trace_batch_old") == 6
    await aio(move_to)(NATIVE)
    assert await aio(held)() == before


async def test_migrating_backwards_and_forwards_keeps_what_is_stored(ingest: Ingest) -> None:
    await fill(ingest)
    before, stored = await aio(held)(), await aio(n_rows)("ingest_trace_batch")
    try:
        await aio(call_command)("migrate", "ingest", "0009", verbosity=0)
        assert await aio(n_rows)("ingest_trace_batch") == stored  # readers ask for columns that later migrations add
        assert (await aio(active_store)()).name == NATIVE.name
    finally:
        await aio(call_command)("migrate", verbosity=0)  # of every application: some of incidents' went with ingest's
    assert await aio(held)() == before
    assert (await aio(active_store)()).name == NATIVE.name  # copying is not for a migration: move_traces does it


async def test_the_command_says_how_far_it_is_and_what_it_did(ingest: Ingest) -> None:
    await fill(ingest)
    said = {to: await aio(command)("--to", to) for to in ("native", "hypertables")}
    for to, text in said.items():
        assert "100.0%  6 of 6 rows" in text, to
        assert "MB/s" in text
        assert "6 rows are in" in text
        assert "waited 0.0" in text
    assert "are in native partitions" in said["native"]
    assert await aio(command)() == "Everything is in TimescaleDB hypertables already.\n"


def command(*options: str) -> str:
    out = StringIO()
    call_command("move_traces", *options, stdout=out)
    return out.getvalue()
