"""Whether what was measured is what the mechanism did: every op's bounds and bytes, and its algorithm.

The truth of an op is what the engine knows of the slices that its NICs sent: when the first was posted, when the last was
acknowledged, how many bytes. An op is exact when all its flows have both bounds within one epoch of that and its volume within
the headers' share. All that a rank enqueued from its first to its last op that was told of counts, without a row as missed. Jobs
are those of Table 4's scenarios, healthy and slow, rings and trees; agents may send as many rows as they want. Jobs that really
run on the testbed come on top, judged by the engine's own log (pulse_live.py).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.window import TRACE_TABLES, TRAFFIC_TABLES, Window
from nccl_instrument.flows.expected import Algorithm
from nccl_instrument.simulate.bar import Bar
from nccl_instrument.simulate.faults import Scenario, make_fault
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.topology import build_topology
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, FUNCS, OP_P2P, TRAFFIC_FINISHED, TRAFFIC_P2P
from nccl_instrument.wire import decode_batch
from rca.flows.algorithms import algorithms_in
from tests.eval.pulse_cases import SETTINGS
from tests.eval.pulse_live import live_judged
from tests.replay import replayed

Rows = npt.NDArray[np.void]
Flow = tuple[int, ...]
HEADERS: Final = 0.02  # of the volume: what headers and synchronisation may add
SECONDS: Final = 2.5
ROWS_PER_S: Final = 10**6  # of a node
FAULTS: Final = ("", "nic_pcie_slow", "gpu_slow", "background_traffic")
REDUCES: Final = ("sharded", "ring", "tree")


@dataclass(frozen=True, slots=True)
class Moved:
    """What a flow of an op carried: first posted, last acknowledged, on the node's clock, ns; bytes."""

    began_ns: int
    ended_ns: int
    n_bytes: int
    func: int


@dataclass(frozen=True, slots=True)
class Told:
    """A job by its agents and by its engine. rows: of `traffic`, of ops that are over. moved: per flow of an op (communicator,
    place, op, is p2p, peer, channel), from the first to the last op that the rank enqueued and told of.
    """

    rows: Rows
    moved: dict[Flow, Moved]
    window: Window


def ops_judged(seed: int, *, is_quick: bool) -> dict[str, Any]:
    """{"segmentation": {"ops", "exact", "flows", "exact_flows", "live": of them on the testbed}, "algorithm": {"ops", "right"}}.

    Algorithms are of all collectives of these iterations, but those of groups on two nodes, where ring and tree are the same.
    """
    jobs = [
        (setting.name, fault, reduce)
        for setting in SETTINGS.values()
        for fault in FAULTS
        for reduce in (REDUCES if setting.name.startswith("GPT") else REDUCES[:1])
    ]
    draw = random.Random(f"{seed}/exact")
    jobs = draw.sample(jobs, 4) if is_quick else jobs
    bar = Bar(len(jobs), "jobs cut into ops")
    totals = dict.fromkeys(("ops", "exact", "flows", "exact_flows", "inferred", "right"), 0)
    for done, (name, fault, reduce) in enumerate(jobs):
        bar.tell(done, f"{name} {fault or 'healthy'} {reduce}")
        for key, n in _judged(name, fault, reduce, draw.randrange(2**31)).items():
            totals[key] += n
    bar.end()
    live = asdict(live_judged())
    for key in totals:
        totals[key] += live[key]
    algorithm = {"ops": totals.pop("inferred"), "right": totals.pop("right")}
    print(f"segmentation: {totals['exact']} of {totals['ops']} ops exact; algorithm: {algorithm}", flush=True)
    return {"segmentation": {**totals, "live": live}, "algorithm": algorithm}


def _judged(name: str, fault: str, reduce: str, seed: int) -> dict[str, int]:
    setting = SETTINGS[name]
    physics = replace(setting.physics, dp_reduce=reduce, traffic_rows=ROWS_PER_S, slices_every=1)
    faults = (make_fault(fault, setting.layout, 1.0, None, seed=seed),) if fault else ()
    settings = JobSettings(setting.layout, physics, Scenario(faults, seed), records_stages=False)
    told = told_and_true(settings)
    return {**_cut(told, physics.epoch_us * 1000), **_inferred(told, settings)}


def _cut(told: Told, epoch_ns: int) -> dict[str, int]:
    rows = {_key(row): row for row in told.rows}
    ops: dict[Flow, bool] = defaultdict(lambda: True)
    n_exact = 0
    for key, one in told.moved.items():
        is_exact = key in rows and exact(rows[key], one, epoch_ns)
        n_exact += is_exact
        ops[key[:4]] &= is_exact
    invented = rows.keys() - told.moved.keys()
    return {
        "ops": len(ops) + len({key[:4] for key in invented}), "exact": sum(ops.values()),
        "flows": len(told.moved) + len(invented), "exact_flows": n_exact,
    }  # fmt: skip


