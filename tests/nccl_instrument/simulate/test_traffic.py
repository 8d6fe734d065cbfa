"""What the simulated NICs saw: whole steps, every byte once, and the gaps that windows, late receivers and slow senders make.

That every op is cut where it was is tested in tests/nccl_instrument/flows/test_mechanism.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from nccl_instrument.simulate import traffic as traffic_module
from nccl_instrument.simulate.faults import Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import KIB, TESTBED, Physics, PhysicsError
from nccl_instrument.tables import SEND, TRAFFIC_FINISHED, TRAFFIC_INCOMPLETE, TRAFFIC_P2P
from nccl_instrument.wire import Rows, decode_batch
from tests.nccl_instrument.simulate.jobs import EIGHT, EXPERTS

LARGE = Layout(tp=1, pp=1, dp=4, ranks_per_node=1)
FAST = Physics(
    n_microbatches=1, n_layers=1, n_buckets=1, forward_ms=2, backward_ms=4, optimizer_ms=1, step_gap_ms=1, slot_kib=1024,
    latency_us=3, dp_kib=256 * KIB, tp_kib=1024, jitter=0.003, traffic_rows=10**6,
)  # fmt: skip
MS = 1_000_000


class Told:
    """The rows of a job, and who is who. moved: bytes that the NICs sent."""

    def __init__(
        self, layout: Layout, physics: Physics, fault: str = "", amount: float | None = None, seconds: float = 3
    ) -> None:
        faults = (make_fault(fault, layout, 0.5, None, 2, amount),) if fault else ()
        job = SimulatedJob(JobSettings(layout, physics, Scenario(faults), records_stages=False))
        try:
            sent = [decode_batch(one.encoded) for cut in job.batches(seconds) for one in cut]
            self.moved = int(job.engine.nics()[0][:, 1].sum())
            self.every = job.traffic.every if job.traffic is not None else ()
        finally:
            job.close()
        self.rows: Rows = np.concatenate([batch.rows("traffic") for batch in sent])
        self.names = dict(zip(job.agents.roster.comm_ids.tolist(), layout.names, strict=True))
        self.ops: Rows = np.concatenate([batch.rows("op") for batch in sent])

    def of(self, kind: str) -> Rows:
        """Rows of finished ops of groups of this kind, the newest third: well after the fault began."""
        mine = [self.names[int(comm)].startswith(kind) for comm in self.rows["comm_id"]]
        rows = self.rows[np.array(mine, bool) & (self.rows["flags"] & TRAFFIC_FINISHED != 0)]
        return rows[rows["op"] > 2 * rows["op"].max() // 3]


@cache
def told(fault: str = "", amount: float | None = None, layout: Layout = LARGE, epoch_us: int = 32) -> Told:
    return Told(layout, replace(FAST, epoch_us=epoch_us), fault, amount)


def gap(rows: Rows) -> np.ndarray:
    """Share of each flow's time in which it moved nothing."""
    return 1 - rows["actual_ns"] / (rows["end_ns"] - rows["start_ns"])


def touches(rows: Rows, place: int) -> np.ndarray:
    return (rows["comm_rank"] == place) | (rows["peer"] == place)


def test_nothing_is_measured_unless_asked_for() -> None:
    assert not len(Told(EIGHT, TESTBED, seconds=2).rows)


def test_every_byte_is_told_once() -> None:
    rows = told().rows
    finished = rows[rows["flags"] & TRAFFIC_FINISHED != 0]
    assert finished["n_bytes"].sum() <= told().moved
    assert (
        finished["n_bytes"].sum() > 0.6 * told().moved
    )  # the first steps show the pattern, the last second is still open
    keys = finished[["comm_id", "comm_rank", "op", "channel", "peer", "flags"]]
    assert len(np.unique(keys)) == len(keys)
    assert set(rows["direction"].tolist()) == {SEND} and (rows["source"] == 1).all()


def test_agents_measure_whole_steps_as_their_budget_allows_and_the_same_ones() -> None:
    seen = Told(EIGHT, replace(TESTBED, traffic_rows=100), seconds=12)
    assert min(seen.every) > 1
    rows = seen.of("world")
    by_rank = [set(rows["op"][rows["comm_rank"] == place].tolist()) for place in np.unique(rows["comm_rank"])]
    shared = set.intersection(*by_rank)
    assert len(by_rank) == 8 and len(shared) > 1
    assert all((op - 1) % max(seen.every) == 0 for op in shared)  # one AllReduce of everybody a step
    assert len(seen.rows) / 4 / 12 < 2 * 100  # a second of a node's


def test_in_a_healthy_ring_nobody_pauses_and_actual_times_are_alike() -> None:
    rows = told().of("dp")
    assert len(rows) > 20
    assert np.median(gap(rows)) < 0.1
    assert rows["actual_ns"].max() < 1.3 * np.median(rows["actual_ns"])


