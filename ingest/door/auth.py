"""Which team a request speaks for: every live token is in memory, by its sha256, and guessing is limited.

The table is read anew at most once in CACHE_SECONDS, which is also how long a revoked token may still work, and when a
token is unknown: it may have been made a moment ago. A look-up by the hash says nothing about the token by the time it
takes. Each client has a small allowance of unknown tokens; beyond it they are refused without asking the database, so
a guesser costs nothing and a good agent at the same address gets in all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from psycopg_pool import AsyncConnectionPool

from ingest.door.crowd import neighbourhood
from ingest.door.tokens import hash_token
from nccl_instrument.sealed import is_sealed, key_id

CACHE_SECONDS: Final = 2.0
FAILURES_MAX: Final = 10
FAILURE_REFILL_SECONDS: Final = 6.0
CLIENTS_MAX: Final = 10_000
TOKEN_CHARACTERS_MAX: Final = 200


class Unauthorised(Exception):
    """No token, or not one of ours."""


class TooManyFailures(Exception):
    """This client has guessed too often."""

    def __init__(self, retry_after: int) -> None:
        super().__init__("too many failed tokens from this address")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who sends: the token's row and its team."""

    token_id: int
    team_id: int


class FailureLimit:
    """A bucket of failures per client that refills with time; the least recently failing client is forgotten first.

    n_counted: failures there were; n_refused: tries that were not even looked at.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self.n_counted = self.n_refused = 0

    def spend(self, client: str) -> None:
        """Count a failure before it is known to be one, so that many at once cannot slip by. Raises TooManyFailures."""
        client = neighbourhood(client)
        spent = self._current(client)
        if spent > FAILURES_MAX - 1:
            self.n_refused += 1
            raise TooManyFailures(int((spent - FAILURES_MAX + 1) * FAILURE_REFILL_SECONDS) + 1)
        self.n_counted += 1
        self._set(client, spent + 1)

    def give_back(self, client: str) -> None:
        """It was none."""
        client = neighbourhood(client)
        self.n_counted -= 1
        self._set(client, max(self._current(client) - 1, 0.0))

    def _set(self, client: str, spent: float) -> None:
        self._spent[client] = (spent, self._now())
        self._spent.move_to_end(client)
        if len(self._spent) > CLIENTS_MAX:
            self._spent.popitem(last=False)

    def _current(self, client: str) -> float:
        spent, at = self._spent.get(client, (0.0, self._now()))
        return max(0.0, spent - (self._now() - at) / FAILURE_REFILL_SECONDS)


class TokenCheck:
    """Bearer of a token. One per ingest process."""

    def __init__(self, pool: AsyncConnectionPool[Any], now: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._now = now
        self._live: dict[str, Bearer] = {}
        self._by_key: dict[str, str] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._guesses: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.failures = FailureLimit(now)

    async def bearer(self, authorization: str, client: str) -> Bearer:
        """Raises Unauthorised, TooManyFailures, or the database's error when it cannot be asked."""
        token = authorization[7:].strip() if authorization[:7].lower() == "bearer " else ""
        hashed = hash_token(token[:TOKEN_CHARACTERS_MAX])
        is_stale = self._now() - self._read_at >= CACHE_SECONDS
        if is_stale:
            await self._read()
        if hashed not in self._live:
            await self._guess(hashed, client, asks_again=bool(token) and not is_stale)
        return self._live[hashed]

    async def bearer_of_seal(self, key: str, said: str, batch: bytes) -> Bearer:
        """Who sealed a batch that came by another road. Raises Unauthorised, or the database's error.

        Nobody guesses here: a seal cannot be tried without writing to the topic, which brokers guard.
        """
        if self._now() - self._read_at >= CACHE_SECONDS:
            await self._read()
        hashed = self._by_key.get(key, "")
        if not hashed or not is_sealed(hashed, batch, said):
            raise Unauthorised
        return self._live[hashed]

    async def _guess(self, hashed: str, client: str, asks_again: bool) -> None:
        """One guess, however many requests with the same token wait for it: a new agent may begin with many at once."""
        key = (client, hashed)
        if key not in self._guesses:
            self.failures.spend(client)
            self._guesses[key] = asyncio.create_task(self._look_up(hashed, client, asks_again))
            self._guesses[key].add_done_callback(lambda task: self._is_guessed(key, task))
        await asyncio.shield(self._guesses[key])

    def _is_guessed(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        del self._guesses[key]
        if not task.cancelled():
            task.exception()  # as in _is_read

    async def _look_up(self, hashed: str, client: str, asks_again: bool) -> None:
        """An unknown token: a failure, unless it was made since the last reading."""
        try:
            if asks_again:
                await self._read()
        except BaseException:
            self.failures.give_back(client)
            raise
        if hashed not in self._live:
            raise Unauthorised
        self.failures.give_back(client)

    async def _read(self) -> None:
        """Read all live tokens; whoever asks meanwhile waits for the same answer."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_once())
            self._reading.add_done_callback(self._is_read)
        await asyncio.shield(self._reading)

    def _is_read(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # those who wait raise it; nobody may be waiting any more

    async def _read_once(self) -> None:
        began_at = self._now()
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT token_sha256, id, team_id FROM ingest_agenttoken WHERE revoked_at IS NULL"
            )
            rows = await cursor.fetchall()
        self._live = {hashed: Bearer(token_id, team_id) for hashed, token_id, team_id in rows}
        self._by_key = {key_id(hashed): hashed for hashed in self._live}
        self._read_at = began_at
