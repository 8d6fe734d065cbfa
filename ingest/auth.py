"""Which team a request speaks for: a short memory of good tokens, and a limit on guessing.

A token is looked up by its sha256, so the time a look-up takes says nothing about the token. Good answers are kept for
CACHE_SECONDS, which is also how long a revoked token may still work. Each client has a small allowance of failures;
beyond it unknown tokens are not even looked up.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from psycopg_pool import AsyncConnectionPool

from ingest.tokens import hash_token

CACHE_SECONDS: Final = 2.0
CACHED_MAX: Final = 10_000
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
    """A bucket of failures per client that refills with time; the least recently failing client is forgotten first."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Raises TooManyFailures when the client has none left."""
        spent = self._current(client)
        if spent > FAILURES_MAX - 1:
            raise TooManyFailures(int((spent - FAILURES_MAX + 1) * FAILURE_REFILL_SECONDS) + 1)

    def count(self, client: str) -> None:
        self._spent[client] = (self._current(client) + 1, self._now())
        self._spent.move_to_end(client)
        if len(self._spent) > CLIENTS_MAX:
            self._spent.popitem(last=False)

    def _current(self, client: str) -> float:
        spent, at = self._spent.get(client, (0.0, self._now()))
        return max(0.0, spent - (self._now() - at) / FAILURE_REFILL_SECONDS)


class TokenCheck:
    """Bearer of a token, from memory or the database."""

    def __init__(self, pool: AsyncConnectionPool[Any], now: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._now = now
        self._known: OrderedDict[str, tuple[float, Bearer]] = OrderedDict()
        self.failures = FailureLimit(now)

    async def bearer(self, authorization: str, client: str) -> Bearer:
        """Raises Unauthorised, TooManyFailures, or the database's error when it cannot be asked."""
        token = authorization[7:].strip() if authorization[:7].lower() == "bearer " else ""
        if not token or len(token) > TOKEN_CHARACTERS_MAX:
            raise Unauthorised
        hashed = hash_token(token)
        at, bearer = self._known.get(hashed, (0.0, None))
        if bearer is not None and self._now() - at < CACHE_SECONDS:
            return bearer
        if bearer is None:
            self.failures.check(client)
        found = await self._look_up(hashed)
        if found is None:
            self._known.pop(hashed, None)
            self.failures.count(client)
            raise Unauthorised
        self._remember(hashed, found)
        return found

    async def _look_up(self, hashed: str) -> Bearer | None:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT id, team_id, token_sha256 FROM ingest_agenttoken"
                " WHERE token_sha256 = %s AND revoked_at IS NULL",
                [hashed],
            )
            row = await cursor.fetchone()
        if row is None or not hmac.compare_digest(row[2], hashed):
            return None
        return Bearer(row[0], row[1])

    def _remember(self, hashed: str, bearer: Bearer) -> None:
        self._known[hashed] = (self._now(), bearer)
        self._known.move_to_end(hashed)
        if len(self._known) > CACHED_MAX:
            self._known.popitem(last=False)
