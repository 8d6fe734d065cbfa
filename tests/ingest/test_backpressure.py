"""A database that does not get on: requests are refused before memory grows, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from asgiref.sync import sync_to_async

from ingest.models import Node
from ingest.traces.committer import BATCHES_PER_COMMIT, COMMITTERS, WAITING_MAX
from ingest.traces.database import conninfo
from nccl_instrument.wire import encode_batch
from tests.builders import make_batch
from tests.ingest.conftest import Ingest, Reply

BEYOND = 100
HELD = WAITING_MAX + COMMITTERS * BATCHES_PER_COMMIT
"""Batches that wait, and those that are in the hands of the committers."""


@contextmanager
def locked_store() -> Iterator[None]:
    with psycopg.connect(conninfo()) as connection:
        connection.execute("LOCK TABLE ingest_trace_batch IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


async def test_a_stuck_database_leads_to_429_and_bounded_memory_and_loses_nothing(ingest: Ingest) -> None:
    assert (await ingest.send(make_batch(number=0))).status == 200
    server = await ingest.application.server()
    bodies = [encode_batch(make_batch(number=number)) for number in range(1, HELD + BEYOND + 1)]
    lock = locked_store()
    await sync_to_async(lock.__enter__)()
    try:
        posts = [asyncio.create_task(ingest.post(body)) for body in bodies]
        refused = await all_that_are_answered(posts)
        assert len(refused) >= BEYOND
        assert {reply.status for reply in refused.values()} == {429}
        assert {reply.headers["retry-after"] for reply in refused.values()} == {"1"}
        assert server.committer.n_waiting <= WAITING_MAX
    finally:
        await sync_to_async(lock.__exit__)(None, None, None)
    answers = await asyncio.gather(*posts)
    assert {reply.status for k, reply in enumerate(answers) if k not in refused} == {200}
    again = [await ingest.post(bodies[k]) for k in refused]
    assert {(reply.status, reply.body["duplicate"]) for reply in again} == {(200, False)}
    assert (await Node.objects.aget()).batches == 1 + len(bodies)
    assert server.bytes_held == 0


async def all_that_are_answered(posts: list[asyncio.Task[Reply]]) -> dict[int, Reply]:
    """Number of the post → its answer, once no more answers come."""
    before = -1
    while (n := sum(post.done() for post in posts)) != before or n == 0:
        before = n
        await asyncio.sleep(0.5)
    return {k: post.result() for k, post in enumerate(posts) if post.done()}
