"""Credits and hand-over tell which end of a link holds it up, in ops that wait for the wire. No port counts waits here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.findings import Grade
from rca.settings import DEFAULT
from rca.slow.edges import edges_of
from rca.slow.ends import ends_of
from rca.slow.hand_over import told_apart
from rca.slow.slowdown import Slowdown, slowdown_of
from tests.nccl_instrument.simulate.jobs import window_after
from tests.rca.test_port_waits import counting
from tests.rca.test_slowdowns_simulated import AT_S, ONSET_NS, SECONDS, THROUGH_NODES, diagnosed, slow


def slowed(victim: int) -> Slowdown:
    """A ring through nodes of two ranks, where a NIC talks to one other NIC alone."""
    slowdown = slowdown_of(counting(slow("nic_limited", THROUGH_NODES, victim, 0.25), None), ONSET_NS, DEFAULT)
    assert slowdown is not None
    return slowdown


def told(slowdown: Slowdown, group: tuple[int, ...]) -> tuple[int, ...]:
    end_of = np.arange(len(slowdown.iterations.ranks))
    return told_apart(slowdown, ends_of(edges_of(slowdown), end_of), end_of, group).ends


def test_nothing_is_told_of_ops_that_wait_for_a_receiver_with_nothing_on_the_wire() -> None:
    slowdown = slowed(3)
    waiting = replace(slowdown, inside=replace(slowdown.inside, lasted_slow=3 * slowdown.inside.lasted_slow))
    assert told(waiting, (3, 4)) == ()


def test_nothing_is_told_of_ends_that_are_as_fast_as_ever() -> None:
    assert told(slowed(3), (7, 0)) == ()


@pytest.mark.parametrize("victim", [3, 4])
def test_the_end_whose_neighbour_alone_waits_for_credits_holds_them_up(victim: int) -> None:
    assert told(slowed(victim), (3, 4)) == (victim,)


@pytest.mark.parametrize(
    ("fault", "amount", "grade"), [("nic_limited", 0.25, "moderate"), ("nic_pcie_slow", 0.3, "strong")]
)
def test_what_credits_alone_tell_is_not_strong_and_late_hand_over_is(fault: str, amount: float, grade: str) -> None:
    """A NIC need not queue credits behind data; one that hands over late does so by itself."""
    best = diagnosed(counting(slow(fault, THROUGH_NODES, 3, amount), None)).findings[0]
    assert (best.culprits, best.grade) == ((3,), Grade(grade))
    assert ("Only credits" in best.sentence) == (grade == "moderate")


def test_credits_that_nothing_is_sent_before_come_late_through_the_nic_of_who_waits_for_them() -> None:
    """Of a ring that turns one way rank 4 sends nothing over the network; a NIC behind a slow PCIe hands over late."""
    one_way = replace(TESTBED, n_channels=1)
    window = window_after("nic_pcie_slow", THROUGH_NODES, 3, 0.3, at_s=AT_S, seconds=SECONDS, physics=one_way)
    best = diagnosed(counting(window, None)).findings[0]
    assert (best.culprits, best.grade) == ((3,), Grade.MODERATE)
    assert "Only credits" in best.sentence and "what comes in" not in best.sentence


@pytest.mark.parametrize("victim", [0, 4, 8])
def test_credits_of_a_gpu_that_takes_late_what_has_come_blame_no_nic(victim: int) -> None:
    """A ring of one way: who sends to the slow GPU waits for its credits, and the NIC between them hands over as fast as ever."""
    layout, one_way = Layout(tp=1, pp=1, dp=16, ranks_per_node=4), replace(TESTBED, n_channels=1, dp_reduce="sharded")
    window = window_after("gpu_pcie_slow", layout, victim, 2.7, at_s=AT_S, seconds=SECONDS, physics=one_way)
    found = diagnosed(counting(window, None)).findings
    assert all(one.culprits in ((), (victim,)) for one in found)


def test_a_nic_that_is_only_sent_to_and_slow_is_not_told_by_credits_that_come_in_time() -> None:
    one_way = replace(TESTBED, n_channels=1)
    window = window_after("nic_limited", THROUGH_NODES, 4, 0.25, at_s=AT_S, seconds=SECONDS, physics=one_way)
    best = diagnosed(counting(window, None)).findings[0]
    assert (best.culprits, best.grade) == ((), Grade.WEAK)


@pytest.mark.parametrize("victim", [3, 4])
def test_credits_that_wait_behind_nothing_blame_nobody(victim: int) -> None:
    physics = replace(TESTBED, credits_queue=False)
    window = window_after("nic_limited", THROUGH_NODES, victim, 0.25, at_s=AT_S, seconds=SECONDS, physics=physics)
    best = diagnosed(counting(window, None)).findings[0]
    assert (best.culprits, best.grade) == ((), Grade.WEAK)
    assert {one.ranks for one in best.tied} == {(3,), (4,)}
