"""The shell of the pages, their headers, and the REST API around incidents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from rest_framework.test import APIClient

from console.accounts.models import Membership, Role
from console.dashboard.api_urls import urlpatterns
from ingest.models import AgentToken, Attempt, Team
from ingest.traces.let_go import note_let_go
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident

pytestmark = pytest.mark.django_db


def test_every_answer_forbids_foreign_and_inline_scripts(client: Client) -> None:
    policy = client.get("/signin").headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert client.get("/signin").headers["X-Content-Type-Options"] == "nosniff"


def test_without_a_built_front_end_the_page_says_what_to_do(viewer: Persona, settings: Any, tmp_path: Path) -> None:
    settings.FRONTEND_DIST = tmp_path
    answer = viewer.browser.get("/")
    assert (answer.status_code, b"make build" in answer.content) == (503, True)


def test_the_shell_loads_what_vite_built(viewer: Persona, settings: Any, tmp_path: Path) -> None:
    settings.FRONTEND_DIST = tmp_path
    (tmp_path / ".vite").mkdir()
    manifest = {"index.html": {"file": "assets/index-abc.js", "css": ["assets/index-def.css"], "isEntry": True}}
    (tmp_path / ".vite" / "manifest.json").write_text(json.dumps(manifest))
    shown = viewer.browser.get("/incidents/7").content.decode()
    assert "/static/assets/index-abc.js" in shown
    assert "/static/assets/index-def.css" in shown
    assert not re.search(r"<script(?![^>]*\bsrc=)", shown)


def test_who_is_signed_in_finds_nothing_within_the_console(
    viewer: Persona, client: Client, settings: Any, tmp_path: Path
) -> None:
    settings.FRONTEND_DIST = tmp_path
    (tmp_path / ".vite").mkdir()
    manifest = {"index.html": {"file": "assets/index-abc.js", "isEntry": True}}
    (tmp_path / ".vite" / "manifest.json").write_text(json.dumps(manifest))
    shown = viewer.browser.get("/no/such/page")
    assert (shown.status_code, "assets/index-abc.js" in shown.content.decode()) == (404, True)
    answer = client.get("/no/such/page")
    assert (answer.status_code, "nothing at this address." in answer.content.decode()) == (404, True)


@pytest.mark.parametrize("path", ["/api/v1/none", "/api/v2/incidents", "/api/"])
def test_an_address_that_the_api_does_not_have_is_said_in_json(viewer: Persona, client: Client, path: str) -> None:
    for answer in (client.get(path), viewer.browser.get(path)):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/incidents",
        "/incidents/12",
        "/jobs/3",
        "/jobs/3/settings",
        "/nodes",
        "/bundle",
        "/bundle/7f3a",
        "/settings",
    ],
)
def test_every_page_has_an_address(viewer: Persona, path: str) -> None:
    assert viewer.browser.get(path).status_code in (200, 503)


def test_the_openapi_document_is_valid_and_made_without_warnings() -> None:
    GENERATOR_STATS.reset()
    document = SchemaGenerator().get_schema(request=None, public=True)
    validate_schema(document)
    assert not GENERATOR_STATS
    described = {path.removeprefix("/api/v1/") for path in document["paths"]}
    addresses = {re.sub(r"<\w+:(\w+)>", r"{\1}", str(one.pattern)) for one in urlpatterns}
    assert addresses - described == {"schema", "docs"}


def test_the_api_pages_need_no_script_from_elsewhere(viewer: Persona) -> None:
    shown = viewer.browser.get("/api/v1/docs").content.decode()
    assert not re.search(r'(?:src|href)="(?:https?:)?//', shown)
    assert not re.search(r"<script(?![^>]*\bsrc=)", shown)


def test_the_session_names_roles_by_team(admin: Persona) -> None:
    session = admin.browser.get("/api/v1/session").json()
    assert (session["user"], session["role"], session["roles"]) == ("ada", "admin", {"training": "admin"})


def test_now_shows_jobs_incidents_and_ingest(attempt: Attempt, viewer: Persona) -> None:
    incident = make_incident(attempt)
    now = viewer.browser.get("/api/v1/now").json()
    assert [(job["name"], job["state"], job["incident"]) for job in now["jobs"]] == [
        ("llama-70b", "unknown", incident.pk)
    ]
    assert [row["number"] for row in now["incidents"]] == [incident.pk]
    assert now["ingest"]["store"]
    assert now["stream"]["name"] == f"team:{attempt.job.team_id}"


def test_another_teams_jobs_are_not_there(attempt: Attempt, stranger: Persona) -> None:
    assert stranger.browser.get("/api/v1/now").json()["jobs"] == []
    for path in ("", "/grid", "/figures/throughput"):
        assert stranger.browser.get(f"/api/v1/jobs/{attempt.job_id}{path}").status_code == 404
    assert stranger.browser.get("/api/v1/nodes").json()["nodes"] == []


def test_what_retention_let_go_of_is_told_beside_the_nodes(viewer: Persona) -> None:
    note_let_go("windows", 2)
    assert viewer.browser.get("/api/v1/nodes").json()["let_go"]["windows"] == 2


def test_a_job_nobody_heard_of_is_unknown_and_its_chart_says_so(attempt: Attempt, viewer: Persona) -> None:
    job = viewer.browser.get(f"/api/v1/jobs/{attempt.job_id}").json()
    assert (job["job"]["state"], job["looks"], job["job"]["ops_per_s"]) == ("unknown", [], None)
    figure = viewer.browser.get(f"/api/v1/jobs/{attempt.job_id}/figures/throughput").json()
    assert figure["text"] == "No completed ops of llama-70b are known in the last 30 minutes."
    assert figure["config"]["showSendToCloud"] is False
    grid = viewer.browser.get(f"/api/v1/jobs/{attempt.job_id}/grid").json()
    assert {grid["states"][state] for state in grid["state"]} == {"unknown"}
    assert len(grid["rank"]) == 8


def test_an_agents_token_is_shown_once_and_revoked(admin: Persona, team: Team) -> None:
    made = admin.browser.post("/api/v1/tokens", {"label": "rack 7"}, format="json").json()
    listed = admin.browser.get("/api/v1/tokens")
    assert made["token"] not in listed.content.decode()
    assert [token["label"] for token in listed.json()["tokens"]] == ["rack 7"]
    assert admin.browser.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert AgentToken.objects.get().revoked_at is not None


def test_who_administers_two_teams_says_whose_token_it_is(admin: Persona, team: Team) -> None:
    second = Team.objects.create(name="serving")
    Membership.objects.create(user=admin.user, team=second, role=Role.ADMIN)
    for body in ({"label": "rack 7"}, {"label": "rack 7", "team": "others"}):
        assert admin.browser.post("/api/v1/tokens", body, format="json").status_code == 400
    made = admin.browser.post("/api/v1/tokens", {"label": "rack 7", "team": "serving"}, format="json").json()
    assert (made["team"], AgentToken.objects.get().team) == ("serving", second)
    listed = admin.browser.get("/api/v1/tokens").json()
    assert ([token["team"] for token in listed["tokens"]], listed["teams"]) == (["serving"], ["serving", "training"])


def test_a_member_of_two_teams_can_follow_both(attempt: Attempt, viewer: Persona) -> None:
    second = Team.objects.create(name="serving", batches_refused=3)
    Team.objects.filter(pk=attempt.job.team_id).update(batches_refused=4)
    Membership.objects.create(user=viewer.user, team=second, role=Role.VIEWER)
    both = [f"team:{attempt.job.team_id}", f"team:{second.pk}"]
    for path in ("now", "jobs", "incidents"):
        answer = viewer.browser.get(f"/api/v1/{path}").json()
        assert [stream["name"] for stream in answer["streams"]] == both
        assert answer["stream"] == answer["streams"][0]
    assert viewer.browser.get("/api/v1/now").json()["ingest"]["batches_refused"] == 7


def test_the_session_names_settings_that_are_not_the_shipped_ones(viewer: Persona, settings: Any) -> None:
    assert viewer.browser.get("/api/v1/session").json()["settings_overridden"] == []
    settings.CLEAN_LOOKS_TO_CLEAR = 1
    assert viewer.browser.get("/api/v1/session").json()["settings_overridden"] == ["CLEAN_LOOKS_TO_CLEAR=1"]


@pytest.mark.parametrize("method", ["get", "post"])
def test_only_administrators_see_tokens(responder: Persona, viewer: Persona, method: str) -> None:
    for persona in (responder, viewer):
        assert getattr(persona.browser, method)("/api/v1/tokens", {"label": "x"}, format="json").status_code == 403


@pytest.mark.parametrize("path", ["session", "now", "incidents", "jobs", "nodes", "tokens", "schema", "docs"])
def test_nothing_is_answered_to_who_is_not_signed_in(path: str) -> None:
    assert APIClient().get(f"/api/v1/{path}").status_code == 401


def test_answers_of_the_api_are_never_cached(viewer: Persona) -> None:
    assert viewer.browser.get("/api/v1/now").headers["Cache-Control"] == "no-store"
