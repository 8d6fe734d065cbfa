"""What all sockets of one web process ask Valkey in common: two hundred people who look at one incident cost one question.

Whoever asks what is being asked already waits for the same answer, unless that question began before they were rung: then
all of them share the next one. So no ring is missed, and no more than one answer is awaited at a time. A beat, which only
looks whether a ring was lost, takes an answer that is up to half a second old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

FRESH_SECONDS: Final = 0.5
ANSWERS_MAX: Final = 256
Act = Callable[[], Awaitable[Any]]


class Shared:
    """Answers by what was asked. Everything happens on one event loop; times are the monotonic clock's."""

    def __init__(self) -> None:
        self._running: dict[Any, tuple[float, asyncio.Future[Any]]] = {}
        self._following: dict[Any, asyncio.Future[Any]] = {}
        self._known: dict[Any, tuple[float, Any]] = {}

    async def ask(self, key: Any, act: Act, since: float | None = None) -> Any:
        """The answer of an `act` that began at `since` or later, None: after this call. Raises what it raises."""
        began, answer = self._known.get(key, (0.0, None))
        if since is not None and key in self._known and began >= since:
            return answer
        if key not in self._running:
            return await asyncio.shield(self._start(key, act))
        began, running = self._running[key]
        if since is not None and began >= since:
            return await asyncio.shield(running)
        if key not in self._following:
            self._following[key] = asyncio.ensure_future(self._after(running, key, act))
        return await asyncio.shield(self._following[key])

    async def _after(self, running: asyncio.Future[Any], key: Any, act: Act) -> Any:
        await asyncio.wait([running])
        self._following.pop(key, None)
        return await self._start(key, act)

    def _start(self, key: Any, act: Act) -> asyncio.Future[Any]:
        began, started = time.monotonic(), asyncio.ensure_future(act())
        self._running[key] = began, started
        started.add_done_callback(lambda ended: self._ended(key, began, ended))
        return started

    def _ended(self, key: Any, began: float, ended: asyncio.Future[Any]) -> None:
        if key in self._running and self._running[key][1] is ended:
            del self._running[key]
        if not ended.cancelled() and ended.exception() is None:
            self._known.pop(key, None)
            self._known[key] = (began, ended.result())
            while self._known and (len(self._known) > ANSWERS_MAX or self._is_first_old()):
                del self._known[next(iter(self._known))]

    def _is_first_old(self) -> bool:
        """They stand in about the order of time; nobody takes one that is older than fresh."""
        began, _ = self._known[next(iter(self._known))]
        return time.monotonic() - began > FRESH_SECONDS
