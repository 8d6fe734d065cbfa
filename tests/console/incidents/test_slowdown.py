"""A job that becomes slower, from its batches to its incident: simulated, sent to a running ingest, looked at for real."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from console.incidents import tasks
from console.incidents.models import DiagnosisRevision, Incident, JobNormal, Look
from console.incidents.watching import revise, watch
from ingest.models import Attempt
from nccl_instrument.simulate.agents import Sent
from nccl_instrument.simulate.faults import make_fault
from rca.findings import diagnosis_from_json
from tests.ingest.conftest import Ingest, ingest, no_traces
from tests.nccl_instrument.simulate.jobs import EIGHT, run

__all__ = ["ingest", "no_traces"]  # fixtures
SECOND = 10**9
ONSET_S = 22.0


@pytest.fixture
def quick(settings: Any) -> None:
    settings.CLEAN_LOOK_SECONDS = 0.0


def simulated(name: str, seconds: float = 42, **fault: Any) -> list[Sent]:
    return run(EIGHT, make_fault(name, EIGHT, ONSET_S, **fault), seconds=seconds)


async def live_through(ingest: Ingest, sent: list[Sent], every_s: int = 3) -> None:
    """Send the batches as they arrive, and look every few seconds of the job's time."""
    looked_ns = sent[0].arrives_ns
    for one in sent:
        ingest.clock_ns = one.arrives_ns
        reply = await ingest.post(one.encoded)
        assert reply.status == 200, reply.body
        if one.arrives_ns - looked_ns >= every_s * SECOND:
            looked_ns = one.arrives_ns
            attempt = await Attempt.objects.alatest("pk")
            await sync_to_async(watch.watch_job)(attempt.pk)


async def test_a_job_whose_pace_halves_gets_an_incident_that_names_the_slow_nic(ingest: Ingest, quick: None) -> None:
    await live_through(ingest, simulated("nic_limited", victim=3, amount=0.25))
    incident = await Incident.objects.aget()
    assert (incident.symptom, incident.certainty, incident.culprits) == ("straggler", "diagnosed", [3])
    newest = await incident.revisions.order_by("-number").afirst()
    assert newest is not None
    diagnosis = diagnosis_from_json(newest.body)
    assert diagnosis.findings[0].component == "nic"
    assert abs(incident.first_symptom_ns / SECOND % 1000 - ONSET_S) < 3


async def test_a_small_slowdown_opens_an_incident_once_somebody_is_named(ingest: Ingest, quick: None) -> None:
    await live_through(ingest, simulated("gpu_slow", victim=6, amount=1.5))
    incident = await Incident.objects.aget()
    assert (incident.symptom, incident.culprits) == ("straggler", [6])


async def test_the_diagnosis_that_a_small_slowdown_opens_an_incident_for_is_its_first_and_not_made_twice(
    ingest: Ingest, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, inner = list[tuple[int, int]](), revise.read_and_diagnose

    def read(attempt_id: int, span: tuple[int, int], *args: Any, **kwargs: Any) -> Any:
        asked.append(span)
        return inner(attempt_id, span, *args, **kwargs)

    monkeypatch.setattr(revise, "read_and_diagnose", read)
    await live_through(ingest, simulated("gpu_slow", victim=6, amount=1.5))
    first = await DiagnosisRevision.objects.filter(number=1).aget()
    assert first.culprits == [6] and (first.window_start_ns, first.window_end_ns) in asked
    assert len(asked) == len(set(asked))


async def test_an_evaluation_pause_opens_nothing_and_the_usual_pace_is_kept_with_the_job(
    ingest: Ingest, quick: None
) -> None:
    await live_through(ingest, simulated("evaluation_pause", amount=8.0))
    assert not await Incident.objects.aexists()
    assert not await Look.objects.filter(kind="straggler").aexists()
    normal = await JobNormal.objects.aget()
    assert len(normal.body["pace"]["usual_us"]) >= 20


async def test_a_slowdown_whose_first_diagnosis_was_kept_back_is_diagnosed_when_the_job_ends(
    ingest: Ingest, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revise, "is_early", lambda *_: True)
    await live_through(ingest, simulated("nic_limited", victim=3, amount=0.25))
    incident = await Incident.objects.aget()
    assert (incident.certainty, await incident.revisions.acount()) == ("suspected", 0)
    await Attempt.objects.aupdate(state=Attempt.State.ENDED, ended_at=timezone.now())
    looked: list[int] = []
    monkeypatch.setattr(tasks.watch_job, "delay", looked.append)
    await sync_to_async(tasks.watch_all_jobs)()
    assert looked == [incident.attempt_id]
    await sync_to_async(watch.watch_job)(incident.attempt_id)
    await incident.arefresh_from_db()
    assert (incident.state, incident.certainty, incident.culprits) == ("resolved", "diagnosed", [3])
    assert (await incident.revisions.acount(), incident.asked_at) == (1, None)


async def test_a_slowdown_whose_first_diagnosis_was_kept_back_is_diagnosed_when_it_clears(
    ingest: Ingest, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revise, "is_early", lambda *_: True)
    await live_through(ingest, simulated("nic_limited", victim=3, amount=0.25, end_s=36.0, seconds=66))
    incident = await Incident.objects.aget()
    assert (incident.condition, incident.certainty, incident.culprits) == ("clear", "diagnosed", [3])
