"""Whether what was measured is what the mechanism did: every op's bounds and bytes, and its algorithm.

The truth of an op is read off the simulated transfers themselves, which know their op: when the first was posted, when the
last had left, how many bytes. An op is exact when all its flows have both bounds within one epoch of that and its volume
within the headers' share. Jobs are those of Table 4's scenarios, healthy and slow, with rings and trees.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.window import TRACE_TABLES, TRAFFIC_TABLES, Window
from nccl_instrument.flows.expected import Algorithm
from nccl_instrument.simulate.bar import Bar
from nccl_instrument.simulate.faults import Scenario, make_fault
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.tables import FUNC_SEND, FUNCS, TRAFFIC_FINISHED, TRAFFIC_P2P
from nccl_instrument.wire import decode_batch
from rca.flows.algorithms import algorithms_in
from tests.eval.pulse_cases import SETTINGS
from tests.replay import replayed

Rows = npt.NDArray[np.void]
Flow = tuple[int, ...]
HEADERS: Final = 0.02  # of the volume: what headers and synchronisation may add
SECONDS: Final = 3.0
FAULTS: Final = ("", "nic_pcie_slow", "gpu_slow", "background_traffic")
REDUCES: Final = ("sharded", "ring", "tree")


TREES: Final = (Algorithm.TREE, Algorithm.DOUBLE_TREE)


@dataclass(frozen=True, slots=True)
class Moved:
    """What a flow of an op carried: first posted, last left, on the node's clock, ns; bytes."""

    began_ns: int
    ended_ns: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Told:
    """A job by its agents and by its engine. rows: of `traffic`. moved: per flow of an op (communicator, place, op, is p2p, peer,
    channel). last_ns: per member, until when its ops must have been told of: a second before its node's last batch.
    """

    rows: Rows
    moved: dict[Flow, Moved]
    last_ns: dict[tuple[int, int], int]
    window: Window


def ops_judged(seed: int, *, is_quick: bool) -> dict[str, Any]:
    """{"segmentation": {"ops", "exact", "flows", "exact_flows"}, "algorithm": {"ops", "right"}}, over ops that had ended.

    The algorithm of groups with members on two nodes is not counted: a ring of two is a tree.
    """
    jobs = [
        (setting.name, fault, reduce)
        for setting in SETTINGS.values()
        for fault in FAULTS
        for reduce in (REDUCES if setting.name.startswith("GPT") else REDUCES[:1])
    ]
    draw, bar = random.Random(f"{seed}/exact"), Bar(len(jobs), "jobs cut into ops")
    totals = dict.fromkeys(("ops", "exact", "flows", "exact_flows", "inferred", "right"), 0)
    for done, (name, fault, reduce) in enumerate(draw.sample(jobs, 4) if is_quick else jobs):
        bar.tell(done, f"{name} {fault or 'healthy'} {reduce}")
        for key, n in _judged(name, fault, reduce, draw.randrange(2**31)).items():
            totals[key] += n
    bar.end()
    algorithm = {"ops": totals.pop("inferred"), "right": totals.pop("right")}
    print(f"segmentation: {totals['exact']} of {totals['ops']} ops exact; algorithm: {algorithm}", flush=True)
    return {"segmentation": totals, "algorithm": algorithm}


def _judged(name: str, fault: str, reduce: str, seed: int) -> dict[str, int]:
    setting = SETTINGS[name]
    physics = replace(setting.physics, dp_reduce=reduce, traffic_every=3)
    faults = (make_fault(fault, setting.layout, 1.0, None, seed=seed),) if fault else ()
    settings = JobSettings(setting.layout, physics, Scenario(faults, seed), records_stages=False)
    told = told_and_true(settings)
    return {**_cut(told, physics.epoch_us * 1000), **_inferred(told, settings)}


def _cut(told: Told, epoch_ns: int) -> dict[str, int]:
    rows = {_key(row): row for row in told.rows if row["flags"] & TRAFFIC_FINISHED}
    ops: dict[Flow, bool] = defaultdict(lambda: True)
    n_flows = n_exact = 0
    for key, one in told.moved.items():
        if one.ended_ns > told.last_ns[key[0], key[1]]:
            continue  # it was still open, or its next second was never told
        is_exact = key in rows and exact(rows[key], one, epoch_ns)
        n_flows, n_exact = n_flows + 1, n_exact + is_exact
        ops[key[:4]] &= is_exact
    return {"ops": len(ops), "exact": sum(ops.values()), "flows": n_flows, "exact_flows": n_exact}


