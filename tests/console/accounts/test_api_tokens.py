"""API tokens over REST: a secret is shown once, and no token makes one that is wider or lives longer than itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts import api_tokens
from console.accounts.models import ApiToken, AuditEntry, Role
from console.accounts.secrets import make_api_token
from ingest.models import Attempt, Team
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident

URL = "/api/v1/api-tokens"


def script(secret: str) -> Client:
    return Client(headers={"Authorization": f"Token {secret}"}, raise_request_exception=False)


def post(who: Client, address: str, **body: Any) -> Any:
    return who.post(address, body, content_type="application/json")


def made(admin: Persona, **asked: Any) -> dict[str, Any]:
    answer = admin.browser.post(URL, {"label": "ci", "role": "admin", **asked}, format="json")
    assert answer.status_code == 201, answer.content
    said: dict[str, Any] = answer.json()
    return said


def test_a_token_is_made_used_listed_and_revoked(admin: Persona, team: Team) -> None:
    said = made(admin, role="viewer", days=7)
    who = script(said["token"])
    assert who.get("/api/v1/session").json()["role"] == "viewer"
    listed = admin.browser.get(URL).json()
    row = listed["tokens"][0]
    assert (row["label"], row["role"], row["state"], row["made_by"], row["team"]) == (
        "ci",
        "viewer",
        "live",
        "ada",
        "training",
    )
    assert row["last_used_at"] and said["token"] not in str(listed) and "digest" not in row
    left = ApiToken.objects.get(pk=row["id"]).expires_at - timezone.now()  # type: ignore[operator]
    assert timedelta(days=6, hours=23) < left <= timedelta(days=7)
    assert admin.browser.delete(f"{URL}/{row['id']}").status_code == 204
    assert who.get("/api/v1/session").status_code == 401
    assert admin.browser.get(URL).json()["tokens"][0]["state"] == "revoked"


def test_scopes_narrow_a_token_to_some_acts_of_its_role(admin: Persona, attempt: Attempt) -> None:
    incident = make_incident(attempt)
    who = script(made(admin, role="responder", scopes=["comment"])["token"])
    at = f"/api/v1/incidents/{incident.pk}"
    assert post(who, f"{at}/comments", text="x").status_code == 200
    assert post(who, f"{at}/acknowledge", version=1).status_code == 403
    assert who.get(at).json()["may"] == ["comment"]
    assert (
        post(who, "/api/v1/silences", matchers=[{"field": "job", "values": ["x"]}], minutes=5, reason="x").status_code
        == 403
    )


def test_a_token_narrowed_to_an_act_does_that_one_to_many_and_no_other(admin: Persona, attempt: Attempt) -> None:
    targets = [{"number": make_incident(attempt).pk}]
    who = script(made(admin, role="responder", scopes=["acknowledge"])["token"])
    done = post(who, "/api/v1/incidents/acts", verb="acknowledge", targets=targets)
    assert done.status_code == 200 and done.json()["n_done"] == 1, done.content
    refused = post(who, "/api/v1/incidents/acts", verb="resolve", targets=targets, note="x").json()
    assert [one["code"] for one in refused["outcomes"]] == ["forbidden"]
    viewer = script(made(admin, role="viewer")["token"])
    assert post(viewer, "/api/v1/incidents/acts", verb="acknowledge", targets=targets).status_code == 403


@pytest.mark.parametrize(
    "asked",
    [
        {"role": "viewer", "scopes": ["resolve"]},
        {"role": "admin", "scopes": ["fly"]},
        {"role": "root"},
        {"days": 0},
        {"days": 367},
    ],
)
def test_what_no_role_may_and_what_never_ends_is_refused(admin: Persona, asked: dict[str, Any]) -> None:
    answer = admin.browser.post(URL, {"label": "x", "role": "admin", **asked}, format="json")
    assert answer.status_code == 400
    assert not ApiToken.objects.exists()


def test_a_token_makes_none_that_does_more_or_lives_longer(admin: Persona) -> None:
    narrow = script(made(admin, scopes=["administer", "comment"], days=10)["token"])
    wider = post(narrow, URL, label="wider", role="admin", days=5)
    assert wider.status_code == 403 and "would do more" in wider.json()["error"]
    assert post(narrow, URL, label="wider", role="responder", scopes=["resolve"], days=5).status_code == 403
    longer = post(narrow, URL, label="longer", role="viewer", days=30)
    assert longer.status_code == 403 and "would outlast" in longer.json()["error"]
    assert post(narrow, URL, label="same", role="responder", scopes=["comment"], days=9).status_code == 201
    assert ApiToken.objects.get(label="same").made_by == "ci"


def test_a_token_rotates_no_other_into_more_than_itself(admin: Persona, team: Team) -> None:
    wide, _ = make_api_token(team, "wide", Role.ADMIN, timedelta(days=5))
    long, _ = make_api_token(team, "long", Role.VIEWER)
    narrow = script(made(admin, scopes=["administer"], days=10)["token"])
    assert post(narrow, f"{URL}/{wide.pk}/rotate").status_code == 403
    assert post(narrow, f"{URL}/{long.pk}/rotate").status_code == 403
    assert ApiToken.objects.filter(revoked_at=None).count() == 3


def test_a_token_rotates_itself_and_ends_when_it_would_have(admin: Persona) -> None:
    said = made(admin, role="viewer", days=10)
    who, old = script(said["token"]), ApiToken.objects.get(pk=said["api_token"]["id"])
    new = post(who, f"{URL}/{old.pk}/rotate", days=300, grace_minutes=10).json()
    made_of_it = ApiToken.objects.get(pk=new["api_token"]["id"])
    assert (made_of_it.expires_at, made_of_it.rotated_from, made_of_it.role) == (old.expires_at, old, "viewer")
    assert who.get("/api/v1/session").status_code == script(new["token"]).get("/api/v1/session").status_code == 200
    states = {row["id"]: row["state"] for row in admin.browser.get(URL).json()["tokens"]}
    assert states == {old.pk: "rotated", made_of_it.pk: "live"}
    assert post(who, f"{URL}/{old.pk}/rotate").status_code == 400  # once is enough
    ApiToken.objects.filter(pk=old.pk).update(expires_at=timezone.now())
    assert who.get("/api/v1/session").status_code == 401


def test_an_administrator_rotates_at_once_for_as_long_as_it_was_made_for(admin: Persona) -> None:
    said = made(admin, role="responder", scopes=["trigger"], days=10)
    ApiToken.objects.update(made_at=timezone.now() - timedelta(days=4), expires_at=timezone.now() + timedelta(days=6))
    new = admin.browser.post(f"{URL}/{said['api_token']['id']}/rotate", {}, format="json").json()
    assert script(said["token"]).get("/api/v1/session").status_code == 401
    assert new["api_token"]["scopes"] == ["trigger"]
    left = ApiToken.objects.get(pk=new["api_token"]["id"]).expires_at - timezone.now()  # type: ignore[operator]
    assert timedelta(days=9, hours=23) < left <= timedelta(days=10)
    gone = admin.browser.post(f"{URL}/{said['api_token']['id']}/rotate", {}, format="json")
    assert gone.status_code == 400 and "rotated before" in gone.json()["error"]


def test_only_administrators_make_and_nobody_reaches_another_teams(
    responder: Persona, admin: Persona, stranger: Persona
) -> None:
    assert responder.browser.post(URL, {"label": "x", "role": "viewer"}, format="json").status_code == 403
    assert responder.browser.get(URL).status_code == 403
    said = made(admin)
    stranger.user.memberships.update(role=Role.ADMIN)
    for method, address in (("delete", ""), ("post", "/rotate")):
        answer = getattr(stranger.browser, method)(f"{URL}/{said['api_token']['id']}{address}", {}, format="json")
        assert answer.status_code == 404
    assert script(said["token"]).get("/api/v1/session").status_code == 200


def test_who_administers_several_teams_names_one(admin: Persona) -> None:
    admin.user.memberships.create(team=Team.objects.create(name="second"), role=Role.ADMIN)
    assert admin.browser.post(URL, {"label": "x", "role": "viewer"}, format="json").status_code == 400
    assert made(admin, team="second")["api_token"]["team"] == "second"


def test_there_is_an_end_to_how_many_are_good(admin: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_tokens, "LIVE_MAX", 2)
    first = made(admin)
    made(admin)
    refused = admin.browser.post(URL, {"label": "x", "role": "viewer"}, format="json")
    assert refused.status_code == 429 and "At most 2" in refused.json()["error"]
    admin.browser.delete(f"{URL}/{first['api_token']['id']}")
    made(admin)


def test_the_audit_says_which_token_it_was(admin: Persona, team: Team) -> None:
    said = made(admin, role="responder", scopes=["trigger"])["api_token"]
    admin.browser.post(f"{URL}/{said['id']}/rotate", {}, format="json")
    admin.browser.delete(f"{URL}/{said['id']}")
    subjects = list(AuditEntry.objects.order_by("id").values_list("subject", flat=True))[-3:]
    words = "ci, responder of training, to trigger"
    assert subjects == [
        f"api-tokens/{said['id']}: {words}",
        f"api-tokens/{said['id'] + 1}: {words}",
        f"api-tokens/{said['id']}: {words}",
    ]
    assert "dgs_api_" not in str(list(AuditEntry.objects.values()))


def test_the_use_of_a_token_is_noted_once_a_minute(admin: Persona, django_assert_num_queries: Any) -> None:
    who = script(made(admin, role="viewer")["token"])
    who.get("/api/v1/views")
    noted = ApiToken.objects.get().last_used_at
    who.get("/api/v1/views")
    assert ApiToken.objects.get().last_used_at == noted
    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    who.get("/api/v1/views")
    assert ApiToken.objects.get().last_used_at > noted  # type: ignore[operator]
