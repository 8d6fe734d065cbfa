"""Why not rank 5? Asked of a running stack's incident, answered from its pinned traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from celery.exceptions import SoftTimeLimitExceeded
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from console.accounts.models import Membership, Role
from console.celery import app
from console.incidents.lifecycle import BadAct
from console.incidents.models import Incident
from console.incidents.pictures import why_not, why_not_api
from console.incidents.watching import watch
from ingest.models import Attempt
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a worker does is done at once, in this process."""
    monkeypatch.setattr(why_not_api, "WAIT_SECONDS", 0.0)
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


@pytest.fixture
async def incident(ingest: Ingest) -> Incident:
    """Of a job that ran for eight seconds and has stood still for fourteen, because rank 3 entered no further op."""
    job = StallingJob(ingest)
    await job.run(8)
    job.stall()
    await job.run(14)
    await sync_to_async(watch.watch_job)((await Attempt.objects.alatest("pk")).pk)
    return await Incident.objects.select_related("team", "job").alatest("pk")


def ask(incident: Incident, query: str, role: Role = Role.VIEWER) -> Any:
    user = User.objects.create(username=f"asks {query}")
    Membership.objects.create(user=user, team=incident.team, role=role)
    browser = APIClient()
    browser.force_login(user)
    return browser.get(f"/api/v1/incidents/{incident.pk}/why-not{query}")


async def test_a_victim_is_cleared_and_the_culprit_is_not(incident: Incident) -> None:
    victim = (await sync_to_async(ask)(incident, "?rank=6")).json()
    assert (victim["rank"], victim["diagnosis_id"]) == (6, 1)
    assert victim["alternative"]["why_not"].startswith("It waits for rank")
    assert victim["alternative"]["evidence"]
    culprit = (await sync_to_async(ask)(incident, "?rank=3")).json()
    assert culprit["alternative"]["why_not"].startswith("It is blamed: Rank 3 has not entered the op")


@pytest.mark.parametrize("query", ["", "?rank=", "?rank=x", "?rank=-1", "?rank=99999999999", "?rank=1&other=2"])
async def test_a_question_without_a_rank_is_refused(incident: Incident, query: str) -> None:
    assert (await sync_to_async(ask)(incident, query)).status_code == 400


async def test_a_job_too_large_is_answered_from_less_or_not_at_all(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why_not, "RANK_SECONDS_MAX", 16)
    answer = await sync_to_async(ask)(incident, "?rank=6")
    assert answer.json()["alternative"]["why_not"].startswith("It waits for rank"), "3 seconds tell a hang"
    revision = await incident.revisions.alatest("number")
    revision.pk, revision.number = None, revision.number + 1
    revision.body["symptom"]["kind"] = "straggler"
    await revision.asave()
    monkeypatch.setattr(why_not, "RANK_SECONDS_MAX", 1)
    with pytest.raises(BadAct, match=r"python -m rca window.npz --why-not"):
        await sync_to_async(why_not.why_not_rank)(incident, 6)


@pytest.mark.django_db
def test_before_anything_is_diagnosed_it_says_so_and_strangers_see_nothing(
    attempt: Attempt, viewer: Persona, stranger: Persona
) -> None:
    made = make_incident(attempt)
    path = f"/api/v1/incidents/{made.pk}/why-not?rank=3"
    answer = viewer.browser.get(path).json()
    assert (answer["diagnosis_id"], answer["alternative"]["why_not"]) == (None, "Nothing has been diagnosed yet.")
    assert stranger.browser.get(path).status_code == 404
    assert APIClient().get(path).status_code in (401, 403)


@pytest.mark.django_db
def test_without_a_worker_whoever_asks_is_told_to_ask_again(attempt: Attempt, viewer: Persona) -> None:
    app.conf.task_always_eager = False
    answer = viewer.browser.get(f"/api/v1/incidents/{make_incident(attempt).pk}/why-not?rank=3")
    assert (answer.status_code, answer.json()["code"]) == (503, "busy")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What workers are asked, while none answers."""
    found: list[Any] = []
    monkeypatch.setattr(why_not_api.answer_why_not, "delay", lambda *given: found.append(given))
    return found


def of_rank(who: Persona, incident: Incident, rank: int) -> Any:
    return who.browser.get(f"/api/v1/incidents/{incident.pk}/why-not?rank={rank}")


@pytest.mark.django_db
def test_no_worker_is_asked_of_a_rank_that_the_job_does_not_have(
    attempt: Attempt, viewer: Persona, asked: list[Any]
) -> None:
    made = make_incident(attempt)
    refused = of_rank(viewer, made, 8)
    assert (refused.status_code, refused.json()["error"]) == (400, "There is no such rank: the job has 8.")
    assert asked == []


@pytest.mark.django_db
def test_the_same_is_asked_of_one_worker_and_nobody_asks_more_than_some_questions_a_minute(
    attempt: Attempt, viewer: Persona, responder: Persona, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why_not_api, "MINUTE_SECONDS", 10**9)
    made = make_incident(attempt)
    for _ in range(why_not_api.QUESTIONS_MAX):
        assert of_rank(viewer, made, 3).status_code == 503
    assert len(asked) == 1
    assert (of_rank(viewer, made, 4).status_code, len(asked)) == (429, 1)
    assert of_rank(responder, made, 4).status_code == 503, "others may still ask"
    why_not.answer(*asked[0])
    assert of_rank(viewer, made, 3).status_code == 200, "what is known is no question"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "said"),
    [(SoftTimeLimitExceeded(), "It took longer than 30 s"), (ValueError("x"), "Working it out failed (ValueError)")],
)
def test_an_answer_that_cannot_be_worked_out_is_said_and_not_tried_at_once_again(
    attempt: Attempt, viewer: Persona, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    tried: list[int] = []

    def fails(incident: Incident, rank: int) -> None:
        tried.append(rank)
        raise error

    monkeypatch.setattr(why_not, "why_not_rank", fails)
    made = make_incident(attempt)
    for _ in range(3):
        refused = of_rank(viewer, made, 3)
        assert refused.status_code == 400 and refused.json()["error"].startswith(said)
    assert tried == [3]
