"""Marks: which attempts have just been heard from, and which requests for dumps answered, for whoever watches them.

Sets in Valkey, filled after commit and emptied by the reader. They are hints: without them every job is still looked at
on the regular beat, so Valkey being away is counted and otherwise ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from typing import Final, cast

import redis
from django.conf import settings

KEY: Final = "diogenes:heard"
DUMPED_KEY: Final = "diogenes:dumped"
TAKEN_MAX: Final = 10_000
TIMEOUT_SECONDS: Final = 0.5

log = logging.getLogger(__name__)


def mark_heard(attempt_ids: Iterable[int]) -> bool:
    """Note that batches of these attempts were stored; False when Valkey could not be reached."""
    return _mark(KEY, attempt_ids)


def take_heard() -> set[int]:
    """The attempts marked since the last call, each given out once; empty when Valkey is away."""
    return _take(KEY)


def mark_dumped(request_ids: Iterable[int]) -> bool:
    """Note that something was answered to these requests for dumps; False when Valkey could not be reached."""
    return _mark(DUMPED_KEY, request_ids)


def take_dumped() -> set[int]:
    """The requests marked since the last call, each given out once; empty when Valkey is away."""
    return _take(DUMPED_KEY)


def _mark(key: str, marked: Iterable[int]) -> bool:
    ids = [str(one) for one in marked]
    try:
        if ids:
            _valkey().sadd(key, *ids)
        return True
    except redis.RedisError as error:
        log.warning("marks of %s cannot be set, the regular looks go on: %s", key, error)
        return False


def _take(key: str) -> set[int]:
    try:
        return {int(member) for member in cast(list[bytes], _valkey().spop(key, TAKEN_MAX))}
    except redis.RedisError as error:
        log.warning("marks of %s cannot be read: %s", key, error)
        return set()


@cache
def _valkey() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    )
