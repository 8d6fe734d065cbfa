"""The audit is whole: every act over REST, every file taken away, every sign-in and every command leaves an entry of its kind."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from console.accounts.audit import drop_old_entries, note
from console.accounts.models import AuditEntry, Role
from console.accounts.secrets import make_api_token
from console.incidents import why_not_api
from ingest.models import Attempt, Team
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident
from tests.console.walk.expected import EXPECTED
from tests.console.walk.test_walk import address_of
from tests.console.walk.world import World, by_token, make_world, signed_in

pytestmark = pytest.mark.django_db
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any) -> World:
    monkeypatch.setattr(why_not_api, "WAIT_SECONDS", 0.0)
    settings.BUNDLES_FOLDER = tmp_path / "bundles"
    return make_world()


def test_every_act_of_the_walk_is_noted_with_its_kind_and_team(world: World) -> None:
    """Whatever route there is, or will be: who may do it leaves an entry when it was done, and none when it was not."""
    people = {"user": signed_in("ada", world.team), "api": by_token(world.team, Role.ADMIN)}
    wrong = []
    for kind, who in people.items():
        for route, acts in EXPECTED.items():
            for act in acts:
                if act.method not in UNSAFE or not route.startswith("api/") or act.is_form:
                    continue
                AuditEntry.objects.all().delete()
                answer = who.generic(
                    act.method, address_of(world, route) + act.query, json.dumps(act.body or {}), "application/json"
                )
                noted = [(one.actor_kind, one.act, one.team_ids) for one in AuditEntry.objects.all()]
                wanted = [(kind, f"{act.method} {route.removeprefix('api/v1/')}", [world.team.pk])]
                if noted != (wanted if answer.status_code < 400 else []):
                    wrong.append((kind, act.method, route, answer.status_code, noted))
    assert not wrong, "\n".join(map(str, wrong))


def test_an_entry_says_who_what_and_from_where(responder: Persona, attempt: Attempt) -> None:
    incident = make_incident(attempt)
    responder.browser.post(f"/api/v1/incidents/{incident.pk}/comments", {"text": "x"}, format="json")
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.actor_id, entry.actor_kind) == ("rita", responder.user.pk, "user")
    assert (entry.act, entry.subject) == (
        "POST incidents/<int:number>/comments", f"incidents/{incident.pk}/comments",
    )  # fmt: skip
    assert (entry.address, entry.team_ids) == ("127.0.0.1", [attempt.job.team_id])


def test_reading_leaves_none_and_taking_traces_away_leaves_one(responder: Persona, attempt: Attempt) -> None:
    incident = make_incident(attempt)
    AuditEntry.objects.all().delete()
    assert responder.browser.get(f"/api/v1/incidents/{incident.pk}").status_code == 200
    assert AuditEntry.objects.count() == 0
    assert responder.browser.get(f"/api/v1/incidents/{incident.pk}/window").status_code == 200
    assert AuditEntry.objects.get().act == "GET incidents/<int:number>/window"


def test_what_was_refused_leaves_none(viewer: Persona, attempt: Attempt) -> None:
    incident = make_incident(attempt)
    AuditEntry.objects.all().delete()
    assert viewer.browser.post(f"/api/v1/incidents/{incident.pk}/comments", {"text": "x"}).status_code == 403
    assert AuditEntry.objects.count() == 0


def test_who_acts_for_several_teams_is_noted_for_the_team_of_the_thing(attempt: Attempt, responder: Persona) -> None:
    other = Team.objects.create(name="second")
    responder.user.memberships.create(team=other, role=Role.ADMIN)
    incident = make_incident(attempt)
    responder.browser.post(f"/api/v1/incidents/{incident.pk}/comments", {"text": "x"}, format="json")
    assert AuditEntry.objects.latest("id").team_ids == [attempt.job.team_id]
    responder.browser.post("/api/v1/tokens", {"label": "x", "team": "second"}, format="json")
    assert set(AuditEntry.objects.latest("id").team_ids) == {attempt.job.team_id, other.pk}


def test_signing_in_out_and_failing_to_is_noted(admin: Persona, client: Client) -> None:
    admin.user.set_password("a lantern at noon")
    admin.user.save()
    client.post("/signin", {"username": "ada", "password": "wrong, surely"})
    client.post("/signin", {"username": "ada", "password": "a lantern at noon"})
    client.post("/signout")
    said = [(one.actor_kind, one.actor, one.act) for one in AuditEntry.objects.order_by("id")][-3:]
    assert said == [("nobody", "ada", "did not sign in"), ("user", "ada", "signed in"), ("user", "ada", "signed out")]
    assert "lantern" not in str(list(AuditEntry.objects.values()))


def test_commands_are_noted(db: None) -> None:
    for command in (
        ["bootstrap"], ["add_team", "research"], ["add_user", "olga", "--team", "research"],
        ["api_token", "--label", "ci", "--team", "research"], ["signin_link", "--user", "olga"],
    ):  # fmt: skip
        call_command(*command, stdout=io.StringIO())
    noted = list(AuditEntry.objects.order_by("id").values_list("actor_kind", "subject"))
    assert noted == [
        ("command", "default"), ("command", "research"), ("command", "olga: viewer of research"),
        ("command", "ci: viewer of research, 90 days"), ("command", "olga"),
    ]  # fmt: skip
    assert "dgs_api_" not in str(list(AuditEntry.objects.values()))


def test_administrators_read_their_own_teams_entries_page_by_page(
    admin: Persona, responder: Persona, stranger: Persona, team: Team
) -> None:
    AuditEntry.objects.all().delete()
    for number in range(150):
        note("user", "rita", f"act {number}", team_ids=[team.pk])
    first = admin.browser.get("/api/v1/audit").json()
    assert [one["act"] for one in first["entries"][:2]] == ["act 149", "act 148"] and len(first["entries"]) == 100
    second = admin.browser.get(f"/api/v1/audit?before={first['older']}&actor=rita").json()
    assert (len(second["entries"]), second["older"], second["entries"][-1]["act"]) == (50, None, "act 0")
    assert responder.browser.get("/api/v1/audit").status_code == 403
    elsewhere = make_api_token(Team.objects.get(name="others"), "x", Role.ADMIN)[1]
    seen = Client(headers={"Authorization": f"Token {elsewhere}"}).get("/api/v1/audit").json()
    assert all(one["actor"] != "rita" for one in seen["entries"])


def test_old_entries_go(team: Team) -> None:
    note("user", "rita", "old", team_ids=[team.pk])
    AuditEntry.objects.update(at=timezone.now() - timedelta(days=400))
    note("user", "rita", "new", team_ids=[team.pk])
    assert drop_old_entries() == 1
    assert AuditEntry.objects.get().act == "new"


def test_what_cannot_be_written_is_logged_and_undoes_nothing(team: Team, caplog: pytest.LogCaptureFixture) -> None:
    note("nonsense", "rita", "act", team_ids=[team.pk])
    assert "not in the audit" in caplog.text
    assert Team.objects.filter(pk=team.pk).exists()
