"""What holds in any job, whatever befalls it: counters in order and growing, bytes conserved, nobody ends an op before
all have entered it."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.door.impossible import impossible_rows
from nccl_instrument.simulate.faults import KINDS, FaultError, Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED, Physics
from nccl_instrument.tables import FUNCS, OP_HAS_FLOWS
from nccl_instrument.wire import Rows, TraceBatch
from tests.nccl_instrument.simulate.jobs import EIGHT, EXPERTS, decoded, run, table

FASTER = dataclasses.replace(TESTBED, link_mbit=2000, forward_ms=2, backward_ms=4, optimizer_ms=1)
LAYOUTS = [
    EIGHT,
    EXPERTS,
    Layout(tp=1, pp=4, dp=2, ranks_per_node=1),
    Layout(tp=2, pp=1, dp=6, ranks_per_node=4),
    Layout(tp=1, pp=1, dp=8, ranks_per_node=2, nics_per_node=1),
]
SYNCHRONOUS = ("AllReduce", "ReduceScatter", "AllGather")


@st.composite
def any_job(draw: st.DrawFn) -> tuple[Layout, Physics, list[str], int]:
    layout = draw(st.sampled_from(LAYOUTS))
    changes = {
        "schedule": draw(st.sampled_from(["1f1b", "gpipe"])),
        "dp_reduce": draw(st.sampled_from(["sharded", "ring", "tree"])),
        "tree_from": draw(st.sampled_from([2, 64])),
        "slices": draw(st.sampled_from([1, 2])),
        "ahead": draw(st.sampled_from([1, 4, 1000])),
        "n_channels": draw(st.sampled_from([1, 2])),
    }
    names = [name for name in KINDS if _fits(name, layout)]
    chosen = draw(st.lists(st.sampled_from(names), max_size=2))
    return layout, dataclasses.replace(FASTER, **changes), chosen, draw(st.integers(1, 1000))


def _fits(name: str, layout: Layout) -> bool:
    """Whether the layout has what the fault is about; others are refused by name."""
    try:
        make_fault(name, layout, 0.8)
    except FaultError:
        return False
    return True


@settings(max_examples=25, deadline=None)
@given(any_job())
def test_rows_are_possible_and_counters_only_grow(job: tuple[Layout, Physics, list[str], int]) -> None:
    layout, physics, names, seed = job
    faults = [make_fault(name, layout, 0.8, seed=seed) for name in names]
    batches = decoded(run(layout, *faults, seconds=3, physics=physics, seed=seed))
    for batch in batches:
        for name, rows in batch.tables.items():
            assert not impossible_rows(name, rows, batch.mono_ns).any(), name
    for node in {batch.node for batch in batches}:
        check_growing(table([batch for batch in batches if batch.node == node], "flow"))


def check_growing(flows: Rows) -> None:
    """Counters, bytes and waits of a flow of an op never shrink from tick to tick."""
    keys = ["comm_id", "comm_rank", "op", "func", "channel", "direction", "peer"]
    order = np.argsort(flows, order=[*keys, "tick_ns"])
    flows = flows[order]
    same = np.all([flows[key][1:] == flows[key][:-1] for key in keys], axis=0)
    for name in ("counters", "bytes", "gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
        grown = np.diff(flows[name].astype(np.int64), axis=0)
        assert (grown[same] >= 0).all(), name


@settings(max_examples=15, deadline=None)
@given(any_job())
def test_a_healthy_job_never_comes_to_rest(job: tuple[Layout, Physics, list[str], int]) -> None:
    layout, physics, _, seed = job
    made = SimulatedJob(JobSettings(layout, physics, Scenario(seed=seed)))
    ranks = np.arange(layout.n_ranks, dtype=np.int32)
    made.engine.run(2 * 10**9)
    before = made.engine.processes(ranks)["iteration"]
    made.engine.run(4 * 10**9)
    after = made.engine.processes(ranks)["iteration"]
    made.close()
    assert (after > before).all()


def test_a_link_delivers_what_was_sent() -> None:
    ops = table(decoded(run(EIGHT, seconds=4)), "op")
    for send, receive in ((FUNCS.index("Send"), FUNCS.index("Recv")),):
        sent, received = ops[ops["func"] == send], ops[ops["func"] == receive]
        n = min(len(sent), len(received))
        assert n > 20
        assert abs(len(sent) - len(received)) <= 16, "what is under way at the end"
        assert set(sent["bytes"].tolist()) == set(received["bytes"].tolist())


def test_both_ends_of_a_flow_agree_at_rest() -> None:
    """After a fail-stop everything that moved has arrived: the receiver's counters follow from the sender's."""
    batches = decoded(run(EIGHT, make_fault("stuck_before", EIGHT, 2, victim=3), seconds=5))
    flows = table([batch for batch in batches if batch.number == 4], "flow")
    ends = {
        (int(f["comm_id"]), int(f["channel"]), min(int(f["comm_rank"]), int(f["peer"])), int(f["op"]), int(f["func"]))
        for f in flows
    }
    assert ends
    for flow in flows:
        assert flow["counters"][2] - flow["counters"][3] <= 8
        assert flow["bytes"] <= int(flow["total_chunks"]) * TESTBED.slot_kib * 1024


@settings(max_examples=10, deadline=None)
@given(any_job())
def test_no_collective_ends_before_all_members_entered(job: tuple[Layout, Physics, list[str], int]) -> None:
    layout, physics, _, seed = job
    made = SimulatedJob(JobSettings(layout, physics, Scenario(seed=seed)))
    made.engine.run(2 * 10**9)
    ops = made.engine.finished()
    made.close()
    ops = ops[(ops["flags"] & OP_HAS_FLOWS != 0) & np.isin(ops["func"], [FUNCS.index(name) for name in SYNCHRONOUS])]
    for group in np.unique(ops["group"]):
        mine = ops[ops["group"] == group]
        for number in np.unique(mine["number"]):
            same = mine[mine["number"] == number]
            assert same["done_ns"].min() >= same["enqueued_ns"].max()


def test_faults_do_not_touch_what_came_before() -> None:
    healthy = decoded(run(EIGHT, seconds=3))
    faulty = decoded(run(EIGHT, make_fault("gpu_slow", EIGHT, 2.95, victim=1), seconds=3))
    early = [(ours, theirs) for ours, theirs in zip(healthy, faulty, strict=True) if ours.number < 2]
    assert early
    assert all(_tables(ours) == _tables(theirs) for ours, theirs in early)


def _tables(batch: TraceBatch) -> dict[str, bytes]:
    return {name: rows.tobytes() for name, rows in batch.tables.items()}


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 3), st.integers(1, 3), st.sampled_from(["gpu_slow", "nic_limited", "gpu_pcie_slow", "stuck_before"])
)
def test_renaming_ranks_permutes_what_happens(victim: int, turn: int, name: str) -> None:
    """A ring of equal ranks without jitter: another victim, the same story told by ranks further round."""
    layout = Layout(tp=1, pp=1, dp=4, ranks_per_node=1)
    physics = dataclasses.replace(TESTBED, jitter=0.0, step_gap_ms=0.0, n_channels=1)
    amount = 0.3 if name == "nic_limited" else 3.0
    told = []
    for chosen in (victim, (victim + turn) % 4):
        fault = make_fault(name, layout, 0.5, victim=chosen, amount=amount)
        made = SimulatedJob(JobSettings(layout, physics, Scenario((fault,))))
        made.engine.run(3 * 10**9)
        ops = made.engine.finished()
        made.close()
        told.append([_story(ops, rank) for rank in range(4)])
    assert told[1] == [told[0][(rank - turn) % 4] for rank in range(4)]


def _story(ops: Rows, rank: int) -> list[tuple[int, ...]]:
    mine = np.sort(ops[ops["rank"] == rank], order=["enqueued_ns", "group", "func"])
    names = [
        "func",
        "number",
        "enqueued_ns",
        "first_transfer_ns",
        "last_transfer_ns",
        "done_ns",
        "gpu_wait_ns",
        "net_wait_ns",
    ]
    return [tuple(row) for row in mine[names].tolist()]


def test_exchanges_inside_a_node_are_numbered_per_peer() -> None:
    inside = Layout(tp=2, pp=1, dp=4, ep=4, ranks_per_node=8)
    ops = table(decoded(run(inside, seconds=1.5, physics=FASTER)), "op")
    sends = ops[(ops["comm_rank"] == 0) & (ops["func"] == FUNCS.index("Send"))]
    assert len(sends)
    for comm_id, peer in np.unique(sends[["comm_id", "peer"]]).tolist():
        mine = sends[(sends["comm_id"] == comm_id) & (sends["peer"] == peer)]
        assert sorted(mine["op"].tolist()) == list(range(1, len(mine) + 1))
