"""Stages from the wire to the page: windows are cut and kept, a routed one opens an incident that names rank and stage."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.models import Role
from console.incidents.models import ConditionState, Incident, State, TimelineEntry
from console.incidents.watching.watch import watch_job
from console.stages import api, standing
from console.stages.figures import ranks_figure
from console.stages.models import StageCursor, StagePacket
from console.stages.read import stage_symptom, told_around
from console.stages.store import store_packet
from console.stages.trouble import bouts_of
from console.stages.watch import _complete_ns, watch_stages
from ingest.models import Attempt, Job, Node, Team
from ingest.read import latest_data_ns
from nccl_instrument.tables import empty_rows
from rca.findings import diagnosis_from_json
from tests.builders import MONO_NS, SECOND, with_rows
from tests.console.conftest import make_persona
from tests.console.incidents.making import make_incident
from tests.console.stages.training import WORLD, Training
from tests.eval.stages_model import Fault
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)


def ns_of(at: datetime) -> int:
    return int(at.timestamp() * SECOND)


@sync_to_async
def cut() -> list[StagePacket]:
    """One pass, and every packet there is."""
    watch_stages(Attempt.objects.latest("pk").pk)
    return list(StagePacket.objects.order_by("end_ns"))


@sync_to_async
def browser(ingest: Ingest) -> APIClient:
    return make_persona("vera", ingest.team, Role.VIEWER).browser


async def test_a_job_without_recorders_has_no_windows_and_is_not_asked_all_the_time(ingest: Ingest) -> None:
    await ingest.send(Training(ingest).fake.batch(0, 0))
    assert await cut() == []
    at = await StageCursor.objects.aget()
    assert (at.is_empty, at.read_ns > 0) == (True, True)


async def test_windows_are_cut_once_judged_and_kept(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(20 + 2 * 120 + 10)
    found = await cut()
    assert [(one.first_step, one.last_step, one.verdict) for one in found] == [
        (20, 139, "learning"),
        (140, 259, "learning"),
    ]
    assert len(await cut()) == 2
    await job.train(120)
    newest = (await cut())[-1]
    assert (newest.first_step, newest.verdict, newest.n_ranks) == (260, "usual", 8)
    assert newest.body["report"]["fits_wait_model"] is False  # backward leads, and nothing synchronises after it
    assert newest.body["report"]["gain_baseline"] == "reference"


@pytest.mark.parametrize(("symptom", "verdict"), [("straggler", "learning"), ("external", "usual")])
async def test_what_a_job_does_while_an_incident_says_that_it_is_slow_is_not_its_normal(
    ingest: Ingest, symptom: str, verdict: str
) -> None:
    job = Training(ingest)
    await job.train(150)
    first = (await cut())[0]
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    seen = {"symptom": symptom, "first_symptom_ns": first.start_ns + 1, "last_seen_ns": first.end_ns}
    incident = await sync_to_async(make_incident)(attempt, **seen)
    await job.train(120)
    await cut()
    await job.train(120)
    assert [one.verdict for one in await cut()] == ["learning", "learning", verdict]
    await Incident.objects.filter(pk=incident.pk).aupdate(first_symptom_ns=1, last_seen_ns=1)
    await job.train(120)
    assert (await cut())[-1].verdict == "usual"  # as if nothing had been seen


def bouts_told(attempt: Attempt, *told: tuple[str, int]) -> list[tuple[int, ...]]:
    """Bouts in s after an incident opened of which the timeline tells these verbs and when; its newest is known to the ns."""
    opened = timezone.now()
    newest = {"first_symptom_ns": ns_of(opened) + 595 * SECOND, "last_seen_ns": ns_of(opened) + 700 * SECOND}
    incident = make_incident(attempt, symptom="straggler", **newest)
    for verb, after_s in told:
        at = opened + timedelta(seconds=after_s)
        TimelineEntry.objects.create(incident=incident, at=at, actor="detector", actor_kind="detector", verb=verb)
    assert len(bouts_of(attempt.pk, ns_of(opened))) == 2
    return [tuple(round((ns - ns_of(opened)) / SECOND) for ns in bout) for bout in bouts_of(attempt.pk, 0)]


def test_bouts_before_the_newest_are_told_by_the_timeline(attempt: Attempt) -> None:
    """Each begins with its first symptom, or, where that is no longer known, up to a minute before its incident."""
    found = bouts_told(attempt, ("clear", 100), ("fired again", 300), ("clear", 400), ("fired again", 600))
    assert found == [(-60, 100), (240, 400), (595, 700)]


def test_a_trouble_that_was_resolved_too_early_is_one_again_once_it_is_reopened(attempt: Attempt) -> None:
    found = bouts_told(attempt, ("resolved", 100), ("reopened", 200), ("clear", 400), ("fired again", 600))
    assert found == [(-60, 100), (140, 400), (595, 700)]


@pytest.mark.parametrize(("kind", "began_s"), [("straggler", -60), ("silence", 240)])
def test_what_got_worse_was_trouble_before_unless_only_an_agent_was_lost(
    attempt: Attempt, kind: str, began_s: int
) -> None:
    opened = timezone.now()
    newest = {"first_symptom_ns": ns_of(opened) + 590 * SECOND, "last_seen_ns": ns_of(opened) + 700 * SECOND}
    incident = make_incident(attempt, key=f"v1:1:0:{kind}:0", symptom="failure", **newest)
    for verb, after_s in (("got worse", 300), ("clear", 400), ("fired again", 600)):
        at = opened + timedelta(seconds=after_s)
        TimelineEntry.objects.create(incident=incident, at=at, actor="detector", actor_kind="detector", verb=verb)
    found = [tuple(round((ns - ns_of(opened)) / SECOND) for ns in bout) for bout in bouts_of(attempt.pk, 0)]
    assert found == [(began_s, 400), (590, 700)]


def test_incidents_that_saw_one_trouble_together_are_one_bout(attempt: Attempt) -> None:
    for symptom, first_s, last_s in (("straggler", 10, 50), ("failure", 40, 90), ("idle", 91, 95)):
        Incident.objects.update(state=State.RESOLVED, resolved_at=timezone.now(), resolution="fixed")
        make_incident(attempt, symptom=symptom, first_symptom_ns=first_s * SECOND, last_seen_ns=last_s * SECOND)
    assert bouts_of(attempt.pk, 0) == [(10 * SECOND, 90 * SECOND), (91 * SECOND, 95 * SECOND)]


def test_the_time_before_the_oldest_entry_that_is_read_is_one_bout(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happened then is not learned."""
    monkeypatch.setattr("console.stages.trouble.ENTRIES_MAX", 2)
    opened = timezone.now()
    incident = make_incident(attempt, symptom="straggler", first_symptom_ns=ns_of(opened) + 900 * SECOND)
    for verb, after_s in (("clear", 100), ("fired again", 300), ("clear", 400)):
        at = opened + timedelta(seconds=after_s)
        TimelineEntry.objects.create(incident=incident, at=at, actor="detector", actor_kind="detector", verb=verb)
    first, *_ = bouts_of(attempt.pk, 7)
    assert first == (8, ns_of(opened + timedelta(seconds=400)))


