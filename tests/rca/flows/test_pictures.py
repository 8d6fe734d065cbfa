"""What a page draws of the wire: of simulated jobs whose links and experts are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import SEND
from rca.flows.pictures import groups_of, left_out, op_times, paths_of
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_of

MEASURED = replace(TESTBED, traffic_rows=10**6)


FOUR = Layout(tp=2, pp=1, dp=4, ranks_per_node=2)


@pytest.fixture(scope="module")
def limited() -> Window:
    """Replicas of four; what rank 3's NIC sends and receives is limited, so its neighbour's bytes to it are, too."""
    fault = make_fault("nic_limited", FOUR, 4.0, victim=3, amount=0.3)
    return window_of(run(FOUR, fault, seconds=10.0, physics=MEASURED))


@pytest.fixture(scope="module")
def pipelined() -> Window:
    return window_of(run(EIGHT, seconds=6.0, physics=MEASURED))


def replicas(window: Window) -> int:
    """The communicator of rank 3's replicas."""
    groups = [group for group in groups_of(window) if group.name.startswith("dp")]
    return next(group.comm_id for group in groups if 3 in ranks(window, group.comm_id))


def test_groups_are_told_most_bytes_first_with_who_was_seen_in_them(limited: Window) -> None:
    groups = groups_of(limited)
    sizes = [group.n_bytes for group in groups]
    assert sizes == sorted(sizes, reverse=True) and groups[0].name.startswith("dp")
    sent = limited.rows("traffic")
    sent = sent[sent["direction"] == SEND]
    assert left_out(limited) >= 0 and sum(sizes) <= int(sent["n_bytes"].sum())
    assert all(group.n_ranks_seen <= group.n_ranks for group in groups)


def test_all_ops_of_a_group_last_as_long_and_the_slow_nics_bytes_take_longer(limited: Window) -> None:
    comm_id = replicas(limited)
    times = op_times(limited, comm_id, kept=10)
    actual, lasted = (
        {rank: float(np.median(of[times.rank == rank])) for rank in ranks(limited, comm_id)}
        for of in (times.actual_ns, times.lasted_ns)
    )
    rest = actual.pop(7)  # the only one that neither is the slow NIC's rank nor sends to it
    assert min(actual.values()) > 1.5 * rest
    assert min(lasted.values()) > 0.6 * max(lasted.values())
    assert (times.actual_ns <= times.end_ns - times.start_ns + 1e-6).all() and times.is_finished.any()


def test_the_dark_cells_are_the_slow_nics(limited: Window) -> None:
    comm_id = replicas(limited)
    paths = paths_of(limited, comm_id, by_peer=False, since_ns=limited.now_ns - 4 * 10**9)
    assert paths.rate.shape == (len(paths.rank), len(paths.column))
    best = np.nanmax(paths.rate, axis=1)
    assert paths.rank[best < 0.6 * best.max()].tolist() == [3], "dark on every channel"
    towards = paths.rate[(paths.peer == 3) & (paths.n_bytes > 0)]
    assert len(towards) == 2 and towards.max() < 0.6 * best.max(), "and so is what is sent to it"
    assert (paths.peer[paths.n_bytes > 0] >= 0).all() and 3 not in paths.peer[paths.rank == 3]


def test_what_lost_something_is_left_out_and_counted(limited: Window) -> None:
    rows = limited.rows("traffic").copy()
    rows["flags"] |= 4
    lossy = replace(limited, tables={**limited.tables, "traffic": rows})
    assert groups_of(lossy) == [] and left_out(lossy) == int((rows["direction"] == SEND).sum())
    assert len(op_times(lossy, 1).rank) == 0 and paths_of(lossy, 1, by_peer=True).rate.size == 0


def test_sends_that_go_on_together_are_one_custom_collective_and_later_ones_another(pipelined: Window) -> None:
    pipes = [group for group in groups_of(pipelined) if group.is_custom]
    assert pipes
    times = op_times(pipelined, pipes[0].comm_id, kept=10_000)
    for rank in ranks(pipelined, pipes[0].comm_id):
        starts, ends = times.start_ns[times.rank == rank], times.end_ns[times.rank == rank]
        assert (starts[1:] > ends[:-1]).all()


def ranks(window: Window, comm_id: int) -> list[int]:
    members = window.members
    return sorted(members["rank"][members["comm_id"] == comm_id].tolist())