def _inferred(told: Told, settings: JobSettings) -> dict[str, int]:
    layout, found = settings.layout, {"inferred": 0, "right": 0}
    names = dict(
        zip(layout.comm_ids(settings.name, settings.scenario.seed).tolist(), enumerate(layout.names), strict=True)
    )
    for one in algorithms_in(told.window):
        number, name = names[one.comm_id]
        members = layout.members_of(number)
        if len(np.unique(layout.node_of[members])) <= 2:
            continue
        is_tree = FUNCS[one.func] == "AllReduce" and _reduces_by_tree(name, len(members), settings)
        found["inferred"] += one.n_ops
        found["right"] += one.n_ops * (one.inferred in TREES if is_tree else one.inferred is Algorithm.RING)
    return found


def _reduces_by_tree(name: str, size: int, settings: JobSettings) -> bool:
    physics = settings.physics
    return size >= physics.tree_from if name == "world" else physics.dp_reduce == "tree"


def exact(row: np.void, one: Moved, epoch_ns: int) -> bool:
    """Bounds within one epoch, volume within the headers."""
    return (
        abs(int(row["start_ns"]) - one.began_ns) <= epoch_ns
        and abs(int(row["end_ns"]) - one.ended_ns) <= epoch_ns
        and one.n_bytes <= int(row["n_bytes"]) * (1 + 1e-9) + 1
        and int(row["n_bytes"]) <= one.n_bytes * (1 + HEADERS)
    )


def told_and_true(settings: JobSettings) -> Told:
    """What its agents tell of the job's first seconds, and what the engine did."""
    job, kept = SimulatedJob(settings), list[Rows]()
    read = job.engine.slices

    def slices() -> Rows:
        kept.append(read())
        return kept[-1]

    job.engine.slices = slices  # type: ignore[method-assign]
    try:
        sent = list(in_order(job.batches(SECONDS)))
    finally:
        job.close()
    batches = [decode_batch(one.encoded) for one in sent]
    ends = {batch.node: batch.mono_ns - 10**9 for batch in batches}
    last = {
        (int(comm["comm_id"]), int(comm["comm_rank"])): ends[batch.node]
        for batch in batches
        for comm in batch.rows("comm")
    }
    rows = np.concatenate([batch.rows("traffic") for batch in batches])
    window = replayed((one.arrives_ns, one.encoded) for one in sent).window(
        SECONDS, tables=(*TRACE_TABLES, *TRAFFIC_TABLES)
    )
    return Told(rows, _moved(job, np.concatenate(kept)), last, window)


def _moved(job: SimulatedJob, slices: Rows) -> dict[Flow, Moved]:
    roster = job.agents.roster
    nodes = roster.node_of[slices["rank"]]
    began, ended = (roster.clocks.mono_ns(nodes, slices[name]) for name in ("sent_ns", "left_ns"))
    columns = ("group", "place", "number", "peer", "channel")
    keys = np.column_stack([*(slices[name].astype(np.int64) for name in columns), slices["func"] == FUNC_SEND])
    unique, of = np.unique(keys, axis=0, return_inverse=True)
    first, last = np.full(len(unique), np.iinfo(np.int64).max), np.zeros(len(unique), np.int64)
    np.minimum.at(first, of.ravel(), began)
    np.maximum.at(last, of.ravel(), ended)
    total = np.bincount(of.ravel(), weights=slices["bytes"]).astype(np.int64)
    return {
        (int(roster.comm_ids[group]), place, number, is_p2p, peer, channel): Moved(*found)
        for (group, place, number, peer, channel, is_p2p), found in zip(
            unique.tolist(), zip(first.tolist(), last.tolist(), total.tolist(), strict=True), strict=True
        )
    }


def _key(row: np.void) -> Flow:
    is_p2p = int((int(row["flags"]) & TRAFFIC_P2P) != 0)
    return int(row["comm_id"]), int(row["comm_rank"]), int(row["op"]), is_p2p, int(row["peer"]), int(row["channel"])
