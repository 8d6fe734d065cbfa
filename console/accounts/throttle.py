"""Slowing down who guesses: failures are counted for a few minutes, per address and, for passwords, per account.

A try is counted before it is judged, so that many at once cannot slip by, and taken back when it was right. An account
tried from one address is blocked there soon and everywhere only after ten times as many: a guesser must not lock its
owner out. Tokens and links have 256 random bits, so a good one is taken whatever its address has tried before. The
counts live in the cache; when it is away nobody is locked out and nobody is counted: signing in during an outage matters
more, and the password hash stays slow by design.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError

from console.operations.metrics import GUESSES, GUESSES_REFUSED
from ingest.door.crowd import neighbourhood

Kind = Literal["password", "token", "link"]


def try_password(account: str, address: str) -> bool:
    """Count a try of this account from this address; False when there were too many lately."""
    return _count("password", _password_limits(account, address))


def forget_tries(account: str, address: str) -> None:
    """The password was right."""
    try:
        cache.delete_many(list(_password_limits(account, address)))
    except RedisError:
        return


def count_guess(kind: Kind, address: str) -> bool:
    """Count a token or link that is none of ours; False when this address has tried too many lately."""
    return _count(kind, {f"guess:{kind}:{neighbourhood(address)}": settings.GUESSES_MAX})


def _password_limits(account: str, address: str) -> dict[str, int]:
    """Key of a count → how high it may get."""
    named, near = hashlib.sha256(account.lower().encode("utf-8", "replace")).hexdigest()[:32], neighbourhood(address)
    once = settings.SIGNIN_FAILURES_MAX
    return {
        f"signin:here:{named}:{near}": once,
        f"signin:address:{near}": 3 * once,
        f"signin:account:{named}": 10 * once,
    }


def _count(kind: Kind, limits: Mapping[str, int]) -> bool:
    try:
        is_within = all(
            _more(key) <= most for key, most in limits.items()
        )  # tries that are blocked here count no further
    except (RedisError, ValueError):  # ValueError: the count expired between the two
        return True
    (GUESSES if is_within else GUESSES_REFUSED).labels(kind).inc()
    return is_within


def _more(key: str) -> int:
    cache.add(key, 0, settings.SIGNIN_FAILURE_SECONDS)
    return int(cache.incr(key))
