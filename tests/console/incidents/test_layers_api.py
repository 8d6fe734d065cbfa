"""Colour layers over REST, of real jobs: from what agents sent to what the page is told."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.utils import timezone

from console.accounts.models import Role
from console.dumps.models import DumpSummary
from console.incidents.models import ConditionState, Incident
from console.incidents.pictures import layers_api, layers_read, layers_wire
from console.incidents.watching.watch import watch_job
from console.operations.metrics import KEPT_ANSWERS
from console.stages.watch import watch_stages
from ingest.door.dumps import ask_dumps
from ingest.models import Attempt, DumpRequest, Node
from ingest.read import latest_data_ns, read_window
from nccl_instrument.dumps import STACKS
from tests.console.conftest import Persona, make_persona
from tests.console.incidents.making import make_incident
from tests.console.incidents.stalling import StallingJob
from tests.console.network.test_network import feed
from tests.console.stages.training import Training
from tests.eval.stages_model import Fault
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)
SECOND = 1_000_000_000
CULPRIT = 3


@pytest.fixture
async def hung(ingest: Ingest) -> Incident:
    """Eight ranks on four nodes; rank 3 stopped after ten seconds."""
    job = StallingJob(ingest)
    await job.run(10)
    job.stall()
    await job.run(14)
    await sync_to_async(watch_job)((await Attempt.objects.alatest("pk")).pk)
    return await Incident.objects.select_related("team", "job", "attempt").alatest("pk")


@sync_to_async
def asked(team: Any, path: str, status: int = 200) -> Any:
    vera = make_persona(f"vera-{time.monotonic_ns()}", team, Role.VIEWER)
    answer = vera.browser.get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


async def layer_of(incident: Incident, by: str, query: str = "") -> Any:
    return await asked(incident.team, f"incidents/{incident.pk}/grid/layer?by={by}{query}")


async def test_in_a_hang_the_culprit_is_behind_and_the_others_are_not(hung: Incident) -> None:
    layer = await layer_of(hung, "op_lag")
    assert (layer["unit"], layer["nothing"], layer["n_unknown"]) == ("ops", "", 0)
    assert [rank for rank, lag in enumerate(layer["value"]) if lag] == [CULPRIT]
    assert layer["note"]["texts"][layer["note"]["at"][CULPRIT]] == "in dp0"
    assert (layer["low"], layer["middle"], layer["high"]) == (0, 0, layer["value"][CULPRIT])
    assert layer["at"] is not None and not layer["is_settled"]


async def test_before_the_hang_nobody_was_behind(hung: Incident) -> None:
    first = await Node.objects.order_by("first_ns").afirst()
    assert first is not None
    layer = await layer_of(hung, "op_lag", f"&at_ns={first.first_ns + 5 * SECOND}")
    assert set(layer["value"]) == {0}


async def test_the_layers_of_the_job_are_those_of_its_newest_attempt(hung: Incident) -> None:
    of_job = await asked(hung.team, f"jobs/{hung.job_id}/grid/layer?by=op_lag")
    assert of_job["value"] == (await layer_of(hung, "op_lag"))["value"]


@pytest.mark.parametrize(
    ("by", "why"),
    [("stack_class", "no stacks were taken"), ("stage_lateness", "no stages are recorded")],
)
async def test_where_nothing_is_measured_everybody_is_unknown_and_it_says_why(
    hung: Incident, by: str, why: str
) -> None:
    await sync_to_async(lambda: hung.attempt.dump_requests.all().delete())()
    layer = await layer_of(hung, by)
    assert (layer["nothing"], layer["n_unknown"], layer["at"]) == (why, 8, None)
    assert set(layer["value"]) == {None}


async def test_what_cannot_be_asked_is_refused(attempt: Attempt) -> None:
    incident = await sync_to_async(make_incident)(attempt)
    for query in ("", "?by=state", "?by=op_lag&at_ns=1", "?by=op_lag&at_ns=x", "?by=op_lag&b=1"):
        await asked(incident.team, f"incidents/{incident.pk}/grid/layer{query}", 400)


async def test_the_year_1970_is_not_now(hung: Incident) -> None:
    await asked(hung.team, f"incidents/{hung.pk}/grid/layer?by=op_lag&at_ns=0", 400)


async def test_moments_close_together_are_read_once(hung: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int | None] = []
    real = layers_api.read_layer

    def counted(by: Any, asked: layers_read.Asked) -> Any:
        read.append(asked.at_ns)
        return real(by, asked)

    monkeypatch.setattr(layers_api, "read_layer", counted)
    first = await Node.objects.order_by("first_ns").afirst()
    assert first is not None
    tenth = (first.first_ns // (SECOND // 10) + 50) * (SECOND // 10)
    for ns in (0, 7, 99_999_999):
        await layer_of(hung, "stack_class", f"&at_ns={tenth + ns}")
    assert read == [tenth]


async def test_a_process_reads_one_layer_at_a_time_and_refuses_who_would_wait_long(
    hung: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers_api, "WAIT_SECONDS", 0.01)
    before = KEPT_ANSWERS.labels("busy")._value.get()
    with layers_api._reading:
        said = await asked(hung.team, f"incidents/{hung.pk}/grid/layer?by=op_lag", 503)
    assert said["code"] == "busy" and KEPT_ANSWERS.labels("busy")._value.get() == before + 1
    assert (await layer_of(hung, "op_lag"))["nothing"] == ""


async def test_another_team_is_told_nothing(attempt: Attempt, stranger: Persona) -> None:
    incident = await sync_to_async(make_incident)(attempt)
    for path in (f"incidents/{incident.pk}", f"jobs/{incident.job_id}"):
        answer = await sync_to_async(stranger.browser.get)(f"/api/v1/{path}/grid/layer?by=op_lag")
        assert answer.status_code == 404


async def test_when_the_incident_is_over_its_layers_are_those_of_its_end_and_settled(hung: Incident) -> None:
    await Incident.objects.filter(pk=hung.pk).aupdate(condition=ConditionState.CLEAR)
    layer = await layer_of(hung, "op_lag")
    assert layer["is_settled"] and layer["value"][CULPRIT] > 0


def without_first_node(*given: Any, **named: Any) -> Any:
    window = read_window(*given, **named)
    rows = window.rows("traffic")
    return dataclasses.replace(window, tables={"traffic": rows[rows["node"] != 0]})


async def test_where_transfers_are_measured_they_are_added_up_unless_they_are_too_many(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await feed(ingest, 6.0)
    job = (await Attempt.objects.select_related("job").alatest("pk")).job
    layer = await asked(ingest.team, f"jobs/{job.pk}/grid/layer?by=bandwidth")
    assert layer["nothing"] == "" and layer["unit"] == "B/s" and "as its node measures them" in layer["says"]
    assert layer["n_unknown"] == 0 and layer["low"] > 0
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    found = await sync_to_async(layers_read.asked_of)(attempt, None, None)
    every = await sync_to_async(layers_read._traffic)(found)
    assert every is not None and len(every.rows("traffic")) > 100
    with monkeypatch.context() as quiet:  # the node heard last, and the first, say nothing: others tell how much it is
        quiet.setattr(layers_read, "read_window", without_first_node)
        quiet.setattr(layers_read, "TRAFFIC_ROWS_MAX", 10)
        assert await sync_to_async(layers_read._traffic)(found) is None
        quiet.setattr(layers_read, "TRAFFIC_ROWS_MAX", 10**6)
        some = await sync_to_async(layers_read._traffic)(found)
        assert some is not None and 0 < len(some.rows("traffic")) < len(every.rows("traffic"))
    monkeypatch.setattr(layers_read, "TRAFFIC_ROWS_MAX", 10)
    cache.clear()
    layer = await asked(ingest.team, f"jobs/{job.pk}/grid/layer?by=bandwidth")
    assert "by its counters: its transfers are too many to be added up" in layer["says"]
    assert layer["n_unknown"] == 0 and layer["high"] > 0


async def test_where_nobody_measures_transfers_the_nics_counters_tell(ingest: Ingest) -> None:
    await feed(ingest, 6.0, traffic_rows=0)
    job = (await Attempt.objects.select_related("job").alatest("pk")).job
    layer = await asked(ingest.team, f"jobs/{job.pk}/grid/layer?by=bandwidth")
    assert "by its counters" in layer["says"] and layer["high"] > 0 and layer["n_unknown"] == 0


async def test_the_scale_of_bandwidth_is_of_what_was_sent_before_the_first_symptom(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers_wire, "WORTH_B_PER_S", 0.0)
    await feed(ingest, 6.0, traffic_rows=0)
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    path = f"jobs/{attempt.job_id}/grid/layer?by=bandwidth"
    assert "before the first symptom" not in (await asked(ingest.team, path))["says"]
    newest_ns = await sync_to_async(latest_data_ns)(attempt.pk)
    await sync_to_async(make_incident)(attempt, first_symptom_ns=newest_ns + SECOND)
    cache.clear()
    layer = await asked(ingest.team, path)
    assert "what half of the ranks asked sent before the first symptom" in layer["says"]
    assert layer["full"] >= layer["high"] > 0


async def test_the_rank_that_waits_for_its_data_is_late_at_the_leading_stage(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Training(ingest)
    await job.train(150, Fault("data", 3, 0.2))
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    await sync_to_async(watch_stages)(attempt.pk)
    layer = await asked(ingest.team, f"jobs/{attempt.job_id}/grid/layer?by=stage_lateness")
    late = layer["value"]
    assert layer["unit"] == "ms" and layer["n_unknown"] == 0 and max(late) == late[3] == layer["high"]
    assert late[3] == pytest.approx(200, abs=40), late
    ends = [one async for one in attempt.stage_packets.order_by("end_ns").values_list("end_ns", flat=True)]
    monkeypatch.setattr(layers_read, "SETTLED_NS", 0)
    for at_ns, is_settled in ((ends[-1] - SECOND, True), (ends[-1] + SECOND // 5, False)):
        asked_for = await sync_to_async(layers_read.asked_of)(attempt, None, at_ns)
        then = await sync_to_async(layers_read.read_layer)("stage_lateness", asked_for)
        assert then.is_settled == is_settled, "the window of that moment is not closed yet"
    assert layer["note"]["texts"][layer["note"]["at"][3]].startswith("at the end of data.next_wait")


@sync_to_async
def ask_stacks(incident: Incident) -> DumpRequest:
    incident.attempt.dump_requests.all().delete()
    return ask_dumps(incident.attempt_id, (STACKS,), looks=1, asked_by="x")


@sync_to_async
def with_stacks(request: DumpRequest, taken_ns: int, odd: int) -> None:
    """A request whose stacks were read: one rank stands out, of rank 7 nothing came."""
    one = {"kind": "trainer", "is_wait": False, "is_dominant": False, "said": "data loader: __next__"}
    many = [rank for rank in range(7) if rank != odd]
    groups = [
        {**one, "ranks": many, "count": len(many), "said": "in a collective", "is_wait": True},
        {**one, "ranks": [odd], "count": 1},
    ]
    silent = [{"rank": 7, "node": "node-3", "kind": "stacks", "why": "its node has not answered"}]
    stacks = {"groups": groups, "silent": silent, "silent_count": 1, "left_out": 0}
    DumpSummary.objects.create(
        request=request, n_answers=3, made_at=timezone.now(), took_s=0.1, taken_ns=taken_ns, stacks=stacks
    )


async def test_classes_of_stacks_are_those_of_the_newest_that_were_taken(hung: Incident) -> None:
    request = await ask_stacks(hung)
    newest = (await Node.objects.order_by("-watermark_ns").afirst()).watermark_ns  # type: ignore[union-attr]
    await with_stacks(request, newest - 2 * SECOND, odd=CULPRIT)
    layer = await layer_of(hung, "stack_class")
    assert [(one["said"], one["n_ranks"], one["is_most"]) for one in layer["classes"]] == [
        ("data loader: __next__", 1, False), ("in a collective", 6, True),
    ]  # fmt: skip
    assert layer["value"] == [1, 1, 1, 0, 1, 1, 1, None]
    assert layer["note"]["texts"][layer["note"]["at"][7]] == "its node has not answered"
    earlier = await layer_of(hung, "stack_class", f"&at_ns={newest - 8 * SECOND}")
    assert earlier["nothing"] == "no stacks were taken before this moment"


async def test_stacks_that_still_come_are_not_settled_though_the_incident_is_over(hung: Incident) -> None:
    request = await ask_stacks(hung)
    await Incident.objects.filter(pk=hung.pk).aupdate(condition=ConditionState.CLEAR)
    layer = await layer_of(hung, "stack_class")
    assert (layer["nothing"], layer["is_settled"]) == ("the stacks that were asked for have not come", False)
    newest = (await Node.objects.order_by("-watermark_ns").afirst()).watermark_ns  # type: ignore[union-attr]
    await with_stacks(request, newest - 2 * SECOND, odd=CULPRIT)
    then = f"&at_ns={newest - SECOND}"
    assert not (await layer_of(hung, "stack_class", then))["is_settled"], "not all nodes have answered"
    await DumpRequest.objects.filter(pk=request.pk).aupdate(state=DumpRequest.State.EXPIRED)
    cache.clear()
    assert (await layer_of(hung, "stack_class", then))["is_settled"]
    layer = await layer_of(hung, "stack_class")
    assert layer["nothing"] == "" and not layer["is_settled"], "more may be asked for at any time"


async def test_an_incident_of_an_attempt_of_which_nothing_was_heard_has_layers_of_unknown_ranks(
    attempt: Attempt,
) -> None:
    incident = await sync_to_async(make_incident)(attempt)
    for by in ("op_lag", "stack_class", "bandwidth", "stage_lateness"):
        layer = await layer_of(incident, by)
        assert (layer["n_unknown"], len(layer["value"])) == (8, 8) and layer["nothing"], by
