"""The roll call: every server process says in Valkey, every few seconds, that it lives and where it answers.

A note older than NOTE_FRESH_SECONDS is a process that stopped saying so: it no longer counts. Pages and /readyz read
the roll to know whether anybody works behind them; Prometheus reads it to know whom to scrape. When Valkey is away
nobody can say who lives: the roll is None then, never empty.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Final

import redis
from django.conf import settings

from console.incidents.streams import UNREACHABLE
from ingest import process

KEY: Final = "dgs:alive"
NOTE_SECONDS: Final = 3.0
NOTE_FRESH_SECONDS: Final = 15.0
FORGOTTEN_SECONDS: Final = 3600.0
NOTES_MAX: Final = 1000
TIMEOUT_SECONDS: Final = 1.0
STARTED_AT: Final = time.time()


@dataclass(frozen=True, slots=True)
class Note:
    """What a process says of itself. at, since: unix seconds. address: host:port of its listener. tick_age: seconds
    since its main loop came round. is_child: a process that the worker forked to run tasks. refused: requests to
    ingest refused since it started, by status.
    """

    process: str
    host: str
    pid: int
    at: float
    since: float
    address: str
    tick_age: float
    is_child: bool
    refused: dict[str, int]

    @property
    def name(self) -> str:
        return f"{self.process}:{self.host}:{self.pid}"


def note_of(address: str, is_child: bool, refused: dict[str, int]) -> Note:
    """What this process has to say now."""
    age = round(process.tick_age(), 1)
    return Note(
        process.NAME, socket.gethostname(), os.getpid(), time.time(), STARTED_AT, address, age, is_child, refused
    )


def note_alive(note: Note) -> bool:
    """Put the note on the roll; False when Valkey is away."""
    try:
        valkey().hset(KEY, note.name, json.dumps(asdict(note)))
        return True
    except UNREACHABLE:
        return False


def take_off(note: Note) -> None:
    """A process that stops in order says so."""
    try:
        valkey().hdel(KEY, note.name)
    except UNREACHABLE:
        return


def read_alive(now: float | None = None) -> list[Note] | None:
    """Who lives, by process, host and pid; None when nobody can say."""
    now = time.time() if now is None else now
    try:
        held: Any = valkey().hgetall(KEY)
        notes = {name: _note(raw) for name, raw in list(held.items())[:NOTES_MAX]}
        old = [name for name, note in notes.items() if note is None or now - note.at > FORGOTTEN_SECONDS]
        if old:
            valkey().hdel(KEY, *old)
    except UNREACHABLE:
        return None
    fresh = [note for note in notes.values() if note is not None and now - note.at <= NOTE_FRESH_SECONDS]
    return sorted(fresh, key=lambda note: (note.process, note.host, note.pid))


def targets() -> list[dict[str, Any]]:
    """Whom Prometheus should scrape, in the form its http_sd_configs reads."""
    return [
        {"targets": [note.address], "labels": {"process": note.process, "part": "child" if note.is_child else "main"}}
        for note in read_alive() or ()
    ]


def _note(raw: bytes) -> Note | None:
    """None for what another version wrote."""
    try:
        given = json.loads(raw)
        return Note(**{field.name: given[field.name] for field in fields(Note)})
    except (ValueError, KeyError, TypeError):
        return None


def valkey() -> redis.Redis:
    """A client that gives up soon: what it is asked for are hints."""
    return _client(settings.REDIS_URL)


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS)
