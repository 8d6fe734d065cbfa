"""Who else has an incident open: names with a time in Valkey, which each socket refreshes while it follows the incident.

A hint between people and nothing more: it lives in no database, and while Valkey is away nobody is seen looking. A socket
that died without a word is forgotten after LOOKING_SECONDS.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, Final

import redis
import redis.asyncio
from django.conf import settings

from console.incidents.streams import UNREACHABLE

LOOKING_SECONDS: Final = 12
PEOPLE_MAX: Final = 20
_ENTRIES_MAX: Final = 200


def presence_key(number: int) -> str:
    return f"dgs:looking:{number}"


def looking_at(number: int) -> list[str]:
    """Names of who has the incident open now."""
    try:
        entries = _client(settings.REDIS_URL).zrange(presence_key(number), _since(), "+inf", byscore=True)
    except UNREACHABLE:
        return []
    return names_of(entries)


class Looker:
    """One socket's sign in the book: `channel` tells two windows of one person apart."""

    def __init__(self, client: redis.asyncio.Redis, name: str, channel: str) -> None:
        self._client = client
        self._member = f"{channel}\n{name}"

    async def look(self, number: int) -> list[str]:
        """Say that one is looking, and hear who else is. Raises one of UNREACHABLE."""
        key = presence_key(number)
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.zremrangebyscore(key, "-inf", _since())
            pipe.zadd(key, {self._member: time.time()})
            pipe.expire(key, LOOKING_SECONDS)
            pipe.zrange(key, 0, _ENTRIES_MAX)
            answers = await pipe.execute()
        return names_of(answers[-1])

    async def leave(self, number: int) -> None:
        """Be seen no longer. Raises one of UNREACHABLE."""
        await self._client.zrem(presence_key(number), self._member)


def names_of(entries: list[bytes]) -> list[str]:
    names = {entry.decode(errors="replace").partition("\n")[2] for entry in entries}
    return sorted(names)[:PEOPLE_MAX]


def _since() -> float:
    return time.time() - LOOKING_SECONDS


@lru_cache(maxsize=4)
def _client(url: str) -> Any:
    return redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1)
