"""What ingest remembers of a boot, node, attempt or job may be deleted: no batch is acknowledged without being stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from ingest.models import Attempt, Boot, Job, Node
from ingest.traces.retention import keep_house
from nccl_instrument.wire import encode_batch
from tests.builders import WALL_NS, FakeJob, make_batch
from tests.ingest.conftest import Ingest

SENT_AT = datetime.fromtimestamp(WALL_NS / 1e9, UTC)
aio = sync_to_async


def stored_numbers() -> list[int]:
    """Numbers of the batches stored for an attempt, node and boot that exist."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.number FROM ingest_trace_batch t JOIN ingest_attempt a ON a.id = t.attempt_id"
            " JOIN ingest_node n ON n.id = t.node_id AND n.attempt_id = a.id JOIN ingest_boot b ON b.id = t.boot_pk"
            " WHERE b.received @> t.number::bigint ORDER BY 1"
        )
        return [number for (number,) in cursor.fetchall()]


def n_orphans() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM ingest_trace_batch t WHERE number > 0"
            " AND NOT EXISTS (SELECT FROM ingest_node n WHERE n.id = t.node_id AND n.attempt_id = t.attempt_id)"
        )
        return int(cursor.fetchone()[0])


async def test_a_boot_that_was_forgotten_is_made_anew_and_its_next_batches_are_stored(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    assert (await aio(keep_house)(SENT_AT + timedelta(days=9))).boots_forgotten == 1
    for number in (1, 2):
        assert (await ingest.send(make_batch(number=number))).body == {"duplicate": False}
    assert [number for number in await aio(stored_numbers)() if number] == [1, 2]
    assert (await ingest.send(make_batch(number=2))).body == {"duplicate": True}
    assert await Boot.objects.acount() == 1


@pytest.mark.parametrize("deleted", [Job, Attempt, Node])
async def test_what_was_deleted_is_made_anew_by_the_next_batch(ingest: Ingest, deleted: type[Job]) -> None:
    await ingest.send(make_batch())
    await deleted.objects.all().adelete()
    reply = await ingest.send(make_batch(number=1))
    assert (reply.status, reply.body["duplicate"]) == (200, False)
    assert await aio(n_orphans)() == 0
    assert 1 in await aio(stored_numbers)()
    assert (await Node.objects.aget()).batches == 1


async def test_jobs_beside_one_that_was_deleted_are_stored_all_the_same(ingest: Ingest) -> None:
    jobs = [FakeJob(name=f"job-{i}") for i in range(8)]
    for job in jobs:
        await ingest.send(job.batch())
    await Job.objects.filter(name="job-3").adelete()
    ingest.clock_ns = make_batch(number=1).wall_ns
    replies = await asyncio.gather(*(ingest.post(encode_batch(job.batch(0, 1))) for job in jobs))
    assert [(reply.status, reply.body["duplicate"]) for reply in replies] == [(200, False)] * 8
    assert await aio(n_orphans)() == 0
    assert (await aio(stored_numbers)()).count(1) == 8


@pytest.fixture
def number_3_is_refused(no_traces: None) -> Iterator[None]:
    """The database refuses one batch in the way it refuses those for which there is no partition."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ingest_trace_batch ADD CONSTRAINT not_3 CHECK (number <> 3)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ingest_trace_batch DROP CONSTRAINT not_3")


async def test_a_batch_the_database_refuses_as_if_it_had_no_partition_takes_no_other_down(
    ingest: Ingest, number_3_is_refused: None
) -> None:
    jobs = [FakeJob(name=f"job-{i}") for i in range(6)]
    for job in jobs:
        await ingest.send(job.batch())
    ingest.clock_ns = make_batch(number=3).wall_ns
    bodies = [encode_batch(job.batch(0, 3 if job.name == "job-2" else 2)) for job in jobs]
    replies = await asyncio.gather(*(ingest.post(body) for body in bodies))
    assert [reply.status for reply in replies] == [200, 200, 500, 200, 200, 200]
    assert replies[2].body == {"error": "the batch could not be stored"}
    await ingest.write_ledger()
    assert len(await aio(stored_numbers)()) == 11
