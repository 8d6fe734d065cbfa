"""Ranks, nodes and jobs over time: what is known of them, who was blamed there again and again, and nobody else's."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.models import Role
from console.fleet import looks, ranks, recurrence
from console.incidents.models import Incident, JobNormal, Look
from console.incidents.watching import watch
from ingest.models import Attempt, Job, Node, Rank, Team
from ingest.sums import summed
from rca.findings import Component
from rca.triggers.normal import Normal, normal_to_json
from rca.triggers.pace import Pace
from tests.console.conftest import Persona, make_persona
from tests.console.incidents.making import make_incident
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
API = "/api/v1"


async def got(browser: APIClient, path: str) -> Any:
    answer = await sync_to_async(browser.get)(f"{API}/{path}")
    assert answer.status_code == 200, answer.content
    return answer.json()


async def test_a_hanging_jobs_ranks_and_nodes_say_where_they_are(ingest: Ingest) -> None:
    job = StallingJob(ingest)
    await job.run(15)
    job.stall()
    await job.run(14)
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    await sync_to_async(watch.watch_job)(attempt.pk)
    team = await Team.objects.aget(pk=attempt.job.team_id)
    browser = (await sync_to_async(make_persona)("vera", team, Role.VIEWER)).browser
    culprit = (await got(browser, f"jobs/{attempt.job_id}/ranks/3"))["rank"]
    assert culprit["place"]["node"] == "node-1" and culprit["place"]["node_mates"] == [2, 3]
    (comm,) = culprit["communicators"]
    victim = (await got(browser, f"jobs/{attempt.job_id}/ranks/2"))["rank"]
    assert comm["n_enqueued"] == victim["communicators"][0]["n_enqueued"] - 1
    assert comm["n_done"] is not None and comm["n_p2p_enqueued"] == 0
    assert culprit["flows"] == [] and {one["peer_rank"] for one in victim["flows"]} == {1, 3}
    assert min(one["stuck_ms"] for one in victim["flows"]) > 5000
    assert len(culprit["incidents"]) == 1 and victim["incidents"] == []
    page = await got(browser, f"jobs/{attempt.job_id}/ranks/2")
    assert "ops of rank 2" in page["ops"]["text"] and page["ops"]["data"]
    node = await got(browser, "nodes/node-1")
    assert [(one["rank"], one["is_newest"]) for one in node["ranks"]] == [(2, True), (3, True)]
    assert [one["number"] for one in node["incidents"]] == culprit["incidents"]
    assert node["traffic"]["text"].startswith("By the NICs' own counters")
    assert [(one["kind"], one["n_incidents"]) for one in node["blamed"]["rows"]][:1] != []
    assert (await got(browser, "nodes/node-2"))["blamed"]["rows"] == []


def member_row(begun: int, n_open: int) -> dict[str, int]:
    """A progress row of 676 collectives and 4 sends and receives."""
    ops = {"n_enqueued": 676, "n_done": 0, "n_p2p_enqueued": 4, "n_p2p_done": 0, "last_done_ns": 0}
    return {**ops, "kernels_begun": begun, "kernels_open": n_open}


@pytest.mark.parametrize(
    ("begun", "n_open", "word"), [(0, 0, None), (680, 2, "begun"), (679, 0, "not begun"), (680, 0, "ended")]
)
def test_what_the_gpu_tells_of_its_newest_kernel_is_said_and_nothing_where_it_does_not_tell(
    begun: int, n_open: int, word: str | None
) -> None:
    member: Any = SimpleNamespace(comm_rank=1, communicator=SimpleNamespace(comm_id=7, name="tp_0", n_ranks=2))
    assert ranks._in_comm(member, {7: member_row(begun, n_open)}, {7}).kernel == word
    assert ranks._in_comm(member, {}, {7}).kernel is None


def test_ops_inside_a_node_are_not_said_to_be_undone() -> None:
    member: Any = SimpleNamespace(comm_rank=1, communicator=SimpleNamespace(comm_id=7, name="tp_0", n_ranks=2))
    seen = member_row(0, 0)
    inside = ranks._in_comm(member, {7: seen}, {7})
    assert (inside.n_enqueued, inside.n_p2p_enqueued, inside.n_done, inside.n_p2p_done) == (676, 4, None, None)
    between = ranks._in_comm(member, {7: seen}, set())
    assert (between.n_enqueued, between.n_done, between.n_p2p_done) == (676, 0, 0)
    assert ranks._in_comm(member, {}, {7}).n_enqueued is None


@pytest.mark.parametrize(("days", "least", "most"), [(0, 0, 60), (8, 10_080, 10_080)])
async def test_a_job_over_time_has_figures_in_words_and_its_losses(
    ingest: Ingest, days: int, least: int, most: int
) -> None:
    """days: since when the job runs; least, most: how long the axis is, minutes."""
    job = StallingJob(ingest)
    await job.run(25)
    await ingest.application.stop()  # which writes all roll-ups
    attempt = await Attempt.objects.select_related("job").alatest("pk")
    await Attempt.objects.aupdate(started_at=attempt.started_at - timedelta(days=days))
    await Node.objects.filter(attempt=attempt, name="node-2").aupdate(losses={"ring_records": 5, "late_sweeps": 9})
    team = await Team.objects.aget(pk=attempt.job.team_id)
    browser = (await sync_to_async(make_persona)("vera", team, Role.VIEWER)).browser
    page = await got(browser, f"jobs/{attempt.job_id}/figures?minutes=10080")
    assert set(page) >= {"steps", "communication", "bandwidth"}
    for name in ("communication", "bandwidth"):
        figure = page[name]
        newest = max(at for trace in figure["data"] for at in trace["x"])
        assert newest[:19].replace("T", " ") + " UTC" in figure["text"], "of when the newest is"
        first, last = figure["layout"]["xaxis"]["range"]
        assert first <= newest < last, "a time in which nothing came is seen"
        asked = datetime.fromisoformat(last) - datetime.fromisoformat(first)
        said = "the axis is as long as what was asked for, or as the job has run"
        assert timedelta(minutes=least) <= asked <= timedelta(minutes=most), said
    losses = page["losses"]
    assert (losses["n_nodes"], losses["n_nodes_losing"], losses["kinds"]["ring_records"]) == (4, 1, 5)
    assert losses["nodes"][0]["node"] == "node-2"


def test_iterations_are_drawn_where_no_stages_are_recorded(attempt: Attempt, viewer: Persona) -> None:
    at = f"{API}/jobs/{attempt.job_id}/figures"
    assert "Neither a recorder" in viewer.browser.get(at).json()["steps"]["text"]
    pace = Pace(recent=((10**18, 200_000_000), (10**18 + 1, 300_000_000)), usual_ns=(200_000_000,))
    JobNormal.objects.create(attempt=attempt, body=normal_to_json(Normal(pace=pace)), updated_at=timezone.now())
    steps = viewer.browser.get(at).json()["steps"]
    assert "Usual are 200 ms." in steps["text"] and "iteration 300 ms" in steps["text"]
    first, last = (datetime.fromisoformat(one) for one in steps["layout"]["xaxis"]["range"])
    assert first.year == 2001 and timezone.now() - last < timedelta(minutes=5), "nothing came since, and that is seen"


def test_too_many_roll_ups_are_refused_and_odd_minutes_too(
    attempt: Attempt, viewer: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"{API}/jobs/{attempt.job_id}/figures"
    assert viewer.browser.get(f"{at}?minutes=31").status_code == 400
    monkeypatch.setattr(summed, "ROWS_MAX", -1)
    refused = viewer.browser.get(at)
    assert refused.status_code == 400 and "Choose a shorter time." in refused.json()["error"]


def test_every_look_can_be_read_page_by_page(
    attempt: Attempt, viewer: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "PAGE", 2)
    for n in range(5):
        Look.objects.create(
            attempt=attempt, taken_at=timezone.now(), seen_ns=n + 1, saw=f"look {n}", kind="failure" if n == 1 else ""
        )
    at, read, query = f"{API}/jobs/{attempt.job_id}/looks", [], ""
    while True:
        page = viewer.browser.get(at + query).json()
        read += [one["saw"] for one in page["looks"]]
        if page["older"] is None:
            break
        query = f"?before={page['older']}"
    assert read == [f"look {n}" for n in (4, 3, 2, 1, 0)]
    assert [one["saw"] for one in viewer.browser.get(f"{at}?saw_something=true").json()["looks"]] == ["look 1"]


def blamed(team: Team, node: str, day: int, **changes: Any) -> Incident:
    """An incident of a job of its own whose rank 3 is the culprit, so many days ago."""
    now = timezone.now()
    job = Job.objects.create(team=team, name=f"job {Job.objects.count()}")
    attempt = Attempt.objects.create(job=job, number=0, world_size=8, started_at=now, last_received_at=now)
    ran = Node.objects.create(attempt=attempt, name=node)
    Rank.objects.create(attempt=attempt, node=ran, pid=1, process_started=1, rank=3, local_rank=1, nic="mlx5_0")
    incident = make_incident(attempt)
    fields = {
        "culprits": [3],
        "n_culprits": 1,
        "culprit_nodes": [node],
        "component": "unknown",
        "opened_at": now - timedelta(days=day),
        **changes,
    }
    Incident.objects.filter(pk=incident.pk).update(**fields)
    return incident


def test_who_is_blamed_again_is_counted_by_node_gpu_and_nic_across_jobs(
    team: Team, viewer: Persona, stranger: Persona
) -> None:
    assert viewer.browser.get(f"{API}/recurrence").json()["blamed"]["rows"] == []
    first, second = blamed(team, "n1", 3), blamed(team, "n1", 0)
    blamed(team, "n2", 1)
    blamed(team, "n1", 40)  # too long ago
    blamed(team, "n1", 1, review="false")  # nothing was wrong
    blamed(team, "n1", 1, culprits=[], n_culprits=0, culprit_nodes=[])
    rows = viewer.browser.get(f"{API}/recurrence").json()["blamed"]["rows"]
    assert [(row["kind"], row["name"], row["n_incidents"]) for row in rows[:3]] == [
        ("gpu", "GPU 1 of n1", 2), ("nic", "mlx5_0 of n1", 2), ("node", "n1", 2),
    ]  # fmt: skip
    assert rows[0]["incidents"] == [second.pk, first.pk] and sorted(rows[0]["days"].values()) == [1, 1]
    assert viewer.browser.get(f"{API}/recurrence?days=60").json()["blamed"]["rows"][0]["n_incidents"] == 3
    assert viewer.browser.get(f"{API}/nodes/n2").json()["blamed"]["rows"][0]["n_incidents"] == 1
    assert stranger.browser.get(f"{API}/recurrence").json()["blamed"]["rows"] == []
    assert stranger.browser.get(f"{API}/nodes/n1").status_code == 404


@pytest.mark.parametrize(
    ("component", "kinds"),
    [("nic", ["nic", "node"]), ("copy", ["gpu", "node"]), ("process", ["gpu", "node"]), ("proxy", ["node"])],
)
def test_a_fault_counts_for_the_places_its_component_can_be_in(
    team: Team, viewer: Persona, component: str, kinds: list[str]
) -> None:
    blamed(team, "n1", 0, component=component)
    rows = viewer.browser.get(f"{API}/recurrence").json()["blamed"]["rows"]
    assert [row["kind"] for row in rows] == kinds


def test_every_component_says_where_it_counts() -> None:
    assert {*recurrence.OF_COMPONENT, "unknown"} == {*Component}


def test_recurrence_counts_what_it_left_out(team: Team, viewer: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(3):
        blamed(team, "n1", day)
    monkeypatch.setattr(recurrence, "INCIDENTS_MAX", 2)
    found = viewer.browser.get(f"{API}/recurrence").json()["blamed"]
    assert (found["rows"][0]["n_incidents"], found["n_incidents"], found["left_out"]) == (2, 2, 1)


def test_ranks_that_never_were_and_other_teams_jobs_are_not_there(
    attempt: Attempt, viewer: Persona, stranger: Persona
) -> None:
    at = f"{API}/jobs/{attempt.job_id}"
    assert viewer.browser.get(f"{at}/ranks/5").status_code == 404
    assert viewer.browser.get(f"{API}/nodes/nowhere").status_code == 404
    for path in ("figures", "looks", "ranks/0"):
        assert stranger.browser.get(f"{at}/{path}").status_code == 404
