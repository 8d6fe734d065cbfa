"""Guessing tokens: limited before it costs anything, never at the expense of agents with good ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from ingest.door.auth import (
    CACHE_SECONDS,
    CLIENTS_MAX,
    FAILURES_MAX,
    FailureLimit,
    TokenCheck,
    TooManyFailures,
    Unauthorised,
)
from ingest.door.tokens import make_agent_token
from nccl_instrument.wire import encode_batch
from tests.builders import make_batch
from tests.ingest.conftest import Ingest


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Counting:
    """Tokens of a real pool, and how often they were read."""

    check: TokenCheck
    clock: Clock
    n_read: int = 0
    said: list[str] = field(default_factory=list)

    async def ask(self, token: str, client: str = "10.0.0.1") -> str:
        try:
            await self.check.bearer(f"Bearer {token}", client)
            return "good"
        except Unauthorised:
            return "unknown"
        except TooManyFailures:
            return "too many"


@pytest.fixture
async def tokens(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> Counting:
    clock = Clock()
    found = Counting(TokenCheck((await ingest.application.server()).pool, clock), clock)
    read_once = found.check._read_once

    async def counted() -> None:
        found.n_read += 1
        await read_once()

    monkeypatch.setattr(found.check, "_read_once", counted)
    return found


async def test_good_tokens_are_read_once_in_a_while_however_many_requests_there_are(
    tokens: Counting, ingest: Ingest
) -> None:
    assert [await tokens.ask(ingest.token) for _ in range(50)] == ["good"] * 50
    assert tokens.n_read == 1
    tokens.clock.now += CACHE_SECONDS
    assert await tokens.ask(ingest.token) == "good"
    assert tokens.n_read == 2


async def test_guesses_beyond_the_limit_cost_no_reading_and_are_counted(tokens: Counting) -> None:
    said = [await tokens.ask(f"dga_{number}") for number in range(100)]
    assert said == ["unknown"] * FAILURES_MAX + ["too many"] * (100 - FAILURES_MAX)
    assert tokens.n_read <= FAILURES_MAX
    assert (tokens.check.failures.n_counted, tokens.check.failures.n_refused) == (FAILURES_MAX, 100 - FAILURES_MAX)


async def test_a_thousand_guesses_at_once_do_not_slip_by_the_limit(tokens: Counting) -> None:
    said = await asyncio.gather(*(tokens.ask(f"dga_{number}") for number in range(1000)))
    assert said.count("unknown") == FAILURES_MAX
    assert tokens.n_read <= 3


async def test_an_agent_nobody_has_heard_of_gets_in_while_somebody_guesses_at_its_address(
    tokens: Counting, ingest: Ingest
) -> None:
    for number in range(50):
        await tokens.ask(f"dga_{number}")
    assert await tokens.ask(ingest.token) == "good"


async def test_a_new_token_that_was_taken_for_a_guess_is_given_back(tokens: Counting, ingest: Ingest) -> None:
    tokens.check._read_at, tokens.check._live = tokens.clock.now, {}  # as if read just before the token was made
    assert await tokens.ask(ingest.token) == "good"
    assert tokens.check.failures.n_counted == 0


async def test_a_flood_from_many_addresses_forgets_addresses_never_tokens(tokens: Counting, ingest: Ingest) -> None:
    assert await tokens.ask(ingest.token) == "good"
    limit = tokens.check.failures
    for number in range(CLIENTS_MAX + 500):
        limit.spend(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(limit._spent) == CLIENTS_MAX
    n_read = tokens.n_read
    assert await tokens.ask(ingest.token) == "good"
    assert tokens.n_read == n_read


def test_the_allowance_comes_back_with_time_and_is_one_for_a_network() -> None:
    clock = Clock()
    limit = FailureLimit(clock)
    for number in range(FAILURES_MAX):
        limit.spend(f"2001:db8::{number:x}")
    with pytest.raises(TooManyFailures) as refused:
        limit.spend("2001:db8::ffff")
    clock.now += refused.value.retry_after
    limit.spend("2001:db8::1")


async def test_no_token_at_all_is_limited_like_a_wrong_one(tokens: Counting) -> None:
    assert [await tokens.ask("") for _ in range(FAILURES_MAX + 1)][-1] == "too many"


async def test_a_reading_that_fails_is_told_to_all_who_wait_and_tried_again(
    tokens: Counting, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = tokens.check._read_once

    async def away() -> None:
        await asyncio.sleep(0)
        raise ConnectionError("away")

    monkeypatch.setattr(tokens.check, "_read_once", away)
    said: list[Any] = await asyncio.gather(*(tokens.ask(ingest.token) for _ in range(5)), return_exceptions=True)
    assert [type(one) for one in said] == [ConnectionError] * 5
    monkeypatch.setattr(tokens.check, "_read_once", good)
    assert await tokens.ask(ingest.token) == "good"


async def test_many_first_requests_with_one_new_good_token_cost_one_guess(ingest: Ingest) -> None:
    assert (await ingest.send(make_batch())).status == 200  # what is known is fresh now
    token = await sync_to_async(make_agent_token)(ingest.team, "new")
    body = encode_batch(make_batch(number=1))
    replies = await asyncio.gather(*(ingest.post(body, token=token, client="10.0.0.9") for _ in range(64)))
    assert {reply.status for reply in replies} == {200}
    guesses = await asyncio.gather(*(ingest.post(body, token="dga_guess", client="10.0.0.9") for _ in range(64)))
    assert {reply.status for reply in guesses} == {401}
    assert (await ingest.application.server()).tokens.failures.n_counted == 1
