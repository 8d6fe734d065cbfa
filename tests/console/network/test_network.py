"""The network tab of a simulated job whose wire was measured: from its batches to what a browser is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from console.accounts.models import Role
from console.incidents.models import Incident
from console.incidents.pictures.evidence import newest_diagnosis
from console.incidents.watching import watch
from console.network import read as network_read
from ingest.models import Attempt, Job
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from tests.console.conftest import make_persona
from tests.ingest.conftest import Ingest, ingest, no_traces
from tests.nccl_instrument.simulate.jobs import run

__all__ = ["ingest", "no_traces"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)
FOUR = Layout(tp=2, pp=1, dp=4, ranks_per_node=2)
PIPELINE = Layout(tp=1, pp=4, dp=2, ranks_per_node=1)
MEASURED = replace(TESTBED, traffic_rows=10**6)


async def feed(
    ingest: Ingest,
    seconds: float,
    traffic_rows: int = 10**6,
    name: str = "nic_limited",
    gone: frozenset[int] = frozenset(),
) -> None:
    """gone: nodes that are not heard of after the first five seconds."""
    fault = make_fault(name, FOUR, 22.0, victim=3, amount=0.25 if name == "nic_limited" else None)
    looked_ns = first_ns = 0
    for one in run(FOUR, fault, seconds=seconds, physics=replace(MEASURED, traffic_rows=traffic_rows)):
        ingest.clock_ns = one.arrives_ns
        first_ns = first_ns or one.arrives_ns
        if one.node in gone and one.arrives_ns - first_ns > 5 * 10**9:
            continue
        assert (await ingest.post(one.encoded)).status == 200
        if one.arrives_ns - looked_ns >= 3 * 10**9:
            looked_ns = one.arrives_ns
            await sync_to_async(watch.watch_job)((await Attempt.objects.alatest("pk")).pk)


def ns_of(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1e9)


@sync_to_async
def asked(ingest: Ingest, path: str) -> Any:
    name = f"vera-{User.objects.count()}"
    return make_persona(name, ingest.team, Role.VIEWER).browser.get(f"/api/v1/{path}")


async def test_an_incidents_tab_shows_the_culprits_group_with_the_slow_nic_first(ingest: Ingest) -> None:
    await feed(ingest, 40.0)
    incident = await Incident.objects.aget()
    shown = (await asked(ingest, f"incidents/{incident.pk}/network")).json()
    assert shown["rank"] == incident.culprits[0] == 3
    named = next(one for one in shown["groups"] if one["comm_id"] == shown["group"])
    assert named["name"].startswith("dp") and named["n_ranks"] == 4
    slow = [row["rank"] for row in shown["ranks"] if row["times_median"] > 0.9]
    assert 3 in slow and shown["ranks"][-1]["rank"] == 7, "7 neither is the slow NIC's rank nor sends to it"
    assert "Slowest: rank" in shown["paths"]["text"] and "3" in shown["paths"]["text"]
    assert "lasted" in shown["times"]["text"] and shown["times"]["data"] and shown["rates"]["data"]
    assert shown["matrix"] is None and "µs" in shown["measured"]["sight"]


async def test_the_tab_of_a_hang_opens_on_the_verdicts_group_and_says_which_ops_never_ended(ingest: Ingest) -> None:
    await feed(ingest, 45.0, name="nic_down")
    incident = await Incident.objects.aget()
    shown = (await asked(ingest, f"incidents/{incident.pk}/network")).json()
    diagnosis = await sync_to_async(newest_diagnosis)(incident)
    assert diagnosis is not None and diagnosis.culprits == (3,)
    leading = [edge.comm_id for edge in diagnosis.path if edge.waits_for == 3]
    assert int(shown["group"], 16) in leading, "where ranks wait for the culprit"
    unfinished, onset = shown["unfinished"], incident.first_symptom_ns
    n_ranks = next(one["n_ranks"] for one in shown["groups"] if one["comm_id"] == shown["group"])
    assert unfinished["n_ops"] >= 1 and unfinished["n_ranks"] == n_ranks and unfinished["n_flows"] > 0
    assert unfinished["n_unheard"] == 0 and unfinished["oldest"]
    assert abs(ns_of(unfinished["last_done_at"]) - onset) < 3 * 10**9, "none has ended since the fault"
    assert ns_of(unfinished["at"]) > onset + 10 * 10**9, "as of the newest that is known"
    counted = shown["counted"]
    assert counted["n_ops"] > 0 and ns_of(counted["ended_at"]) <= onset + 3 * 10**9, "nothing is told of half an op"
    assert {row["rank"] for row in shown["ranks"] if row["unfinished"]} == set(unfinished["ranks"])
    marked = {one["comm_id"] for one in shown["groups"] if one["unfinished"]}
    assert shown["group"] in marked, "which groups stand is seen without opening each"


async def test_of_a_job_that_runs_no_op_is_called_unfinished(ingest: Ingest) -> None:
    await feed(ingest, 15.0)
    job = await Job.objects.aget()
    shown = (await asked(ingest, f"jobs/{job.pk}/network")).json()
    assert shown["unfinished"]["n_ops"] == 0 and shown["unfinished"]["ranks"] == []
    assert {one["unfinished"] for one in shown["groups"]} == {0} and not shown["counted"]["is_before"]


async def test_ranks_that_are_not_heard_are_counted_whatever_the_others_do(ingest: Ingest) -> None:
    await feed(ingest, 9.0, gone=frozenset({0}))
    job = await Job.objects.aget()
    shown = (await asked(ingest, f"jobs/{job.pk}/network?rank=3")).json()
    world = next(one["comm_id"] for one in shown["groups"] if one["name"] == "world")
    told = (await asked(ingest, f"jobs/{job.pk}/network?rank=3&group={world}")).json()["unfinished"]
    assert (told["n_read"], told["n_unheard"]) == (8, 2), "ranks 0 and 1"


async def test_a_job_that_is_not_measured_says_so_and_another_group_is_shown_when_asked_for(ingest: Ingest) -> None:
    await feed(ingest, 8.0, traffic_rows=0)
    job = await Job.objects.aget()
    shown = (await asked(ingest, f"jobs/{job.pk}/network")).json()
    assert (shown["measured"]["n_rows"], shown["ranks"], shown["rank"]) == (0, [], 0)
    assert "No op of this group was measured" in shown["times"]["text"]
    world = next(one for one in shown["groups"] if one["name"] == "world")
    other = (await asked(ingest, f"jobs/{job.pk}/network?rank=5&group={world['comm_id']}")).json()
    assert (other["rank"], other["group"]) == (5, world["comm_id"])


@pytest.mark.parametrize("query", ["rank=x", "rank=-1", "group=zz", "group=" + "0" * 17])
async def test_a_query_that_makes_no_sense_is_refused(ingest: Ingest, query: str) -> None:
    await feed(ingest, 3.0, traffic_rows=0)
    job = await Job.objects.aget()
    assert (await asked(ingest, f"jobs/{job.pk}/network?{query}")).status_code == 400


async def test_a_jobs_parallelism_is_told_by_kind_with_its_microbatches_and_its_layout(ingest: Ingest) -> None:
    for one in run(PIPELINE, seconds=10.0, physics=MEASURED):
        ingest.clock_ns = one.arrives_ns
        assert (await ingest.post(one.encoded)).status == 200
    job = await Job.objects.aget()
    shown = (await asked(ingest, f"jobs/{job.pk}/parallelism")).json()
    kinds = {one["parallelism"]: one for one in shown["communication"]}
    assert {"DP", "PP"} <= set(kinds) and kinds["DP"]["ms"] > 0
    assert kinds["DP"]["actual_ms"] <= kinds["DP"]["ms"] + 0.5 and shown["iteration_ms"] > kinds["DP"]["actual_ms"]
    bubble = shown["bubble"]
    assert 0 <= bubble["at_least"] <= bubble["at_most"] < 1 and bubble["reason"] == ""
    assert f"at least {bubble['at_least']:.0%}, at most {bubble['at_most']:.0%} is bubble" in shown["says"]
    assert {group["parallelism"] for group in shown["layout"] if group["name"].startswith("dp")} == {"DP"}
    names = {text for trace in shown["microbatches"]["data"] for text in trace["text"]}
    assert {"F1", "B1"} <= names and "stage" in shown["microbatches"]["text"]
    assert shown["doubts"] == [] and shown["read_of"] == ""


async def test_a_job_nobody_heard_of_has_no_parallelism(ingest: Ingest) -> None:
    job = await Job.objects.acreate(team=ingest.team, name="unheard")
    assert (await asked(ingest, f"jobs/{job.pk}/parallelism")).status_code == 404


async def test_those_who_look_at_the_same_thing_share_a_reading_and_its_limit_is_said(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await feed(ingest, 6.0)
    job = await Job.objects.aget()
    shown = (await asked(ingest, f"jobs/{job.pk}/network?rank=3")).json()
    assert shown["measured"]["read_of"] == ""
    monkeypatch.setattr(network_read, "ROWS_MAX", 1)
    assert (await asked(ingest, f"jobs/{job.pk}/network?rank=3")).json() == shown, "kept"
    few = (await asked(ingest, f"jobs/{job.pk}/network?rank=2&group={shown['group']}")).json()
    assert few["measured"]["read_of"].startswith("1 of 4 nodes (of 1,000,000 rows at most)")
    assert {row["rank"] for row in few["ranks"]} <= {2, 3}, "its own node is the one that is read"
    assert (few["unfinished"]["n_read"], few["unfinished"]["n_unheard"]) == (1, 0), "nothing is claimed of the others"
    assert (await asked(ingest, f"jobs/{job.pk}/parallelism")).json()["read_of"].startswith("1 of 4 nodes")
