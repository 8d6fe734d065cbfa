"""The jobs that looks and diagnoses are timed on: simulated, and beyond 10,000 GPUs a simulated part several times over.

The parts of a tiled job are copies of one simulation: each with ranks, nodes and communicators of its own, and one
communicator of the whole job whose rings, as far as the trace goes, turn inside each part. Each part has its own copy of
the fault, so there are as many culprits as parts: as much to read and to join as in one job of that size, not less.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nccl_instrument.simulate.agents import Sent
from nccl_instrument.simulate.bar import Bar
from nccl_instrument.simulate.faults import Fault, Scenario, make_fault
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import cluster_physics
from nccl_instrument.wire import Rows, TraceBatch, decode_batch, encode_batch

SECOND: Final = 10**9
SWEEP_LAYOUT: Final = Layout(8, 2, 31, 1, 8)
"""62 nodes: twenty such jobs have 1,240."""
LAYOUTS: Final = {128: (8, 2, 8, 1), 1_024: (8, 4, 32, 1), 10_000: (8, 10, 125, 1), 100_000: (8, 10, 125, 10)}
"""GPUs → tensor, pipeline and data parallel sizes of a part, and parts."""
HANG_AT_S, STALL_S = 8.0, 11.5  # a NIC is missed in the iteration after, and the stall seen 10 s later
USUAL_ITERATIONS, SLOW_ITERATIONS, SLOW_FACTOR = 7, 4, 2.0


@dataclass(frozen=True)
class Case:
    """What is simulated. usual_s: length of an iteration as the schedule has it, without communication."""

    gpus: int
    fault: str
    layout: Layout
    n_parts: int
    at_s: float
    seconds: float
    usual_s: float


def make_case(gpus: int, kind: str) -> Case:
    """A hang (a NIC goes down) or a slowdown (a GPU at half its speed), long enough for the look that notices it."""
    tp, pp, dp, n_parts = LAYOUTS[gpus]
    layout = Layout(tp, pp, dp, 1, 8)
    physics = cluster_physics(layout)
    usual_s = (physics.n_microbatches + pp - 1) * (physics.forward_ms + physics.backward_ms) / 1000
    if kind == "hang":
        return Case(gpus, "nic_down", layout, n_parts, HANG_AT_S, HANG_AT_S + STALL_S + usual_s, usual_s)
    at_s = USUAL_ITERATIONS * 1.1 * usual_s
    seconds = at_s + SLOW_ITERATIONS * SLOW_FACTOR * 1.1 * usual_s
    return Case(gpus, "gpu_slow", layout, n_parts, at_s, seconds, usual_s)


def batches(case: Case) -> Iterator[Sent]:
    """Its batches in the order of arrival."""
    amount = SLOW_FACTOR if case.fault == "gpu_slow" else None
    fault = make_fault(case.fault, case.layout, case.at_s, None, case.layout.n_ranks // 3, amount, 1)
    for sent in simulated(case.layout, case.seconds, fault):
        yield from tiled(sent, case) if case.n_parts > 1 else (sent,)


def simulated(layout: Layout, seconds: float, *faults: Fault) -> Iterator[Sent]:
    """A job's batches, dated so that it ends about now."""
    origin_ns = time.time_ns() - int(seconds * SECOND)
    settings = JobSettings(layout, cluster_physics(layout), Scenario(faults, 1), "bench", "IB", origin_ns)
    job, bar = SimulatedJob(settings), Bar(seconds, "s")
    try:
        yield from in_order(job.batches(seconds, bar.tell))
    finally:
        job.close()


def tiled(sent: Sent, case: Case) -> Iterator[Sent]:
    """The batch as the nodes of every part send it."""
    batch = decode_batch(sent.encoded)
    for part in range(case.n_parts):
        node = part * case.layout.n_nodes + sent.node
        yield Sent(sent.arrives_ns, node, encode_batch(_of_part(batch, part, node, case)), sent.cut_ns)


def of_job(sent: Sent, job: int) -> tuple[int, bytes]:
    """(arrival, batch) of the same node of another job, which differs in name."""
    batch = decode_batch(sent.encoded)
    boot_id = bytes([*batch.boot_id[:-1], job])
    return sent.arrives_ns, encode_batch(replace(batch, job=f"{batch.job}-{job:02}", boot_id=boot_id))


def _of_part(batch: TraceBatch, part: int, node: int, case: Case) -> TraceBatch:
    tables = {name: batch.rows(name).copy() for name in batch.tables}
    if "comm" in tables and len(tables["comm"]):
        _of_whole_job(tables["comm"], part, case)
    for rows in tables.values():
        renamed(rows, part, case.layout.n_ranks, case.n_parts, _WORLD)
    boot_id = bytes([*batch.boot_id[:-1], part])
    return replace(batch, node=f"node{node}", boot_id=boot_id, tables=tables)


_WORLD: Final[set[int]] = set()
"""The communicator of all ranks of a job, as its first batch names it."""


def _of_whole_job(comm: Rows, part: int, case: Case) -> None:
    is_world = comm["n_ranks"] == case.layout.n_ranks
    _WORLD.update(comm["comm_id"][is_world].tolist())
    for name in ("n_ranks", "n_nodes"):
        comm[name][is_world] *= case.n_parts
    comm["world_size"] *= case.n_parts
    comm["dp"] += part * case.layout.dp


def renamed(rows: Rows, part: int, n_ranks: int, n_parts: int, world: set[int]) -> None:
    """Other communicators get ids of their own; in the job's (world), and in the job, ranks count on from the part before.

    In place. n_ranks: of a part.
    """
    columns = rows.dtype.names or ()
    if "global_rank" in columns:
        rows["global_rank"] += np.where(rows["global_rank"] >= 0, part * n_ranks, 0).astype(rows["global_rank"].dtype)
    if "comm_id" not in columns:
        return
    is_world = np.isin(rows["comm_id"], list(world))
    rows["comm_id"] = np.where(is_world, rows["comm_id"], rows["comm_id"] ^ np.uint64(part * 0x9E37_79B9_7F4A))
    for name in ("comm_rank", "peer", "slowest_peer"):
        if name in columns:
            rows[name] = np.where(is_world & (rows[name] >= 0), rows[name] + part * n_ranks, rows[name])
    if "total_chunks" in columns:  # a ring of so many more has so many more steps
        total = rows["total_chunks"][is_world].astype(np.int64) * (n_ranks * n_parts - 1) // (n_ranks - 1)
        rows["total_chunks"][is_world] = total
