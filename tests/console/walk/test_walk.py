"""The authorisation walk: every route of the URL configuration, by every method, as everybody who may come along.

Nothing of another team is reachable by its id or shows in a list; nobody does what their role does not allow; who is
nobody gets nothing. A new route fails here until `expected.py` says who may use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest
from django.apps import apps
from django.core import serializers
from django.core.cache import cache
from django.db import transaction
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from console.accounts.models import ApiToken, Role
from console.accounts.secrets import make_signin_link
from console.incidents.pictures import why_not_api
from ingest.door.tokens import make_agent_token
from ingest.models import Team
from tests.console.walk.expected import EXPECTED, INTO_ANOTHER_TEAM, Act, names_an_object
from tests.console.walk.world import ROLES, WORD, World, bearing, by_token, make_world, signed_in

pytestmark = pytest.mark.django_db
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
SAFE: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
RANK_OF: Final = {"viewer": 0, "responder": 1, "admin": 2}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any) -> World:
    monkeypatch.setattr(why_not_api, "WAIT_SECONDS", 0.0)
    settings.BUNDLES_FOLDER = tmp_path / "bundles"
    return make_world()


def routes(patterns: Iterable[Any] | None = None, before: str = "") -> Iterator[str]:
    """Every route as it is written in the URL configuration; the shell of the pages by its name."""
    for one in get_resolver().url_patterns if patterns is None else patterns:
        if isinstance(one, URLResolver):
            yield from routes(one.url_patterns, before + str(one.pattern))
        else:
            assert isinstance(one, URLPattern)
            yield "page" if one.name == "page" else before + str(one.pattern)


def address_of(world: World, route: str) -> str:
    return "/" if route == "page" else world.address(route)


def send(who: Client, world: World, route: str, act: Act) -> Any:
    """One request, of which nothing stays."""
    body = {name: value() if callable(value) else value for name, value in (act.body or {}).items()}
    path = address_of(world, route) + act.query
    cache.clear()  # guesses of tokens and passwords are counted, and all come from one address
    cookies = who.cookies.copy()
    with transaction.atomic():
        if act.is_form:
            answer = who.generic(act.method, path, encode_multipart(BOUNDARY, body), MULTIPART_CONTENT)
        else:
            answer = who.generic(
                act.method, path, json.dumps(body) if act.body is not None else b"", "application/json"
            )
        transaction.set_rollback(True)
    who.cookies = cookies
    return answer


def acts(world: World) -> Iterator[tuple[str, Act]]:
    """What is listed, HEAD for every GET included, and the world's own incident in the acts on many."""
    for route, listed in EXPECTED.items():
        for act in listed:
            yield route, act
            if act.method == "GET":
                yield route, Act("HEAD", act.need, query=act.query, answers=act.answers)


def unlisted() -> Iterator[tuple[str, Act]]:
    for route, listed in EXPECTED.items():
        there = {act.method for act in listed} | ({"HEAD"} if any(act.method == "GET" for act in listed) else set())
        for method in METHODS:
            if method not in there:
                yield route, Act(method, "admin", None if method in SAFE else {})


def test_every_route_is_listed_and_nothing_else() -> None:
    there = list(routes())
    assert sorted(there) == sorted(set(there))
    assert set(there) - set(EXPECTED) == set(), "say in tests/console/walk/expected.py who may use these routes"
    assert set(EXPECTED) - set(there) == set()


def test_a_method_that_is_not_listed_is_not_there(world: World) -> None:
    ada = signed_in("ada", world.team)
    wrong = [
        (act.method, route, status)
        for route, act in unlisted()
        if (status := send(ada, world, route, act).status_code) != 405
    ]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("kind", ["session", "token"])
@pytest.mark.parametrize("role", list(ROLES))
def test_each_role_does_what_is_its_own_and_no_more(world: World, role: str, kind: str) -> None:
    who = by_token(world.team, ROLES[role]) if kind == "token" else signed_in("ada", world.team, ROLES[role])
    wrong = []
    for route, act in acts(world):
        answer = send(who, world, route, act)
        if act.need == "signed in" and kind == "token":
            allowed: tuple[int, ...] = (302,)  # pages are for browsers
        elif act.need in RANK_OF and RANK_OF[role] < RANK_OF[act.need]:
            allowed = (403,)
        else:
            allowed = act.answers
        if answer.status_code not in allowed:
            wrong.append((act.method, route, answer.status_code, answer.content[:200] if not answer.streaming else b""))
    assert not wrong, "\n".join(map(str, wrong))


def nobody() -> Client:
    return Client(raise_request_exception=False, SERVER_NAME="localhost")


