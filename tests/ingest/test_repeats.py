"""What an agent that lost its bookmarks sends again counts once, whichever process receives or sums it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from asgiref.sync import sync_to_async

from ingest.asgi import Application
from ingest.models import OpRollup
from ingest.sums import repeats
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import FakeJob, boot_id, with_rows
from tests.ingest.conftest import Ingest
from tests.ingest.oracle import is_exact, recovered

pytestmark = pytest.mark.usefixtures("no_writers")


def repeated(job: FakeJob, life: int, numbers: range, new: int, number: int = 0) -> TraceBatch:
    """What the agent's next life reads from the rings: ops of these seconds again, and those of a new one."""
    rows = [job.batch(0, second).rows("op") for second in (*numbers, new)]
    return with_rows(replace(job.batch(0, new), boot_id=boot_id(0, life), number=number), op=np.concatenate(rows))


def n_ops() -> int:
    return sum(row.n_ops for row in OpRollup.objects.all())


async def second_process(ingest: Ingest) -> Ingest:
    return Ingest(Application(), ingest.token, ingest.team, ingest.clock_ns)


async def test_what_a_restarted_agent_repeats_counts_once_though_another_process_receives_it(ingest: Ingest) -> None:
    job = FakeJob()
    for number in range(10):
        await ingest.send(job.batch(0, number))
    other = await second_process(ingest)
    await ingest.write_ledger()
    ingest.clock_ns = job.batch(0, 12).wall_ns
    await other.post(encode_batch(repeated(job, 1, range(2, 10), new=10)))
    await other.post(encode_batch(repeated(job, 1, range(0, 0), new=11, number=1)))
    await other.post(encode_batch(repeated(job, 2, range(4, 12), new=12)))
    await other.write_ledger()
    assert await sync_to_async(n_ops)() == 13 * 16
    assert (await other.health())["ops_repeated"] == (8 + 8) * 16
    await other.application.stop()


async def test_repeats_are_left_out_when_another_process_sums_what_a_dead_one_left(ingest: Ingest) -> None:
    job = FakeJob()
    for number in range(4):
        await ingest.send(job.batch(0, number))
    await ingest.send(repeated(job, 1, range(0, 4), new=4))
    assert await recovered() > 0
    assert await sync_to_async(n_ops)() == 5 * 16


async def test_what_could_not_be_looked_up_is_counted(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "EARLIER_ROWS_MAX", 3)
    monkeypatch.setattr(repeats, "SLACK_NS", 0)
    job = FakeJob()
    for number in range(10):
        await ingest.send(job.batch(0, number))
    await ingest.send(repeated(job, 1, range(0, 10), new=10))
    await ingest.write_ledger()
    health = await ingest.health()
    assert health["ops_repeated"] == 3 * 16
    assert health["ops_unchecked"] == 7 * 16
    assert await sync_to_async(n_ops)() == (11 + 7) * 16


async def test_an_agent_that_kept_its_bookmarks_repeats_nothing_and_loses_nothing(ingest: Ingest) -> None:
    job = FakeJob()
    for number in range(3):
        await ingest.send(job.batch(0, number))
    await ingest.send(replace(job.batch(0, 3), boot_id=boot_id(0, 1), number=0))
    await ingest.write_ledger()
    assert (await ingest.health())["ops_repeated"] == 0
    await is_exact(4)
