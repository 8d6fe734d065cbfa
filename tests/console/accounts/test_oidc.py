"""Signing in at an OpenID Connect provider: groups become roles, and a token that is not good lets nobody in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
import requests
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from console.accounts.grants import oidc_app, read_grants
from console.accounts.groups import groups_in, roles_for
from console.accounts.models import Membership, Role
from console.operations.metrics import SIGNINS_REFUSED
from ingest.models import Team
from tests.console.accounts.identity_provider import CLIENT_ID, KEY_ID, SECRET, Provider, new_key, running

pytestmark = pytest.mark.django_db
GROUPS = "sre=training:responder; CN=Leads,OU=ML,DC=x=training:admin; everybody=research:viewer"
RITA = {"sub": "8f1c", "preferred_username": "rita", "name": "Rita Roe", "groups": ["sre", "everybody", "golf"]}


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    """A provider that Diogenes is set up for, with two teams that groups are mapped to."""
    for name in ("training", "research"):
        Team.objects.create(name=name)
    with running(Provider(dict(RITA))) as made:
        environment = {
            "DIOGENES_OIDC_ISSUER": made.issuer, "DIOGENES_OIDC_CLIENT_ID": CLIENT_ID,
            "DIOGENES_OIDC_CLIENT_SECRET": SECRET, "DIOGENES_OIDC_GROUPS": GROUPS,
        }  # fmt: skip
        settings.OIDC_ISSUER, settings.OIDC_NAME = made.issuer, "Example Login"
        settings.OIDC_GROUPS = read_grants(GROUPS)
        settings.SOCIALACCOUNT_PROVIDERS = {"oidc": {"APPS": [oidc_app(environment)]}}
        yield made


def browser() -> Client:
    return Client(SERVER_NAME="localhost", raise_request_exception=False)


def go(who: Client, next_url: str = "") -> str:
    """Leave for the provider; the address it sends the browser back to."""
    left = who.post("/signin/oidc", {"next": next_url})
    assert left.status_code == 302, left.content
    back = requests.get(left.headers["Location"], allow_redirects=False, timeout=20)
    return str(back.headers["Location"]).removeprefix("http://localhost")


def sign_in(who: Client, next_url: str = "") -> Any:
    return who.get(go(who, next_url))


def roles_of(name: str) -> dict[str, str]:
    return dict(Membership.objects.filter(user__username=name).values_list("team__name", "role"))


def is_signed_in(who: Client) -> bool:
    return who.get("/api/v1/session").status_code == 200


def test_groups_at_the_provider_are_roles_here_and_the_page_wanted_is_opened(provider: Provider) -> None:
    who = browser()
    answer = sign_in(who, "/incidents/7")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/incidents/7")
    session = who.get("/api/v1/session").json()
    assert (session["user"], session["name"]) == ("rita", "Rita Roe")
    assert session["roles"] == {"training": "responder", "research": "viewer"}
    assert not User.objects.get().has_usable_password()
    assert provider.calls[:1] == ["/.well-known/openid-configuration"]
    assert {"/token", "/keys", "/userinfo"} <= set(provider.calls)
    assert 11 * 3600 < who.session.get_expiry_age() <= 12 * 3600


def test_who_comes_again_is_the_same_and_has_todays_roles(provider: Provider) -> None:
    sign_in(browser())
    provider.person |= {"groups": ["CN=Leads,OU=ML,DC=x"], "preferred_username": "rita.roe"}
    who = browser()
    sign_in(who)
    assert User.objects.count() == 1
    assert who.get("/api/v1/session").json()["roles"] == {"training": "admin"}
    assert roles_of("rita") == {"training": "admin"}


def test_who_has_left_all_groups_does_not_come_in_and_keeps_no_role_of_theirs(provider: Provider) -> None:
    sign_in(browser())
    provider.person["groups"] = []
    who = browser()
    assert sign_in(who).status_code == 403
    assert not is_signed_in(who)
    assert roles_of("rita") == {}


def test_roles_given_here_in_other_teams_stay(provider: Provider) -> None:
    sign_in(browser())
    Membership.objects.create(user=User.objects.get(), team=Team.objects.create(name="local"), role=Role.ADMIN)
    provider.person["groups"] = []
    who = browser()
    assert sign_in(who).status_code == 302
    assert who.get("/api/v1/session").json()["roles"] == {"local": "admin"}


def test_who_is_in_no_group_that_counts_is_not_made_a_user(provider: Provider) -> None:
    provider.person["groups"] = ["golf"]
    who = browser()
    answer = sign_in(who)
    assert (answer.status_code, b"none of your groups" in answer.content) == (403, True)
    assert not User.objects.exists() and not is_signed_in(who)


def test_a_name_that_somebody_here_has_is_not_taken_over(provider: Provider) -> None:
    User.objects.create_user("rita", password="a lantern at noon")
    who = browser()
    sign_in(who)
    assert who.get("/api/v1/session").json()["user"] == "rita-2"
    assert roles_of("rita") == {}


def test_an_account_that_is_switched_off_stays_out(provider: Provider) -> None:
    sign_in(browser())
    User.objects.update(is_active=False)
    who = browser()
    assert sign_in(who).status_code == 403
    assert not is_signed_in(who)


def _signed_by_somebody_else(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, new_key(), "RS256", {"kid": KEY_ID})


def _signed_with_the_public_key(provider: Provider) -> Callable[[dict[str, Any]], str]:
    """The old trick: a symmetric algorithm, and as its secret what everybody may read."""
    return lambda claims: jwt.encode(claims, "n" * 64, "HS256", {"kid": KEY_ID})


SPOILT: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another sign-in's nonce": lambda claims: claims | {"nonce": "x" * 43},
    "no nonce": lambda claims: {name: said for name, said in claims.items() if name != "nonce"},
    "another issuer": lambda claims: claims | {"iss": "https://elsewhere.example"},
    "another audience": lambda claims: claims | {"aud": "wiki"},
    "several audiences and nobody it was made for": lambda claims: claims | {"aud": [CLIENT_ID, "wiki"]},
    "made for another client": lambda claims: claims | {"azp": "wiki"},
    "expired": lambda claims: claims | {"exp": int(time.time()) - 120, "iat": int(time.time()) - 420},
    "never expires": lambda claims: {name: said for name, said in claims.items() if name != "exp"},
    "issued in the future": lambda claims: claims | {"iat": int(time.time()) + 3600},
    "about nobody": lambda claims: {name: said for name, said in claims.items() if name != "sub"},
}


@pytest.mark.parametrize("how", list(SPOILT))
def test_a_token_that_says_the_wrong_thing_lets_nobody_in(provider: Provider, how: str) -> None:
    provider.spoil = SPOILT[how]
    refuses(provider)


@pytest.mark.parametrize(
    "how", ["another key", "the public key as a secret", "no signature", "no token at all", "no JWT"]
)
def test_a_token_that_the_provider_did_not_sign_lets_nobody_in(provider: Provider, how: str) -> None:
    provider.sign = {
        "another key": _signed_by_somebody_else,
        "the public key as a secret": _signed_with_the_public_key(provider),
        "no signature": lambda claims: jwt.encode(claims, "", "none", {"kid": KEY_ID}),
        "no token at all": lambda claims: "",
        "no JWT": lambda claims: "three.little.words",
    }[how]
    refuses(provider)


def refuses(provider: Provider) -> None:
    before = SIGNINS_REFUSED.labels("bad answer")._value.get()
    who = browser()
    answer = sign_in(who)
    assert (answer.status_code, b"did not work" in answer.content) == (401, True)
    assert not is_signed_in(who) and not User.objects.exists()
    assert SIGNINS_REFUSED.labels("bad answer")._value.get() == before + 1


def test_answers_about_different_people_let_nobody_in(provider: Provider) -> None:
    provider.userinfo = lambda told: told | {"sub": "somebody else"}
    refuses(provider)


def test_a_provider_that_calls_itself_something_else_is_not_asked(provider: Provider) -> None:
    real = provider.discovery
    provider.discovery = lambda: real() | {"issuer": "https://elsewhere.example"}  # type: ignore[method-assign]
    assert browser().post("/signin/oidc").status_code == 503


def test_an_answer_works_once_and_only_in_the_browser_that_asked(provider: Provider) -> None:
    who, thief = browser(), browser()
    back = go(who)
    assert thief.get(back).status_code == 401
    assert not is_signed_in(thief)
    assert who.get(back).status_code == 302
    User.objects.all().delete()
    again = browser()
    assert again.get(back).status_code == 401


def test_a_code_of_somebody_elses_sign_in_does_not_fit_ours(provider: Provider) -> None:
    """PKCE: a stolen code is worth nothing without the verifier of the sign-in it belongs to."""
    stolen = go(browser()).split("code=")[1].split("&")[0]
    who = browser()
    own = go(who)
    assert who.get(own.replace(own.split("code=")[1].split("&")[0], stolen)).status_code == 401
    assert not is_signed_in(who)


def test_a_sign_in_cancelled_there_is_said(provider: Provider) -> None:
    who = browser()
    state = go(who).split("state=")[1]
    answer = who.get(f"/signin/oidc/callback?error=access_denied&state={state}")
    assert (answer.status_code, b"cancelled" in answer.content) == (401, True)


@pytest.mark.parametrize("when", ["before", "after"])
def test_while_the_provider_is_away_the_page_says_so(provider: Provider, when: str) -> None:
    who = browser()
    back = go(who) if when == "after" else ""
    provider.is_away = True
    answer = who.get(back) if back else who.post("/signin/oidc")
    assert answer.status_code == 503 and b'role="alert"' in answer.content
    assert not is_signed_in(who)


def test_what_stands_in_the_address_changes_nothing_of_what_is_asked(provider: Provider) -> None:
    left = browser().post(
        "/signin/oidc?scope=admin&auth_params=nonce%3Dmine%26prompt%3Dnone&process=connect&next=//evil.example"
    )
    asked = left.headers["Location"]
    assert "admin" not in asked and "nonce=mine" not in asked and "prompt" not in asked


def test_going_there_needs_the_forms_token_and_a_post(provider: Provider) -> None:
    assert Client(SERVER_NAME="localhost", enforce_csrf_checks=True).post("/signin/oidc").status_code == 403
    assert browser().get("/signin/oidc").status_code == 405


def test_it_is_on_the_sign_in_page_only_where_it_is_set_up(provider: Provider, settings: Any) -> None:
    assert b"Sign in with Example Login" in browser().get("/signin").content
    settings.OIDC_NAME = ""
    settings.SOCIALACCOUNT_PROVIDERS = {"oidc": {"APPS": []}}
    assert b"/signin/oidc" not in browser().get("/signin").content
    assert browser().post("/signin/oidc").status_code == 404


def test_a_mapping_that_cannot_be_read_stops_the_start() -> None:
    for wrong in ("sre", "sre=training", "sre=training:boss", "=training:viewer", "sre=:viewer"):
        with pytest.raises(ImproperlyConfigured):
            read_grants(wrong)
    with pytest.raises(ImproperlyConfigured):
        oidc_app({"DIOGENES_OIDC_ISSUER": "https://x", "DIOGENES_OIDC_CLIENT_ID": "y"})


def test_the_highest_role_of_all_groups_counts() -> None:
    grants = read_grants("a=t:viewer;b=t:admin;c=t:responder;d=u:viewer")
    assert roles_for({"a", "b", "c"}, grants) == {"t": Role.ADMIN}
    assert roles_for(set(), grants) == {}


def test_groups_are_found_where_providers_put_them() -> None:
    assert groups_in({"groups": ["a", "b"]}, "groups") == {"a", "b"}
    assert groups_in({"realm_access": {"roles": ["a"]}}, "realm_access.roles") == {"a"}
    assert groups_in({"https://x.example/groups": "a b,c"}, "https://x.example/groups") == {"a", "b", "c"}
    for odd in ({}, {"groups": None}, {"groups": 7}, {"groups": {"a": 1}}):
        assert groups_in(odd, "groups") == frozenset()