def _inferred(told: Told, settings: JobSettings) -> dict[str, int]:
    """How many collectives ran over the network of more than two nodes, and of how many the right algorithm is told."""
    said = {(one.comm_id, one.func): one.inferred for one in algorithms_in(told.window)}
    true = algorithms_of(settings)
    ops = {(key[0], key[2], one.func) for key, one in told.moved.items() if not key[3] and key[0] in true}
    right = sum(said.get((comm_id, func)) is true[comm_id](FUNCS[func]) for comm_id, _, func in ops)
    return {"inferred": len(ops), "right": right}


def algorithms_of(settings: JobSettings) -> dict[int, Callable[[str], Algorithm]]:
    """Communicator → function → algorithm, of those with more than two nodes, by how the engine's lanes are joined."""
    layout = settings.layout
    topology = build_topology(layout, settings.physics)
    links = topology.links[topology.links["is_network"] != 0]
    found = dict[int, Callable[[str], Algorithm]]()
    for group, comm_id in enumerate(layout.comm_ids(settings.name, settings.scenario.seed).tolist()):
        if len(np.unique(layout.node_of[layout.members_of(group)])) > 2:
            tree = _tree_of(links[links["group"] == group]) if topology.groups["is_tree"][group] else Algorithm.RING
            found[comm_id] = partial(_algorithm, tree)
    return found


def _algorithm(tree: Algorithm, func: str) -> Algorithm:
    return tree if func == "AllReduce" else Algorithm.RING


def _tree_of(links: Rows) -> Algorithm:
    """One tree where all channels join the same ends both ways, else two."""
    both = set(zip(links["from"].tolist(), links["to"].tolist(), links["channel"].tolist(), strict=True))
    shapes = {
        frozenset((a, b) for a, b, at in both if at == channel and (b, a, at) in both)
        for channel in np.unique(links["channel"]).tolist()
    }
    return Algorithm.TREE if len(shapes) == 1 else Algorithm.DOUBLE_TREE


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
    job = SimulatedJob(settings)
    try:
        sent = list(in_order(job.batches(SECONDS)))
        slices = job.engine.slices()
    finally:
        job.close()
    rows = np.concatenate([decode_batch(one.encoded).rows("traffic") for one in sent])
    rows = rows[(rows["flags"] & TRAFFIC_FINISHED) != 0]
    window = replayed((one.arrives_ns, one.encoded) for one in sent).window(
        SECONDS, tables=(*TRACE_TABLES, *TRAFFIC_TABLES)
    )
    return Told(rows, _of_told(_moved(job, slices), rows, window.rows("op")), window)


def _of_told(moved: dict[Flow, Moved], rows: Rows, ops: Rows) -> dict[Flow, Moved]:
    """The flows of all that each rank enqueued from its first to its last op that was told of. ops: of all, that are over."""
    enqueued = {_op_of(op): (int(op["rank"]), int(op["enqueued_ns"])) for op in ops if op["func"] != FUNC_RECV}
    of = {key: enqueued.get((*key[:4], key[4] if key[3] else -1)) for key in moved}
    bounds = dict[int, tuple[int, int]]()
    for rank, at_ns in filter(None, (of.get(_key(row)) for row in rows)):
        first, last = bounds.get(rank, (at_ns, at_ns))
        bounds[rank] = min(first, at_ns), max(last, at_ns)
    return {
        key: moved[key] for key, one in of.items()
        if one is not None and one[0] in bounds and bounds[one[0]][0] <= one[1] <= bounds[one[0]][1]
    }  # fmt: skip


def _op_of(op: np.void) -> Flow:
    """An op of a rank, sends for each peer apart."""
    is_p2p = (int(op["flags"]) & OP_P2P) != 0
    return int(op["comm_id"]), int(op["comm_rank"]), int(op["op"]), int(is_p2p), int(op["peer"]) if is_p2p else -1


def _moved(job: SimulatedJob, slices: Rows) -> dict[Flow, Moved]:
    roster = job.agents.roster
    nodes = roster.node_of[slices["rank"]]
    began, ended = (roster.clocks.mono_ns(nodes, slices[name]) for name in ("sent_ns", "acked_ns"))
    columns = ("group", "place", "number", "peer", "channel")
    keys = np.column_stack([*(slices[name].astype(np.int64) for name in columns), slices["func"] == FUNC_SEND])
    order = np.lexsort(keys.T)
    keys, began, ended = keys[order], began[order], ended[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(keys, axis=0) != 0).any(axis=1)])
    firsts = slices[order[starts]]
    numbers = np.column_stack([
        np.minimum.reduceat(began, starts), np.maximum.reduceat(ended, starts),
        np.add.reduceat(slices["bytes"][order].astype(np.int64), starts), firsts["func"],
    ])  # fmt: skip
    return {
        (int(roster.comm_ids[group]), place, number, is_p2p, peer, channel): Moved(*found)
        for (group, place, number, peer, channel, is_p2p), found in zip(
            keys[starts].tolist(), numbers.tolist(), strict=True
        )
    }


def _key(row: np.void) -> Flow:
    is_p2p = int((int(row["flags"]) & TRAFFIC_P2P) != 0)
    return int(row["comm_id"]), int(row["comm_rank"]), int(row["op"]), is_p2p, int(row["peer"]), int(row["channel"])
