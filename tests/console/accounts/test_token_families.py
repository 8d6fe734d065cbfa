"""Revoking an API token ends whatever whoever had its secret made of it, and nothing else."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from console.accounts import api_tokens, api_tokens_api
from console.accounts.access import TokenUser, caller_of
from console.accounts.models import ApiToken, AuditEntry, Role
from console.accounts.secrets import make_api_token
from console.accounts.token_families import taken_along
from ingest.models import Team
from tests.console.accounts.test_api_tokens import URL, made, post, script
from tests.console.conftest import Persona


def is_good(secret: str) -> bool:
    return bool(script(secret).get("/api/v1/session").status_code == 200)


def listed(admin: Persona) -> dict[int, Any]:
    return {row["id"]: row for row in admin.browser.get(URL).json()["tokens"]}


def test_what_a_leaked_token_made_of_itself_and_with_itself_ends_with_it(admin: Persona) -> None:
    leaked, other = made(admin, days=10), made(admin, days=10)
    number = leaked["api_token"]["id"]
    child = post(script(leaked["token"]), URL, label="child", role="admin", days=5).json()
    grandchild = post(script(child["token"]), URL, label="grandchild", role="viewer", days=3).json()
    turned = post(script(leaked["token"]), f"{URL}/{number}/rotate", grace_minutes=60).json()
    twice = post(script(turned["token"]), f"{URL}/{turned['api_token']['id']}/rotate").json()
    rows = listed(admin)
    assert rows[number]["n_taken_along"] == 3 and rows[number]["state"] == "rotated"
    assert rows[child["api_token"]["id"]]["n_taken_along"] == 1
    assert rows[child["api_token"]["id"]]["made_with"] == number and rows[number]["made_with"] is None
    assert admin.browser.delete(f"{URL}/{number}").status_code == 204
    secrets = [one["token"] for one in (leaked, child, grandchild, turned, twice)]
    assert [is_good(one) for one in secrets] == [False] * 5
    assert is_good(other["token"])
    ended = [one["api_token"]["id"] for one in (child, grandchild, twice)]
    assert AuditEntry.objects.latest("id").subject.endswith(f", and with it {', '.join(map(str, ended))}")


def test_revoking_the_newest_secret_ends_what_was_made_with_the_ones_before(admin: Persona) -> None:
    first = made(admin, days=10)
    child = post(script(first["token"]), URL, label="child", role="viewer", days=5).json()
    at = f"{URL}/{first['api_token']['id']}/rotate"
    second = post(script(first["token"]), at, grace_minutes=60).json()
    assert listed(admin)[second["api_token"]["id"]]["n_taken_along"] == 2
    admin.browser.delete(f"{URL}/{second['api_token']['id']}")
    assert [is_good(one["token"]) for one in (first, child, second)] == [False] * 3


def test_what_a_person_rotated_outlives_the_secret_it_took_the_place_of(admin: Persona) -> None:
    leaked = made(admin, days=10)
    number = leaked["api_token"]["id"]
    child = post(script(leaked["token"]), URL, label="child", role="viewer", days=5).json()
    new = admin.browser.post(f"{URL}/{number}/rotate", {"grace_minutes": 60}, format="json").json()
    assert (new["api_token"]["made_with"], new["api_token"]["rotated_from"]) == (None, number)
    admin.browser.delete(f"{URL}/{number}")
    assert [is_good(one["token"]) for one in (leaked, child, new)] == [False, False, True]


def test_a_token_that_has_ended_is_revoked_for_the_sake_of_what_was_made_with_it(admin: Persona) -> None:
    leaked = made(admin, days=10)
    number = leaked["api_token"]["id"]
    turned = post(script(leaked["token"]), f"{URL}/{number}/rotate").json()
    row = listed(admin)[number]
    assert (row["state"], row["n_taken_along"]) == ("revoked", 1)
    assert admin.browser.delete(f"{URL}/{number}").status_code == 204
    assert not is_good(turned["token"])
    assert listed(admin)[number]["n_taken_along"] == 0


def test_a_token_revoked_meanwhile_makes_none(admin: Persona, team: Team) -> None:
    made(admin)
    token = ApiToken.objects.select_related("team").get()
    caller = caller_of(TokenUser(token))  # who asks has been let in
    api_tokens.revoke_token(token)
    with pytest.raises(PermissionDenied, match="was revoked"):
        api_tokens.make_token(caller, team, "late", Role.VIEWER, [], 1)
    assert ApiToken.objects.count() == 1


def test_rotating_with_a_time_of_grace_takes_a_place_of_its_own(
    admin: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_tokens, "LIVE_MAX", 2)
    said = made(admin)
    at = f"{URL}/{said['api_token']['id']}/rotate"
    second = post(script(said["token"]), at, grace_minutes=60).json()
    at = f"{URL}/{second['api_token']['id']}/rotate"
    refused = post(script(second["token"]), at, grace_minutes=60)
    assert refused.status_code == 429 and "At most 2" in refused.json()["error"]
    assert post(script(second["token"]), at).status_code == 201  # its own place is free at once


def test_there_is_an_end_to_how_many_are_made_in_a_day(admin: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_tokens, "MADE_A_DAY_MAX", 3)
    number = made(admin)["api_token"]["id"]
    for _ in range(2):
        number = admin.browser.post(f"{URL}/{number}/rotate").json()["api_token"]["id"]
    refused = admin.browser.post(f"{URL}/{number}/rotate")
    assert refused.status_code == 429 and "in a day" in refused.json()["error"]
    ApiToken.objects.update(made_at=timezone.now() - timedelta(days=2))
    made(admin)


def test_a_token_that_rotates_itself_again_and_again_takes_nothing_from_its_team(
    admin: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_tokens, "MADE_A_DAY_MAX", 3)
    monkeypatch.setattr(api_tokens, "OWN_TURNS_A_DAY_MAX", 4)
    said = made(admin, role="viewer")
    for _ in range(4):
        said = post(script(said["token"]), f"{URL}/{said['api_token']['id']}/rotate").json()
    at = f"{URL}/{said['api_token']['id']}/rotate"
    refused = post(script(said["token"]), at)
    assert refused.status_code == 429 and "itself at most 4 times" in refused.json()["error"]
    assert is_good(said["token"])
    turned = admin.browser.post(at)  # what one does after a leak
    assert turned.status_code == 201 and not is_good(said["token"])
    assert made(admin)["api_token"]["state"] == "live"


def test_good_tokens_are_listed_first_and_what_is_left_out_is_counted(
    admin: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_tokens_api, "SHOWN_MAX", 2)
    kept, said = made(admin, label="kept"), made(admin, label="turns")
    for _ in range(2):
        said = post(script(said["token"]), f"{URL}/{said['api_token']['id']}/rotate").json()
    answer = admin.browser.get(URL).json()
    assert [row["id"] for row in answer["tokens"]] == [said["api_token"]["id"], kept["api_token"]["id"]]
    assert answer["left_out"] == 2


def test_tokens_are_forgotten_a_year_after_their_end_youngest_first(team: Team) -> None:
    long_ago, lately = timezone.now() - timedelta(days=366), timezone.now() - timedelta(days=364)
    parent, _ = make_api_token(team, "parent", Role.ADMIN, revoked_at=long_ago)
    make_api_token(team, "child", Role.VIEWER, expires_at=long_ago, made_with=parent)
    make_api_token(team, "lately", Role.VIEWER, revoked_at=lately)
    assert (api_tokens.drop_ended_tokens(), api_tokens.drop_ended_tokens(), api_tokens.drop_ended_tokens()) == (1, 1, 0)
    assert set(ApiToken.objects.values_list("label", flat=True)) == {"lately"}


def test_ended_tokens_in_the_middle_of_a_chain_are_forgotten_and_its_ends_still_belong_together(team: Team) -> None:
    long_ago = timezone.now() - timedelta(days=366)
    maker, _ = make_api_token(team, "maker", Role.ADMIN)
    first, _ = make_api_token(team, "first", Role.ADMIN, made_with=maker, revoked_at=long_ago)
    make_api_token(team, "own", Role.VIEWER, made_with=first)
    second, _ = make_api_token(team, "second", Role.ADMIN, rotated_from=first, made_with=first, revoked_at=long_ago)
    third, _ = make_api_token(team, "third", Role.ADMIN, rotated_from=second, made_with=second, revoked_at=long_ago)
    last, _ = make_api_token(team, "last", Role.ADMIN, rotated_from=third, made_with=third)
    before = taken_along([maker.pk, first.pk, last.pk], [team.pk])
    assert api_tokens.drop_ended_tokens() == 2
    last.refresh_from_db()
    assert (last.rotated_from_id, last.made_with_id) == (first.pk, first.pk)  # which is kept for what it made
    assert before == taken_along([maker.pk, first.pk, last.pk], [team.pk]) == {maker.pk: 2, first.pk: 2, last.pk: 1}


def test_what_rotated_itself_before_it_was_noted_is_found(team: Team) -> None:
    first, _ = make_api_token(team, "ci", Role.VIEWER)
    own, _ = make_api_token(team, "ci", Role.VIEWER, rotated_from=first, made_by="ci")
    theirs, _ = make_api_token(team, "ci", Role.VIEWER, rotated_from=own, made_by="ada")
    importlib.import_module("console.accounts.migrations.0005_rotated_by_themselves").note_offspring(apps, None)
    assert dict(ApiToken.objects.values_list("pk", "made_with")) == {first.pk: None, own.pk: first.pk, theirs.pk: None}
