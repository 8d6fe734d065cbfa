"""Attempts, ranks and communicators as they build up from what nodes send."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from importlib import import_module

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.utils import timezone

from ingest.door.listening import ROW
from ingest.jobs.endings import end_idle_attempts
from ingest.models import Attempt, CommMember, Communicator, Job, Listening, Node, Rank
from ingest.read import read_strays, read_window
from nccl_instrument.wire import TraceBatch
from tests.builders import SECOND, FakeJob, boot_id, with_rows
from tests.ingest.conftest import Ingest


async def send_second(ingest: Ingest, job: FakeJob, number: int, nodes: range | None = None, life: int = 0) -> None:
    for node in nodes or range(job.nodes):
        await ingest.send(alive(job.batch(node, number), node, life))


def alive(batch: TraceBatch, node: int, life: int) -> TraceBatch:
    return replace(batch, boot_id=boot_id(node, life))


async def attempts() -> list[tuple[int, str, int, int]]:
    """(number, state, restart count, ranks known) of every attempt."""
    found = [a async for a in Attempt.objects.order_by("number")]
    return [(a.number, a.state, a.restart_count, await a.ranks.acount()) for a in found]


async def stored_by_attempt() -> dict[int, int]:
    def count() -> dict[int, int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT a.number, count(*) FROM ingest_trace_batch t JOIN ingest_attempt a ON a.id = t.attempt_id"
                " GROUP BY 1 ORDER BY 1"
            )
            return dict(cursor.fetchall())

    return await sync_to_async(count)()


async def test_all_nodes_of_a_start_share_one_attempt(ingest: Ingest) -> None:
    job = FakeJob(restart=0)
    for number in range(3):
        await send_second(ingest, job, number)
    assert await attempts() == [(1, "running", 0, 8)]
    assert await Communicator.objects.acount() == 5
    assert await CommMember.objects.acount() == 16
    assert await stored_by_attempt() == {1: 12}


def standing(batch: TraceBatch, cluster: bytes, rack: bytes) -> TraceBatch:
    rows = batch.rows("comm").copy()
    rows["cluster"], rows["rack"] = cluster, rack
    return with_rows(batch, comm=rows)


async def test_a_node_stands_where_its_agent_last_said_it_does(ingest: Ingest) -> None:
    job = FakeJob()
    await ingest.send(standing(job.batch(0, 0), b"north", b"r1"))
    await ingest.send(standing(job.batch(1, 0), b"a\x01b\xff", b""))
    await ingest.send(job.batch(2, 0))
    places = [(n.cluster, n.rack) async for n in Node.objects.order_by("name")]
    assert places == [("north", "r1"), ("ab\ufffd", ""), ("", "")]
    window = await sync_to_async(read_window)((await Attempt.objects.aget()).pk, 0, 10, ())
    assert list(window.racks.values()) == ["r1"]
    await ingest.send(standing(job.batch(0, 1), b"south", b"r1"))
    assert (await Node.objects.order_by("name").afirst()).cluster == "south"  # type: ignore[union-attr]


async def test_a_higher_restart_count_ends_the_attempt_and_starts_the_next(ingest: Ingest) -> None:
    job = FakeJob(restart=0)
    await send_second(ingest, job, 0)
    await send_second(ingest, job.restarted(restart=1), 1)
    assert await attempts() == [(1, "ended", 0, 8), (2, "running", 1, 8)]
    assert await stored_by_attempt() == {1: 4, 2: 4}
    assert (await Attempt.objects.aget(number=1)).ended_at is not None


async def test_most_processes_changing_starts_an_attempt_of_those_that_changed(ingest: Ingest) -> None:
    job = FakeJob()
    await send_second(ingest, job, 0)
    again = job.restarted()
    await send_second(ingest, again, 1, range(2))
    assert await attempts() == [(1, "running", -1, 12)]  # four of eight ranks: not most
    await send_second(ingest, again, 1, range(2, 4))
    assert await attempts() == [(1, "ended", -1, 8), (2, "running", -1, 8)]
    first, second = [a async for a in Attempt.objects.order_by("number")]
    assert sorted([r.pid async for r in first.ranks.all()]) == [job.pid(r) for r in range(8)]
    assert sorted([r.pid async for r in second.ranks.all()]) == [again.pid(r) for r in range(8)]
    assert await Communicator.objects.filter(attempt=first).acount() == 5
    assert await CommMember.objects.filter(communicator__attempt=second).acount() == 16
    assert not await Rank.objects.filter(replaced=True).aexists()
    await send_second(ingest, again, 2)
    assert (await stored_by_attempt())[2] >= 5


async def test_the_nodes_of_an_attempt_that_was_taken_over_stand_where_they_stood(ingest: Ingest) -> None:
    job = FakeJob()
    for number, life in enumerate((job, job.restarted())):
        for node in range(job.nodes):
            await ingest.send(standing(life.batch(node, number), b"south", b"r1"))
    assert [number for number, *_ in await attempts()] == [1, 2]
    places = [(n.cluster, n.rack) async for n in Node.objects.filter(attempt__number=2)]
    assert places == [("south", "r1")] * job.nodes


async def test_a_minority_of_changed_processes_stays_in_the_attempt(ingest: Ingest) -> None:
    job = FakeJob()
    await send_second(ingest, job, 0)
    await send_second(ingest, job.restarted(), 1, range(1))
    assert [number for number, *_ in await attempts()] == [1]
    assert await Rank.objects.filter(replaced=True).acount() == 2
    current = [r.pid async for r in Rank.objects.filter(replaced=False).order_by("rank")]
    assert current == [2000, 2001, 1002, 1003, 1004, 1005, 1006, 1007]


async def test_undeclared_ranks_are_told_apart_by_their_gpu(ingest: Ingest) -> None:
    job = FakeJob(declared=False)
    await send_second(ingest, job, 0)
    await send_second(ingest, job.restarted(), 1)
    assert [(number, state) for number, state, *_ in await attempts()] == [(1, "ended"), (2, "running")]


async def test_another_world_size_starts_an_attempt(ingest: Ingest) -> None:
    await send_second(ingest, FakeJob(ranks=8, nodes=4), 0)
    await send_second(ingest, FakeJob(ranks=4, nodes=2, start=2), 1)
    assert [(n, state, ranks) for n, state, _, ranks in await attempts()] == [(1, "ended", 8), (2, "running", 4)]


async def test_two_steps_of_one_job_name_stay_two_attempts_and_the_one_not_watched_is_counted(ingest: Ingest) -> None:
    first = FakeJob(ranks=8, nodes=4)
    second = FakeJob(ranks=4, nodes=2, start=2)
    await send_second(ingest, first, 0, range(2))
    await ingest.write_ledger()
    await send_second(ingest, second, 0)
    for number in range(1, 30):
        await send_second(ingest, first, number)  # two of its nodes were not heard before the second step began
        await send_second(ingest, second, number, life=1)
        await ingest.write_ledger()
    assert [(n, state, ranks) for n, state, _, ranks in await attempts()] == [(1, "ended", 8), (2, "running", 4)]
    newest = await Attempt.objects.aget(number=2)
    strays = await sync_to_async(read_strays)(newest.pk)
    assert set(strays) == {"node-0", "node-1", "node-2", "node-3"}
    assert all(15 <= n < 25 for n in strays.values())
    assert not await Node.objects.filter(attempt=newest, batches_after_end__gt=0).aexists()


async def test_an_agent_that_restarts_starts_no_attempt(ingest: Ingest) -> None:
    job = FakeJob()
    await send_second(ingest, job, 0)
    await send_second(ingest, job, 0, range(1), life=1)
    assert len(await attempts()) == 1
    assert (await Node.objects.aget(name="node-0")).batches == 2


async def test_a_late_batch_of_an_earlier_start_goes_back_to_it(ingest: Ingest) -> None:
    job = FakeJob(restart=0)
    await send_second(ingest, job, 0)
    await send_second(ingest, job.restarted(restart=1), 2, life=1)
    await ingest.send(job.batch(0, 1), at_ns=job.batch(0, 3).wall_ns)
    assert await stored_by_attempt() == {1: 5, 2: 4}
    assert [state for _, state, *_ in await attempts()] == ["ended", "running"]


async def test_two_jobs_on_one_node_are_two_jobs(ingest: Ingest) -> None:
    await ingest.send(FakeJob(name="a").batch())
    await ingest.send(FakeJob(name="b").batch())
    assert [job.name async for job in Job.objects.order_by("name")] == ["a", "b"]
    assert [node.batches async for node in Node.objects.all()] == [1, 1]


async def test_a_silent_attempt_is_ended_and_runs_again_when_its_processes_speak(ingest: Ingest) -> None:
    job = FakeJob()
    await send_second(ingest, job, 0)
    now = timezone.now()
    fields = {"since": now - timedelta(days=1), "until": now}
    await Listening.objects.aupdate_or_create(pk=ROW, defaults=fields)
    assert await sync_to_async(end_idle_attempts)() == 1
    assert [state for _, state, *_ in await attempts()] == ["ended"]
    (await ingest.application.server()).committer.berths.forget_all()
    await send_second(ingest, job, 1)
    assert [(number, state) for number, state, *_ in await attempts()] == [(1, "running")]


async def test_an_attempt_started_in_another_process_is_noticed(ingest: Ingest) -> None:
    other = Ingest(type(ingest.application)(), ingest.token, ingest.team)
    job = FakeJob(restart=0)
    await send_second(ingest, job, 0)
    await send_second(other, job.restarted(restart=1), 1)
    await other.application.stop()
    await ingest.write_ledger()
    new = job.restarted(restart=1).batch(0, 2)
    without_comm = replace(new, tables={k: v for k, v in new.tables.items() if k != "comm"}, boot_id=boot_id(0))
    await ingest.send(without_comm)
    assert await stored_by_attempt() == {1: 4, 2: 5}


async def test_texts_of_a_comm_row_may_be_any_bytes(ingest: Ingest) -> None:
    batch = FakeJob().batch()
    batch.rows("comm")["name"] = b"\xff\x00world\x1b[31m"
    batch.rows("comm")["gpu_uuid"] = b"\xfe\xfd"
    assert (await ingest.send(batch)).status == 200
    assert all([c.name.isprintable() async for c in Communicator.objects.all()])


async def test_a_communicator_of_one_attempt_keeps_its_size(ingest: Ingest) -> None:
    job = FakeJob()
    await send_second(ingest, job, 0)
    batch = job.batch(0, 1)
    batch.rows("comm")["n_ranks"] = 64
    await ingest.send(batch)
    assert sorted([c.n_ranks async for c in Communicator.objects.all()]) == [2, 2, 2, 2, 8]


@pytest.mark.parametrize("unknown", [0, -1])
async def test_a_communicator_of_unknown_size_is_stored_as_unknown_until_somebody_says_it(
    ingest: Ingest, unknown: int
) -> None:
    job = FakeJob()
    batch = job.batch(0, 0)
    batch.rows("comm")["n_ranks"] = unknown
    assert (await ingest.send(batch)).status == 200
    assert [c.n_ranks async for c in Communicator.objects.all()] == [0, 0]
    assert await CommMember.objects.acount() == 4
    attempt = await Attempt.objects.aget()
    window = await sync_to_async(read_window)(attempt.pk, 0, 10, ())
    assert window.members["n_ranks"].tolist() == [0] * 4
    await send_second(ingest, job, 1)
    assert sorted([c.n_ranks async for c in Communicator.objects.all()]) == [2, 2, 2, 2, 8]
    window = await sync_to_async(read_window)(attempt.pk, 0, 10, ())
    assert 0 not in window.members["n_ranks"]


async def test_unknown_sizes_go_back_to_the_least_when_the_migration_is_undone(ingest: Ingest) -> None:
    batch = FakeJob().batch(3)
    batch.rows("comm")["n_ranks"] = -1
    await ingest.send(batch)
    back = import_module("ingest.migrations.0005_unknown_sizes_back_to_least").LEAST

    def undo() -> None:
        with connection.cursor() as cursor:
            cursor.execute(back)

    await sync_to_async(undo)()
    assert sorted([c.n_ranks async for c in Communicator.objects.all()]) == [2, 8]


async def test_when_an_agent_is_heard_is_noted(ingest: Ingest) -> None:
    batch = FakeJob().batch(0, 30)
    await ingest.send(FakeJob().batch())
    await ingest.send(batch)
    await ingest.write_ledger()
    assert (await Attempt.objects.aget()).last_received_at.timestamp() * SECOND >= batch.wall_ns


async def test_an_attempt_in_which_two_processes_claimed_a_rank_can_be_taken_over(ingest: Ingest) -> None:
    """A launcher's mistake, or a liar: the restart was answered 500 for ever, as both were to have the rank again."""
    job = FakeJob()
    for node in range(job.nodes):
        batch = job.batch(node)
        twins = batch.rows("comm").copy()
        twins["pid"] += 500
        both = with_rows(batch, comm=np.concatenate([batch.rows("comm"), twins]))
        assert (await ingest.send(both)).status == 200
    later = job.restarted()
    sent = [await ingest.send(alive(later.batch(node, 1), node, life=1)) for node in range(job.nodes)]
    assert [reply.status for reply in sent] == [200] * job.nodes
    first, second = [a async for a in Attempt.objects.order_by("number")]
    assert [await a.ranks.filter(replaced=False).acount() for a in (first, second)] == [job.ranks, job.ranks]
