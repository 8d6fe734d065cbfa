"""The REST API of incidents, as a responder, a viewer, a script and a stranger use it."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from console.accounts.models import Role
from console.accounts.secrets import make_api_token
from console.incidents import read
from console.incidents.lifecycle import DETECTOR, move
from console.incidents.live import IncidentRow
from console.incidents.models import Incident
from ingest.door.tokens import make_agent_token
from ingest.models import AgentToken, Attempt, Team
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident

ACTS = [
    ("acknowledge", {"version": 1}, "open"),
    ("unacknowledge", {"version": 2}, "acknowledged"),
    ("resolve", {"version": 1, "reason": "replaced the cable"}, "open"),
    ("reopen", {"version": 2}, "resolved"),
    ("comments", {"text": "looking"}, "open"),
]


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


def test_a_responder_sees_the_incident_and_what_they_may_do(incident: Incident, responder: Persona) -> None:
    answer = responder.browser.get(f"/api/v1/incidents/{incident.pk}").json()
    assert set(answer["incident"]) == set(IncidentRow.__dataclass_fields__)
    assert answer["stream"]["name"] == f"incident:{incident.pk}"
    assert (answer["diagnosis"], answer["may"]) == (
        None,
        ["acknowledge", "resolve", "comment", "diagnose", "assign", "silence", "review", "attach"],
    )
    assert [entry["verb"] for entry in answer["timeline"]] == ["opened"]


def test_a_long_timeline_says_how_much_is_older_and_gives_it_part_by_part(
    incident: Incident, responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        body = {"text": f"comment {n}"}
        assert (
            responder.browser.post(f"/api/v1/incidents/{incident.pk}/comments", body, format="json").status_code < 300
        )
    monkeypatch.setattr(read, "TIMELINE_MAX", 2)
    path, notes, left = f"/api/v1/incidents/{incident.pk}", [], []
    before = ""
    for _ in range(3):
        body = responder.browser.get(f"{path}{before}").json()
        notes = [entry["note"] for entry in body["timeline"]] + notes
        left.append(body["timeline_left_out"])
        before = f"?timeline_before={body['timeline'][0]['id']}"
    assert notes[-5:] == [f"comment {n}" for n in range(5)] and left[0] == incident.timeline.count() - 2
    assert left == sorted(left, reverse=True) and left[-1] == incident.timeline.count() - 6
    assert responder.browser.get(f"{path}?timeline_before=x").status_code == 400


def test_an_acknowledgement_answers_the_new_row_and_its_entry(incident: Incident, responder: Persona) -> None:
    answer = _act(responder.browser, incident, "acknowledge", {"version": 1, "note": "on it"})
    assert answer.status_code == 200
    assert answer.json()["incident"]["acknowledged_by"] == "rita"
    assert answer.json()["entry"]["note"] == "on it"


@pytest.mark.parametrize(("verb", "body", "state"), ACTS)
def test_a_viewer_may_look_but_not_act(
    incident: Incident, viewer: Persona, verb: str, body: dict[str, Any], state: str
) -> None:
    _bring_to(incident, state)
    assert viewer.browser.get(f"/api/v1/incidents/{incident.pk}").json()["may"] == []
    answer = _act(viewer.browser, incident, verb, body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize(("verb", "body", "state"), ACTS)
def test_a_responder_may_do_every_act(
    incident: Incident, responder: Persona, verb: str, body: dict[str, Any], state: str
) -> None:
    _bring_to(incident, state)
    assert _act(responder.browser, incident, verb, body).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["", "/grid", "/standing", "/lanes", "/window", "/diagnoses/1", "/acknowledge", "/resolve", "/reopen", "/comments"],
)
def test_for_another_team_the_incident_is_not_there(incident: Incident, stranger: Persona, path: str) -> None:
    for method in (stranger.browser.get, stranger.browser.post):
        answer = method(f"/api/v1/incidents/{incident.pk}{path}", {"version": 1}, format="json")
        assert answer.status_code in (404, 405)
    assert stranger.browser.get("/api/v1/incidents").json()["total"] == 0


def test_an_agent_may_only_send(incident: Incident, team: Team) -> None:
    agent = APIClient(headers={"Authorization": f"Token {make_agent_token(team, 'node agent')}"})
    assert AgentToken.objects.exists()
    assert agent.get("/api/v1/incidents").status_code == 401
    assert _act(agent, incident, "acknowledge", {"version": 1}).status_code == 401


def test_nobody_gets_anything_without_signing_in(incident: Incident) -> None:
    answer = APIClient().get("/api/v1/now")
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")


def test_a_script_acts_under_its_tokens_label(incident: Incident, team: Team) -> None:
    _, secret = make_api_token(team, "nightly sweep", Role.RESPONDER)
    script = APIClient(headers={"Authorization": f"Token {secret}"}, enforce_csrf_checks=True)
    entry = _act(script, incident, "acknowledge", {"version": 1}).json()["entry"]
    assert (entry["actor"], entry["actor_kind"]) == ("nightly sweep", "api")


def test_a_browser_needs_the_csrf_token(incident: Incident, responder: Persona) -> None:
    careful = APIClient(enforce_csrf_checks=True)
    careful.force_login(responder.user)
    assert _act(careful, incident, "acknowledge", {"version": 1}).status_code == 403
    csrf = careful.get("/api/v1/session").json()["csrf"]
    answer = careful.post(
        f"/api/v1/incidents/{incident.pk}/acknowledge", {"version": 1}, format="json", headers={"X-CSRFToken": csrf}
    )
    assert answer.status_code == 200


def test_who_was_slower_gets_the_current_row(incident: Incident, responder: Persona, admin: Persona) -> None:
    _act(admin.browser, incident, "acknowledge", {"version": 1})
    answer = _act(responder.browser, incident, "resolve", {"version": 1, "reason": "done"})
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_version")
    assert answer.json()["incident"]["acknowledged_by"] == "ada"


def test_an_illegal_move_is_a_conflict_with_a_sentence(incident: Incident, responder: Persona) -> None:
    answer = _act(responder.browser, incident, "reopen", {"version": 1})
    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_move")
    assert answer.json()["error"] == f"Incident {incident.pk} is open: it cannot be reopened now."


def test_reopening_beside_an_open_one_is_a_conflict_that_names_it(
    incident: Incident, responder: Persona, attempt: Attempt
) -> None:
    _act(responder.browser, incident, "resolve", {"version": 1, "reason": "done"})
    other = make_incident(attempt, key="v1:another")
    answer = _act(responder.browser, incident, "reopen", {"version": 2})
    assert (answer.status_code, answer.json()["code"]) == (409, "illegal_move")
    assert f"incident {other.pk} of the same attempt is open" in answer.json()["error"]
    assert answer.json()["incident"]["number"] == other.pk


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("resolve", {"version": 1}),
        ("resolve", {"version": 1, "reason": "  "}),
        ("acknowledge", {}),
        ("acknowledge", {"version": "new"}),
        ("comments", {"text": ""}),
        ("acknowledge", [1]),
    ],
)
def test_what_cannot_be_understood_is_refused(incident: Incident, responder: Persona, verb: str, body: Any) -> None:
    answer = _act(responder.browser, incident, verb, body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert Incident.objects.get(pk=incident.pk).version == 1


def test_the_same_key_acts_once(incident: Incident, responder: Persona) -> None:
    for _ in range(2):
        answer = responder.browser.post(
            f"/api/v1/incidents/{incident.pk}/acknowledge",
            {"version": 1},
            format="json",
            headers={"Idempotency-Key": "click-1"},
        )
        assert answer.status_code == 200
    assert incident.timeline.filter(verb="acknowledged").count() == 1


def test_a_token_labelled_like_another_or_like_a_person_shares_no_keys(
    incident: Incident, responder: Persona, team: Team
) -> None:
    scripts = [make_api_token(team, responder.name, Role.RESPONDER)[1] for _ in range(2)]
    browsers = [responder.browser, *(APIClient(headers={"Authorization": f"Token {secret}"}) for secret in scripts)]
    for browser in browsers * 2:
        answer = browser.post(
            f"/api/v1/incidents/{incident.pk}/comments", {"text": "hm"}, format="json", headers={"Idempotency-Key": "1"}
        )
        assert answer.status_code == 200
    assert incident.timeline.filter(verb="commented").count() == len(browsers)


def test_the_list_filters_counts_and_pages(attempt: Attempt, responder: Persona) -> None:
    for number in range(55):
        made = make_incident(attempt, key=f"v1:{number}", headline=f"hang {number}")
        move(made.pk, "resolve", DETECTOR, note="over")
    last = make_incident(attempt, symptom="silence")
    first_page = responder.browser.get("/api/v1/incidents?state=resolved").json()
    assert (first_page["total"], first_page["newer"], len(first_page["incidents"])) == (55, None, 50)
    assert first_page["facets"]["state"] == {"resolved": 55, "open": 1}
    assert first_page["facets"]["symptom"] == {"failure": 55}
    second_page = responder.browser.get(f"/api/v1/incidents?state=resolved&cursor={first_page['older']}").json()
    assert len(second_page["incidents"]) == 5
    by_number = responder.browser.get(f"/api/v1/incidents?q={last.pk}").json()
    assert last.pk in [row["number"] for row in by_number["incidents"]]
    assert responder.browser.get("/api/v1/incidents?state=nonsense&cursor=x").json()["total"] == 0


def test_neighbours_lead_through_the_teams_incidents(attempt: Attempt, responder: Persona) -> None:
    first = make_incident(attempt)
    move(first.pk, "resolve", DETECTOR, note="over")
    second = make_incident(attempt)
    assert responder.browser.get(f"/api/v1/incidents/{first.pk}").json()["next"] == second.pk
    assert responder.browser.get(f"/api/v1/incidents/{second.pk}").json()["previous"] == first.pk


def test_a_list_takes_few_queries(attempt: Attempt, responder: Persona, django_assert_max_num_queries: Any) -> None:
    make_incident(attempt)
    with django_assert_max_num_queries(6):
        responder.browser.get("/api/v1/incidents")


def _act(browser: APIClient, incident: Incident, verb: str, body: Any) -> Any:
    return browser.post(f"/api/v1/incidents/{incident.pk}/{verb}", body, format="json")


def _bring_to(incident: Incident, state: str) -> None:
    verb = {"acknowledged": "acknowledge", "resolved": "resolve"}.get(state)
    if verb:
        move(incident.pk, verb, DETECTOR, note="setting the scene")
