"""The live socket: a browser joins streams, gets what it missed (or "fetch the snapshot"), then what happens.

The socket pulls from the streams, rung by the doorbell and once a second anyway, so a slow browser holds back only
itself and a lost ring costs a second: the hub says what there is to do, one task does it, and rings that come meanwhile
are one. The heartbeat is honest: while the streams cannot be read there is none, and the page calls itself stale. Who may
listen is asked again while the socket lives; when that cannot be answered, it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from typing import Any, Final

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.utils import timezone

from console.accounts.access import NOBODY, Caller, caller_of
from console.incidents.hub import Hub
from console.incidents.models import Incident
from console.incidents.pictures.topology import topology_number
from console.incidents.rows import iso
from console.incidents.shared import FRESH_SECONDS
from console.incidents.streams import UNREACHABLE, Heard, Position
from console.operations.metrics import LIVE_MESSAGES, LIVE_SOCKETS, RESYNCS

log = logging.getLogger(__name__)
BEATS_PER_ACCESS_CHECK: Final = 30
STREAMS_MAX: Final = 32
FRAME_CHARS_MAX: Final = 4096
EPOCH_CHARS_MAX: Final = 64
OFFSET_MAX: Final = 2**53
NOT_SIGNED_IN: Final = 4401
BAD_FRAME: Final = 4400
OUT_OF_ORDER: Final = 1011


class LiveConsumer(AsyncWebsocketConsumer):
    """One browser's socket. `positions`: what it has been sent of each stream it follows.

    rings: streams that grew and were not pulled since, with when that was heard. A beat is due while n_beats < n_ticks.
    pulling: held by whoever changes `positions`.
    """

    async def connect(self) -> None:
        self.positions: dict[str, Position] = {}
        self.seen_looking: dict[int, list[str]] = {}
        self.pulling = asyncio.Lock()
        self.rings: dict[str, float] = {}
        self.looks: set[int] = set()
        self.n_ticks = self.n_beats = self.n_checks = 0
        self.woken = asyncio.Event()
        self.living: asyncio.Task[None] | None = None
        self.caller: Caller = await _caller(self.scope.get("user"))
        if not self.caller.team_ids:
            await self.accept()  # only an accepted socket can say why it closes
            await self.close(NOT_SIGNED_IN)
            return
        await self.accept()
        self.name = secrets.token_hex(8)
        self.hub = Hub.join(self)  # a socket that was never accepted has nothing to leave
        self.living = asyncio.create_task(self._live())
        LIVE_SOCKETS.inc()

    async def disconnect(self, code: int) -> None:
        if self.living is None:
            return
        LIVE_SOCKETS.dec()
        self.living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.living
        for stream in list(self.positions):
            await self._unsubscribe(stream)
        await self.hub.leave(self)

    def rung(self, stream: str, at: float) -> None:
        self.rings[stream] = at
        self.woken.set()

    def others_changed(self, number: int) -> None:
        self.looks.add(number)
        self.woken.set()

    def tick(self) -> None:
        self.n_ticks += 1
        self.woken.set()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        frame = _frame(text_data)
        if frame is None or self.living is None:
            await self.close(BAD_FRAME)
        elif "ping" in frame:
            await self._say({"pong": frame["ping"]})
        elif "unsubscribe" in frame:
            await self._unsubscribe(str(frame["unsubscribe"]))
        elif "subscribe" in frame:
            try:
                await self._subscribe(str(frame["subscribe"]), _epoch(frame.get("epoch")), frame.get("offset"))
            except DatabaseError:
                log.exception("a live socket ends: nobody could say what it may follow")
                await self._end(OUT_OF_ORDER)

    async def _subscribe(self, stream: str, epoch: str, offset: Any) -> None:
        asked = Position(stream, epoch, offset if isinstance(offset, int) and 0 <= offset < OFFSET_MAX else 0)
        async with self.pulling:
            if not await _may_follow(self.caller, stream):
                return await self._say({"refused": stream, "reason": "There is no such stream."})
            if stream not in self.positions and len(self.positions) >= STREAMS_MAX:
                return await self._say({"refused": stream, "reason": f"At most {STREAMS_MAX} streams on one socket."})
            self.hub.follow(stream, self)
            try:
                heard = await self.hub.read(asked)
            except UNREACHABLE:
                self.positions[stream] = asked  # the beat goes on asking
                return
            recovered = not heard.gap
            said = asked if recovered else heard.position
            self.positions[stream] = heard.position
            answer = {"subscribed": stream, "epoch": said.epoch, "offset": said.offset, "recovered": recovered}
            await self._say(answer)
            await self._relay(stream, heard, heard.gap if epoch else "")
        if (number := incident_of(stream)) is not None:
            with contextlib.suppress(*UNREACHABLE):
                await self.hub.enter(number, self.name, self.caller.name)
            await self._say_who_looks(number)

    async def _unsubscribe(self, stream: str) -> None:
        async with self.pulling:
            await self._let_go(stream)

    async def _let_go(self, stream: str) -> None:
        """Of a stream that nobody is pulling: `pulling` is held."""
        if self.positions.pop(stream, None) is None:
            return
        self.hub.unfollow(stream, self)
        if (number := incident_of(stream)) is not None:
            self.seen_looking.pop(number, None)
            with contextlib.suppress(*UNREACHABLE):
                await self.hub.looking.leave(number, self.name)

    async def _say_who_looks(self, number: int) -> None:
        """Say who has an incident open when that has changed."""
        stream, people = f"incident:{number}", self.hub.looking.names(number)
        if stream in self.positions and self.seen_looking.get(number) != people:
            self.seen_looking[number] = people
            await self._say({"presence": stream, "people": people})

    async def _pull(self, stream: str, since: float) -> None:
        """Send what the stream has beyond the browser's position, as known at `since` or later."""
        async with self.pulling:
            if (after := self.positions.get(stream)) is None:
                return
            heard = await self.hub.read(after, since)
            self.positions[stream] = heard.position
            await self._relay(stream, heard, heard.gap)

    async def _relay(self, stream: str, heard: Heard, gap: str) -> None:
        for message in heard.messages:
            await self.send(text_data=message)
        for frame in heard.frames:
            await self.send(bytes_data=frame)
        LIVE_MESSAGES.inc(len(heard.messages) + len(heard.frames))
        if gap:
            RESYNCS.inc()
            await self._say({"resync": stream, "reason": gap})

    async def _live(self) -> None:
        """What the hub says there is to do, until the socket ends. Nobody else re-checks access: its failure ends the socket."""
        try:
            while True:
                await self.woken.wait()
                self.woken.clear()
                ticks = self.n_ticks  # more may come meanwhile: they are the next round's
                if not await self._is_allowed(ticks):
                    return await self._end(NOT_SIGNED_IN)
                with contextlib.suppress(*UNREACHABLE):
                    await self._catch_up(ticks)
        except Exception:
            log.exception("a live socket ends: it could not go on")
            await self._end(OUT_OF_ORDER)

    async def _catch_up(self, ticks: int) -> None:
        """Pull what rang; when a second is over, also what has not, and beat. Raises one of UNREACHABLE, instead of a beat."""
        rings, self.rings = self.rings, {}
        looks, self.looks = self.looks, set()
        for stream, at in rings.items():
            await self._pull(stream, at)
        for number in looks:
            await self._say_who_looks(number)
        if self.n_beats < ticks:
            self.n_beats = ticks
            await self.hub.check()
            for stream in list(self.positions):
                await self._pull(stream, time.monotonic() - FRESH_SECONDS)
            await self._say({"beat": ticks, "at": iso(timezone.now()), "offsets": self._offsets()})

    def _offsets(self) -> dict[str, int]:
        """Of each stream of messages how far the browser should be: of a lost last message nothing else tells."""
        known = self.positions.items()
        return {name: at.offset for name, at in known if at.epoch and topology_number(name) is None}

    async def _is_allowed(self, ticks: int) -> bool:
        n_checks = ticks // BEATS_PER_ACCESS_CHECK
        if self.n_checks == n_checks:
            return True
        self.n_checks = n_checks
        async with self.pulling:  # whoever subscribes meanwhile is asked as who they are now
            return await self._check_access()

    async def _check_access(self) -> bool:
        """A role taken away ends what it let one follow; False when nothing may be followed any more."""
        session = self.scope.get("session")
        has_ended = session is not None and not await session.aexists(session.session_key)
        self.caller = NOBODY if has_ended else await _caller(self.scope.get("user"))
        for stream in list(self.positions):
            if not await _may_follow(self.caller, stream):
                await self._let_go(stream)
                await self._say({"refused": stream, "reason": "There is no such stream."})
        return bool(self.caller.team_ids)

    async def _end(self, code: int) -> None:
        """Close, and send nothing that the doorbell still brings."""
        self.caller = NOBODY
        if self.living is not None and self.living is not asyncio.current_task():
            self.living.cancel()
        for stream in list(self.positions):
            await self._unsubscribe(stream)
        await self.close(code)

    async def _say(self, frame: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(frame, separators=(",", ":")))


