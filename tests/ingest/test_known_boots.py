"""A boot that was heard before finds its place again with one query; whatever is to be decided goes the long way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ingest.door.arrival import receive_batch
from ingest.jobs.known_boots import digest_of, find_again
from ingest.jobs.roster import Berth, find_berths
from ingest.models import Attempt, Node, Rank
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import FakeJob, with_rows
from tests.ingest.conftest import Ingest


def later(job: FakeJob, number: int = 5) -> TraceBatch:
    """A batch as agents send them most of the time: without comm rows."""
    made = job.batch(0, number)
    return with_rows(made, comm=made.rows("comm")[:0])


def looked_up(ingest: Ingest, batch: TraceBatch) -> tuple[Berth, int, bool]:
    """The berth, the queries it took, and whether the boot was known."""
    arrival = receive_batch(ingest.team.pk, encode_batch(batch), batch.wall_ns)
    known = find_again([arrival]) != [None]
    with CaptureQueriesContext(connection) as queries:
        (berth,) = find_berths([arrival])
    assert isinstance(berth, Berth)
    return berth, len(queries), known


async def test_a_known_boot_takes_one_query_and_gets_the_same_berth(ingest: Ingest) -> None:
    job = FakeJob()
    await ingest.send(job.batch(0, 0))
    await Node.objects.aupdate(comm_tables=b"")
    with_comm, _, was_known = await sync_to_async(looked_up)(ingest, job.batch(0, 1))
    again, n_queries, is_known = await sync_to_async(looked_up)(ingest, later(job))
    assert (was_known, is_known, n_queries) == (False, True, 1)
    for name in ("job_id", "attempt_id", "node_id", "boot_pk", "clock", "pids", "gone"):
        assert getattr(again, name) == getattr(with_comm, name)
    assert again.members.tolist() == with_comm.members.tolist()


async def test_a_table_of_communicators_that_was_stored_is_known_again(ingest: Ingest) -> None:
    job = FakeJob()
    await ingest.send(job.batch(0, 0))
    assert (await sync_to_async(looked_up)(ingest, job.batch(0, 1)))[1:] == (1, True)
    made = job.batch(0, 2)
    rows = made.rows("comm").copy()
    rows["n_nodes"] += 1
    assert not (await sync_to_async(looked_up)(ingest, with_rows(made, comm=rows)))[2]
    assert (await sync_to_async(looked_up)(ingest, with_rows(made, comm=rows)))[2]
    assert (await sync_to_async(looked_up)(ingest, job.batch(0, 3)))[2]


async def test_only_the_newest_tables_are_remembered(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.jobs.members.TABLES_KEPT", 2)
    job = FakeJob()
    first = job.batch(0, 0)
    tables = [first.rows("comm").copy() for _ in range(3)]
    for n, rows in enumerate(tables):
        rows["n_nodes"] += n
        await ingest.send(with_rows(job.batch(0, n), comm=rows))
    node = await Node.objects.aget()
    assert bytes(node.comm_tables) == digest_of(tables[2]) + digest_of(tables[1])


async def test_a_boot_or_a_process_not_heard_before_goes_the_long_way(ingest: Ingest) -> None:
    job = FakeJob()
    await ingest.send(job.batch(0, 0))
    assert not (await sync_to_async(looked_up)(ingest, later(job.restarted())))[2]
    assert not (await sync_to_async(looked_up)(ingest, replace(later(job), job="another")))[2]


async def test_an_attempt_that_ended_or_a_place_that_was_taken_goes_the_long_way(ingest: Ingest) -> None:
    job = FakeJob()
    await ingest.send(job.batch(0, 0))
    rank = await Rank.objects.afirst()
    assert rank is not None
    await Rank.objects.filter(pk=rank.pk).aupdate(replaced=True)
    assert not (await sync_to_async(looked_up)(ingest, later(job)))[2]
    await Rank.objects.filter(pk=rank.pk).aupdate(replaced=False)
    assert (await sync_to_async(looked_up)(ingest, later(job)))[2]
    await Attempt.objects.aupdate(state="ended", ended_at=timezone.now())
    assert not (await sync_to_async(looked_up)(ingest, later(job)))[2]
