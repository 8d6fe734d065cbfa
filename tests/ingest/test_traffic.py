"""What ops moved over their flows is stored apart, comes back with ranks and unix times, and no look pays for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from asgiref.sync import sync_to_async

from ingest.door.arrival import receive_batch
from ingest.models import Attempt
from ingest.read import read_window
from ingest.traces.narrow import ALL, read_evidence
from ingest.window import TRACE_TABLES, TRAFFIC_TABLES, LateTables, Window
from nccl_instrument.tables import TRAFFIC_FINISHED, TRAFFIC_SOURCES, empty_rows
from nccl_instrument.wire import Rows, TraceBatch, encode_batch
from tests.builders import MONO_NS, SECOND, WALL_NS, FakeJob, with_rows
from tests.ingest.conftest import Ingest

MS = 1_000_000
N_OPS = 20
read = sync_to_async(read_window)


def traffic_rows(job: FakeJob, node: int, number: int = 0, n_ops: int = N_OPS) -> Rows:
    """What each of `n_ops` of the world's ops moved from each rank of the node to the next one, ten of them a second."""
    ranks = job.ranks_of(node)
    rows = empty_rows("traffic", len(ranks) * n_ops)
    op = np.tile(np.arange(n_ops), len(ranks))
    rows["comm_id"], rows["comm_rank"] = job.communicators()[0].comm_id, np.repeat(ranks, n_ops)
    rows["op"], rows["peer"] = n_ops * number + op + 1, (rows["comm_rank"] + 1) % job.ranks
    rows["end_ns"] = MONO_NS + number * SECOND + (op + 1) * SECOND // n_ops
    rows["start_ns"] = rows["end_ns"] - 3 * MS
    rows["actual_ns"], rows["n_bytes"], rows["epoch_ns"], rows["slice_bytes"] = 2 * MS, 1 << 20, 32_000, 1 << 17
    rows["source"], rows["flags"], rows["nic"] = TRAFFIC_SOURCES.index("plugin"), TRAFFIC_FINISHED, b"mlx5_0"
    return rows


def batch(job: FakeJob, node: int, number: int = 0) -> TraceBatch:
    return with_rows(job.batch(node, number), traffic=traffic_rows(job, node, number))


async def traffic(start_ns: int = WALL_NS, end_ns: int = WALL_NS + 100 * SECOND) -> Window:
    attempt = await Attempt.objects.alatest("pk")
    return await read(attempt.pk, start_ns, end_ns, tables=TRAFFIC_TABLES)


async def test_every_row_comes_back_with_its_rank_and_node_in_unix_time(ingest: Ingest) -> None:
    job = FakeJob(ranks=4, nodes=2)
    for node in range(2):
        for number in range(2):
            await ingest.send(batch(job, node, number))
    window = await traffic()
    rows = window.rows("traffic")
    assert set(window.tables) == {"traffic"}
    assert sorted(zip(rows["rank"].tolist(), rows["op"].tolist(), strict=True)) == [
        (rank, op + 1) for rank in range(4) for op in range(2 * N_OPS)
    ]
    assert np.array_equal(rows["node"], rows["rank"] // 2)
    last = rows[(rows["rank"] == 1) & (rows["op"] == 2 * N_OPS)]
    assert last["end_ns"].tolist() == [WALL_NS + 2 * SECOND]
    assert last["start_ns"].tolist() == [WALL_NS + 2 * SECOND - 3 * MS]
    assert last["nic"].tolist() == [b"mlx5_0"]


async def test_a_window_holds_the_ops_whose_last_bytes_moved_in_it(ingest: Ingest) -> None:
    for number in range(4):
        await ingest.send(batch(FakeJob(ranks=1, nodes=1), 0, number))
    start, end = WALL_NS + SECOND, WALL_NS + 2 * SECOND
    rows = (await traffic(start, end)).rows("traffic")
    assert len(rows) == N_OPS
    assert ((rows["end_ns"] >= start) & (rows["end_ns"] < end)).all()


async def test_looks_do_not_read_it_and_diagnoses_read_it_when_asked(ingest: Ingest) -> None:
    await ingest.send(batch(FakeJob(ranks=2, nodes=1), 0))
    attempt = await Attempt.objects.alatest("pk")
    span = WALL_NS, WALL_NS + 9 * SECOND
    assert set((await read(attempt.pk, *span)).tables) == set(TRACE_TABLES)
    stuck = await sync_to_async(read_evidence)(attempt.pk, *span)
    assert set(stuck.tables) == {*TRACE_TABLES, "traffic"}
    assert isinstance(stuck.tables, LateTables) and not stuck.tables.is_cut("traffic")
    assert len(stuck.rows("traffic")) == 2 * N_OPS
    slow = await sync_to_async(read_evidence)(attempt.pk, *span, WALL_NS)
    assert isinstance(slow.tables, LateTables) and not slow.tables.is_cut("traffic")
    assert len(slow.rows("traffic")) == 2 * N_OPS
    assert "traffic" not in ALL


BROKEN = {
    "longer than it lasted": {"actual_ns": 4 * MS},
    "ended before it began": {"end_ns": 1},
    "a negative volume": {"n_bytes": -5},
    "more than an op has": {"n_bytes": 2**50 + 1},
    "a source nobody knows": {"source": 9},
    "an op that cannot be": {"op": -2},
    "a time that has not come": {"end_ns": MONO_NS + 10**6 * SECOND},
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("n_ops", [4, 600])
def test_rows_that_cannot_be_true_are_dropped_and_counted_and_the_rest_is_kept(what: str, n_ops: int) -> None:
    """By rows and by planes."""
    job = FakeJob(ranks=1, nodes=1)
    rows = traffic_rows(job, 0, 0, n_ops)
    for column, value in BROKEN[what].items():
        rows[column][2] = value
    arrival = receive_batch(1, encode_batch(with_rows(job.batch(0), traffic=rows)), WALL_NS)
    assert arrival.n_dropped == 1
    assert arrival.batch.rows("traffic")["op"].tolist() == [op + 1 for op in range(n_ops) if op != 2]
    assert arrival.groups["traffic"]


def test_a_batch_without_it_stores_nothing_of_it() -> None:
    arrival = receive_batch(1, encode_batch(FakeJob().batch(0)), WALL_NS)
    assert arrival.groups["traffic"] is None
    older = replace(FakeJob().batch(0), tables={})
    assert receive_batch(1, encode_batch(older), WALL_NS).groups["traffic"] is None