async def test_a_rank_that_waits_for_its_data_opens_an_incident_that_names_it_and_its_stage(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(270)
    await cut()
    await job.train(130, Fault("data", 3, 0.2))
    newest = (await cut())[-1]
    assert (newest.verdict, newest.stage, newest.leader, newest.body["report"]["downgrades"]) == (
        "routed", "data.next_wait", 3, [],
    )  # fmt: skip
    assert newest.body["report"]["fits_wait_model"] is True
    attempt = await Attempt.objects.alatest("pk")
    symptom = await sync_to_async(stage_symptom)(await Attempt.objects.select_related("job").aget(), newest.end_ns)
    assert symptom is not None
    assert "most of it in data.next_wait" in symptom.sentence
    await sync_to_async(watch_job)(attempt.pk)
    incident = await Incident.objects.aget()
    assert incident.culprits == [3]
    assert incident.headline.startswith("Rank 3 waits for its data")
    revision = await incident.revisions.alatest("number")
    best = diagnosis_from_json(revision.body).findings[0]
    assert (best.rule, best.subject.node) == ("stage_delay", "node-1")
    assert "--pid 1003" in best.advice


async def test_work_that_nobody_waits_for_moves_the_step_and_opens_nothing_by_stages(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(270)
    await cut()
    await job.train(130, Fault("callback", 5, 0.1))
    newest = (await cut())[-1]
    assert newest.verdict == "unlocalised"
    assert newest.body["verdict"]["next_look"]
    told = await sync_to_async(told_around)(newest.attempt_id, newest.start_ns, newest.end_ns)
    assert [one.verdict.value for one in told] == ["unlocalised"]
    assert await sync_to_async(stage_symptom)(await Attempt.objects.select_related("job").aget(), newest.end_ns) is None


async def test_the_api_gives_windows_pictures_and_the_command_to_profile(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(270)
    await cut()
    await job.train(130, Fault("data", 3, 0.2))
    newest = (await cut())[-1]
    client, attempt = await browser(ingest), await Attempt.objects.alatest("pk")
    answer = await sync_to_async(client.get)(f"/api/v1/jobs/{attempt.job_id}/stages")
    assert answer.status_code == 200, answer.content
    body: dict[str, Any] = answer.json()
    assert (body["recording"]["is_recorded"], body["newest_moved"], len(body["windows"])) == (True, newest.pk, 3)
    assert body["led"] == [{"rank": 3, "windows": 1, "of": 1, "node": "node-1", "mates": 0}]
    assert body["shares"]["data"]
    one = (await sync_to_async(client.get)(f"/api/v1/jobs/{attempt.job_id}/stages/{newest.pk}")).json()
    assert {row["label"] for row in one["labels"]} >= {"sync_wait_dependent", "likely_sync_wait"}
    assert all(row["meaning"] for row in one["labels"])
    assert len(one["steps"]["data"]) == len(one["ranks"]["data"][0]["y"]) == 6
    assert (one["profile"]["rank"], one["profile"]["node"], one["profile"]["pid"]) == (3, "node-1", 1003)
    assert one["profile"]["commands"][0].startswith("ssh node-1 py-spy record --pid 1003")
    assert "Rank 3 leaves data last" in one["steps"]["text"]


async def test_an_incident_shows_the_group_of_its_culprit_first(ingest: Ingest) -> None:
    await Training(ingest).train(150)
    await cut()
    attempt, one = (
        await Attempt.objects.select_related("job__team").alatest("pk"),
        await StagePacket.objects.alatest("pk"),
    )
    for role, ranks in (("pp 0", [0, 1, 2, 3]), ("pp 1", [4, 5, 6, 7])):
        one.pk, one.role = None, role
        one.body["ranks"]["rank"] = ranks
        await one.asave()
    await StagePacket.objects.filter(role="").adelete()
    client = await browser(ingest)
    made = await sync_to_async(make_incident)(attempt, first_symptom_ns=one.start_ns)
    path, shown = f"/api/v1/incidents/{made.pk}/stages", {}
    for culprits in ([5], [1], [99], []):
        await Incident.objects.filter(pk=made.pk).aupdate(culprits=culprits, suspects=culprits)
        shown[tuple(culprits)] = (await sync_to_async(client.get)(path)).json()["role"]
    assert shown == {(5,): "pp 1", (1,): "pp 0", (99,): "pp 0", (): "pp 0"}
    asked = (await sync_to_async(client.get)(path, {"role": "pp 1"})).json()
    assert asked["role"] == "pp 1"


async def test_of_a_job_that_stands_the_api_says_since_when_and_of_one_that_runs_it_does_not(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(150)
    await cut()
    attempt = await Attempt.objects.select_related("job__team").alatest("pk")
    client, last_ns = await browser(ingest), int(await sync_to_async(latest_data_ns)(attempt.pk))
    path = f"/api/v1/jobs/{attempt.job_id}/stages"
    await tell_progress(job, done_ns=MONO_NS + job.number * SECOND)
    cache.clear()
    assert (await sync_to_async(client.get)(path)).json()["standing_since"] is None
    for _ in range(20):
        await tell_progress(job, done_ns=MONO_NS + 10 * SECOND)
    cache.clear()
    body = (await sync_to_async(client.get)(path)).json()
    said = datetime.fromisoformat(body["standing_since"]).timestamp()
    assert said == pytest.approx(last_ns / 1e9 - (job.number - 20 - 1 - 10), abs=3) and body["first_symptom_at"] is None
    incident = await sync_to_async(make_incident)(attempt, first_symptom_ns=last_ns)
    body = (await sync_to_async(client.get)(f"/api/v1/incidents/{incident.pk}/stages")).json()
    assert body["windows"] and body["first_symptom_at"] and body["standing_since"]
    assert (body["is_standing_known"], body["standing_until"]) == (True, None)
    at = api.AsAt(await sync_to_async(latest_data_ns)(attempt.pk))
    assert await sync_to_async(api._standing_since)(attempt, at, 0.1)
    assert await sync_to_async(api._standing_since)(attempt, at, 100.0) == 0, "a role of long steps does not stand yet"


async def test_of_a_job_that_stands_the_other_nodes_tell_when_the_first_has_died(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "NODES_READ", 1)
    job = Training(ingest)
    await job.train(150)
    for _ in range(20):
        await tell_progress(job, done_ns=MONO_NS + 10 * SECOND)
    for _ in range(6):
        await tell_progress(job, done_ns=MONO_NS + 10 * SECOND, nodes=(1, 2, 3))
    attempt = await Attempt.objects.alatest("pk")
    now_ns = await sync_to_async(latest_data_ns)(attempt.pk)
    since_ns = await sync_to_async(standing.standing_since_ns)(attempt, now_ns + 1, 0.1)
    assert since_ns == pytest.approx(now_ns - (job.number - 10) * SECOND, abs=2 * SECOND)


async def test_where_nobody_tells_of_ops_it_is_not_known_whether_steps_go_on(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(150)
    await cut()
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    client, path = await browser(ingest), f"/api/v1/jobs/{attempt.job_id}/stages"
    for _ in range(4):
        await tell_progress(job, done_ns=0)
    cache.clear()
    body = (await sync_to_async(client.get)(path)).json()
    assert (body["is_standing_known"], body["standing_since"]) == (False, None)
    await tell_progress(job, done_ns=MONO_NS + job.number * SECOND)
    cache.clear()
    assert (await sync_to_async(client.get)(path)).json()["is_standing_known"]
    await Node.objects.filter(attempt=attempt).aupdate(received_ns=1)
    cache.clear()
    assert not (await sync_to_async(client.get)(path)).json()["is_standing_known"]


async def test_of_an_incident_that_is_over_the_api_says_until_when_the_job_stood(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(150)
    await cut()
    attempt = await Attempt.objects.select_related("job__team").alatest("pk")
    for _ in range(20):
        await tell_progress(job, done_ns=MONO_NS + 10 * SECOND)
    last_ns = int(await sync_to_async(latest_data_ns)(attempt.pk))
    incident = await sync_to_async(make_incident)(attempt, first_symptom_ns=last_ns - 15 * SECOND)
    for _ in range(20):
        await tell_progress(job, done_ns=MONO_NS + job.number * SECOND)
    await Incident.objects.filter(pk=incident.pk).aupdate(condition=ConditionState.CLEAR, last_seen_ns=last_ns)
    client = await browser(ingest)
    cache.clear()
    body = (await sync_to_async(client.get)(f"/api/v1/incidents/{incident.pk}/stages")).json()
    since, until = (datetime.fromisoformat(body[f"standing_{end}"]).timestamp() for end in ("since", "until"))
    assert until == pytest.approx(last_ns / 1e9, abs=0.01) and since < until - 15 and body["is_standing_known"]
    body = (await sync_to_async(client.get)(f"/api/v1/jobs/{attempt.job_id}/stages")).json()
    assert (body["standing_since"], body["standing_until"], body["is_standing_known"]) == (None, None, True)


async def tell_progress(job: Training, done_ns: int, nodes: Sequence[int] = range(4)) -> None:
    """Another second, in which the ranks of these nodes say when an op of theirs ended last."""
    for node in nodes:
        rows = empty_rows("progress", 2)
        ranks = job.fake.ranks_of(node)
        rows["comm_id"], rows["comm_rank"], rows["last_done_ns"] = WORLD.comm_id, ranks, done_ns
        rows["tick_ns"] = MONO_NS + (job.number + 1) * SECOND - 1
        reply = await job.ingest.send(with_rows(job.fake.batch(node, job.number), progress=rows))
        assert reply.status == 200, reply.body
    job.number += 1


@sync_to_async
def others_window(like: StagePacket) -> tuple[int, int, int]:
    """Job, window and incident of another team, which has all that this one has."""
    now = timezone.now()
    job = Job.objects.create(team=Team.objects.create(name="others"), name="their-llama")
    attempt = Attempt.objects.create(job=job, number=0, world_size=8, started_at=now, last_received_at=now)
    StageCursor.objects.create(attempt=attempt, is_empty=False)
    theirs = StagePacket.objects.get(pk=like.pk)
    theirs.pk, theirs.attempt = None, attempt
    store_packet(theirs)
    assert theirs.pk is not None
    return job.pk, theirs.pk, make_incident(attempt).pk


async def test_another_teams_windows_are_not_there(ingest: Ingest) -> None:
    await Training(ingest).train(150)
    (one,) = await cut()
    attempt = await Attempt.objects.alatest("pk")
    job, window, incident = await others_window(one)
    client, asked = await browser(ingest), sync_to_async(lambda client, path: client.get(path).status_code)
    ours = (f"/api/v1/jobs/{attempt.job_id}/stages", f"/api/v1/jobs/{attempt.job_id}/stages/{one.pk}")
    assert [await asked(client, path) for path in ours] == [200, 200]
    theirs = (
        f"/api/v1/jobs/{job}/stages", f"/api/v1/jobs/{job}/stages/{window}", f"/api/v1/incidents/{incident}/stages",
        f"/api/v1/jobs/{attempt.job_id}/stages/{window}", f"/api/v1/jobs/{job}/stages/{one.pk}",
    )  # fmt: skip
    assert [await asked(client, path) for path in theirs] == [404] * len(theirs)
    other = (await sync_to_async(make_persona)("otto", await Team.objects.aget(name="others"), Role.VIEWER)).browser
    assert [await asked(other, path) for path in theirs[:3]] == [200, 200, 200]
    assert await asked(await sync_to_async(APIClient)(), ours[0]) in (401, 403)


async def test_windows_wait_for_a_spool_but_not_for_ever(ingest: Ingest) -> None:
    """Fresh batches overtake those of a spool: what is cut before these have come is lost to every window."""
    await Training(ingest).train(270)
    nodes = Node.objects.filter(attempt=await Attempt.objects.alatest("pk"))
    await nodes.filter(name="node-1").aupdate(catching_up=True)
    assert await cut() == []
    await nodes.aupdate(catching_up=False)
    assert len(await cut()) == 2


async def test_a_node_that_is_behind_is_waited_for_up_to_a_minute(ingest: Ingest) -> None:
    await Training(ingest).train(270)
    attempt = await Attempt.objects.alatest("pk")
    node = await Node.objects.aget(attempt=attempt, name="node-1")
    newest = await sync_to_async(latest_data_ns)(attempt.pk)
    for behind_s, upto_s in ((0, 0), (20, 20), (59, 59), (61, 0)):
        await Node.objects.filter(pk=node.pk).aupdate(watermark_ns=newest - behind_s * SECOND)
        assert newest + 1 - await sync_to_async(_complete_ns)(attempt.pk, newest + 1) == upto_s * SECOND


async def test_ranks_that_are_alike_do_not_look_different(ingest: Ingest) -> None:
    await Training(ingest).train(150)
    (one,) = await cut()
    drawn = ranks_figure(one.body)["data"][0]
    assert drawn["zmax"] >= 0.05 * one.step_s * 1e3
    assert max(abs(ms) for row in drawn["z"] for ms in row) < 0.2 * drawn["zmax"]
