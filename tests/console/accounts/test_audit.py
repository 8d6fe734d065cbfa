"""The audit is whole: every act over REST, every file taken away, every sign-in and every command leaves an entry of its kind."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from console.accounts import audit_api
from console.accounts.audit import PREVIEWS_APART, drop_old_entries, note
from console.accounts.audit_words import WORDS, words_of
from console.accounts.models import AuditEntry, Role
from console.accounts.secrets import make_api_token
from console.incidents.lifecycle import DETECTOR, Actor, move
from console.incidents.models import ActorKind
from console.incidents.pictures import why_not_api
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


def test_of_previews_in_a_row_one_is_noted_and_what_was_made_is_named(responder: Persona, attempt: Attempt) -> None:
    AuditEntry.objects.all().delete()
    asked = {"matchers": [{"field": "job", "values": [attempt.job.name]}]}
    for _ in range(3):
        assert responder.browser.post("/api/v1/silences/preview", asked, format="json").status_code == 200
    made = responder.browser.post("/api/v1/silences", {**asked, "minutes": 5, "reason": "x"}, format="json").json()
    noted = list(AuditEntry.objects.order_by("id").values_list("act", "subject"))
    assert noted == [
        ("POST silences/preview", "silences/preview"), ("POST silences", f"silences/{made['silence']['id']}"),
    ]  # fmt: skip
    AuditEntry.objects.update(at=timezone.now() - PREVIEWS_APART)
    responder.browser.post("/api/v1/silences/preview", asked, format="json")
    assert AuditEntry.objects.count() == 3


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


def test_entries_are_found_by_kind_time_and_text_and_pages_lead_both_ways(admin: Persona, team: Team) -> None:
    def asked(query: str) -> Any:
        return admin.browser.get(f"/api/v1/audit?{query}").json()

    AuditEntry.objects.all().delete()
    for number in range(250):
        note(
            "api" if number % 50 == 0 else "user",
            "ci" if number % 50 == 0 else "rita",
            f"act {number}",
            team_ids=[team.pk],
        )
    AuditEntry.objects.filter(act="act 7").update(at=timezone.now() - timedelta(days=3), subject="incidents/12/resolve")
    assert [one["act"] for one in asked("kind=api")["entries"]] == [f"act {n}" for n in (200, 150, 100, 50, 0)]
    assert asked("kind=command,nobody")["entries"] == []
    assert [one["act"] for one in asked("q=incidents/12")["entries"]] == ["act 7"]
    day_ago = (timezone.now() - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert [one["act"] for one in asked(f"until={day_ago}")["entries"]] == ["act 7"]
    assert len(asked(f"since={day_ago}&kind=user&q=act 7")["entries"]) == 10  # act 70 to 79, without the one of before
    pages, query = [], "kind=user"
    while True:
        page = asked(query)
        pages.append([one["id"] for one in page["entries"]])
        if page["older"] is None:
            break
        query = f"kind=user&before={page['older']}"
    assert [len(one) for one in pages] == [100, 100, 45]
    back = asked(f"kind=user&after={page['newer']}")
    assert [one["id"] for one in back["entries"]] == pages[1] and back["older"] is not None
    assert asked(f"kind=user&after={back['newer']}")["newer"] is None
    for wrong in ("kind=robot", "since=yesterday", "before=0", "colour=red"):
        assert admin.browser.get(f"/api/v1/audit?{wrong}").status_code == 400, wrong


def test_the_audit_is_taken_away_as_csv_which_is_noted_and_runs_no_formula(
    admin: Persona, responder: Persona, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    AuditEntry.objects.all().delete()
    note("nobody", '=HYPERLINK("http://x")', "did not sign in", team_ids=[team.pk])
    note("user", "rita, the second", "POST silences", subject="silences", team_ids=[team.pk])
    note("user", "elsewhere", "x", team_ids=[team.pk + 1])
    answer = admin.browser.get("/api/v1/audit.csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(one["actor"], one["words"]) for one in rows] == [
        ("rita, the second", "made a silence"), ("'=HYPERLINK(\"http://x\")", "did not sign in"),
    ]  # fmt: skip
    assert "attachment" in answer["Content-Disposition"] and "X-Older" not in answer
    assert AuditEntry.objects.latest("id").act == "GET audit.csv"
    monkeypatch.setattr(audit_api, "FILE_MAX", 2)
    cut = admin.browser.get("/api/v1/audit.csv?kind=user,nobody")
    assert len(cut.content.decode().splitlines()) == 3 and int(cut["X-Older"]) > 0
    older = admin.browser.get(f"/api/v1/audit.csv?kind=user,nobody&before={cut['X-Older']}").content.decode()
    assert "rita, the second" not in older and len(older.splitlines()) == 2
    assert responder.browser.get("/api/v1/audit.csv").status_code == 403


def test_what_the_console_and_other_systems_do_with_incidents_is_noted(attempt: Attempt, responder: Persona) -> None:
    AuditEntry.objects.all().delete()
    incident = make_incident(attempt)
    move(incident.pk, "acknowledge", Actor("PagerDuty", ActorKind.TICKET, 3))
    move(incident.pk, "resolve", DETECTOR, note="over")
    rows = AuditEntry.objects.order_by("id").values_list("actor_kind", "actor", "act", "team_ids")
    team_ids = [attempt.job.team_id]
    assert list(rows) == [
        ("system", "detector", f"opened incident {incident.pk}", team_ids),
        ("ticket", "PagerDuty", f"acknowledged incident {incident.pk}", team_ids),
        ("system", "detector", f"resolved incident {incident.pk}", team_ids),
    ]
    AuditEntry.objects.all().delete()
    again = make_incident(attempt)
    AuditEntry.objects.all().delete()
    responder.browser.post(f"/api/v1/incidents/{again.pk}/acknowledge", {"version": again.version}, format="json")
    assert [one.actor_kind for one in AuditEntry.objects.all()] == ["user"]  # once, with the request


def test_every_act_over_rest_has_words() -> None:
    unsafe = {
        f"{act.method} {route.removeprefix('api/v1/')}"
        for route, acts in EXPECTED.items() for act in acts if act.method in UNSAFE and route.startswith("api/")
    }  # fmt: skip
    assert unsafe - set(WORDS) == set()
    routes = {f"GET {route.removeprefix('api/v1/')}" for route in EXPECTED} | unsafe
    assert set(WORDS) - routes == set(), "words of routes that are gone"
    assert words_of("POST incidents/<int:number>/resolve", "incidents/12/resolve") == "resolved incident 12"
    assert words_of("DELETE api-tokens/<int:api_token_id>", "api-tokens/3: ci, viewer of x") == "revoked API token 3"
    assert words_of("POST incidents/<int:number>/resolve", "cut short") == "resolved incident"
    assert words_of("signed in", "") == "signed in"


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
