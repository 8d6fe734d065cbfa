"""Which end of a slow connection it is, where each has one partner alone: by how long a port had data that nobody took."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.physics import TESTBED
from rca.findings import Diagnosis, Grade
from rca.settings import DEFAULT
from rca.slow.port_waits import TICK_NS, waits_grown_ns
from rca.slow.slowdown import slowdown_of
from tests.nccl_instrument.simulate.jobs import window_after
from tests.rca.test_slowdowns_simulated import AT_S, ONSET_NS, SECONDS, THROUGH_NODES, diagnosed

ONE_WAY = replace(TESTBED, n_channels=1, credits_queue=False)
SENDER, RECEIVER = 3, 4
"""Of the ring from node to node: each of the two has nobody else there."""
TIMES = {"0.16 ns": 25.0, "4 ns": 1.0, "7 ns": 4 / 7, "32 ns": 1 / 8}
"""By how long a tick of the port is: as many ticks as the simulated port counts, times this."""


@cache
def slow(victim: int, fault: str = "nic_limited", transport: str = "IB") -> Window:
    amount = {"nic_limited": 0.25, "cross_numa": 0.8}[fault]
    return window_after(
        fault, THROUGH_NODES, victim, amount, at_s=AT_S, seconds=SECONDS, physics=ONE_WAY, transport=transport
    )


def counting(
    window: Window, times: float | None = 1.0, always: float = 0.0, still: tuple[int, ...] = (), at: int = 0
) -> Window:
    """The same where ports count so many times as many ticks; None: they do not tell. always: ticks a ns besides; still: NICs, of
    all nodes, whose counters stand still, and where."""
    rows = window.rows("nic").copy()
    counted = (rows["xmit_wait"] * times if times is not None else 0.0) + always * (
        rows["tick_ns"] - rows["tick_ns"].min()
    )
    rows["xmit_wait"] = 2**64 - 1 if times is None else counted.astype(np.uint64)
    rows["xmit_wait"][np.isin(rows["node"] * THROUGH_NODES.n_nics_per_node + rows["index"], still)] = at
    return replace(window, tables={**window.tables, "nic": rows})


def is_tie(found: Diagnosis) -> bool:
    best = found.findings[0]
    return (best.culprits, best.grade) == ((), Grade.WEAK) and {one.ranks for one in best.tied} == {(3,), (4,)}


@pytest.mark.parametrize("fault", ["nic_limited", "cross_numa"])
@pytest.mark.parametrize("victim", [SENDER, RECEIVER])
def test_a_receiver_for_whom_a_port_waits_or_a_sender_for_whom_none_does_is_named(victim: int, fault: str) -> None:
    best = diagnosed(slow(victim, fault)).findings[0]
    assert (best.culprits, best.grade) == ((victim,), Grade.MODERATE)
    assert "Only how long ports had data that nobody took tells it from the other end." in best.sentence


@pytest.mark.parametrize("victim", [SENDER, RECEIVER])
@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_nobody_else_is_named_however_long_a_tick_is(victim: int, times: float) -> None:
    found = diagnosed(counting(slow(victim), times))
    assert found.culprits == (victim,) or is_tie(found)


@pytest.mark.parametrize("victim", [SENDER, RECEIVER])
def test_where_ports_do_not_count_it_the_two_are_tied(victim: int) -> None:
    assert is_tie(diagnosed(counting(slow(victim), None)))


@pytest.mark.parametrize("victim", [SENDER, RECEIVER])
@pytest.mark.parametrize("at", [0, 123_456, 2**32 - 2])
def test_a_port_whose_counter_stands_still_is_not_said_to_wait_for_nobody_though_others_count(
    victim: int, at: int
) -> None:
    assert is_tie(diagnosed(counting(slow(victim), still=(SENDER,), at=at)))


@pytest.mark.parametrize("victim", [SENDER, RECEIVER])
def test_where_no_other_port_waits_at_all_nobody_is_named_by_one_that_does_or_does_not(victim: int) -> None:
    """Their counters may stand still as well."""
    never = replace(ONE_WAY, wait_share=0.0)
    window = window_after("nic_limited", THROUGH_NODES, victim, 0.25, at_s=AT_S, seconds=SECONDS, physics=never)
    assert is_tie(diagnosed(window))


@pytest.mark.parametrize("share", [0.02, 0.2, 0.4])
@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_waiting_that_was_always_there_is_no_more_of_it_where_iterations_are_longer(share: float, times: float) -> None:
    found = diagnosed(counting(slow(SENDER), times, always=share * times / 4.0))
    assert found.culprits == (SENDER,) or is_tie(found)


def test_a_wait_that_may_be_long_or_short_tells_nothing() -> None:
    """A hundredth of the ticks: by how long one is, a port that waits now and then or nearly always."""
    assert is_tie(diagnosed(counting(slow(RECEIVER), 0.01)))


def test_a_port_waits_longer_by_what_its_receiver_takes_longer() -> None:
    slowdown = slowdown_of(slow(RECEIVER), ONSET_NS, DEFAULT)
    assert slowdown is not None
    least, most = waits_grown_ns(slowdown)[:, slowdown.ranks.nic[slowdown.at]]
    assert least[SENDER] > 0.01 * slowdown.lost_ns and most[SENDER] < TICK_NS[1] * slowdown.lost_ns
    assert np.isnan(most[RECEIVER])  # it sends nothing
    assert np.nanmax(np.delete(most, SENDER)) < 0.1 * slowdown.lost_ns


def test_ports_of_network_interfaces_do_not_tell() -> None:
    assert (slow(SENDER, transport="Socket").rows("nic")["xmit_wait"] == 2**64 - 1).all()
