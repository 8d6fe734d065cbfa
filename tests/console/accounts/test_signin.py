"""Signing in by password: wrong ones slow down, and nobody is led away from our own pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from console.accounts.models import Role
from console.accounts.secrets import make_api_token, make_signin_link
from ingest.models import Team

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def rita() -> User:
    return User.objects.create_user("rita", password=PASSWORD)


def test_the_right_password_leads_to_where_one_wanted_to_go(client: Client) -> None:
    assert sign_in(client, next="/incidents/12").headers["Location"] == "/incidents/12"
    assert client.get("/api/v1/session").json()["user"] == "rita"


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)", ""])
def test_nobody_is_led_away_after_signing_in(client: Client, elsewhere: str) -> None:
    assert sign_in(client, next=elsewhere).headers["Location"] == "/"


def test_a_wrong_password_says_no_more_than_that(client: Client) -> None:
    unknown = sign_in(client, username="nobody")
    wrong = sign_in(client, password="wrong")
    assert (unknown.status_code, wrong.status_code) == (401, 401)
    assert unknown.context["error"] == wrong.context["error"]


def test_too_many_failures_block_even_the_right_password_for_a_while(client: Client, settings: Any) -> None:
    settings.SIGNIN_FAILURES_MAX = 3
    for _ in range(3):
        sign_in(client, password="wrong")
    assert sign_in(client).status_code == 429
    cache.clear()
    assert sign_in(client).status_code == 302


def test_without_the_cache_people_can_still_sign_in(client: Client, settings: Any) -> None:
    away = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "unix:///nowhere/valkey.sock"}
    settings.CACHES = {"default": away}
    assert sign_in(client, password="wrong").status_code == 401
    assert sign_in(client).status_code == 302


def test_signing_out_ends_the_session(client: Client) -> None:
    sign_in(client)
    assert client.get("/signout").status_code == 405
    client.post("/signout")
    assert client.get("/api/v1/session").status_code == 401


def test_a_page_sends_a_stranger_to_sign_in(client: Client) -> None:
    assert client.get("/incidents/12").headers["Location"] == "/signin?next=/incidents/12"


def sign_in(client: Client, **changes: str) -> Any:
    return client.post("/signin", {"username": "rita", "password": PASSWORD} | changes)


def test_a_guesser_elsewhere_does_not_lock_the_owner_out(client: Client, settings: Any) -> None:
    settings.SIGNIN_FAILURES_MAX = 3
    for _ in range(40):
        sign_in(Client(REMOTE_ADDR="10.6.6.6"), password="wrong")
    assert sign_in(Client(REMOTE_ADDR="10.6.6.6")).status_code == 429
    assert sign_in(client).status_code == 302


def test_guessing_one_account_from_everywhere_ends_too(client: Client, settings: Any) -> None:
    settings.SIGNIN_FAILURES_MAX = 1
    for number in range(10):
        sign_in(Client(REMOTE_ADDR=f"10.0.0.{number}"), password="wrong")
    assert sign_in(client).status_code == 429


def test_an_address_that_tries_many_names_is_blocked_and_so_is_its_ipv6_network(settings: Any) -> None:
    settings.SIGNIN_FAILURES_MAX = 1
    said = [
        sign_in(Client(REMOTE_ADDR=f"2001:db8::{number}"), username=f"user{number}").status_code for number in range(5)
    ]
    assert said == [401, 401, 401, 429, 429]


def test_links_that_are_none_are_counted_and_a_good_one_still_works(client: Client, rita: User, settings: Any) -> None:
    settings.GUESSES_MAX = 3
    said = [client.get(f"/signin/guess{number}").status_code for number in range(5)]
    said.append(client.post("/signin/guess").status_code)
    assert said == [401, 401, 401, 429, 429, 429]
    assert client.post(f"/signin/{make_signin_link(rita, timedelta(minutes=1))}").status_code == 302


def test_unknown_api_tokens_are_counted_and_a_good_one_still_works(settings: Any) -> None:
    settings.GUESSES_MAX = 3
    good = make_api_token(Team.objects.create(name="r"), "script", Role.VIEWER)[1]

    def asked(token: str, address: str = "10.6.6.6") -> int:
        client = Client(headers={"Authorization": f"Token {token}"}, REMOTE_ADDR=address)
        return client.get("/api/v1/session").status_code

    assert [asked(f"dgs_api_{number}") for number in range(5)] == [401, 401, 401, 429, 429]
    assert asked(good) == 200
    assert asked("dgs_api_x", "10.0.0.9") == 401
