"""The live streams and the socket, on a real Valkey: order, replay, gaps, and honest silence."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import override_settings
from prometheus_client import REGISTRY
from pytest_django import Settings

from console.accounts.models import Membership
from console.incidents import hub, lifecycle, publish, streams
from console.incidents.live import IncidentRow, decode_message
from console.incidents.models import ActorKind, Incident, OutboxRow
from console.incidents.routing import websocket_urlpatterns
from console.incidents.rows import incident_row
from ingest.models import Attempt
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident

pytestmark = pytest.mark.django_db(transaction=True)
RITA = lifecycle.Actor("rita", ActorKind.USER)
FRAMES_MAX = 50


@pytest.fixture(autouse=True)
def no_messages(valkey: object) -> Iterator[None]:
    """Streams start empty, as after a fresh start of Valkey."""
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
    yield


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


async def test_a_snapshot_plus_the_messages_after_it_is_the_next_snapshot(
    incident: Incident, responder: Persona
) -> None:
    snapshot = await _get(responder, f"/api/v1/incidents/{incident.pk}")
    async with _socket(responder) as socket:
        await _subscribe(socket, **_place(snapshot))
        await _act(incident, "acknowledge")
        await _comment(incident, "looking")
        await _act(incident, "resolve")
        messages = [decode_message(json.dumps(frame)) for frame in await _messages(socket, 5)]
    later = await _get(responder, f"/api/v1/incidents/{incident.pk}")
    rows = [message.row for message in messages if isinstance(message.row, IncidentRow)]
    entries = [dataclasses.asdict(message.row) for message in messages if message.type == "timeline.appended"]
    assert json.loads(json.dumps(dataclasses.asdict(rows[-1]))) == later["incident"]
    assert snapshot["timeline"] + entries == later["timeline"]
    assert [message.offset for message in messages] == list(range(messages[0].offset, messages[0].offset + 5))


async def test_who_comes_back_gets_what_they_missed(incident: Incident, responder: Persona) -> None:
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}"))
    await _act(incident, "acknowledge")
    async with _socket(responder) as socket:
        answer = await _subscribe(socket, **place)
        assert (answer["recovered"], answer["offset"]) == (True, place["offset"])
        assert [frame["type"] for frame in await _messages(socket, 2)] == ["timeline.appended", "incident.changed"]


@pytest.mark.parametrize("wrong", [{"epoch": "ffff"}, {"offset": 10_000}], ids=["another epoch", "ahead of the stream"])
async def test_a_place_the_stream_does_not_know_means_fetch_the_snapshot(
    incident: Incident, responder: Persona, wrong: dict[str, Any]
) -> None:
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}")) | wrong
    async with _socket(responder) as socket:
        assert (await _subscribe(socket, **place))["recovered"] is False
        assert (await _frame(socket, "resync"))["resync"] == place["subscribe"]
        await _act(incident, "acknowledge")
        assert (await _messages(socket, 1))[0]["offset"] > 0


async def test_messages_no_longer_kept_mean_fetch_the_snapshot(
    incident: Incident, responder: Persona, settings: Settings
) -> None:
    settings.STREAM_MESSAGES_KEPT = 3
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}"))
    for _ in range(5):
        await _comment(incident, "hm")
    async with _socket(responder) as socket:
        assert (await _subscribe(socket, **place))["recovered"] is False


async def test_a_lost_valkey_means_fetch_the_snapshot(incident: Incident, responder: Persona) -> None:
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}"))
    async with _socket(responder) as socket:
        await _subscribe(socket, **place)
        await sync_to_async(_forget_streams)()
        assert (await _frame(socket, "resync"))["resync"] == place["subscribe"]


async def test_a_ring_is_heard_at_once(incident: Incident, responder: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "TICK_SECONDS", 3600.0)
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}"))
    async with _socket(responder) as first, _socket(responder) as second:
        for socket in (first, second):
            await _subscribe(socket, **place)
            await _frame(socket, "presence")  # by then its process listens
        await _comment(incident, "looking")
        for socket in (first, second):
            assert (await _messages(socket, 1))[0]["row"]["note"] == "looking"


async def test_a_lost_ring_costs_a_second(
    incident: Incident, responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}"))
    async with _socket(responder) as socket:
        await _subscribe(socket, **place)
        monkeypatch.setattr(streams, "STREAMS_RANG", "nobody listens here")
        await _comment(incident, "looking")
        assert (await _messages(socket, 1))[0]["row"]["note"] == "looking"


def test_nobody_who_acts_waits_until_everybody_is_told(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    may_tell = threading.Event()
    append = streams.append

    def late(*messages: streams.Message) -> None:
        assert may_tell.wait(30)
        append(*messages)

    with ThreadPoolExecutor(1) as apart:
        monkeypatch.setattr(publish, "_APART", apart)
        monkeypatch.setattr(publish, "append", late)
        lifecycle.move(incident.pk, "acknowledge", RITA)
        assert OutboxRow.objects.filter(relayed_at=None).count() == 1
        may_tell.set()
    assert not OutboxRow.objects.filter(relayed_at=None).exists()


def test_a_relay_that_fails_is_counted_and_relayed_later(
    incident: Incident, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: streams.Message) -> None:
        raise KeyError("a bug of ours")

    before = REGISTRY.get_sample_value("diogenes_messages_unpublished_total") or 0.0
    with monkeypatch.context() as broken, ThreadPoolExecutor(1) as apart:
        broken.setattr(publish, "_APART", apart)
        broken.setattr(publish, "append", fail)
        lifecycle.move(incident.pk, "acknowledge", RITA)
    assert REGISTRY.get_sample_value("diogenes_messages_unpublished_total") == before + 1
    assert "could not be announced" in caplog.text
    assert publish.relay_waiting() == 1
    assert not OutboxRow.objects.filter(relayed_at=None).exists()


async def test_a_team_hears_of_its_incidents(attempt: Attempt, responder: Persona) -> None:
    place = _place(await _get(responder, "/api/v1/now"))
    async with _socket(responder) as socket:
        await _subscribe(socket, **place)
        await sync_to_async(make_incident)(attempt)
        assert [frame["type"] for frame in await _messages(socket, 1)] == ["incident.opened"]


async def test_another_teams_streams_are_not_there(incident: Incident, stranger: Persona, attempt: Attempt) -> None:
    async with _socket(stranger) as socket:
        for stream in (f"incident:{incident.pk}", f"team:{attempt.job.team_id}", "team:x", "incident:999", "job:1"):
            await socket.say(json.dumps({"subscribe": stream}))
            assert (await _frame(socket, "refused"))["refused"] == stream


async def test_who_is_not_signed_in_is_sent_away() -> None:
    socket = _Socket(None)
    await socket.connect()
    assert (await socket.receive_output())["code"] == 4401


async def test_the_socket_answers_pings_and_beats(responder: Persona) -> None:
    async with _socket(responder) as socket:
        await socket.say('{"ping": 7}')
        assert (await _frame(socket, "pong"))["pong"] == 7
        assert (await _frame(socket, "beat"))["beat"] >= 1


async def test_a_beat_says_how_far_the_page_should_be_in_each_stream_of_messages(
    incident: Incident, responder: Persona
) -> None:
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}"))
    async with _socket(responder) as socket:
        await _subscribe(socket, **place)
        await _comment(incident, "looking")
        newest = (await _messages(socket, 1))[0]["offset"]
        beat = await _frame(socket, "beat")
        while beat["offsets"].get(place["subscribe"], 0) < newest:
            beat = await _frame(socket, "beat")
        assert list(beat["offsets"]) == [place["subscribe"]]


async def test_a_membership_taken_away_closes_the_socket(
    incident: Incident, responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.incidents.consumers.BEATS_PER_ACCESS_CHECK", 1)
    async with _socket(responder) as socket:
        await _subscribe(socket, **_place(await _get(responder, f"/api/v1/incidents/{incident.pk}")))
        await Membership.objects.all().adelete()
        assert await _close_code(socket) == 4401


async def test_a_deleted_user_hears_nothing_more(
    incident: Incident, responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.incidents.consumers.BEATS_PER_ACCESS_CHECK", 1)
    async with _socket(responder) as socket:
        await _subscribe(socket, **_place(await _get(responder, f"/api/v1/incidents/{incident.pk}")))
        await User.objects.filter(pk=responder.user.pk).adelete()
        assert await _close_code(socket) == 4401
        await _act(incident, "acknowledge")
        assert await socket.receive_nothing(1.5)


async def test_access_that_cannot_be_checked_closes_the_socket(
    incident: Incident, responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    def database_away(user: Any) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr("console.incidents.consumers.BEATS_PER_ACCESS_CHECK", 1)
    async with _socket(responder) as socket:
        await _subscribe(socket, **_place(await _get(responder, f"/api/v1/incidents/{incident.pk}")))
        monkeypatch.setattr("console.incidents.consumers.caller_of", database_away)
        assert await _close_code(socket) == 1011
        await _act(incident, "acknowledge")
        assert await socket.receive_nothing(1.5)


async def test_a_subscription_that_cannot_be_checked_closes_the_socket(
    incident: Incident, responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def database_away(*_: Any) -> bool:
        raise OperationalError("the database is away")

    monkeypatch.setattr("console.incidents.consumers._may_follow", database_away)
    async with _socket(responder) as socket:
        await socket.say(json.dumps({"subscribe": f"incident:{incident.pk}"}))
        assert await _close_code(socket) == 1011
        assert await socket.receive_nothing(1.5)


@pytest.mark.parametrize("frame", ["nonsense", "[1]", '"x"', "{" * 5000])
async def test_what_is_not_a_frame_closes_the_socket(responder: Persona, frame: str) -> None:
    socket = _Socket(responder.user)
    await socket.connect()
    await socket.say(frame)
    assert (await socket.receive_output())["code"] == 4400


async def test_an_act_succeeds_while_valkey_is_away_and_is_announced_later(
    incident: Incident, responder: Persona
) -> None:
    place = _place(await _get(responder, f"/api/v1/incidents/{incident.pk}"))
    with override_settings(REDIS_URL="unix:///nowhere/valkey.sock"):
        await _act(incident, "acknowledge")
        assert (await _get(responder, f"/api/v1/incidents/{incident.pk}"))["stream"]["epoch"] == ""
    assert await OutboxRow.objects.filter(relayed_at=None).acount() == 1
    async with _socket(responder) as socket:
        await _subscribe(socket, **place)
        await sync_to_async(publish.relay_waiting)()
        assert (await _messages(socket, 2))[1]["row"]["state"] == "acknowledged"
    assert await OutboxRow.objects.filter(relayed_at=None).acount() == 0


async def test_a_late_relay_sends_the_newest_row(incident: Incident) -> None:
    with override_settings(REDIS_URL="unix:///nowhere/valkey.sock"):
        await _act(incident, "acknowledge")
        await _act(incident, "resolve")
    start = await sync_to_async(streams.position)(f"incident:{incident.pk}")
    await sync_to_async(publish.relay_waiting)()
    client = streams.connect_reader()
    heard = await streams.Reader(client).read(start)
    await client.aclose()
    newest = await Incident.objects.select_related("job", "attempt").aget(pk=incident.pk)
    assert decode_message(heard.messages[-1]).row == incident_row(newest)


def _place(snapshot: dict[str, Any]) -> dict[str, Any]:
    stream = snapshot["stream"]
    return {"subscribe": stream["name"], "epoch": stream["epoch"], "offset": stream["offset"]}


class _Socket(ApplicationCommunicator):
    """A browser's end of the live socket."""

    def __init__(self, user: Any) -> None:
        scope = {"type": "websocket", "path": "/ws/v1/", "query_string": b"", "headers": [], "user": user}
        super().__init__(URLRouter(websocket_urlpatterns), scope)

    async def connect(self) -> None:
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(10))["type"] == "websocket.accept"

    async def say(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(10)


@asynccontextmanager
async def _socket(persona: Persona) -> AsyncIterator[_Socket]:
    socket = _Socket(persona.user)
    await socket.connect()
    try:
        yield socket
    finally:
        await socket.disconnect()


async def _subscribe(socket: _Socket, **place: Any) -> dict[str, Any]:
    await socket.say(json.dumps(place))
    return await _frame(socket, "subscribed")


async def _frame(socket: _Socket, kind: str) -> dict[str, Any]:
    """The next frame that has the key `kind`; heartbeats and others in between are let go."""
    for _ in range(FRAMES_MAX):
        frame: dict[str, Any] = json.loads((await socket.receive_output(10))["text"])
        if kind in frame:
            return frame
    raise AssertionError(f"no {kind} in {FRAMES_MAX} frames")


async def _close_code(socket: _Socket) -> int:
    for _ in range(FRAMES_MAX):
        if (frame := await socket.receive_output(10))["type"] == "websocket.close":
            return int(frame["code"])
    raise AssertionError(f"not closed after {FRAMES_MAX} frames")


async def _messages(socket: _Socket, count: int) -> list[dict[str, Any]]:
    return [await _frame(socket, "row") for _ in range(count)]


async def _get(persona: Persona, path: str) -> dict[str, Any]:
    answer = await sync_to_async(persona.browser.get)(path)
    found: dict[str, Any] = answer.json()
    return found


async def _act(incident: Incident, verb: str) -> None:
    await sync_to_async(lifecycle.move)(incident.pk, verb, RITA, note="why")


async def _comment(incident: Incident, text: str) -> None:
    await sync_to_async(lifecycle.comment)(incident.pk, RITA, text)


def _forget_streams() -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.flushall()
