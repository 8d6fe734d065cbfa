"""The pictures of an incident over REST: who stood still when, and the lanes of flows."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from console.accounts.models import Membership, Role
from console.incidents.models import Incident
from console.incidents.pictures import evidence
from console.incidents.watching import watch
from ingest.models import Attempt
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures

SECOND = 10**9
CULPRIT = 3


@pytest.fixture
async def incident(ingest: Ingest) -> Incident:
    """Of a job that ran for eight seconds and has stood still for fourteen, because rank 3 entered no further op."""
    job = StallingJob(ingest)
    await job.run(8)
    job.stall()
    await job.run(14)
    await sync_to_async(watch.watch_job)((await Attempt.objects.alatest("pk")).pk)
    return await Incident.objects.select_related("team", "job").alatest("pk")


@sync_to_async
def get(incident: Incident, path: str) -> Any:
    user, _ = User.objects.get_or_create(username="asks")
    Membership.objects.get_or_create(user=user, team=incident.team, role=Role.VIEWER)
    browser = APIClient()
    browser.force_login(user)
    return browser.get(f"/api/v1/incidents/{incident.pk}/{path}")


async def test_the_culprit_stands_first_and_every_rank_has_spans_of_the_whole_time(incident: Incident) -> None:
    answer = (await get(incident, "standing")).json()
    assert answer["ranks"][0] == CULPRIT
    assert sorted(answer["ranks"]) == list(range(8))
    assert answer["omitted"] == 0
    for rank in answer["ranks"]:
        mine = [span for span in answer["spans"] if span["rank"] == rank]
        assert sum(span["to_ns"] - span["from_ns"] for span in mine) == answer["to_ns"] - answer["from_ns"]


async def test_the_time_of_the_picture_is_that_of_the_lanes(incident: Incident) -> None:
    standing, lanes = [(await get(incident, path)).json() for path in ("standing", "lanes")]
    assert (standing["from_ns"], standing["to_ns"]) == (lanes["from_ns"], lanes["to_ns"])
    assert lanes["newest_ns"] >= lanes["to_ns"]


async def test_lanes_that_end_before_the_data_say_how_far_it_goes(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "LANES_NS", 12 * SECOND)
    first = (await get(incident, "lanes")).json()
    assert first["to_ns"] - first["from_ns"] == 12 * SECOND
    assert first["newest_ns"] > first["to_ns"]
    latest = (await get(incident, f"lanes?from_ns={first['newest_ns'] - 12 * SECOND}")).json()
    assert latest["to_ns"] == latest["newest_ns"] == first["newest_ns"]


async def test_ranks_beyond_the_limit_are_counted(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "RANKS_MAX", 3)
    answer = (await get(incident, "standing")).json()
    assert answer["ranks"][0] == CULPRIT
    assert (len(answer["ranks"]), answer["omitted"]) == (3, 5)


async def test_as_many_flows_come_as_are_asked_for(incident: Incident) -> None:
    whole = (await get(incident, "lanes")).json()
    some = (await get(incident, "lanes?limit=2")).json()
    assert len(some["lanes"]) == min(2, len(whole["lanes"]))
    assert len(some["lanes"]) + some["omitted"] == len(whole["lanes"]) + whole["omitted"]


@pytest.mark.parametrize("query", ["lanes?limit=0", "lanes?limit=x", "lanes?limit=5000", "standing?from_ns=-1"])
async def test_what_cannot_be_meant_is_refused(incident: Incident, query: str) -> None:
    assert (await get(incident, query)).status_code == 400
