"""Who else has an incident open: told while they look, forgotten when they leave or their socket dies without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings

from console.accounts.models import Role
from console.incidents import presence
from console.incidents.models import Incident
from console.incidents.presence import Looking, looking_at
from console.incidents.streams import connect_reader
from ingest.models import Attempt
from tests.console.conftest import Persona, make_persona
from tests.console.incidents.making import make_incident
from tests.console.incidents.test_live import _frame, _Socket, _socket

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nobody_looks(valkey: object) -> Iterator[None]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
    yield


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


@pytest.fixture
def olaf(attempt: Attempt) -> Persona:
    return make_persona("olaf", attempt.job.team, Role.VIEWER)


async def follow(socket: _Socket, incident: Incident) -> None:
    await socket.say(json.dumps({"subscribe": f"incident:{incident.pk}", "epoch": "", "offset": 0}))
    await _frame(socket, "subscribed")


async def people(socket: _Socket, *names: str) -> None:
    """Frames until it says that just these look; another incident's or older news are let go."""
    for _ in range(10):
        frame: dict[str, Any] = await _frame(socket, "presence")
        if frame["people"] == list(names):
            return
    raise AssertionError(f"never heard of {names}")


async def test_who_opens_an_incident_is_seen_and_who_leaves_is_not(
    incident: Incident, responder: Persona, olaf: Persona
) -> None:
    async with _socket(responder) as first:
        await follow(first, incident)
        await people(first, "rita")
        async with _socket(olaf) as second:
            await follow(second, incident)
            await people(second, "olaf", "rita")
            await people(first, "olaf", "rita")
        await people(first, "rita")


async def test_two_windows_of_one_person_are_one_person(incident: Incident, responder: Persona) -> None:
    async with _socket(responder) as first:
        await follow(first, incident)
        async with _socket(responder) as second:
            await follow(second, incident)
            await people(second, "rita")
        assert looking_at(incident.pk) == ["rita"]


async def test_who_follows_a_team_looks_at_no_incident(incident: Incident, responder: Persona) -> None:
    async with _socket(responder) as socket:
        await socket.say(json.dumps({"subscribe": f"team:{incident.team_id}"}))
        await _frame(socket, "subscribed")
        await _frame(socket, "beat")
    assert looking_at(incident.pk) == []


async def test_a_socket_that_died_without_a_word_is_forgotten(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect_reader()
    now = 1_000_000.0
    monkeypatch.setattr(presence.time, "time", lambda: now)
    died, lives = Looking(client), Looking(client)
    assert await died.enter(incident.pk, "a", "rita") == [incident.pk]
    now += presence.LOOKING_SECONDS / 2
    await lives.enter(incident.pk, "b", "olaf")
    assert lives.names(incident.pk) == ["olaf", "rita"]
    now += presence.LOOKING_SECONDS / 2 + 1
    assert await lives.refresh() == [incident.pk]
    assert lives.names(incident.pk) == ["olaf"]
    assert await lives.refresh() == []
    await client.aclose()


def test_while_valkey_is_away_nobody_is_seen(incident: Incident, settings: Any) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock"
    assert looking_at(incident.pk) == []
