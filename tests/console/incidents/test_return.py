"""After an outage of ours nodes come back one by one and drain at their own pace: every look on the way sees nothing wrong."""

from __future__ import annotations

from collections import deque

import pytest

from console.incidents.models import Incident, Look
from ingest.models import Node
from tests.builders import SECOND, WALL_NS
from tests.console.incidents.stalling import StallingJob
from tests.console.incidents.test_watch import job, look, quick
from tests.ingest.conftest import ingest, no_traces

__all__ = ["ingest", "job", "no_traces", "quick"]  # fixtures
OUTAGE_SECONDS = 40
BACK_AFTER = {0: 0, 1: 2, 2: 4, 3: 13}
"""Node → seconds after the server's return at which it is heard again."""
DRAINS = {0: 20, 1: 3, 2: 7, 3: 9}
"""Node → spooled batches it sends in a second, beside the fresh one."""


async def arrive(job: StallingJob, node: int, number: int, second: int) -> None:
    """Batch `number` of a node arrives in `second`, whenever it was cut."""
    job.number = number
    reply = await job.ingest.send(job.batch(node), at_ns=WALL_NS + (second + 1) * SECOND + 10_000_000)
    assert reply.status == 200


@pytest.mark.parametrize("stalls", [False, True])
async def test_nodes_that_return_one_by_one_are_neither_silent_nor_stuck(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch, stalls: bool
) -> None:
    last = job.number
    back = last + OUTAGE_SECONDS
    monkeypatch.setattr("ingest.traces.frame.heard_since_ns", lambda *_: WALL_NS + (back + 1) * SECOND)
    spools = {node: deque(range(last, back)) for node in BACK_AFTER}
    if stalls:
        job.stalls_from = back - 10
    for second in range(back, back + 25):
        for node, after in BACK_AFTER.items():
            if second < back + after:
                spools[node].append(second)
                continue
            await arrive(job, node, second, second)
            for _ in range(min(DRAINS[node], len(spools[node]))):
                await arrive(job, node, spools[node].popleft(), second)
        await look()
        assert await Incident.objects.aexists() == (stalls and second >= back + max(BACK_AFTER.values()))
    assert not any(spools.values())
    assert not await Node.objects.filter(catching_up=True).aexists()
    seen_ns = [found.seen_ns async for found in Look.objects.order_by("id")]
    assert seen_ns == sorted(seen_ns)
    if stalls:
        assert (await Incident.objects.aget()).culprits == [3]
