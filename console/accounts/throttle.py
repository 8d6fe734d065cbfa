"""Slowing down who guesses passwords: failures are counted per account and per address, for a few minutes.

The counts live in the cache. When the cache is away nobody is locked out and nobody is counted: signing in during an
outage matters more, and the password hash stays slow by design.
"""

from __future__ import annotations

import hashlib

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError


def is_blocked(account: str, address: str) -> bool:
    """Whether this account or this address failed too often lately."""
    try:
        failures = cache.get_many(_keys(account, address)).values()
    except RedisError:
        return False
    return any(count >= settings.SIGNIN_FAILURES_MAX for count in failures)


def count_failure(account: str, address: str) -> None:
    try:
        for key in _keys(account, address):
            cache.add(key, 0, settings.SIGNIN_FAILURE_SECONDS)
            cache.incr(key)
    except (RedisError, ValueError):  # ValueError: the count expired between the two
        return


def forget_failures(account: str, address: str) -> None:
    try:
        cache.delete_many(_keys(account, address))
    except RedisError:
        return


def _keys(account: str, address: str) -> list[str]:
    named = hashlib.sha256(account.lower().encode()).hexdigest()[:32]
    return [f"signin:account:{named}", f"signin:address:{address}"]
