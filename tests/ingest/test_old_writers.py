"""Writers that died long ago: what they left is summed before it is dropped, and none of them holds up another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from ingest.models import OpRollup
from ingest.traces.retention import keep_house
from tests.builders import WALL_NS, FakeJob
from tests.ingest.conftest import Ingest
from tests.ingest.oracle import n_stored, rolled_up, stored_totals

SENT_AT = datetime.fromtimestamp(WALL_NS / 1e9, UTC)
pytestmark = pytest.mark.usefixtures("no_writers")


async def test_what_a_writer_left_before_an_outage_of_days_is_summed_before_it_is_dropped(ingest: Ingest) -> None:
    for number in range(3):
        await ingest.send(FakeJob().batch(0, number))
    expected = await sync_to_async(stored_totals)()
    await sync_to_async(died)("2 days")
    await sync_to_async(keep_house)(SENT_AT + timedelta(hours=26))
    assert await sync_to_async(n_stored)() == 0
    assert await sync_to_async(rolled_up)() == expected
    await sync_to_async(keep_house)(SENT_AT + timedelta(hours=26))
    assert await sync_to_async(n_rows_of_writers)() == 0


def died(ago: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ingest_writer SET summed_at = now() - %s::interval", [ago])


def n_rows_of_writers() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ingest_writer")
        return int(cursor.fetchone()[0])


@pytest.fixture
def one_attempt_is_refused(no_writers: None) -> Iterator[None]:
    """The database refuses every roll-up of the first attempt there is."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.attempt_id = (SELECT min(id) FROM ingest_attempt) THEN RAISE 'refused'; END IF;"
            " RETURN NEW; END $$"
        )
        cursor.execute("CREATE TRIGGER refuse BEFORE INSERT ON ingest_oprollup FOR EACH ROW EXECUTE FUNCTION refuse()")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse CASCADE")


async def test_a_writer_that_can_never_be_summed_hides_no_other_and_stops_no_retention(
    ingest: Ingest, one_attempt_is_refused: None
) -> None:
    other = Ingest(type(ingest.application)(), ingest.token, ingest.team)
    await ingest.send(FakeJob(name="a").batch())
    await other.send(FakeJob(name="b").batch())
    await other.application.stop()
    await sync_to_async(OpRollup.objects.all().delete)()
    await sync_to_async(forget_summed)()
    kept = await sync_to_async(keep_house)(SENT_AT + timedelta(hours=26))
    assert await OpRollup.objects.filter(attempt__job__name="b").acount() > 0
    assert any("refused" in said for said in kept.failed)
    assert await sync_to_async(n_stored)() == 2  # of that hour, not all is summed: it waits a day
    assert await sync_to_async(n_rows_of_writers)() == 1
    kept = await sync_to_async(keep_house)(SENT_AT + timedelta(hours=51))
    assert kept.lost == 1
    assert await sync_to_async(n_stored)() == 0


def forget_summed() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ingest_writer SET summed = '{}', summed_at = now() - interval '2 days'")


def test_old_writers_are_forgotten_once_all_is_summed() -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO ingest_writer (summed_at) VALUES (now() - interval '25 hours'), (now())")
        keep_house()
        cursor.execute("SELECT count(*) FROM ingest_writer")
        assert cursor.fetchone()[0] == 1
