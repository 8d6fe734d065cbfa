"""A job that was made slower on purpose: once somebody says so the incident becomes clear and none opens again."""

from __future__ import annotations

from asgiref.sync import sync_to_async

from console.incidents.acts.wanted_pace import declare_wanted, with_wanted
from console.incidents.models import ActorKind, ConditionState, Incident, JobNormal, WantedPace
from console.incidents.record import Actor
from ingest.models import Job
from rca.triggers.normal import normal_from_json
from tests.console.incidents.test_slowdown import SECOND, ingest, live_through, no_traces, quick, simulated
from tests.ingest.conftest import Ingest

__all__ = ["ingest", "no_traces", "quick"]  # fixtures
RITA = Actor(ActorKind.USER, "rita")


async def test_a_wanted_pace_clears_the_slowdown_and_is_the_normal_from_then_on(ingest: Ingest, quick: None) -> None:
    sent = simulated("gpu_slow", victim=6, amount=2.5)
    cut = next(at for at, one in enumerate(sent) if one.arrives_ns - sent[0].arrives_ns > 34 * SECOND)
    await live_through(ingest, sent[:cut])
    incident = await Incident.objects.aget()
    assert (incident.symptom, incident.condition) == ("straggler", ConditionState.FIRING)
    await sync_to_async(lambda: declare_wanted(Job.objects.get(), RITA, "sequences are longer now"))()
    await live_through(ingest, sent[cut:], every_s=1)
    after = await Incident.objects.aget()
    assert after.condition == ConditionState.CLEAR
    normal = normal_from_json((await JobNormal.objects.aget()).body)
    wanted = await WantedPace.objects.aget()
    assert (normal.declaration, wanted.since_ns) == (wanted.pk, incident.first_symptom_ns)
    assert all(began >= wanted.since_ns for began, _ in normal.pace.recent)
    assert await sync_to_async(with_wanted)(normal, incident.attempt_id) is normal, "a declaration counts once"
