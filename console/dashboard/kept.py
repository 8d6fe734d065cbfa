"""An answer that is kept for some seconds: read once for all who ask the same, by whoever asks first.

    fresh ───────────▶ given to all who ask
    no longer fresh ─▶ one reads anew; the others are given what was before, where `stale_s` allows it, or wait for what is read

Where it is kept is Valkey. While that is away everybody's answer is made for them: pages go on without it. Who waits too long, or
beyond so many others in this process, is told to come back (503).
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import redis
from django.core.cache import cache
from rest_framework.exceptions import APIException

from console.operations.metrics import KEPT_ANSWERS

READING_SECONDS: Final = 60
"""So long after somebody began to read nobody else begins: whoever reads may have died."""
WAIT_SECONDS: Final = 15.0
WAITERS_MAX: Final = 16
"""Of one process: each holds a thread and a connection to the database."""
TIMES_KEPT: Final = 3.0
KEPT_MAX_SECONDS: Final = 60.0
"""What took long to make is kept for three times as long, up to a minute."""
POLL_SECONDS: Final = 0.1
AWAY: Final = (redis.RedisError, OSError)

Answer = TypeVar("Answer")
_waiters = threading.BoundedSemaphore(WAITERS_MAX)


class Busy(APIException):
    """Somebody reads it already, or too many wait."""

    status_code = 503
    default_detail = "This is still being read. Ask again in a moment."
    default_code = "busy"
    wait = 2
    """Retry-After, seconds."""

    def __init__(self) -> None:
        super().__init__()
        KEPT_ANSWERS.labels("busy").inc()


def kept_once(
    key: str, make: Callable[[], Answer], fresh_s: float | Callable[[Answer], float], stale_s: float = 0.0
) -> Answer:
    """What is kept under the key, or what is made now. Raises Busy, and what `make` raises.

    fresh_s: so long it is given to all, of the answer where that decides. stale_s: so much longer while somebody reads anew.
    """
    token = secrets.token_hex(8)
    try:
        found: tuple[Answer] | None = _found(key, token, stale_s > 0)
    except AWAY:
        KEPT_ANSWERS.labels("alone").inc()
        return make()
    if found is not None:
        return found[0]
    try:
        return _made(key, make, fresh_s, stale_s)
    finally:
        _let_go(key, token)


def _found(key: str, token: str, takes_stale: bool) -> tuple[Any] | None:
    """What is kept; None: the caller reads. Raises Busy, and one of AWAY."""
    kept = cache.get(key)
    if kept is not None and time.time() < kept[0]:
        return _counted("kept", kept)
    if cache.add(_lock(key), token, READING_SECONDS):
        return None
    if kept is not None and takes_stale:
        return _counted("stale", kept)
    if not _waiters.acquire(blocking=False):
        raise Busy
    try:
        return _waited(key, token)
    finally:
        _waiters.release()


def _waited(key: str, token: str) -> tuple[Any] | None:
    give_up_at = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < give_up_at:
        time.sleep(POLL_SECONDS)
        kept = cache.get(key)
        if kept is not None and time.time() < kept[0]:
            return _counted("waited", kept)
        if cache.add(_lock(key), token, READING_SECONDS):
            return None
    raise Busy


def _counted(how: str, kept: tuple[float, Any]) -> tuple[Any]:
    KEPT_ANSWERS.labels(how).inc()
    return (kept[1],)


def _made(key: str, make: Callable[[], Answer], fresh_s: float | Callable[[Answer], float], stale_s: float) -> Answer:
    began = time.monotonic()
    made = make()
    wanted_s = fresh_s(made) if callable(fresh_s) else fresh_s
    fresh = max(wanted_s, min(TIMES_KEPT * (time.monotonic() - began), KEPT_MAX_SECONDS))
    with contextlib.suppress(*AWAY):
        cache.set(key, (time.time() + fresh, made), math.ceil(fresh + stale_s))
    KEPT_ANSWERS.labels("made").inc()
    return made


def _let_go(key: str, token: str) -> None:
    """A lock that ran out meanwhile may be somebody else's by now."""
    with contextlib.suppress(*AWAY):
        if cache.get(_lock(key)) == token:
            cache.delete(_lock(key))


def _lock(key: str) -> str:
    return f"{key}:reading"
