"""Diagnoses that somebody asked for: made by the next look, by today's rules and thresholds, and always answered."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from console.incidents import tasks
from console.incidents.acts import again, asking
from console.incidents.lifecycle import Actor
from console.incidents.models import ActorKind, Incident
from console.incidents.pictures.evidence import incident_grid
from console.incidents.watching import thresholds, watch
from ingest.door.marks import take_heard
from ingest.models import Attempt, Job
from rca.findings import diagnosis_from_json
from rca.holes import NOT_READ
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
RITA = Actor("rita", ActorKind.USER)


@pytest.fixture
async def job(ingest: Ingest, settings: Any) -> StallingJob:
    settings.CLEAN_LOOK_SECONDS = settings.RESOLVE_AFTER_CLEAR_SECONDS = 0.0
    job = StallingJob(ingest)
    for _ in range(4):
        await job.run(5)
        await look()
    return job


@pytest.fixture
async def stalled(job: StallingJob) -> StallingJob:
    """A job with an incident that names the missing rank."""
    job.stall()
    await job.run(6)
    await look()
    return job


async def test_the_same_answer_is_said_and_no_revision_is_stored(stalled: StallingJob) -> None:
    incident = await ask()
    before = await incident.revisions.acount()
    await look()
    assert await said(incident) == ("confirmed", "Diagnosed again: the same answer as revision 1.")
    assert await incident.revisions.acount() == before
    assert (await Incident.objects.aget()).asked_at is None


async def test_all_nodes_that_say_what_a_part_of_them_said_are_no_other_answer(stalled: StallingJob) -> None:
    incident = await ask()
    part = await incident.revisions.alatest("number")
    part.pk, part.number = None, part.number + 1
    part.body = {**part.body, "missing": [*part.body["missing"], NOT_READ]}
    await part.asave(force_insert=True)
    await look()
    assert await said(incident) == ("confirmed", "Diagnosed again from all nodes: the same answer as revision 2.")
    assert await incident.revisions.acount() == 2


async def test_another_answer_is_a_revision_with_the_thresholds_of_now(
    stalled: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await Job.objects.aget()
    await sync_to_async(thresholds.change_settings)(job, {"spread_s": 3}, RITA, "slow news")
    answered = again.read_and_diagnose

    def by_other_rules(*arguments: Any, **options: Any) -> Any:
        window, found = answered(*arguments, **options)
        return window, dataclasses.replace(found, findings=())

    monkeypatch.setattr(again, "read_and_diagnose", by_other_rules)
    incident = await ask()
    await look()
    newest = await incident.revisions.alatest("number")
    assert (newest.number, newest.culprits, newest.body["thresholds"]["spread_s"]) == (2, [], 3.0)
    await incident.arefresh_from_db()
    assert (incident.certainty, incident.culprits) == ("suspected", [])


async def test_an_ended_attempt_is_diagnosed_again_too_by_the_regular_beat(
    stalled: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Attempt.objects.aupdate(state=Attempt.State.ENDED, ended_at=timezone.now())
    looked: list[int] = []
    monkeypatch.setattr(tasks.watch_job, "delay", looked.append)
    incident = await ask()
    await sync_to_async(tasks.watch_all_jobs)()
    assert looked == [incident.attempt_id]
    await look()
    assert (await said(incident))[0] == "confirmed"


async def test_a_diagnosis_that_fails_says_so_and_is_not_tried_for_ever(
    stalled: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(again, "read_and_diagnose", broken)
    incident = await ask()
    await look()
    assert await said(incident) == ("diagnosis failed", "RuntimeError: a bug")
    assert (await Incident.objects.aget()).asked_at is None


async def test_what_could_not_be_answered_for_minutes_is_given_up(stalled: StallingJob) -> None:
    incident = await ask()
    await Incident.objects.aupdate(asked_at=timezone.now() - again.GIVEN_UP_AFTER - timedelta(seconds=1))
    await look()
    assert (await said(incident))[0] == "diagnosis failed"


async def test_traces_that_are_gone_are_not_taken_for_an_answer(stalled: StallingJob) -> None:
    await Incident.objects.aupdate(first_symptom_ns=1, triggered_ns=2, last_seen_ns=2)
    incident = await ask()
    await look()
    assert await said(incident) == ("confirmed", "The traces of that time are no longer stored.")
    assert await incident.revisions.acount() == 1


async def test_a_report_on_a_healthy_job_is_diagnosed_and_blames_nobody(job: StallingJob) -> None:
    await report()
    await look()
    incident = await Incident.objects.aget()
    newest = await incident.revisions.alatest("number")
    assert diagnosis_from_json(newest.body).symptom.kind == "external"
    assert (incident.certainty, incident.culprits, incident.condition) == ("suspected", [], "clear")
    assert await said(incident) == ("named nobody", "Nobody stands out in what was looked at.")
    await ask()
    await look()
    assert await said(incident) == ("confirmed", "Diagnosed again: nobody stands out, as in revision 1.")


async def test_the_grid_of_what_was_reported_of_a_healthy_job_shows_everybody_well_however_long_ago(
    job: StallingJob,
) -> None:
    await report()
    await look()
    await job.run(20)
    drawn = await sync_to_async(incident_grid)(await Incident.objects.aget())
    assert {drawn.states[state] for state in drawn.state} == {"ok"}
    assert all(ago is not None and ago <= 5000 for ago in drawn.last_seen_ms_ago)


async def test_only_people_end_what_people_reported(job: StallingJob) -> None:
    await report()
    for _ in range(4):
        await job.run(3)
        await look()
    assert (await Incident.objects.aget()).state == "open"


async def test_a_report_on_a_hang_that_no_trigger_believes_yet_names_the_missing_rank(job: StallingJob) -> None:
    job.stall()
    await job.run(2)
    await look()
    assert not await Incident.objects.aexists()
    await report()
    await look()
    incident = await Incident.objects.aget()
    assert (incident.symptom, incident.certainty, incident.culprits) == ("external", "diagnosed", [3])


async def test_a_report_after_a_trouble_is_over_looks_at_what_is_now_and_takes_nothing_back(
    stalled: StallingJob,
) -> None:
    stalled.go_on()
    await Incident.objects.aupdate(condition="clear", cleared_at=timezone.now())
    await stalled.run(32)
    await report()
    await look()
    incident = await Incident.objects.aget()
    assert await said(incident) == ("confirmed", "What was reported names nobody; revision 1 stands.")
    assert incident.culprits == [3]


async def test_a_hang_that_follows_a_report_goes_on_in_the_same_incident(job: StallingJob) -> None:
    await report()
    await look()
    job.stall()
    await job.run(6)
    await look()
    incident = await Incident.objects.aget()
    assert (incident.condition, incident.culprits) == ("firing", [3])


async def ask() -> Incident:
    take_heard()
    number = (await Incident.objects.alatest("pk")).pk
    incident, _ = await sync_to_async(asking.diagnose_again)(number, RITA)
    return incident


async def report(since: datetime | None = None) -> None:
    job = await Job.objects.aget()
    await sync_to_async(asking.report)(job, RITA, "loss is flat", since)


async def said(incident: Incident) -> tuple[str, str]:
    entry = await incident.timeline.order_by("-id").afirst()
    assert entry is not None
    return entry.verb, entry.note


async def look() -> None:
    attempt = await Attempt.objects.alatest("pk")
    await sync_to_async(watch.watch_job)(attempt.pk)
