"""Whether the database is there, for whoever asks: one question in FRESH_SECONDS, however many ask.

The answer of GET /ingest/health is for everybody. Were each asker's question a query on the committers' pool, a thousand
strangers would keep the batches waiting; so it is asked on a connection of its own, and everybody gets what was found.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import psycopg

from ingest.needs import ask_database

FRESH_SECONDS: Final = 2.0


class Presence:
    """Of the database, as one ingest process sees it."""

    def __init__(self, ask: Callable[[], object] = ask_database, now: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._now = ask, now
        self._is_there = False
        self._found_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def is_there(self) -> bool:
        """What was found last, or is found now when that is too long ago."""
        if self._now() - self._found_at >= FRESH_SECONDS:
            if self._asking is None:
                self._asking = asyncio.create_task(self._find())
            await asyncio.shield(self._asking)
        return self._is_there

    async def _find(self) -> None:
        try:
            await asyncio.to_thread(self._ask)
            self._is_there = True
        except psycopg.Error:
            self._is_there = False
        finally:
            self._found_at, self._asking = self._now(), None
