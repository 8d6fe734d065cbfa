"""What one team's token can make ingest remember ends somewhere, and what was refused or left out is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from asgiref.sync import sync_to_async

from ingest.door import limits
from ingest.models import Attempt, Boot, CommMember, Communicator, Job, Node, Rank, Team
from ingest.read import read_window
from nccl_instrument.wire import TraceBatch
from tests.builders import FakeJob, boot_id, make_batch
from tests.ingest.conftest import Ingest, make_ingest


async def refused(ingest: Ingest, batch: TraceBatch, sentence: str) -> bool:
    reply = await ingest.send(batch)
    await ingest.write_ledger()
    team = await Team.objects.aget(pk=ingest.team.pk)
    assert (reply.status, reply.body) == (400, {"error": sentence})
    return (team.batches_refused, team.last_refusal) == (1, sentence)


async def test_jobs_of_a_team_end_at_the_limit_and_those_there_go_on(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOBS_MAX", 2)
    for job in ("a", "b"):
        assert (await ingest.send(make_batch(job))).status == 200
    assert await refused(ingest, make_batch("c"), "jobs of this team: 2, at most 2 are kept")
    assert (await ingest.send(make_batch("a", node=1))).status == 200
    other = await make_ingest(ingest.application, "ads")
    assert (await ingest.send(make_batch("c"), token=other.token)).status == 200
    assert await Job.objects.acount() == 3


async def test_nodes_of_an_attempt_end_at_the_limit(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODES_MAX", 2)
    for node in (0, 1):
        assert (await ingest.send(make_batch(node=node))).status == 200
    assert await refused(ingest, make_batch(node=2), "nodes of this attempt: 2, at most 2 are kept")
    assert await Node.objects.acount() == 2


async def test_attempts_of_a_job_end_at_the_limit_and_the_last_one_runs_on(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ATTEMPTS_MAX", 2)
    job = FakeJob(restart=0)
    for _ in range(2):
        await ingest.send(job.batch())
        job = job.restarted(restart=job.restart + 1)
    assert await refused(ingest, job.batch(number=1), "attempts of this job: 2, at most 2 are kept")
    assert [a.state async for a in Attempt.objects.order_by("number")] == ["ended", "running"]


async def test_the_agents_life_that_is_silent_for_longest_makes_room_for_a_new_one(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BOOTS_MAX", 3)
    for life in range(5):
        batch = FakeJob().batch(0, life)
        assert (await ingest.send(replace(batch, boot_id=boot_id(0, life)))).status == 200
    kept = [bytes(boot.boot_id)[2] async for boot in Boot.objects.order_by("pk")]
    assert kept == [2, 3, 4]


@pytest.mark.parametrize(
    ("name", "n_max", "kept", "left_out"),
    [
        ("PROCESSES_MAX", 3, (3, 2, 6), 4 * 2 - 6),
        ("COMMUNICATORS_MAX", 1, (4, 1, 4), 4),
        ("MEMBERS_MAX", 5, (4, 2, 5), 3),
    ],
)
async def test_rows_beyond_the_limits_of_an_attempt_are_left_out_and_counted(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch, name: str, n_max: int, kept: tuple[int, ...], left_out: int
) -> None:
    monkeypatch.setattr(limits, name, n_max)
    assert (await ingest.send(FakeJob(ranks=4, nodes=1).batch())).status == 200
    counts = [await model.objects.acount() for model in (Rank, Communicator, CommMember)]
    assert tuple(counts) == kept
    assert (await Node.objects.aget()).rows_dropped == left_out
    window = await sync_to_async(read_window)((await Attempt.objects.aget()).pk, 0, 2**62, ("progress",))
    assert len(window.rows("progress")) == 8
    assert (window.rows("progress")["rank"] == -1).sum() == left_out
