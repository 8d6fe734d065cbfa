"""Who has sent least when all stood still: nobody first, then by volume and by what is complete."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import TRAFFIC_FINISHED, TRAFFIC_INCOMPLETE
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Grade, Symptom, SymptomKind
from rca.flows.completion import Said, Stopped, stopped_first
from tests.nccl_instrument.simulate.jobs import EIGHT, EXPERTS, window_after

RING = Layout(tp=1, pp=1, dp=4, ranks_per_node=1)
MEASURED = replace(
    TESTBED, traffic_rows=150
)  # as many as an agent may send: the standstill's iteration is not one of them


@cache
def window(fault: str, layout: Layout, victim: int, seed: int = 1) -> Window:
    return window_after(fault, layout, victim, at_s=3.02, seconds=8.0, physics=MEASURED, seed=seed)


def changed(one: Window, **tables: np.ndarray) -> Window:
    return replace(one, tables={**one.tables, **tables})


def without_counters(one: Window) -> Window:
    """As of a job that is traced by shims alone: no counters of flows, no port states, no processes' states."""
    return changed(one, flow=one.rows("flow")[:0], nic=one.rows("nic")[:0])


def diagnosed(one: Window) -> Diagnosis:
    symptom = Symptom(SymptomKind.FAILURE, one.job, one.attempt, one.end_ns - 4 * 10**9, one.end_ns, 0, (0,), "stands")
    return diagnose(one, symptom)


def stopped(fault: str, layout: Layout, victim: int) -> Stopped:
    return stopped_first(window(fault, layout, victim))


def test_where_nothing_was_measured_nobody_is_named_and_that_is_said() -> None:
    one = window("nic_down", RING, 2)
    assert stopped_first(changed(one, traffic=one.rows("traffic")[:0])).why is Said.NOTHING
    spoiled = one.rows("traffic").copy()
    spoiled["flags"] |= TRAFFIC_INCOMPLETE
    assert stopped_first(changed(one, traffic=spoiled)).why is Said.NOTHING


def test_what_only_some_of_those_in_the_op_told_names_nobody() -> None:
    one = window("nic_down", RING, 2)
    rows = one.rows("traffic")
    is_open = (rows["flags"] & TRAFFIC_FINISHED) == 0
    assert stopped_first(changed(one, traffic=rows[~is_open | (rows["rank"] != 1)])).why is Said.TOLD


def test_an_op_that_somebody_has_not_entered_is_no_matter_of_volumes() -> None:
    one = window("nic_down", RING, 2)
    op = stopped_first(one).op
    live, told = one.rows("live_op"), one.rows("progress").copy()
    told["n_enqueued"][told["rank"] == 3] = op - 1
    live = live[~((live["rank"] == 3) & (live["op"] == op))]
    assert stopped_first(changed(one, live_op=live, progress=told)).why is Said.ENTERED


def test_of_two_who_send_to_each_other_either_may_be_it() -> None:
    found = stopped("nic_down", EIGHT, 2)
    assert found.why is Said.ALIKE and found.ranks == () and len(found.sent) == 2


@pytest.mark.parametrize("victim", [0, 2, 3])
def test_in_a_ring_the_rank_whose_connections_have_moved_least_is_it(victim: int) -> None:
    found = stopped("nic_down", RING, victim)
    assert found.ranks == (victim,) and not found.is_alone
    least = list(found.sent)[:2]
    assert all(victim in edge for edge in least) and all(0 < moved < whole for moved, whole in found.sent.values())


def test_who_is_alone_in_an_op_has_had_all_it_was_sent() -> None:
    found = stopped("gpu_error", RING, 2)
    assert found.ranks == (2,) and found.is_alone


def test_of_sends_the_rank_that_all_open_ones_have_in_common_is_it() -> None:
    found = stopped("gpu_error", EXPERTS, 2)
    assert found.is_p2p and found.ranks == (2,)
    assert all(2 in edge and moved < whole for edge, (moved, whole) in found.sent.items())


def test_without_counters_of_flows_it_is_a_finding_of_its_own_and_no_other_member_is_guessed() -> None:
    found = diagnosed(without_counters(window("nic_down", RING, 2)))
    assert found.culprits == (2,) and {rank for one in found.findings for rank in one.culprits} == {2}
    (one,) = [one for one in found.findings if one.rule == "least_sent"]
    assert (one.component, one.kind, one.grade) == (
        Component.NIC, FaultKind.COMMUNICATION_FAIL_STOP, Grade.MODERATE
    )  # fmt: skip
    assert {fact.source for fact in one.evidence} == {"traffic"} and one.evidence[0].unit == "%"


def test_what_is_seen_of_a_port_stays_as_it_is() -> None:
    found = diagnosed(window("nic_down", RING, 2))
    assert found.culprits == (2,) and found.findings[0].rule == "hang" and found.findings[0].grade is Grade.STRONG


def test_who_alone_does_not_go_on_without_counters_of_flows_is_a_computation() -> None:
    found = diagnosed(without_counters(window("gpu_error", RING, 2))).findings[0]
    assert (found.rule, found.culprits, found.kind) == ("least_sent", (2,), FaultKind.COMPUTATION_FAIL_STOP)
