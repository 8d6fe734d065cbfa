"""Ops cut from simulated transfers are those that the mechanism made: begin and end within an epoch, bytes exact.

The truth is what left the NICs when, which knows its op; the rows come from the agents' batches, whose plugins recorded what
their proxies noticed. Agents measure from when they know the pattern of the iterations, until the last that is over.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nccl_instrument.simulate.faults import Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import FUNC_SEND, TRAFFIC_FINISHED, TRAFFIC_P2P
from nccl_instrument.wire import decode_batch
from tests.nccl_instrument.simulate.jobs import EIGHT, EXPERTS

PHYSICS = replace(TESTBED, traffic_rows=10**6, slices_every=1)
EPOCH_NS = PHYSICS.epoch_us * 1000
Flow = tuple[int, ...]


def told_and_true(layout: Layout, fault: str, seconds: float) -> tuple[np.ndarray, dict[Flow, tuple[int, int, int]]]:
    """Rows of ops that are over, and of each flow of an op when its first was posted, its last acknowledged, and how many."""
    faults = (make_fault(fault, layout, 1.0, victim=2, seed=1),) if fault else ()
    job = SimulatedJob(JobSettings(layout, PHYSICS, Scenario(faults, 1)))
    try:
        sent = [one for some in job.batches(seconds) for one in some]
        kept = job.engine.slices()
    finally:
        job.close()
    rows = np.concatenate([decode_batch(one.encoded).rows("traffic") for one in sent])
    roster, found = job.agents.roster, dict[Flow, tuple[int, int, int]]()
    for one in kept:
        node = roster.node_of[one["rank"] : one["rank"] + 1]
        began, ended = (int(roster.clocks.mono_ns(node, np.array([one[name]]))[0]) for name in ("sent_ns", "acked_ns"))
        numbers = (one["place"], one["number"], one["func"] == FUNC_SEND, one["peer"], one["channel"])
        key = (int(roster.comm_ids[one["group"]]), *(int(number) for number in numbers))
        before = found.get(key, (began, ended, 0))
        found[key] = min(before[0], began), max(before[1], ended), before[2] + int(one["bytes"])
    return rows[(rows["flags"] & TRAFFIC_FINISHED) != 0], found


@pytest.mark.parametrize(
    ("layout", "fault"), [(EIGHT, ""), (EIGHT, "data_slow"), (EIGHT, "nic_limited"), (EXPERTS, "")], ids=str
)
def test_every_op_is_found_where_it_was(layout: Layout, fault: str) -> None:
    rows, truth = told_and_true(layout, fault, 4.0)
    told = {_key(row): row for row in rows}
    assert len(told) == len(rows) > 300 and told.keys() <= truth.keys()
    first, last = _measured(told)
    assert [key for key in truth if first[key[:2]] < truth[key][0] < last[key[:2]] and key not in told] == []
    for key, row in told.items():
        began, ended, n_bytes = truth[key]
        assert abs(int(row["start_ns"]) - began) <= EPOCH_NS
        assert abs(int(row["end_ns"]) - ended) <= EPOCH_NS
        assert int(row["n_bytes"]) == pytest.approx(n_bytes, rel=0.02)


def _key(row: np.void) -> Flow:
    is_p2p = (int(row["flags"]) & TRAFFIC_P2P) != 0
    names = ("comm_id", "comm_rank", "op")
    return (*(int(row[name]) for name in names), int(is_p2p), int(row["peer"]), int(row["channel"]))


def _measured(told: dict[Flow, np.void]) -> tuple[dict[Flow, int], dict[Flow, int]]:
    """When the first and the last op that was told of began, of each member."""
    first, last = dict[Flow, int](), dict[Flow, int]()
    for key, row in told.items():
        began = int(row["start_ns"])
        first[key[:2]] = min(first.get(key[:2], began), began)
        last[key[:2]] = max(last.get(key[:2], began), began)
    return first, last
