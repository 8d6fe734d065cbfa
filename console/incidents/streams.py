"""Live streams in Valkey: a bounded log per stream, with an epoch and gap-free offsets.

The log is only a hint for browsers that are connected; Postgres holds the truth. The epoch is made when a log is made,
and made anew when Valkey restarted (its last second of writes may be lost, so offsets could repeat): another epoch, or
an offset the log no longer reaches back to, means "fetch the snapshot again". One script does each step atomically.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import redis
import redis.asyncio
from django.conf import settings

UNREACHABLE: Final = (redis.RedisError, OSError)
STREAMS_RANG: Final = "dgs:rang:streams"
"""Pub/sub channel, the doorbell: names of streams that grew."""
KEEP_SECONDS: Final = 24 * 3600
REPLAY_MAX: Final = 500  # further behind than this, the snapshot is the shorter way

_HEAD: Final = """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch or redis.call('HGET', KEYS[1], 'run') ~= run then
  redis.call('DEL', KEYS[1], KEYS[2])
  epoch = ARGV[1]
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'run', run, 'offset', 0)
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
"""
_APPEND: Final = (
    _HEAD
    + """
local offset = redis.call('HINCRBY', KEYS[1], 'offset', 1)
redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[3], offset .. '-0', 'm', ARGV[4])
redis.call('EXPIRE', KEYS[2], ARGV[2])
redis.call('PUBLISH', ARGV[5], ARGV[6])
return {epoch, offset}
"""
)
_READ: Final = (
    _HEAD
    + """
local offset = tonumber(redis.call('HGET', KEYS[1], 'offset'))
if epoch ~= ARGV[3] then return {epoch, offset, {}} end
return {epoch, offset, redis.call('XRANGE', KEYS[2], (tonumber(ARGV[4]) + 1) .. '-0', '+', 'COUNT', ARGV[5])}
"""
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stands. An empty epoch: the live stream is away, only snapshots work."""

    name: str
    epoch: str
    offset: int


@dataclass(frozen=True, slots=True)
class Heard:
    """What a reader gets: the stream's position, the messages after the reader's own, and whether some are missing.

    frames: of a stream whose messages are binary.
    """

    position: Position
    messages: list[str]
    gap: str = ""
    frames: Sequence[bytes] = ()


def team_stream(team_id: int) -> str:
    return f"team:{team_id}"


def incident_stream(number: int) -> str:
    return f"incident:{number}"


@dataclass(frozen=True, slots=True)
class Message:
    """What a stream shall carry. at: ISO 8601 UTC."""

    stream: str
    kind: str
    at: str
    row: dict[str, Any]


def append(*messages: Message) -> None:
    """Add each message to its stream, and ring. Raises one of UNREACHABLE when Valkey is away, with some of them added."""
    script = _scripts(settings.REDIS_URL)[0]
    with script.registered_client.pipeline(transaction=False) as pipe:
        for one in messages:
            body = json.dumps({"at": one.at, "type": one.kind, "row": one.row}, separators=(",", ":"))
            kept = settings.STREAM_MESSAGES_KEPT
            arguments = [_new_epoch(), KEEP_SECONDS, kept, body, STREAMS_RANG, one.stream]
            script(keys=_keys(one.stream), args=arguments, client=pipe)
        pipe.execute()


def position(name: str) -> Position:
    """Where the stream stands now; with an empty epoch when Valkey is away."""
    try:
        epoch, offset, _ = _scripts(settings.REDIS_URL)[1](keys=_keys(name), args=_read_arguments("", 0))
    except UNREACHABLE:
        return Position(name, "", 0)
    return Position(name, epoch.decode(), int(offset))


class Reader:
    """Reads streams on an event loop."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._script = client.register_script(_READ)

    async def read(self, after: Position) -> Heard:
        """Messages after a position. Raises one of UNREACHABLE."""
        arguments = _read_arguments(after.epoch, after.offset)
        epoch, offset, entries = await self._script(keys=_keys(after.name), args=arguments)
        now = Position(after.name, epoch.decode(), int(offset))
        if gap := _gap(after, now, entries):
            return Heard(now, [], gap)
        messages = [_message(now, entry) for entry in entries]
        reached = after.offset + len(messages)
        return Heard(Position(after.name, now.epoch, reached), messages)


def connect_reader() -> redis.asyncio.Redis:
    """A client for one event loop; close it with `aclose()`."""
    return redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=5, socket_connect_timeout=2)


def _gap(after: Position, now: Position, entries: list[Any]) -> str:
    if after.epoch != now.epoch:
        return "the stream was started anew"
    if after.offset > now.offset:
        return "the stream is behind what you saw"
    if after.offset < now.offset and (not entries or _offset_of(entries[0]) != after.offset + 1):
        return "messages you missed are no longer kept"
    if now.offset - after.offset > REPLAY_MAX:
        return "too many messages missed"
    return ""


def _offset_of(entry: Any) -> int:
    return int(entry[0].partition(b"-")[0])


def _message(now: Position, entry: Any) -> str:
    fields = entry[1]  # [b"m", body] from a script, which keeps the server's own form
    head = {"v": 1, "stream": now.name, "epoch": now.epoch, "offset": _offset_of(entry)}
    return json.dumps({**head, **json.loads(fields[1])}, separators=(",", ":"))


def _read_arguments(epoch: str, offset: int) -> list[str | int]:
    return [_new_epoch(), KEEP_SECONDS, epoch, offset, REPLAY_MAX + 1]


def _keys(name: str) -> list[str]:
    return [f"dgs:stream:{name}:meta", f"dgs:stream:{name}:log"]


def _new_epoch() -> str:
    return secrets.token_hex(8)


@lru_cache(maxsize=4)
def _scripts(url: str) -> tuple[Any, Any]:
    """The two scripts on a shared client with short timeouts: an act of a person must not wait for a hint."""
    client = redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1)
    return client.register_script(_APPEND), client.register_script(_READ)
