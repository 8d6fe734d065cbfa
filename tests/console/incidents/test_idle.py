"""A job that does nothing: asked for stacks first, paged for when nothing explains it, and quiet while it is paused."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from console.dashboard.jobs import read_job_row
from console.incidents.acts import pauses
from console.incidents.lifecycle import Actor
from console.incidents.models import ActorKind, Incident, Look, SettingChange
from console.incidents.watching import watch
from ingest.models import Attempt, Job
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
RITA = Actor("rita", ActorKind.USER)


@pytest.fixture
async def job(ingest: Ingest, settings: Any) -> StallingJob:
    """A job with a known normal that has just stopped doing anything; ten seconds of that are too long for it."""
    settings.CLEAN_LOOK_SECONDS = 0.0
    job = StallingJob(ingest)
    await job.run(2)
    change = {"actor": "rita", "actor_kind": "user", "name": "idle_s", "after": 10.0, "reason": "a test"}
    await SettingChange.objects.acreate(job=await Job.objects.aget(), at=timezone.now(), **change)
    for _ in range(3):
        await job.run(6)
        await look()
    job.idle()
    return job


async def test_an_idle_job_asks_for_stacks_first_and_pages_when_it_is_still_idle(job: StallingJob) -> None:
    await idle_for(job, 15)
    incident = await Incident.objects.aget()
    assert (incident.symptom, incident.certainty, incident.culprits) == ("idle", "diagnosed", [])
    assert (incident.pages, incident.dumps_wanted) == (False, ["stacks"])
    row = await sync_to_async(lambda: read_job_row(Job.objects.get()))()
    assert row.state == "idle"
    await idle_for(job, 33)
    await incident.arefresh_from_db()
    assert incident.pages
    verbs = [entry.verb async for entry in incident.timeline.order_by("id")]
    assert verbs[:2] == ["opened", "asked for dumps"] and verbs.count("pages") == 1


async def test_a_declared_pause_keeps_an_idle_job_quiet_and_clears_what_was_open(job: StallingJob) -> None:
    await idle_for(job, 15)
    await sync_to_async(pause)(60)
    await idle_for(job, 3)
    incident = await Incident.objects.aget()
    assert (incident.condition, incident.pages) == ("clear", False)
    assert (await Look.objects.alatest("pk")).saw.startswith("Paused by rita until ")


async def test_a_paused_job_opens_nothing_until_the_pause_ends(job: StallingJob) -> None:
    await sync_to_async(pause)(60)
    await idle_for(job, 20)
    assert not await Incident.objects.aexists()
    await sync_to_async(lambda: pauses.end_pause(Job.objects.get(), RITA))()
    await idle_for(job, 1)
    assert (await Incident.objects.aget()).symptom == "idle"


async def test_a_hang_that_follows_pages_at_once(job: StallingJob) -> None:
    await idle_for(job, 15)
    job.go_on()
    job.stall()
    for _ in range(2):
        await job.run(6)
        await look()
    incident = await Incident.objects.aget()
    assert incident.pages and incident.culprits == [3]


def pause(minutes: int) -> None:
    pauses.declare_pause(Job.objects.get(), RITA, "a new switch", minutes)


async def idle_for(job: StallingJob, seconds: int) -> None:
    await job.run(seconds)
    await look()


async def look() -> None:
    attempt = await Attempt.objects.alatest("pk")
    await sync_to_async(watch.watch_job)(attempt.pk)