def incident_of(stream: str) -> int | None:
    """The number of the incident a stream is of; None for other streams."""
    kind, _, number = stream.partition(":")
    return int(number) if kind == "incident" and number.isascii() and number.isdecimal() else None


def _frame(text: str | None) -> dict[str, Any] | None:
    """The client's frame, None when it is not one."""
    if text is None or len(text) > FRAME_CHARS_MAX:
        return None
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) else None


def _epoch(said: Any) -> str:
    """The epoch a browser says it knows; one we cannot have made is none."""
    return said if isinstance(said, str) and said.isascii() and len(said) <= EPOCH_CHARS_MAX else ""


@database_sync_to_async
def _caller(user: Any) -> Caller:
    if user is None or not user.is_authenticated:
        return NOBODY
    found = User.objects.filter(pk=user.pk).first()  # None: deleted meanwhile
    return caller_of(found) if found else NOBODY


@database_sync_to_async
def _may_follow(caller: Caller, stream: str) -> bool:
    kind, _, number = stream.partition(":")
    if not (number.isascii() and number.isdecimal()) or len(number) > 15:
        return False
    if kind == "team":
        return caller.may("look", int(number))
    if kind not in ("incident", "topology"):
        return False
    team_id = Incident.objects.filter(pk=int(number)).values_list("team_id", flat=True).first()
    return team_id is not None and caller.may("look", team_id)
