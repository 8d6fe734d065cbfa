"""Stages are stored apart from traces, read only when they are asked for, and what cannot be true is dropped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from asgiref.sync import sync_to_async

from ingest.door.arrival import receive_batch
from ingest.models import Attempt
from ingest.read import read_window
from ingest.traces.narrow import read_evidence
from ingest.window import STAGE_TABLES, TRACE_TABLES, Window
from nccl_instrument.stage_schema import DATA, DEFAULT, FORWARD
from nccl_instrument.tables import DTYPE, GATHERED, empty_rows
from nccl_instrument.wire import Rows, TraceBatch, encode_batch
from tests.builders import MONO_NS, SECOND, WALL_NS, FakeJob, with_rows
from tests.ingest.conftest import Ingest
from tests.stages import MS, stage_tables

SHIFT = WALL_NS - MONO_NS
STEP_MS = np.array([5.0, 20, 30, 1, 8, 2])
read = sync_to_async(read_window)


def batch(job: FakeJob, node: int, number: int = 0, **changed: Rows) -> TraceBatch:
    """Ten steps of each rank of the node; rank 1's data comes late."""
    ranks = job.ranks_of(node)
    durations = np.tile(STEP_MS, (10, len(ranks), 1))
    durations[:, [rank == 1 for rank in ranks], 0] += 40
    made = stage_tables(
        durations, ranks=ranks, pids=tuple(map(job.pid, ranks)), first_step=10 * number,
        end_ns=MONO_NS + (number + 1) * SECOND,
    )  # fmt: skip
    return with_rows(job.batch(node, number), **{**made, **changed})


async def stages(**options: object) -> Window:
    attempt = await Attempt.objects.alatest("pk")
    return await read(attempt.pk, WALL_NS, WALL_NS + 100 * SECOND, **{"tables": STAGE_TABLES, **options})  # type: ignore[arg-type]


async def test_every_step_comes_back_with_its_rank_and_node_in_unix_time(ingest: Ingest) -> None:
    job = FakeJob(ranks=4, nodes=2)
    for node in range(2):
        for number in range(3):
            await ingest.send(batch(job, node, number))
    window = await stages()
    rows = window.rows("stage")
    assert sorted(zip(rows["rank"].tolist(), rows["step"].tolist(), strict=True)) == [
        (rank, step) for rank in range(4) for step in range(30)
    ]
    assert np.array_equal(rows["node"], rows["rank"] // 2)
    assert set(rows["durations_ns"][rows["rank"] == 1][:, 0].tolist()) == {45 * MS}
    last = rows[(rows["rank"] == 1) & (rows["step"] == 29)]
    assert last["ended_ns"].tolist() == [WALL_NS + 3 * SECOND]
    names = window.rows("schema")
    assert names[names["position"] == 1]["name"].tolist() == [FORWARD.encode()] * 6  # one of each batch
    assert set(window.rows("recorder")["rank"].tolist()) == {0, 1, 2, 3}


async def test_a_window_holds_the_steps_that_ended_in_it(ingest: Ingest) -> None:
    job = FakeJob(ranks=1, nodes=1)
    for number in range(5):
        await ingest.send(batch(job, 0, number))
    attempt = await Attempt.objects.alatest("pk")
    start, end = WALL_NS + 2 * SECOND, WALL_NS + 3 * SECOND
    rows = (await read(attempt.pk, start, end, tables=("stage",))).rows("stage")
    assert len(rows) and ((rows["ended_ns"] >= start) & (rows["ended_ns"] < end)).all()
    assert set(rows["step"].tolist()) < set(range(10, 31))


async def test_looks_and_diagnoses_do_not_read_stages_and_asking_for_both_reads_both(ingest: Ingest) -> None:
    await ingest.send(batch(FakeJob(ranks=2, nodes=1), 0))
    attempt = await Attempt.objects.alatest("pk")
    assert set((await read(attempt.pk, WALL_NS, WALL_NS + 9 * SECOND)).tables) == set(TRACE_TABLES)
    evidence = await sync_to_async(read_evidence)(attempt.pk, WALL_NS, WALL_NS + 9 * SECOND)
    assert set(evidence.tables) == {*TRACE_TABLES, "traffic"}
    both = await stages(tables=(*TRACE_TABLES, *STAGE_TABLES))
    assert len(both.rows("stage")) == 20 and len(both.rows("op"))


async def test_gathered_rows_keep_the_rank_they_speak_of(ingest: Ingest) -> None:
    """Rank 0 brings what the others recorded, also those of nodes that have no agent."""
    job = FakeJob(ranks=4, nodes=2)
    made = stage_tables(np.tile(STEP_MS, (3, 4, 1)), flags=GATHERED)
    made["stage"]["pid"][made["stage"]["global_rank"] > 0] = -1
    await ingest.send(with_rows(job.batch(0), **made))
    assert sorted((await stages()).rows("stage")["rank"].tolist()) == sorted([0, 1, 2, 3] * 3)


async def test_processes_that_know_no_rank_get_theirs_by_their_pid(ingest: Ingest) -> None:
    job = FakeJob(ranks=2, nodes=1)
    made = batch(job, 0)
    rows = made.rows("stage").copy()
    rows["global_rank"] = -1
    await ingest.send(with_rows(made, stage=rows))
    assert set((await stages()).rows("stage")["rank"].tolist()) == {0, 1}


BROKEN = {
    "a negative duration": {"durations_ns": -5},
    "a rank that cannot be": {"global_rank": 2**30},
    "another rank that cannot be": {"global_rank": -2},
    "a negative step": {"step": -1},
    "a time that has not come": {"ended_ns": MONO_NS + 10**6 * SECOND},
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("n_steps", [4, 600])
def test_rows_that_cannot_be_true_are_dropped_and_counted_and_the_rest_is_kept(what: str, n_steps: int) -> None:
    """By rows and by planes."""
    made = stage_tables(np.tile(STEP_MS, (n_steps, 1, 1)))
    for column, value in BROKEN[what].items():
        made["stage"][column][2:3] = value
    arrival = receive_batch(1, encode_batch(with_rows(FakeJob().batch(0), **made)), WALL_NS)
    assert arrival.n_dropped == 1
    assert arrival.batch.rows("stage")["step"].tolist() == [step for step in range(n_steps) if step != 2]
    assert arrival.groups["stage"]


def test_a_batch_spans_the_steps_it_brings() -> None:
    """Steps that a gather brings late are found by when they ended."""
    made = stage_tables(np.tile(STEP_MS, (3, 1, 1)), end_ns=MONO_NS - 50 * SECOND)
    one = FakeJob().batch(0, tables={})
    arrival = receive_batch(1, encode_batch(replace(one, tables={"stage": made["stage"]})), WALL_NS)
    assert arrival.start_mono_ns < MONO_NS - 50 * SECOND
    assert DTYPE["stage"].itemsize == len(empty_rows("stage", 1).tobytes())
    assert DEFAULT.stages[0] == DATA