@pytest.mark.parametrize(("fault", "amount"), [("nic_pcie_slow", 0.4), ("misaligned", 2.5), ("pcie_contended", 0.4)])
def test_a_slow_sender_makes_the_others_pause_for_microseconds(fault: str, amount: float) -> None:
    rows = told(fault, amount).of("dp")
    slow = touches(rows, 2)
    assert np.median(gap(rows[~slow])) > 0.3
    assert np.median(gap(rows[slow])) < 0.15
    assert np.median(rows["actual_ns"][slow]) > 1.5 * np.median(rows["actual_ns"][~slow])


def test_coarse_epochs_hide_those_pauses() -> None:
    """Pulse §6.1 and Figure 9."""
    fine, coarse = (told("nic_pcie_slow", 0.4, epoch_us=epoch).of("dp") for epoch in (32, 1000))
    assert np.median(gap(coarse[~touches(coarse, 2)])) < 0.1 < np.median(gap(fine[~touches(fine, 2)]))


def test_a_late_receiver_stops_its_sender_for_milliseconds() -> None:
    """Pulse §6.1: what fits into the buffers goes, the rest waits for the kernel (here: of a rank with more experts' work)."""
    physics = replace(FAST, n_layers=2, forward_ms=8, backward_ms=16, ep_kib=64 * KIB, dp_kib=8 * KIB)
    rows = Told(Layout(1, 1, 4, 4, 1), physics, "hot_expert", 3.0).of("ep")
    assert ((rows["flags"] & TRAFFIC_P2P) != 0).all()
    pause = rows["end_ns"] - rows["start_ns"] - rows["actual_ns"]
    to_hot, among = pause[rows["peer"] == 2], pause[~touches(rows, 2)]
    assert np.quantile(to_hot, 0.9) > 2 * MS
    assert np.median(among) < np.quantile(to_hot, 0.9) / 2


def test_an_op_that_stands_still_is_told_once_and_unfinished() -> None:
    rows = Told(LARGE, FAST, "nic_down", seconds=6).rows
    standing = rows[rows["flags"] & TRAFFIC_FINISHED == 0]
    assert len(standing) and len(np.unique(standing[["comm_rank", "peer", "channel"]])) == len(standing)
    assert len(np.unique(standing["op"])) == 1
    by_place = np.bincount(standing["comm_rank"], weights=standing["n_bytes"], minlength=4)
    assert by_place[2] == by_place.min()  # Pulse §6.2: the faulty rank has sent least


def test_records_that_were_overwritten_unread_spoil_their_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "RING_ROWS", 64)
    rows = Told(LARGE, FAST, seconds=2).rows
    assert len(rows) and ((rows["flags"] & TRAFFIC_INCOMPLETE) != 0).all()


def test_what_a_starved_proxy_notices_late_is_told_as_late_as_it_noticed() -> None:
    """A plugin cannot know more than its proxy: its records are no NIC's."""
    late, well = told("cpu_contention", 0.9).of("dp"), told().of("dp")
    mine = late["comm_rank"] == 2
    assert np.median(late["actual_ns"][mine]) > 1.2 * np.median(well["actual_ns"])


@pytest.mark.parametrize(
    ("schedule", "pairs"),
    [
        ("neighbours", {(0, 1), (1, 0), (0, 2), (2, 0), (1, 3), (3, 1), (2, 3), (3, 2)}),
        ("all_to_one", {(1, 0), (2, 0), (3, 0)}),
        ("one_to_all", {(0, 1), (0, 2), (0, 3)}),
    ],
)
def test_a_custom_collective_has_the_pairs_of_its_shape(schedule: str, pairs: set[tuple[int, int]]) -> None:
    rows = Told(Layout(1, 1, 4, 4, 1), replace(FAST, schedule=schedule, ep_kib=32 * KIB), seconds=2.5).of("ep")
    assert set(zip(rows["comm_rank"].tolist(), rows["peer"].tolist(), strict=True)) == pairs
    assert np.unique(rows["n_bytes"]).tolist() == [32 * KIB * KIB]


def test_shares_of_a_rank_add_up_to_the_time_in_which_it_moved_anything() -> None:
    seen = Told(EXPERTS, replace(TESTBED, traffic_rows=10**6), seconds=3)
    rows = seen.of("ep")
    assert (rows["share_ns"] >= 0).all() and (rows["share_ns"] <= rows["actual_ns"]).all()
    assert rows["share_ns"].sum() < rows["actual_ns"].sum()


@pytest.mark.parametrize(
    "changes", [{"traffic_rows": -1}, {"slices_every": -1}, {"epoch_us": 4}, {"epoch_us": 2000}, {"schedule": "ring"}]
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PhysicsError):
        replace(TESTBED, **changes)
