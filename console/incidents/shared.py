"""What all sockets of one web process ask Valkey in common: two hundred people who look at one incident cost one question.

Whoever asks what is being asked already waits for the same answer, unless that question began before they were rung: then
all of them share the next one. So no ring is missed, and no more than one answer is awaited at a time. A beat, which only
looks whether a ring was lost, takes an answer that is up to half a second old. One client per event loop, closed with the
last socket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from console.incidents.pictures.topology import read_frames, topology_number, want_on_loop
from console.incidents.streams import Heard, Position, Reader, connect_reader

FRESH_SECONDS: Final = 0.5
ANSWERS_MAX: Final = 256
Act = Callable[[], Awaitable[Any]]


class Shared:
    """Answers by what was asked. Everything happens on one event loop."""

    def __init__(self) -> None:
        self._running: dict[Any, asyncio.Future[Any]] = {}
        self._following: dict[Any, asyncio.Future[Any]] = {}
        self._known: dict[Any, tuple[float, Any]] = {}

    async def ask(self, key: Any, act: Act, fresh_s: float = 0.0) -> Any:
        """The answer of an `act` that begins after this call, or that ended at most fresh_s ago; raises what it raises."""
        at, answer = self._known.get(key, (-1e9, None))
        if time.monotonic() - at < fresh_s:
            return answer
        running = self._running.get(key)
        if running is None:
            return await asyncio.shield(self._start(key, act))
        if key not in self._following:
            self._following[key] = asyncio.ensure_future(self._after(running, key, act))
        return await asyncio.shield(self._following[key])

    async def _after(self, running: asyncio.Future[Any], key: Any, act: Act) -> Any:
        await asyncio.wait([running])
        self._following.pop(key, None)
        return await self._start(key, act)

    def _start(self, key: Any, act: Act) -> asyncio.Future[Any]:
        started = asyncio.ensure_future(act())
        self._running[key] = started
        started.add_done_callback(lambda ended: self._ended(key, ended))
        return started

    def _ended(self, key: Any, ended: asyncio.Future[Any]) -> None:
        if self._running.get(key) is ended:
            del self._running[key]
        if not ended.cancelled() and ended.exception() is None:
            self._known.pop(key, None)
            self._known[key] = (time.monotonic(), ended.result())
            while len(self._known) > ANSWERS_MAX or self._is_first_old():
                del self._known[next(iter(self._known))]

    def _is_first_old(self) -> bool:
        """They stand in order of time; nobody takes one that is older than fresh."""
        at, _ = self._known[next(iter(self._known))]
        return time.monotonic() - at > FRESH_SECONDS


class Hub:
    """A process' sockets and what they share. `join` before use, `leave` once after."""

    def __init__(self) -> None:
        self.client = connect_reader()
        self._reader = Reader(self.client)
        self._shared = Shared()
        self._n_sockets = 0

    @classmethod
    def join(cls) -> Self:
        loop = asyncio.get_running_loop()
        hub = _hubs.get(loop)
        if hub is None:
            hub = _hubs[loop] = cls()
        hub._n_sockets += 1
        return hub  # type: ignore[return-value]

    async def leave(self) -> None:
        self._n_sockets -= 1
        if self._n_sockets == 0:
            _hubs.pop(asyncio.get_running_loop(), None)
            await self.client.aclose()

    async def read(self, after: Position, fresh_s: float = 0.0) -> Heard:
        """What comes after a position, as streams.Reader says it. Raises one of UNREACHABLE."""
        heard: Heard = await self._shared.ask(after, lambda: self._read(after), fresh_s)
        return heard

    async def check(self) -> None:
        """Raises one of UNREACHABLE when Valkey does not answer."""
        await self._shared.ask("ping", self.client.ping, FRESH_SECONDS)

    async def _read(self, after: Position) -> Heard:
        if (number := topology_number(after.name)) is None:
            return await self._reader.read(after)
        await want_on_loop(self.client, number)
        return await read_frames(self.client, after)


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()