NOBODIES: Final[dict[str, Callable[[World], Client]]] = {
    "anonymous": lambda world: nobody(),
    "an agent's token as a bearer": lambda world: bearing(f"Bearer {make_agent_token(world.team, 'x')}"),
    "an agent's token as an API token": lambda world: bearing(f"Token {make_agent_token(world.team, 'x')}"),
    "an expired API token": lambda world: by_token(world.team, Role.ADMIN, timedelta(seconds=-1)),
    "a revoked API token": lambda world: _revoked(world),
    "somebody who has left": lambda world: signed_in("gone", world.team, is_active=False),
}


def _revoked(world: World) -> Client:
    script = by_token(world.team, Role.ADMIN)
    ApiToken.objects.update(revoked_at=timezone.now())
    return script


@pytest.mark.parametrize("name", list(NOBODIES))
def test_nobody_gets_nothing(world: World, name: str) -> None:
    who, wrong = NOBODIES[name](world), []
    for route, act in [*acts(world), *unlisted()]:
        answer = send(who, world, route, act)
        if act.need == "anyone" or not route.startswith("api/"):
            is_right = answer.status_code in (*act.answers, 302, 405)
        else:
            is_right = answer.status_code == 401
        if not is_right or WORD in _text(answer):
            wrong.append((act.method, route, answer.status_code))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("kind", ["session", "token", "session without a team"])
def test_another_teams_administrator_reaches_and_sees_nothing_of_it(world: World, kind: str) -> None:
    others = Team.objects.create(name="others")
    who = by_token(others, Role.ADMIN) if kind == "token" else signed_in("sten", others if kind == "session" else None)
    wrong, before = [], everything()
    for route, act in acts(world):
        answer = send(who, world, route, act)
        if names_an_object(route) and answer.status_code != 404:
            wrong.append((act.method, route, answer.status_code))
        if WORD in _text(answer):
            wrong.append((act.method, route, "shows what is another team's"))
    assert not wrong, "\n".join(map(str, wrong))
    assert everything() == before


def test_nothing_is_made_in_another_team_by_naming_it(world: World) -> None:
    who = signed_in("sten", Team.objects.create(name="others"))
    said = [who.post(f"/{route}", body, "application/json").status_code for route, body in INTO_ANOTHER_TEAM]
    assert all(status in (400, 403) for status in said), said


def test_acts_on_many_and_roots_do_not_reach_into_another_team(world: World) -> None:
    sten = signed_in("sten", Team.objects.create(name="others"))
    body = {"verb": "resolve", "note": "x", "targets": [{"number": world.incident.pk}]}
    outcome = sten.post("/api/v1/incidents/acts", body, "application/json").json()["outcomes"][0]
    assert (outcome["code"], outcome["incident"]) == ("not_found", None)
    world.incident.refresh_from_db()
    assert world.incident.state == "open"


def test_a_page_elsewhere_can_do_nothing_with_somebodys_session(world: World) -> None:
    """A browser sends the cookie along; without the CSRF token no act is taken. The hook is signed instead."""
    who, before = signed_in("ada", world.team, csrf=True), everything()
    unsafe = [(route, act) for route, act in acts(world) if act.method not in SAFE and "hooks/" not in route]
    wrong = [(act.method, route) for route, act in unsafe if send(who, world, route, act).status_code != 403]
    assert not wrong, "\n".join(map(str, wrong))
    assert everything() == before


def test_a_good_sign_in_link_is_not_used_up_by_looking(world: World) -> None:
    ada = signed_in("ada", world.team)
    user = ada.get("/api/v1/session").wsgi_request.user
    secret = make_signin_link(user, timedelta(minutes=5))
    assert nobody().get(f"/signin/{secret}").status_code == nobody().head(f"/signin/{secret}").status_code == 200
    assert nobody().post(f"/signin/{secret}").status_code == 302


def everything() -> str:
    """A digest of every row of ours, so that a refusal that changed something all the same is noticed."""
    models = [model for app in ("accounts", "incidents", "silences", "dumps", "tickets", "stages") for model in
              apps.get_app_config(app).get_models()]  # fmt: skip
    models += [apps.get_model("ingest", name) for name in ("Team", "Job", "Attempt", "AgentToken", "DumpRequest")]
    said = hashlib.sha256()
    for model in models:
        said.update(serializers.serialize("json", model._default_manager.order_by("pk")).encode())
    return said.hexdigest()


def _text(answer: Any) -> str:
    raw = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return str(raw.decode("latin-1")).replace("/api/v1/incidents?", "")
