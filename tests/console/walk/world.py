"""A team that has one of everything, all of it named by a word that nobody else may ever read, and everybody who may ask.

The walk asks for each of these objects by its id, as their own team and as an administrator of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import numpy as np
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.accounts.models import Membership, Role
from console.accounts.secrets import make_api_token
from console.dumps.models import Bundle
from console.evidence.models import EvidenceBundle
from console.incidents.models import Incident, SavedView, Severity
from console.silences.models import Kind, Silence
from console.stages.models import StagePacket
from console.stages.store import store_packet
from console.tickets.acts import make_destination
from console.tickets.models import Delivery, DeliveryState
from ingest.door.tokens import make_agent_token
from ingest.models import AgentToken, Attempt, DumpRequest, Job, Node, Rank, Team
from rca.findings import to_json
from rca.frontier.told import verdict_json
from rca.settings import DEFAULT
from tests.console.incidents.making import make_diagnosis, make_incident, make_symptom
from tests.eval.stages_model import Fault, run, window_of
from tests.eval.stages_model import Job as TrainingJob
from tests.eval.stages_rows import judged_windows

WORD: Final = "zanzibar"
"""In the name of everything the first team has."""
ROLES: Final = {"viewer": Role.VIEWER, "responder": Role.RESPONDER, "admin": Role.ADMIN}


@dataclass(frozen=True)
class World:
    """ids: what stands for each parameter of an address."""

    team: Team
    incident: Incident
    ids: Mapping[str, Any]

    def address(self, route: str) -> str:
        """The address of a route, with the first team's objects in it."""
        for parameter, value in self.ids.items():
            route = route.replace(parameter, str(value))
        assert "<" not in route, f"{route} has a parameter that the walk's world does not know"
        return "/" + route


def make_world() -> World:
    team = Team.objects.create(name=f"{WORD}-team")
    now = timezone.now()
    job = Job.objects.create(team=team, name=f"{WORD}-llama")
    attempt = Attempt.objects.create(job=job, number=0, world_size=8, started_at=now, last_received_at=now)
    node = Node.objects.create(attempt=attempt, name=f"{WORD}-node-0")
    Rank.objects.create(attempt=attempt, node=node, pid=1, process_started=1, rank=0, nic=f"{WORD}_0")
    incident = make_incident(attempt, headline=f"Hang in {WORD}")
    return World(
        team, incident, {"incidents/<int:number>": f"incidents/{incident.pk}", **_ids(team, attempt, incident)}
    )


def _ids(team: Team, attempt: Attempt, incident: Incident) -> dict[str, Any]:
    """Parameter → the object of the first team that it names."""
    destination = make_destination(
        team.pk, f"{WORD} duty", "pagerduty", {"routing_key": "a" * 32, "hook_secret": "hush-hush"}, "ada", Severity.LOW
    )
    delivery = Delivery.objects.create(
        destination=destination, verb="test", state=DeliveryState.SENT, made_at=_now(), due_at=_now(), done_at=_now()
    )
    make_agent_token(team, f"{WORD} agents")
    _revision(attempt, incident)
    DumpRequest.objects.create(attempt=attempt, kinds=["stacks"], asked_at=_now(), expires_at=_now())
    return {
        "jobs/<int:number>": f"jobs/{attempt.job_id}",
        "<int:job_id>": attempt.job_id,
        "<int:revision>": 1,
        "<int:rank>": 0,
        "<int:silence_id>": _silence(team).pk,
        "<int:view_id>": SavedView.objects.create(team=team, name=f"{WORD} view", query="", made_at=_now()).pk,
        "<int:window_id>": _packet(attempt).pk,
        "<slug:key>": _bundle(team).key,
        "<int:bundle_id>": _evidence(incident).pk,
        "<int:destination_id>": destination.pk,
        "<uuid:key>": destination.key,
        "<int:delivery_id>": delivery.pk,
        "<int:api_token_id>": make_api_token(team, f"{WORD} script", Role.VIEWER)[0].pk,
        "<int:token_id>": AgentToken.objects.get(team=team).pk,
        "<str:name>": f"{WORD}-node-0",
        "<str:secret>": "no-such-link",
    }


def _now() -> Any:
    return timezone.now()


def _revision(attempt: Attempt, incident: Incident) -> None:
    body = to_json(make_diagnosis(make_symptom(attempt)))
    incident.revisions.create(
        number=1, at=_now(), body=body, verdict="Rank 3.", window_start_ns=incident.window_start_ns,
        window_end_ns=incident.window_end_ns,
    )  # fmt: skip


def _silence(team: Team) -> Silence:
    ends_at = _now() + timedelta(hours=1)
    matchers = [{"field": "job", "values": [f"{WORD}-other"], "is_not": False}]
    return Silence.objects.create(
        team=team, kind=Kind.SILENCE, matchers=matchers, reason=WORD, starts_at=_now(), ends_at=ends_at, made_by="ada",
        made_at=_now(),
    )  # fmt: skip


def _evidence(incident: Incident) -> EvidenceBundle:
    """As built by somebody, and its file gone."""
    made: EvidenceBundle = EvidenceBundle.objects.create(
        incident=incident, key="e" * 32, wanted_by=f"{WORD} rita", wanted_at=_now(), done_at=_now(), state="done"
    )
    return made


def _packet(attempt: Attempt) -> StagePacket:
    packet = StagePacket(
        attempt=attempt, role=WORD, ended_at=_now(), start_ns=1, end_ns=2, first_step=0, last_step=1, n_ranks=8,
        verdict="usual", step_s=1.0, lasting_s=1.0, error_s=0.0, body=_packet_body(),
    )  # fmt: skip
    store_packet(packet)
    return packet


@lru_cache
def _packet_body() -> dict[str, Any]:
    """A window of forty steps in which nothing happened, as it is stored."""
    settings = replace(DEFAULT, stage_steps=40, stage_warm_up=0)
    (made,) = judged_windows(window_of(run(TrainingJob(), Fault(), 40, np.random.default_rng(2))), settings)
    body: dict[str, Any] = {**made.packet.body, "verdict": verdict_json(made.moved, None, "", made.packet.report)}
    return body


def _bundle(team: Team) -> Bundle:
    answer = {"diagnosis": None, "agreement": [], "layer": "", "stacks": None, "recorder": None, "ranks": {"0": []}}
    return Bundle.objects.create(
        team=team, key="k" * 20, name=f"{WORD}.zip", size_bytes=1, brought_by="ada", brought_at=_now(), state="done",
        progress=1.0, answer=answer,
    )  # fmt: skip


def signed_in(
    name: str, team: Team | None, role: Role = Role.ADMIN, *, is_active: bool = True, csrf: bool = False
) -> Client:
    """A browser of a new person. csrf: it has a session and no CSRF token, as a page elsewhere has."""
    user = User.objects.create(username=name)
    if team is not None:
        Membership.objects.create(user=user, team=team, role=role)
    browser = Client(enforce_csrf_checks=csrf, raise_request_exception=False, SERVER_NAME="localhost")
    browser.force_login(user)
    User.objects.filter(pk=user.pk).update(is_active=is_active)
    return browser


def by_token(team: Team, role: Role, lifetime: timedelta | None = None) -> Client:
    """A script with a token of its own."""
    return bearing(f"Token {make_api_token(team, f'script {role}', role, lifetime)[1]}")


def bearing(authorization: str) -> Client:
    return Client(headers={"Authorization": authorization}, raise_request_exception=False, SERVER_NAME="localhost")
