"""Nodes that join at once are looked up together, and end where they would have ended one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ingest.door import limits
from ingest.door.arrival import receive_batch
from ingest.door.limits import OverLimit
from ingest.jobs.inferring import attempts_to_infer, infer_roster
from ingest.jobs.roster import Berth, find_berths
from ingest.models import Attempt, Boot, CommMember, Communicator, Node, Rank
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import FakeJob
from tests.ingest.conftest import Ingest


def found(ingest: Ingest, batches: Sequence[TraceBatch]) -> tuple[list[Berth | Exception], int]:
    """The berths, and the queries they took."""
    arrivals = [receive_batch(ingest.team.pk, encode_batch(batch), batch.wall_ns) for batch in batches]
    with CaptureQueriesContext(connection) as queries:
        return find_berths(arrivals), len(queries)


def berths(ingest: Ingest, batches: Sequence[TraceBatch]) -> list[Berth]:
    made, _ = found(ingest, batches)
    assert all(isinstance(one, Berth) for one in made), made
    return [one for one in made if isinstance(one, Berth)]


def numbers(made: Sequence[Berth]) -> list[int]:
    """Which attempt of its job each is of."""
    by_pk = dict(Attempt.objects.values_list("pk", "number"))
    return [by_pk[berth.attempt_id] for berth in made]


async def test_a_job_that_joins_at_once_costs_the_queries_of_one_node(ingest: Ingest) -> None:
    job = FakeJob(ranks=16, nodes=8)
    _, alone = await sync_to_async(found)(ingest, [replace(job.batch(0), job="another")])
    made, together = await sync_to_async(found)(ingest, [job.batch(node) for node in range(8)])
    assert together <= alone
    assert [one.started_attempt for one in made if isinstance(one, Berth)] == [True] + [False] * 7
    attempt = await Attempt.objects.aget(job__name=job.batch(0).job)
    assert [n.name async for n in attempt.nodes.order_by("name")] == [f"node-{n}" for n in range(8)]
    assert await Rank.objects.filter(attempt=attempt).acount() == 16
    assert await Boot.objects.filter(job=attempt.job_id).acount() == 8


async def test_together_and_one_by_one_store_the_same(ingest: Ingest) -> None:
    job = FakeJob(ranks=16, nodes=8)

    def stored(name: str) -> list[list[tuple[object, ...]]]:
        members = CommMember.objects.filter(communicator__attempt__job__name=name)
        ranks = Rank.objects.filter(attempt__job__name=name)
        communicators = Communicator.objects.filter(attempt__job__name=name)
        return [
            list(members.order_by("communicator__comm_id", "comm_rank").values_list(
                "communicator__comm_id", "comm_rank", "process__rank", "process__node__name", "joined_ns")),
            list(ranks.order_by("rank").values_list("rank", "pid", "node__name", "replaced", "replaces", "gpu_bus_id")),
            list(communicators.order_by("comm_id").values_list("comm_id", "n_ranks", "name")),
        ]  # fmt: skip

    def both() -> None:
        together = berths(ingest, [job.batch(node) for node in range(8)])
        alone = [berths(ingest, [replace(job.batch(node), job="another")])[0] for node in range(8)]
        assert stored(job.batch(0).job) == stored("another")
        for one, other in zip(together, alone, strict=True):
            assert one.members.tolist() == other.members.tolist()
            assert (one.pids, one.gone, one.clock) == (other.pids, other.gone, other.clock)

    await sync_to_async(both)()


async def test_a_node_twice_and_nodes_of_two_jobs_find_their_places(ingest: Ingest) -> None:
    job = FakeJob()
    other = replace(job.batch(1), job="another")
    first, second, third = await sync_to_async(berths)(ingest, [job.batch(0), job.batch(0, 1), other])
    assert (first.node_id, first.boot_pk) == (second.node_id, second.boot_pk)
    assert (third.job_id != first.job_id, await Node.objects.acount()) == (True, 2)


async def test_a_late_batch_among_those_of_a_new_start_goes_to_its_own_attempt(ingest: Ingest) -> None:
    job = FakeJob(restart=0)
    again = job.restarted(restart=1)

    def both_starts() -> list[int]:
        berths(ingest, [job.batch(node) for node in range(4)])
        return numbers(berths(ingest, [again.batch(0), job.batch(1, 1), again.batch(2)]))

    assert await sync_to_async(both_starts)() == [2, 1, 2]


async def test_processes_that_take_places_over_together_become_the_next_attempt(ingest: Ingest) -> None:
    job = FakeJob()
    again = job.restarted()

    def both_starts() -> list[int]:
        berths(ingest, [job.batch(node) for node in range(4)])
        berths(ingest, [again.batch(node, 1) for node in range(4)])
        return numbers(berths(ingest, [again.batch(node, 2) for node in range(4)]))

    assert await sync_to_async(both_starts)() == [2, 2, 2, 2]
    assert [a.state async for a in Attempt.objects.order_by("number")] == ["ended", "running"]
    assert not await Rank.objects.filter(replaced=True).aexists()


async def test_a_node_too_many_is_refused_and_those_beside_it_are_not(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NODES_MAX", 2)
    job = FakeJob()
    made, _ = await sync_to_async(found)(ingest, [job.batch(node) for node in range(3)])
    assert [type(one) for one in made] == [Berth, Berth, OverLimit]


async def test_a_roster_is_inferred_once_for_each_change_whoever_does_it(ingest: Ingest) -> None:
    job = FakeJob(declared=False)

    def changes() -> list[bool]:
        berths(ingest, [job.batch(node) for node in range(4)])
        (attempt_id,) = attempts_to_infer()
        did = [infer_roster(attempt_id), infer_roster(attempt_id)]
        berths(ingest, [job.batch(node, 1) for node in range(4)])  # the same communicators again
        return [*did, bool(attempts_to_infer())]

    assert await sync_to_async(changes)() == [True, False, False]
    assert sorted([r.rank async for r in Rank.objects.all()]) == list(range(8))
