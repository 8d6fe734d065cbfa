"""What the sockets of one web process have in common: one client of Valkey, one subscription to the doorbell, one clock.

Whoever appends to a stream rings with its name. The hub hears that once for all, and wakes the sockets that follow the
stream; each then pulls for itself, so a slow browser holds back nobody. It ticks once a second, rung or not: a lost ring
costs that second. One hub per event loop, ended with its last socket.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, Self
from weakref import WeakKeyDictionary

from console.incidents.pictures.topology import read_frames, topology_number, want_on_loop
from console.incidents.presence import LOOKS_RANG, Looking
from console.incidents.shared import FRESH_SECONDS, Shared
from console.incidents.streams import (
    STREAMS_RANG,
    UNREACHABLE,
    Heard,
    Position,
    Reader,
    connect_reader,
    incident_stream,
)

log = logging.getLogger(__name__)
TICK_SECONDS: Final = 1.0
TICKS_PER_PRESENCE: Final = 4
LISTEN_SECONDS: Final = 5.0
AWAY_SECONDS: Final = 0.5


class Follower(Protocol):
    """A socket. Each call only notes what there is to do: the socket does it in a task of its own."""

    def rung(self, stream: str, at: float) -> None:
        """The stream grew; heard at a time of the monotonic clock."""

    def others_changed(self, number: int) -> None:
        """Somebody opened or left an incident."""

    def tick(self) -> None:
        """A second is over."""


class Hub:
    """`join` before use, `leave` once after."""

    def __init__(self) -> None:
        self.client = connect_reader()
        self.looking = Looking(self.client)
        self._reader = Reader(self.client)
        self._shared = Shared()
        self._sockets: set[Follower] = set()
        self._followers: dict[str, set[Follower]] = {}
        self._came: set[int] = set()
        self._has_come = asyncio.Event()
        acts = (self._listen, self._ticking, self._seeing)
        self._tasks = [asyncio.create_task(_for_ever(act)) for act in acts]

    @classmethod
    def join(cls, socket: Follower) -> Self:
        loop = asyncio.get_running_loop()
        hub = _hubs.get(loop)
        if hub is None:
            hub = _hubs[loop] = cls()
        hub._sockets.add(socket)
        return hub  # type: ignore[return-value]

    async def leave(self, socket: Follower) -> None:
        self._sockets.discard(socket)
        for stream in list(self._followers):
            self.unfollow(stream, socket)
        if self._sockets:
            return
        _hubs.pop(asyncio.get_running_loop(), None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.aclose()

    def follow(self, stream: str, socket: Follower) -> None:
        self._followers.setdefault(stream, set()).add(socket)

    def unfollow(self, stream: str, socket: Follower) -> None:
        followers = self._followers.get(stream, set())
        followers.discard(socket)
        if not followers:
            self._followers.pop(stream, None)

    async def enter(self, number: int, name: str, person: str) -> None:
        """A socket of that name, and person, has an incident open. Raises one of UNREACHABLE."""
        self._tell(await self.looking.enter(number, name, person))

    async def read(self, after: Position, since: float | None = None) -> Heard:
        """What comes after a position, asked at `since` or later (None: now). Raises one of UNREACHABLE."""
        heard: Heard = await self._shared.ask(after, lambda: self._read(after), since)
        return heard

    async def check(self) -> None:
        """Raises one of UNREACHABLE when Valkey does not answer."""
        await self._shared.ask("ping", self.client.ping, time.monotonic() - FRESH_SECONDS)

    async def _read(self, after: Position) -> Heard:
        if (number := topology_number(after.name)) is None:
            return await self._reader.read(after)
        await want_on_loop(self.client, number)
        return await read_frames(self.client, after)

    async def _listen(self) -> None:
        """Hear the doorbell; while Valkey is away, and of what rang meanwhile, the ticks tell."""
        while not _is_cancelled():
            try:
                async with self.client.pubsub(ignore_subscribe_messages=True) as bell:
                    await bell.subscribe(STREAMS_RANG, LOOKS_RANG)
                    while not _is_cancelled():
                        if said := await bell.get_message(timeout=LISTEN_SECONDS):
                            self._hear(said)
            except UNREACHABLE as error:
                log.info("the doorbell is not heard: %s", error)
                await asyncio.sleep(AWAY_SECONDS)

    def _hear(self, said: dict[str, Any]) -> None:
        name = said["data"].decode(errors="replace")
        if said["channel"] == STREAMS_RANG.encode():
            at = time.monotonic()
            for socket in list(self._followers.get(name, ())):
                socket.rung(name, at)
        elif name.isdecimal():
            self._came.add(int(name))
            self._has_come.set()

    async def _seeing(self) -> None:
        """Ask who looks, of the incidents that people opened or left meanwhile: of many who come at once, once."""
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            numbers, self._came = self._came, set()
            try:
                self._tell(await self.looking.heard(numbers))
            except UNREACHABLE as error:
                log.info("who came is seen later: %s", error)

    async def _ticking(self) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(TICK_SECONDS)
            if number % TICKS_PER_PRESENCE == 0:
                try:
                    self._tell(await self.looking.refresh())
                except UNREACHABLE as error:
                    log.info("nobody is seen looking: %s", error)
            for socket in list(self._sockets):
                socket.tick()

    def _tell(self, numbers: list[int]) -> None:
        for number in numbers:
            for socket in list(self._followers.get(incident_stream(number), ())):
                socket.others_changed(number)


async def _for_ever(act: Callable[[], Awaitable[None]]) -> None:
    """Neither the doorbell nor the clock ends by a bug: every page of this process would be stale until it is started anew."""
    while not _is_cancelled():
        try:
            await act()
        except Exception:
            log.exception("the hub goes on")
            await asyncio.sleep(AWAY_SECONDS)


def _is_cancelled() -> bool:
    """Whether this task was told to end: redis-py keeps that to itself while it connects."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = WeakKeyDictionary()
