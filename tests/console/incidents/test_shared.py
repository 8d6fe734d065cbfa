"""What the sockets of a process ask in common: few questions, and no answer from before one was rung."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from console.accounts.access import Caller
from console.accounts.models import Role
from console.incidents import hub as hub_module
from console.incidents import shared as shared_module
from console.incidents.consumers import LiveConsumer
from console.incidents.hub import Hub
from console.incidents.shared import Shared
from console.incidents.streams import Heard, Position


class Slow:
    """Answers with how many questions it has had, when let."""

    def __init__(self) -> None:
        self.n_asked = 0
        self.may_answer = asyncio.Event()

    async def ask(self) -> int:
        self.n_asked += 1
        number = self.n_asked
        await self.may_answer.wait()
        return number


async def test_two_hundred_who_ask_at_once_cost_two_questions_and_none_gets_an_older_answer() -> None:
    shared, slow = Shared(), Slow()
    first = asyncio.create_task(shared.ask("a", slow.ask))
    await asyncio.sleep(0)
    others = [asyncio.create_task(shared.ask("a", slow.ask)) for _ in range(200)]
    await asyncio.sleep(0)
    slow.may_answer.set()
    assert await first == 1
    assert set(await asyncio.gather(*others)) == {2}
    assert slow.n_asked == 2


async def test_who_asks_after_an_answer_gets_a_new_one_unless_a_fresh_one_will_do() -> None:
    shared, slow = Shared(), Slow()
    slow.may_answer.set()
    assert await shared.ask("a", slow.ask) == 1
    assert await shared.ask("a", slow.ask) == 2
    assert await shared.ask("a", slow.ask, since=0.0) == 2
    assert await shared.ask("b", slow.ask, since=0.0) == 3


async def test_who_was_rung_before_a_question_began_takes_its_answer() -> None:
    shared, slow = Shared(), Slow()
    rung_at = time.monotonic()
    asking = [asyncio.create_task(shared.ask("a", slow.ask, since=rung_at)) for _ in range(200)]
    await asyncio.sleep(0)
    slow.may_answer.set()
    assert set(await asyncio.gather(*asking)) == {1}
    assert await shared.ask("a", slow.ask, since=rung_at) == 1
    assert await shared.ask("a", slow.ask, since=time.monotonic()) == 2


async def test_who_leaves_takes_nobodys_answer_away() -> None:
    shared, slow = Shared(), Slow()
    leaving = asyncio.create_task(shared.ask("a", slow.ask))
    await asyncio.sleep(0)
    staying = asyncio.create_task(shared.ask("a", slow.ask))
    await asyncio.sleep(0)
    leaving.cancel()
    slow.may_answer.set()
    assert await staying == 2


async def test_a_failure_is_everybodys_and_is_not_kept() -> None:
    shared = Shared()

    async def fail() -> None:
        raise ConnectionError("away")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            await shared.ask("a", fail, since=0.0)


async def test_answers_that_nobody_can_take_any_more_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(shared_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shared, slow = Shared(), Slow()
    slow.may_answer.set()
    for position in range(100):
        await shared.ask(position, slow.ask)
        now[0] += 1.0
    assert len(shared._known) == 1


async def test_an_answer_that_took_long_is_given_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    now, failures = [1000.0], list[dict[str, Any]]()
    monkeypatch.setattr(shared_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    shared, slow = Shared(), Slow()
    asking = asyncio.create_task(shared.ask("a", slow.ask))
    await asyncio.sleep(0)
    now[0] += 10.0
    slow.may_answer.set()
    assert await asking == 1
    await asyncio.sleep(0)
    assert (failures, len(shared._known)) == ([], 0)


async def test_the_clock_and_the_doorbell_go_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "AWAY_SECONDS", 0.0)
    n_begun, goes_on = 0, asyncio.Event()

    async def act() -> None:
        nonlocal n_begun
        n_begun += 1
        if n_begun == 1:
            raise ValueError("a bug of ours")
        goes_on.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(hub_module._for_ever(act))
    await goes_on.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Held:
    """A hub whose reader answers when let."""

    def __init__(self) -> None:
        self.reading, self.may_answer = asyncio.Event(), asyncio.Event()

    async def read(self, after: Position, since: float) -> Heard:
        self.reading.set()
        await self.may_answer.wait()
        return Heard(replace(after, offset=after.offset + 1), ["{}"])

    async def check(self) -> None:
        pass

    def unfollow(self, stream: str, socket: LiveConsumer) -> None:
        pass


def following(hub: Held, *streams: str) -> LiveConsumer:
    """A socket that follows some streams, whose browser takes everything."""
    socket = LiveConsumer()
    socket.hub = hub  # type: ignore[assignment]
    socket.positions = {stream: Position(stream, "e", 1) for stream in streams}
    socket.pulling, socket.rings, socket.looks, socket.seen_looking = asyncio.Lock(), {}, set(), {}
    socket.n_ticks = socket.n_beats = socket.n_checks = 0

    async def take(text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        pass

    socket.send = take  # type: ignore[method-assign, assignment]
    return socket


async def test_a_stream_that_is_left_while_it_is_read_is_left() -> None:
    socket = following(hub := Held(), "team:1")
    pulling = asyncio.create_task(socket._pull("team:1", 0.0))
    await hub.reading.wait()
    leaving = asyncio.create_task(socket._unsubscribe("team:1"))
    await asyncio.sleep(0)
    hub.may_answer.set()
    await asyncio.gather(pulling, leaving)
    assert socket.positions == {}


async def test_access_is_asked_again_though_seconds_pass_while_streams_are_read() -> None:
    socket = following(hub := Held(), "team:1")
    hub.may_answer.set()
    asked = []

    async def is_still_allowed() -> bool:
        asked.append(socket.n_ticks)
        return True

    socket._check_access = is_still_allowed  # type: ignore[method-assign]
    for _ in range(50):
        socket.n_ticks += 1
        ticks = socket.n_ticks
        assert await socket._is_allowed(ticks)
        socket.n_ticks += 1  # while it catches up
        await socket._catch_up(ticks)
    assert [tick // 30 for tick in asked] == [1, 2, 3]


async def test_a_socket_that_was_never_accepted_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[int] = []

    async def allowed(user: object) -> Caller:
        return Caller("vera", "user", {1: Role.VIEWER})

    async def gone(self: LiveConsumer) -> None:
        raise ConnectionError("the browser has gone")

    monkeypatch.setattr("console.incidents.consumers._caller", allowed)
    monkeypatch.setattr(LiveConsumer, "accept", gone)
    monkeypatch.setattr(Hub, "join", lambda socket: joined.append(1))
    socket = LiveConsumer()
    socket.scope = {}  # type: ignore[typeddict-item]
    with pytest.raises(ConnectionError):
        await socket.connect()
    assert not joined
