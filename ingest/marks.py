"""Marks: which attempts have just been heard from, for whoever looks at jobs between the regular looks.

A set in Valkey, filled after commit and emptied by the reader. It is a hint: without it every job is still looked at
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
TAKEN_MAX: Final = 10_000
TIMEOUT_SECONDS: Final = 0.5

log = logging.getLogger(__name__)


def mark_heard(attempt_ids: Iterable[int]) -> bool:
    """Note that batches of these attempts were stored; False when Valkey could not be reached."""
    ids = [str(attempt_id) for attempt_id in attempt_ids]
    try:
        if ids:
            _valkey().sadd(KEY, *ids)
        return True
    except redis.RedisError as error:
        log.warning("attempts heard from are not marked, the regular looks go on: %s", error)
        return False


def take_heard() -> set[int]:
    """The attempts marked since the last call, each given out once; empty when Valkey is away."""
    try:
        return {int(member) for member in cast(list[bytes], _valkey().spop(KEY, TAKEN_MAX))}
    except redis.RedisError as error:
        log.warning("cannot read which attempts were heard from: %s", error)
        return set()


@cache
def _valkey() -> redis.Redis:
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    )
