"""Refusals are counted for their node, and for their team whatever happens."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from ingest.door import ledger
from ingest.models import Node, Team
from ingest.traces.database import connect
from tests.builders import FakeJob
from tests.ingest.conftest import Ingest


async def test_refusals_beyond_the_names_that_are_kept_count_for_the_team(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "REFUSALS_MAX", 3)
    kept = (await ingest.application.server()).ledger
    for number in range(10):
        kept.refuse(ingest.team.pk, "job", f"node-{number}", "broken")
    await ingest.write_ledger()
    assert (await Team.objects.aget()).batches_refused == 10


async def test_refusals_of_several_nodes_wait_for_a_commit_in_its_order(ingest: Ingest) -> None:
    """Names in the other order than ids: the ledger must not hold the last node while it waits for the first."""
    job = FakeJob(nodes=2, ranks=2)
    for node in range(2):
        await ingest.send(job.batch(node))
    first, last = [node async for node in Node.objects.order_by("pk")]
    kept = (await ingest.application.server()).ledger
    for node in (last, first):
        kept.refuse(ingest.team.pk, job.name, node.name, "broken")
    await asyncio.to_thread(hold_both, first.pk, last.pk, ingest, asyncio.get_running_loop())
    await ingest.write_ledger()
    assert [node.batches_refused async for node in Node.objects.order_by("pk")] == [1, 1]
    await sync_to_async(connections.close_all)()


def hold_both(first: int, last: int, ingest: Ingest, loop: asyncio.AbstractEventLoop) -> None:
    """What a commit does: the first node, then the last, while the ledger is being written."""
    with connect() as connection, connection.transaction():
        connection.execute("SELECT 1 FROM ingest_node WHERE id = %s FOR UPDATE", [first])
        writing = asyncio.run_coroutine_threadsafe(ingest.write_ledger(), loop)
        with pytest.raises(TimeoutError):
            writing.result(1.0)
        connection.execute("SET LOCAL lock_timeout = '5s'")
        connection.execute("SELECT 1 FROM ingest_node WHERE id = %s FOR UPDATE", [last])
    writing.result(10.0)
