"""The answer of GET /ingest/health: what it costs, and what strangers are told."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from ingest import presence
from ingest.presence import Presence
from tests.builders import make_batch
from tests.ingest.conftest import Ingest


class Clock:
    now = 0.0
    asked = 0
    is_away = False

    def ask(self) -> None:
        self.asked += 1
        if self.is_away:
            raise psycopg.OperationalError("away")


async def test_many_who_ask_at_once_cost_one_question_and_later_ones_none_until_it_is_stale() -> None:
    clock = Clock()
    found = Presence(clock.ask, lambda: clock.now)
    assert await asyncio.gather(*(found.is_there() for _ in range(1000))) == [True] * 1000
    clock.is_away = True
    assert (await found.is_there(), clock.asked) == (True, 1)
    clock.now += presence.FRESH_SECONDS
    assert await asyncio.gather(*(found.is_there() for _ in range(10))) == [False] * 10
    assert clock.asked == 2


async def test_an_asker_who_goes_away_takes_the_answer_from_nobody() -> None:
    clock = Clock()
    found = Presence(clock.ask, lambda: clock.now)
    first, second = (asyncio.create_task(found.is_there()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second
    assert clock.asked == 1


@pytest.mark.parametrize("authorization", ["", "Bearer guess", "Bearer "])
async def test_strangers_hear_whether_ingest_works_and_nothing_more(ingest: Ingest, authorization: str) -> None:
    await ingest.send(make_batch())
    heard = await ingest.request("GET", "/ingest/health", {"authorization": authorization}, [b""])
    assert (heard.status, heard.body) == (200, {"status": "ok", "service": "diogenes ingest"})


async def test_askers_take_no_connection_from_the_batches(ingest: Ingest) -> None:
    server = await ingest.application.server()
    await ingest.send(make_batch())
    before = server.pool.get_stats().get("requests_num", 0)
    for task in server._tasks:  # the loops use the pool as well
        task.cancel()
    await asyncio.gather(*(ingest.health() for _ in range(50)))
    assert server.pool.get_stats().get("requests_num", 0) == before
