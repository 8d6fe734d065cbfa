"""Two administrators at one destination: nobody overwrites what they have not seen, and a repeated request is one."""

from __future__ import annotations

import pytest
from django.db import IntegrityError

from console.tickets.acts import make_destination
from console.tickets.models import Destination
from console.tickets.sender import send_due
from ingest.models import Team
from tests.console.conftest import Persona
from tests.console.tickets.test_doors import API, GIVEN

URL = f"{API}/destinations"


@pytest.fixture
def number(admin: Persona) -> int:
    made = admin.browser.post(URL, GIVEN, format="json")
    assert made.status_code == 201 and made["ETag"] == f'"{made.json()["destination"]["version"]}"'
    return int(made.json()["destination"]["id"])


def test_what_somebody_changed_since_is_not_overwritten(admin: Persona, number: int) -> None:
    at = f"{URL}/{number}"
    seen = admin.browser.get(at)
    version = seen.json()["destination"]["version"]
    assert seen["ETag"] == f'"{version}"'
    listed = admin.browser.get(URL).json()["destinations"][0]
    assert (listed["version"], listed["n_sent"]) == (version, 0)
    first = admin.browser.patch(at, {"name": "nights", "version": version}, format="json")
    assert first.status_code == 200 and first["ETag"] != seen["ETag"]
    for body, headers, status in (
        ({"version": version}, {}, 409),
        ({}, {"HTTP_IF_MATCH": seen["ETag"]}, 412),
        ({"version": 0}, {}, 409),
        ({}, {}, 400),
        ({}, {"HTTP_IF_MATCH": "nonsense"}, 400),
    ):
        late = admin.browser.patch(at, {"name": "days", **body}, format="json", **headers)
        assert late.status_code == status, late.content
        if status != 400:
            assert late.json()["changes"][0]["changed"] == ["name"] and late.json()["code"] == "stale_version"
            assert late.json()["destination"]["name"] == "nights" and late["ETag"] == first["ETag"]
    assert admin.browser.delete(at, HTTP_IF_MATCH=seen["ETag"]).status_code == 412
    assert Destination.objects.get().name == "nights"
    again = admin.browser.patch(at, {"severity_min": "high"}, format="json", HTTP_IF_MATCH=first["ETag"])
    assert again.status_code == 200
    assert admin.browser.patch(at, {"name": "any"}, format="json", HTTP_IF_MATCH="*").status_code == 200
    newest = admin.browser.get(at)["ETag"]
    assert admin.browser.delete(at, HTTP_IF_MATCH=newest).status_code == 204


def test_failures_that_are_counted_stand_in_nobodys_way(admin: Persona, number: int) -> None:
    at = f"{URL}/{number}"
    seen = admin.browser.get(at)["ETag"]
    Destination.objects.update(n_failures=3, not_before=None, n_refused=2)
    send_due()
    assert admin.browser.patch(at, {"enabled": False}, format="json", HTTP_IF_MATCH=seen).status_code == 200


def test_counts_of_deliveries_stay_what_they_are_beside_the_version(admin: Persona, number: int) -> None:
    for name in ("one", "two", "three"):
        admin.browser.patch(f"{URL}/{number}", {"name": name}, format="json", HTTP_IF_MATCH="*")
    admin.browser.post(f"{URL}/{number}/test", {}, format="json")
    row = admin.browser.get(URL).json()["destinations"][0]
    assert row["n_waiting"] + row["n_sent"] + row["n_dead"] == 1


def test_a_repeated_request_makes_one_destination(admin: Persona) -> None:
    first = admin.browser.post(URL, GIVEN, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    again = admin.browser.post(URL, GIVEN, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json() and Destination.objects.count() == 1
    other = admin.browser.post(URL, GIVEN, format="json", HTTP_IDEMPOTENCY_KEY="k2")
    assert other.status_code == 400 and "of this name" in other.json()["error"]


def test_a_key_is_the_callers_own(admin: Persona, team: Team) -> None:
    admin.browser.post(URL, GIVEN, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    key = Destination.objects.get().request_key
    assert key and "k1" not in key
    elsewhere = Team.objects.create(name="elsewhere")
    admin.user.memberships.create(team=elsewhere, role="admin")
    made = admin.browser.post(URL, {**GIVEN, "team": "elsewhere"}, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    assert made.status_code == 201 and made.json()["destination"]["team"] == "elsewhere"
    with pytest.raises(IntegrityError):  # the database holds it, too
        Destination.objects.filter(team=elsewhere).update(request_key=key)


def test_the_same_request_twice_at_once_makes_one(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other came between our asking for the key and our writing it."""
    settings = {"routing_key": "a" * 32}
    first = make_destination(team.pk, "duty", "pagerduty", settings, "ada", "low", request_key="k")
    asked: list[int] = []
    found = Destination.objects.filter

    def not_yet(*args: object, **kwargs: object) -> object:
        asked.append(1)
        return found(pk=0) if len(asked) == 1 else found(*args, **kwargs)

    monkeypatch.setattr(Destination.objects, "filter", not_yet)
    assert make_destination(team.pk, "duty", "pagerduty", settings, "ada", "low", request_key="k") == first
