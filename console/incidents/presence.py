"""Who else has an incident open: names with a time in Valkey, refreshed while a socket follows the incident.

A hint between people and nothing more: it lives in no database, and while Valkey is away nobody is seen looking. A socket
that died without a word is forgotten after LOOKING_SECONDS.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import redis
import redis.asyncio
from django.conf import settings

from console.incidents.streams import UNREACHABLE

LOOKING_SECONDS: Final = 12
PEOPLE_MAX: Final = 20
LOOKS_RANG: Final = "dgs:rang:looks"
"""Pub/sub channel: numbers of incidents that somebody opened or left."""
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


class Looking:
    """The sockets of one process that have an incident open, and who else has: names, as last heard."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._members: dict[int, dict[str, str]] = {}
        self._names: dict[int, list[str]] = {}

    def names(self, number: int) -> list[str]:
        return self._names.get(number, [])

    async def enter(self, number: int, socket: str, name: str) -> list[int]:
        """Be seen looking; `socket` tells two windows of one person apart. The number if that changes who is seen.

        Raises one of UNREACHABLE; the next refresh says it again.
        """
        self._members.setdefault(number, {})[socket] = name
        news = await self._write({number: {socket: name}})
        await self._client.publish(LOOKS_RANG, number)
        return news

    async def leave(self, number: int, socket: str) -> None:
        """Be seen no longer. Raises one of UNREACHABLE."""
        members = self._members.get(number, {})
        name = members.pop(socket, None)
        if not members:
            self._members.pop(number, None)
            self._names.pop(number, None)
        if name is None:
            return
        await self._client.zrem(presence_key(number), _member(socket, name))
        await self._client.publish(LOOKS_RANG, number)

    async def heard(self, numbers: set[int]) -> list[int]:
        """People came to these or went; those of them where that changes who is seen. Raises one of UNREACHABLE."""
        ours: dict[int, dict[str, str]] = {number: {} for number in numbers if number in self._members}
        return await self._write(ours) if ours else []

    async def refresh(self) -> list[int]:
        """Say that all are still looking; the incidents where others have come or gone. Raises one of UNREACHABLE."""
        return await self._write(self._members) if self._members else []

    async def _write(self, looking: Mapping[int, Mapping[str, str]]) -> list[int]:
        numbers, now = list(looking), time.time()
        async with self._client.pipeline(transaction=False) as pipe:
            for number in numbers:
                if members := looking[number]:
                    pipe.zadd(presence_key(number), {_member(*one): now for one in members.items()})
                    pipe.expire(presence_key(number), LOOKING_SECONDS)
                pipe.zremrangebyscore(presence_key(number), "-inf", _since())
                pipe.zrange(presence_key(number), 0, _ENTRIES_MAX)
            answers = [answer for answer in await pipe.execute() if isinstance(answer, list)]
        return [number for number, entries in zip(numbers, answers, strict=True) if self._is_news(number, entries)]

    def _is_news(self, number: int, entries: list[bytes]) -> bool:
        names = names_of(entries)
        if number not in self._members or names == self._names.get(number):
            return False
        self._names[number] = names
        return True


def _member(socket: str, name: str) -> str:
    return f"{socket}\n{name}"


def names_of(entries: list[bytes]) -> list[str]:
    names = {entry.decode(errors="replace").partition("\n")[2] for entry in entries}
    return sorted(names)[:PEOPLE_MAX]


def _since() -> float:
    return time.time() - LOOKING_SECONDS


@lru_cache(maxsize=4)
def _client(url: str) -> Any:
    return redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1)
