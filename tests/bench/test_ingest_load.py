"""The load of the ingest benchmark is what it claims: distinct, valid batches of busy nodes, patched as they are sent."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ingest.door.arrival import receive_batch
from nccl_instrument.wire import decode_batch
from tests.bench.ingest_batches import (
    FLOWS,
    MONO_NS,
    NETWORKED,
    OPS,
    RANKS,
    SECOND,
    TICKS,
    comm_rows,
    patch,
    prepare,
    prepare_one,
)

NODES = 4


def sent(node: int, second: int, job: int = 3) -> bytes:
    clocks = (1_790_000_000 * SECOND, MONO_NS + (second + 1) * SECOND)
    return b"".join(patch(prepare_one(node, NODES, second, SECOND), job, node, second, clocks))


def test_a_patched_batch_says_who_sends_it_and_when() -> None:
    batch = decode_batch(sent(2, 5))
    assert (batch.job, batch.node, batch.number, batch.mono_ns) == ("bench-003", "node-00002", 5, MONO_NS + 6 * SECOND)
    assert len({decode_batch(sent(node, 5, job)).boot_id for node in range(NODES) for job in range(3)}) == 3 * NODES


def test_a_batch_holds_a_second_of_eight_busy_ranks_and_no_impossible_row() -> None:
    body = sent(1, 7)
    arrival = receive_batch(1, body, 1_790_000_000 * SECOND)
    assert arrival.n_dropped == 0
    assert len(arrival.batch.rows("flow")) == RANKS * len(NETWORKED) * FLOWS * TICKS
    assert len(arrival.batch.rows("op")) == OPS
    assert 12_000 < len(body) < 15_000


def test_members_are_told_in_a_nodes_first_batch_and_now_and_then() -> None:
    with_members = [second for second in range(61) if len(decode_batch(sent(1, second)).rows("comm"))]
    assert with_members == [0, 29, 59]


def test_the_groups_of_a_job_tile_it_as_megatron_lays_them_out() -> None:
    rows = np.concatenate([comm_rows(node, 20) for node in range(20)])
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for comm_id, comm_rank, rank in rows[["comm_id", "comm_rank", "global_rank"]].tolist():
        groups[comm_id].append((comm_rank, rank))
    assert len(groups) == 20 + 2 * 8 + 10 * 8  # tensor, pipeline, data
    for comm_id, held in groups.items():
        n_ranks = rows["n_ranks"][rows["comm_id"] == comm_id][0]
        assert [comm_rank for comm_rank, _ in sorted(held)] == list(range(n_ranks))
        assert len(set(np.diff([rank for _, rank in sorted(held)]))) == 1


def test_batches_are_prepared_for_every_node_and_second() -> None:
    prepared = prepare(2, 3, SECOND)
    assert [len(second) for second in prepared] == [2, 2, 2]
    assert len({one.sections for second in prepared for one in second}) == 6
