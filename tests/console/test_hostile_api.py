"""Odd requests to the REST API by people who may act: an answer below 500 each time, and nothing of another team.

A repeatable part of `make eval SUITE=fuzz`, on real rows: an incident and a job that the tokens may see and change, and
one of another team that they may not.
"""

from __future__ import annotations

import random
from collections import Counter
from urllib.parse import urlencode

import pytest
from django.test import Client

from console.accounts.models import Role
from console.accounts.secrets import make_api_token
from console.incidents.models import Incident
from ingest.models import Attempt, Job, Team
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident
from tests.eval.fuzz_rest import NUMBERS, rest_request

pytestmark = pytest.mark.usefixtures("valkey")


def send(client: Client, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    fields = {name: value for name, value in headers.items() if name not in ("Content-Type", "Cookie")}
    answer = client.generic(
        method, path, body, content_type=headers["Content-Type"], headers=fields, HTTP_COOKIE=headers.get("Cookie", "")
    )
    return int(answer.status_code)


@pytest.mark.parametrize("role", [Role.RESPONDER, Role.ADMIN])
@pytest.mark.parametrize("seed", range(3))
def test_odd_requests_get_an_answer_below_500(team: Team, attempt: Attempt, role: Role, seed: int) -> None:
    draw, token = random.Random(seed), make_api_token(team, "fuzz", role)[1]
    numbers = [str(make_incident(attempt).pk), str(attempt.job_id)] * 6 + list(NUMBERS)
    client, said, wrong = Client(raise_request_exception=False, SERVER_NAME="localhost"), Counter[int](), []
    for _ in range(250):
        request = rest_request(draw, token, numbers)
        status = send(client, *request)
        said[status] += 1
        if status >= 500:
            wrong.append((status, *request))
    assert wrong == []
    assert said[200] and said[400] and said[404]


def test_what_belongs_to_another_team_is_absent_whatever_the_address(
    team: Team, attempt: Attempt, stranger: Persona
) -> None:
    incident = make_incident(attempt)
    token = make_api_token(Team.objects.get(name="others"), "theirs", Role.ADMIN)[1]
    client = Client(headers={"Authorization": f"Token {token}"}, SERVER_NAME="localhost")
    below = ("", "/diagnoses/1", "/grid", "/lanes", "/window")
    asked = [client.get(f"/api/v1/incidents/{incident.pk}{path}").status_code for path in below]
    asked += [client.get(f"/api/v1/jobs/{attempt.job_id}{path}").status_code for path in ("", "/grid", "/settings")]
    for verb in ("acknowledge", "unacknowledge", "resolve", "reopen", "comments"):
        body = {"version": 1, "reason": "x", "text": "x"}
        asked.append(client.post(f"/api/v1/incidents/{incident.pk}/{verb}", body, "application/json").status_code)
    assert set(asked) == {404}
    assert Incident.objects.get().version == incident.version
    assert Job.objects.count() == 1


@pytest.mark.parametrize("verb", ["acknowledge", "resolve", "comments"])
def test_fields_nobody_knows_are_refused(responder: Persona, attempt: Attempt, verb: str) -> None:
    incident = make_incident(attempt)
    given = {"version": incident.version, "reason": "x", "text": "x", "note": "x"}
    known = {"acknowledge": ("version", "note"), "resolve": ("version", "reason"), "comments": ("text",)}[verb]
    body = {name: given[name] for name in known} | {"state": "resolved"}
    answer = responder.browser.post(f"/api/v1/incidents/{incident.pk}/{verb}", body, format="json")
    assert answer.status_code == 400
    assert "state" in answer.json()["fields"]


ODD_QUERIES = (
    "incidents?q=%00", "incidents?job=%00", "incidents?state=%00", "incidents?symptom=a%00b", "incidents?page=999999",
    "incidents?q=%ff", "incidents?q=%25%5C_", "incidents/{n}/window?seconds=-1", "incidents/{n}/window?seconds=" + "9" * 25,
    "incidents/{n}/window?seconds=9223372036", "incidents/{n}/lanes?from_ns=5&to_ns=1", "incidents/{n}/lanes?ranks=999999",
    "incidents/{n}/lanes?from_ns=0&to_ns=9223372036854775807", "incidents/{n}/lanes?ranks=%D9%A3", "incidents/{n}/diagnoses/0",
    "incidents/99999999999999999999", "jobs/99999999999999999999/grid",
)  # fmt: skip


@pytest.mark.parametrize("query", ODD_QUERIES)
def test_an_odd_query_is_answered(responder: Persona, attempt: Attempt, query: str) -> None:
    responder.browser.raise_request_exception = False
    answer = responder.browser.get("/api/v1/" + query.replace("{n}", str(make_incident(attempt).pk)))
    assert answer.status_code < 500


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", "x" * 100_000, "ü" * 500])
def test_an_odd_name_does_not_sign_in(db: None, name: str) -> None:
    client = Client(raise_request_exception=False)
    sent = urlencode({"username": name.encode("utf-8", "surrogatepass"), "password": "x"})
    assert client.post("/signin", sent, "application/x-www-form-urlencoded").status_code in (400, 401, 429)
