"""How often somebody may ask the REST API: so many requests a minute of a person or a token, over all web processes.

Counted in the cache, a minute of the clock at a time: one step there for each request. While the cache is away nobody is
refused, since looking at incidents matters more then. What a page asks for stays far below the limit.
"""

from __future__ import annotations

import time
from typing import Any, Final

from django.conf import settings
from django.core.cache import cache
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from console.operations.metrics import API_REFUSED

MINUTE_SECONDS: Final = 60


class CallerRate(BaseThrottle):
    """REST framework's question whether this request may go on; a refusal is 429 with Retry-After."""

    def allow_request(self, request: Request, view: Any) -> bool:
        if not (request.user and request.user.is_authenticated):
            return True  # it is refused for that, and guesses are counted elsewhere
        key = f"rate:{request.user.pk}:{int(time.time() // MINUTE_SECONDS)}"
        is_allowed = _count(key) <= settings.API_REQUESTS_PER_MINUTE
        if not is_allowed:
            API_REFUSED.inc()
        return is_allowed

    def wait(self) -> float:
        """Seconds until the next minute begins."""
        return MINUTE_SECONDS - time.time() % MINUTE_SECONDS


def _count(key: str) -> int:
    try:
        cache.add(key, 0, 2 * MINUTE_SECONDS)
        return int(cache.incr(key))
    except (RedisError, ValueError):  # ValueError: it expired between the two
        return 0
