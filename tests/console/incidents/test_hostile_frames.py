"""Odd frames on the live socket: it answers, refuses or closes with a reason, and never ends in an error of ours."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import Any

import pytest

from console.incidents.models import Incident
from ingest.models import Attempt
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident
from tests.console.incidents.test_live import _Socket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, 1e308, "", "\0", "\ud800", "x" * 3000, "team:", "team:٣", "team:-1",
    "incident:1 ",
    "incident:99999999999999", "incident:999999999999999999999", "team:1:2", ":", [], {}, [[1]], {"a": []}, "NaN", float("nan"),
)  # fmt: skip
RAW = (
    "[" * 4000,
    '{"ping":' * 500,
    "{}",
    '{"ping": 1, "subscribe": "team:1"}',
    "\0",
    "9" * 4096,
    '{"ping":' + "9" * 4080 + "}",
)


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


async def outcome(persona: Persona, frame: str) -> str:
    """ "answered", "silent", or the code it closed with."""
    socket = _Socket(persona.user)
    await socket.connect()
    await socket.say(frame)
    try:
        heard = await asyncio.wait_for(socket.receive_output(), 0.5)
    except TimeoutError:
        return "silent"
    finally:
        await socket.disconnect()
    return str(heard["code"]) if heard["type"] == "websocket.close" else "answered"


@pytest.mark.parametrize("seed", range(3))
async def test_odd_frames_end_in_no_error(
    responder: Persona, incident: Incident, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(seed)
    names = ("ping", "subscribe", "unsubscribe", "epoch", "offset", "x")
    real = (f"incident:{incident.pk}", f"team:{incident.team_id}")
    for _ in range(25):
        frame = {name: draw.choice(ODD + real) for name in draw.sample(names, draw.randint(1, 4))}
        text = draw.choice(RAW) if draw.random() < 0.2 else json.dumps(frame)
        assert await outcome(responder, text) in ("answered", "silent", "4400"), text[:200]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_stream_is_refused(responder: Persona, name: Any) -> None:
    socket = _Socket(responder.user)
    await socket.connect()
    await socket.say(json.dumps({"subscribe": name}))
    heard = await socket.receive_output(2)
    assert "refused" in json.loads(heard["text"]) or heard.get("code") == 4400
    await socket.disconnect()


@pytest.mark.parametrize("place", [{"offset": 10**30}, {"offset": 2**63}, {"epoch": "\ud800"}, {"epoch": "x" * 3000}])
async def test_an_odd_place_in_a_stream_means_fetch_the_snapshot(
    responder: Persona, incident: Incident, place: dict[str, Any]
) -> None:
    socket = _Socket(responder.user)
    await socket.connect()
    await socket.say(json.dumps({"subscribe": f"incident:{incident.pk}", **place}))
    heard = await socket.receive_output(2)
    assert json.loads(heard["text"])["subscribed"] == f"incident:{incident.pk}"
    await socket.disconnect()
