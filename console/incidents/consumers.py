"""The live socket: a browser joins streams, gets what it missed (or "fetch the snapshot"), then what happens.

The socket pulls from the streams, rung by the doorbell and once a second anyway, so a slow browser holds back only
itself and a lost ring costs a second. The heartbeat is honest: while the streams cannot be read there is none, and the
page calls itself stale. Who may listen is asked again while the socket lives; when that cannot be answered, it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from typing import Any, Final

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.utils import timezone

from console.accounts.access import NOBODY, Caller, caller_of
from console.incidents.models import Incident
from console.incidents.presence import Looker
from console.incidents.publish import group_of
from console.incidents.rows import iso
from console.incidents.shared import FRESH_SECONDS, Hub
from console.incidents.streams import UNREACHABLE, Heard, Position
from console.operations.metrics import LIVE_MESSAGES, LIVE_SOCKETS, RESYNCS

log = logging.getLogger(__name__)
BEAT_SECONDS: Final = 1.0
BEATS_PER_ACCESS_CHECK: Final = 30
BEATS_PER_PRESENCE: Final = 4
STREAMS_MAX: Final = 32
FRAME_CHARS_MAX: Final = 4096
EPOCH_CHARS_MAX: Final = 64
OFFSET_MAX: Final = 2**53
NOT_SIGNED_IN: Final = 4401
BAD_FRAME: Final = 4400
OUT_OF_ORDER: Final = 1011


class LiveConsumer(AsyncWebsocketConsumer):
    """One browser's socket. `positions`: what it has been sent of each stream it follows."""

    async def connect(self) -> None:
        self.positions: dict[str, Position] = {}
        self.seen_looking: dict[str, list[str]] = {}
        self.pulling = asyncio.Lock()
        self.beating: asyncio.Task[None] | None = None
        self.caller: Caller = await _caller(self.scope.get("user"))
        if not self.caller.team_ids:
            await self.accept()  # only an accepted socket can say why it closes
            await self.close(NOT_SIGNED_IN)
            return
        await self.accept()
        self.hub = Hub.join()  # a socket that was never accepted has nothing to leave
        self.looker = Looker(self.hub.client, self.caller.name, self.channel_name)
        self.beating = asyncio.create_task(self._beat())
        LIVE_SOCKETS.inc()

    async def disconnect(self, code: int) -> None:
        if self.beating is None:
            return
        LIVE_SOCKETS.dec()
        self.beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.beating
        for stream in list(self.positions):
            await self._unsubscribe(stream)
        await self.hub.leave()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        frame = _frame(text_data)
        if frame is None or self.beating is None:
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

    async def stream_rang(self, message: dict[str, Any]) -> None:
        """The doorbell: a stream grew."""
        with contextlib.suppress(*UNREACHABLE):
            await self._pull(message["stream"])

    async def presence_changed(self, message: dict[str, Any]) -> None:
        """The doorbell: somebody opened or left an incident that this browser shows."""
        with contextlib.suppress(*UNREACHABLE):
            await self._look(message["stream"])

    async def _subscribe(self, stream: str, epoch: str, offset: Any) -> None:
        if not await _may_follow(self.caller, stream):
            return await self._say({"refused": stream, "reason": "There is no such stream."})
        if stream not in self.positions and len(self.positions) >= STREAMS_MAX:
            return await self._say({"refused": stream, "reason": f"At most {STREAMS_MAX} streams on one socket."})
        asked = Position(stream, epoch, offset if isinstance(offset, int) and 0 <= offset < OFFSET_MAX else 0)
        async with self.pulling:
            try:
                await self.channel_layer.group_add(group_of(stream), self.channel_name)
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
        with contextlib.suppress(*UNREACHABLE):
            await self._look(stream, tell=True)

    async def _unsubscribe(self, stream: str) -> None:
        self.seen_looking.pop(stream, None)
        if self.positions.pop(stream, None) is not None:
            with contextlib.suppress(*UNREACHABLE):
                await self.channel_layer.group_discard(group_of(stream), self.channel_name)
                if (number := incident_of(stream)) is not None:
                    await self.looker.leave(number)
                    await self._tell_presence(stream)

    async def _look(self, stream: str, tell: bool = False) -> None:
        """Be seen looking at an incident, and say who else is when that has changed."""
        if (number := incident_of(stream)) is None or stream not in self.positions:
            return
        people = await self.looker.look(number)
        if self.seen_looking.get(stream) != people:
            self.seen_looking[stream] = people
            await self._say({"presence": stream, "people": people})
        if tell:
            await self._tell_presence(stream)

    async def _tell_presence(self, stream: str) -> None:
        await self.channel_layer.group_send(group_of(stream), {"type": "presence.changed", "stream": stream})

    async def _pull(self, stream: str, fresh_s: float = 0.0) -> None:
        """Send what the stream has beyond the browser's position, as known at most fresh_s ago."""
        async with self.pulling:
            if (after := self.positions.get(stream)) is None:
                return
            heard = await self.hub.read(after, fresh_s)
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

    async def _beat(self) -> None:
        """Heartbeats until the socket ends. Without them nobody re-checks access, so their failure ends the socket."""
        try:
            for number in itertools.count(1):
                await asyncio.sleep(BEAT_SECONDS)
                if number % BEATS_PER_ACCESS_CHECK == 0 and not await self._check_access():
                    return await self._end(NOT_SIGNED_IN)
                with contextlib.suppress(*UNREACHABLE):
                    await self.hub.check()
                    for stream in list(self.positions):
                        await self._pull(stream, FRESH_SECONDS)
                        if number % BEATS_PER_PRESENCE == 0:
                            await self._look(stream)
                    await self._say({"beat": number, "at": iso(timezone.now())})
        except Exception:
            log.exception("a live socket ends: its beat failed")
            await self._end(OUT_OF_ORDER)

    async def _check_access(self) -> bool:
        """A role taken away ends what it let one follow; False when nothing may be followed any more."""
        session = self.scope.get("session")
        has_ended = session is not None and not await session.aexists(session.session_key)
        self.caller = NOBODY if has_ended else await _caller(self.scope.get("user"))
        for stream in list(self.positions):
            if not await _may_follow(self.caller, stream):
                await self._unsubscribe(stream)
                await self._say({"refused": stream, "reason": "There is no such stream."})
        return bool(self.caller.team_ids)

    async def _end(self, code: int) -> None:
        """Close, and send nothing that the doorbell still brings."""
        self.caller = NOBODY
        if self.beating is not None and self.beating is not asyncio.current_task():
            self.beating.cancel()
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
