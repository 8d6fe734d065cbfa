"""An attempt ends soon after its last process, and only then: what nobody told us is not taken for gone."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async

from ingest.jobs.endings import GONE_NS, end_gone_attempts, end_if_all_gone, gone_changes
from ingest.models import Attempt, Rank
from nccl_instrument.tables import PROCESS_GONE
from nccl_instrument.wire import TraceBatch
from tests.builders import SECOND, WALL_NS, FakeJob, with_rows
from tests.ingest.conftest import Ingest

end = sync_to_async(end_if_all_gone)
JOB = FakeJob(ranks=4, nodes=2)


def dead(batch: TraceBatch, *pids: int) -> TraceBatch:
    """The batch with these processes dead, all of them when none is named."""
    process = batch.rows("process").copy()
    is_dead = [pid in pids for pid in process["pid"]] if pids else slice(None)
    process["alive"][is_dead], process["state"][is_dead] = 0, PROCESS_GONE
    return with_rows(batch, process=process)


async def second(ingest: Ingest, number: int, dies: tuple[int, ...], nodes: range = range(2)) -> None:
    """Second `number` of the job, in which the processes of these nodes are dead."""
    for node in nodes:
        batch = JOB.batch(node, number)
        await ingest.send(dead(batch) if node in dies else batch)
    await ingest.write_ledger()


async def test_an_attempt_ends_half_a_minute_after_its_last_process(ingest: Ingest) -> None:
    await second(ingest, 0, dies=())
    await second(ingest, 1, dies=(0,))
    await second(ingest, 5, dies=(0, 1))
    await second(ingest, 6, dies=(0, 1))  # agents go on reporting what they hold of the dead
    attempt, last_ns = await Attempt.objects.aget(), WALL_NS + 6 * SECOND
    assert not await end(attempt.pk, last_ns + GONE_NS - 1)
    assert await end(attempt.pk, last_ns + GONE_NS)
    ended = await Attempt.objects.aget()
    assert (ended.state, ended.end_reason) == ("ended", "processes gone")
    assert ended.ended_at is not None
    assert not await end(attempt.pk, last_ns + GONE_NS)  # once


async def test_while_one_process_lives_the_attempt_runs(ingest: Ingest) -> None:
    await second(ingest, 0, dies=())
    for node in range(2):
        await ingest.send(dead(JOB.batch(node, 1), *(JOB.pid(rank) for rank in range(3))))
    await ingest.write_ledger()
    assert not await end((await Attempt.objects.aget()).pk, 2 * WALL_NS)
    assert await Rank.objects.filter(gone_ns__gt=0).acount() == 3


async def test_ranks_nobody_ever_heard_of_are_not_taken_for_gone(ingest: Ingest) -> None:
    await second(ingest, 0, dies=(), nodes=range(1))
    await second(ingest, 1, dies=(0,), nodes=range(1))
    assert not await end((await Attempt.objects.aget()).pk, 2 * WALL_NS)


async def test_a_process_seen_alive_again_is_not_gone_and_a_late_batch_does_not_revive_it(ingest: Ingest) -> None:
    await second(ingest, 3, dies=(0, 1))
    await second(ingest, 1, dies=())
    assert await Rank.objects.filter(gone_ns__gt=0).acount() == 4
    await second(ingest, 4, dies=(1,))
    assert await Rank.objects.filter(gone_ns__gt=0).acount() == 2


async def test_frozen_rows_do_not_make_an_ended_attempt_run_again_but_a_living_process_does(ingest: Ingest) -> None:
    await second(ingest, 0, dies=())
    await second(ingest, 1, dies=(0, 1))
    assert await sync_to_async(end_gone_attempts)(WALL_NS + 60 * SECOND) == 1
    for number, dies, state in ((61, (0, 1), "ended"), (62, (1,), "running")):
        (await ingest.application.server()).committer.berths.forget_all()
        await second(ingest, number, dies)
        found = await Attempt.objects.aget()
        assert (found.state, bool(found.end_reason)) == (state, state == "ended")


@pytest.mark.parametrize(
    ("gone", "lives", "changes"),
    [
        ({}, {7: (True, 5)}, {}),
        ({}, {7: (False, 5)}, {7: 105}),
        ({7: 105}, {7: (False, 9)}, {}),
        ({7: 105}, {7: (True, 4)}, {}),
        ({7: 105}, {7: (True, 6)}, {7: 0}),
    ],
)
def test_only_a_change_of_life_is_noted(
    gone: dict[int, int], lives: dict[int, tuple[bool, int]], changes: dict[int, int]
) -> None:
    assert gone_changes(gone, lives, shift_ns=100) == changes
