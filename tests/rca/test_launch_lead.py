"""Mates who meet inside their node before every op that is seen: who of them launches last, and when that says nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Ints, LateTables, Rows, Window
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import OP_NO_NETWORK
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, Grade, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.slow.launch_lead import (
    Leads,
    Meeting,
    _clearly_last,
    _is_kept_late,
    _rivals,
    _through,
    is_made_up_for,
    last_to_launch,
    launch_alike,
    leader_of,
)
from rca.slow.slowdown import Slowdown, slowdown_of
from tests.nccl_instrument.simulate.jobs import window_after

TENSOR = Layout(tp=4, pp=1, dp=3, ranks_per_node=4)
AT_S, SECONDS = 6.0, 14.0
ONSET_NS = ORIGIN_NS + int(AT_S * 1e9)
BOUNDED = replace(TESTBED, dp_reduce="tree", n_buckets=1, n_microbatches=4, ahead=4)
MATES, OTHERS = np.arange(4, 8), np.arange(8, 12)


@cache
def window_of(
    fault: str, victim: int, amount: float, ahead: int = BOUNDED.ahead, dp_reduce: str = BOUNDED.dp_reduce
) -> Window:
    physics = replace(BOUNDED, ahead=ahead, dp_reduce=dp_reduce)
    return window_after(fault, TENSOR, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics)


def slow(window: Window) -> Slowdown:
    found = slowdown_of(window, ONSET_NS, DEFAULT)
    assert found is not None
    return found


def diagnosed(window: Window) -> Diagnosis:
    return diagnose(window, Symptom(SymptomKind.STRAGGLER, window.job, 1, ONSET_NS, window.end_ns, 0, (0,), "slow"))


def without_ops_in_nodes(window: Window) -> Window:
    op = window.rows("op")
    return replace(window, tables={**window.tables, "op": op[(op["flags"] & OP_NO_NETWORK) == 0]})


def test_hosts_that_run_ahead_freely_say_nothing_where_each_is_let_go_by_ops_of_its_own() -> None:
    found = slow(window_of("gpu_slow", 6, 3.0, TESTBED.ahead, "sharded"))
    assert not len(last_to_launch(found, MATES)) and not launch_alike(found, MATES)


def test_of_hosts_let_go_together_the_one_with_most_work_left_in_the_step_begins_the_next_last() -> None:
    assert last_to_launch(slow(window_of("gpu_slow", 6, 3.0, TESTBED.ahead)), MATES).tolist() == [6]


LED_BY_23 = {(22, 23), (17, 23), (19, 23)}


@pytest.mark.parametrize(
    ("leads", "led", "is_kept"),
    [
        ({22: 51.9, 23: 51.8}, LED_BY_23, True),
        ({22: 51.9, 23: 20.0}, LED_BY_23, False),
        ({22: 51.9}, LED_BY_23, False),
        ({22: 51.9, 23: 51.8}, {*LED_BY_23, (23, 22)}, False),
        ({22: 51.9, 23: 51.8}, set(), False),
    ],
    ids=["led where they meet", "who leads by far less", "who leads nobody", "each leads once", "they do not meet"],
)
def test_of_two_who_lead_by_as_much_elsewhere_the_one_that_the_other_leads_is_kept_late(
    leads: dict[int, float], led: set[tuple[int, int]], is_kept: bool
) -> None:
    assert _is_kept_late(22, Leads(leads, leads, led)) is is_kept
    assert not _is_kept_late(23, Leads({23: 51.8, **leads}, {}, LED_BY_23))


@pytest.mark.parametrize(
    ("least", "last"), [({61: 8.9, 63: 6.3}, [61]), ({61: 6.3, 63: 8.9}, [63]), ({61: 8.9, 63: 8.2}, [])]
)
def test_of_two_who_do_not_lead_each_other_the_one_that_leads_by_more_where_each_leads_least_is_last(
    least: dict[int, float], last: list[int]
) -> None:
    """61 and 63 exchange tokens; each leads a mate of its tensor group, who is late too, and one that is not, by as much."""
    led = {(57, 61), (60, 61), (59, 63), (62, 63), (56, 60)}
    leads = Leads({61: 121.2, 63: 121.3, 60: 109.2}, least, led)
    assert _rivals(61, leads) == [63] and _rivals(63, leads) == [61] and leads.is_led(60)
    assert _clearly_last([61, 63], leads) == last
    assert {(56, 61), (57, 61)} <= _through(led)


def test_of_what_is_in_progress_only_the_asked_node_is_made_into_rows() -> None:
    window, asked = window_of("gpu_slow", 6, 3.0, TESTBED.ahead), list[list[int] | None]()

    def cut(table: str, nodes: Ints | None, comms: object) -> Rows:
        asked.append(None if nodes is None else nodes.tolist())
        return window.rows(table) if nodes is None else window.rows_on(table, nodes)

    known = {name: rows for name, rows in window.tables.items() if name != "live_op"}
    found = slow(replace(window, tables=LateTables(known, ("live_op",), cut)))
    assert last_to_launch(found, MATES).tolist() == [6]
    assert asked and all(nodes == [1] for nodes in asked)


def test_nobody_stands_out_on_a_node_that_only_waits() -> None:
    found = slow(window_of("gpu_slow", 6, 3.0))
    assert not len(last_to_launch(found, OTHERS))


def test_without_the_ops_inside_the_node_mates_are_tied() -> None:
    found = diagnosed(without_ops_in_nodes(window_of("gpu_slow", 6, 3.0)))
    best = found.findings[0]
    assert not any(one.culprits for one in found.findings)
    assert (best.component, best.grade) == (Component.GPU, Grade.MODERATE)
    assert [one.ranks for one in best.tied] == [(4,), (5,), (6,), (7,)] and best.subject.ranks == (4, 5, 6, 7)


@pytest.mark.parametrize("victim", [5, 6])
def test_the_mate_whose_work_takes_longest_launches_last(victim: int) -> None:
    window = window_of("gpu_slow", victim, 3.0)
    best = diagnosed(window).findings[0]
    assert last_to_launch(slow(window), MATES).tolist() == [victim]
    assert (best.culprits, best.component) == ((victim,), Component.GPU) and f"rank {victim}" in best.sentence.lower()


def test_of_mates_who_are_all_slow_none_launches_last_and_the_node_is_named() -> None:
    window = window_of("background_compute", 1, 0.7)
    best = diagnosed(window).findings[0]
    assert not len(last_to_launch(slow(window), MATES))
    assert (best.culprits, best.component) == ((4, 5, 6, 7), Component.NODE)


LOST_NS = 1_000_000_000.0
OPS, ITERATIONS = 30, 20


def meeting(*later_ms: float) -> Meeting:
    """Mates of whom each enqueues all ops of an iteration later by so much than it used to; they vary by 0.1 ms."""
    later = np.tile(np.array(later_ms) * 1e6, (OPS, 1))
    often = np.full(OPS, ITERATIONS)
    uneven = np.full(OPS, 1e5)
    return Meeting(np.arange(len(later_ms)), later, uneven, uneven, np.zeros(OPS), often, is_let_go=True)


def test_mates_who_vary_by_half_a_millisecond_are_alike() -> None:
    assert leader_of(LOST_NS, meeting(0.0, 0.3, -0.2, 0.1)) == -1


def test_one_that_is_later_by_little_of_what_is_lost_stands_out_among_mates_who_are_even() -> None:
    assert leader_of(LOST_NS, meeting(0.0, 0.05, -0.05, 2.8)) == 3


def test_of_two_more_is_asked_since_nothing_tells_how_much_equals_differ() -> None:
    assert leader_of(LOST_NS, meeting(0.0, 2.8)) == -1
    assert leader_of(LOST_NS, meeting(0.0, 9.0)) == 1


def beside(ahead_ms: float) -> bool:
    """Whether rank 1, who is 1 ms behind its mates 0 to 3, is made up for by its partner, so far ahead of its own mates."""
    other = meeting(0.0, -ahead_ms, 0.05, -0.05)
    meetings = (meeting(0.0, 1.0, 0.05, -0.05), replace(other, members=other.members + 4))
    return is_made_up_for(meetings, 1, 0.95e6, np.array([1, 5]))


def test_who_is_behind_by_what_a_partner_of_its_experts_is_ahead_is_not_the_slow_one() -> None:
    assert beside(1.0)


@pytest.mark.parametrize("ahead_ms", [0.0, 0.3, -1.0])
def test_a_partner_who_is_not_ahead_by_as_much_excuses_nobody(ahead_ms: float) -> None:
    assert not beside(ahead_ms)


def test_a_mate_who_is_ahead_in_the_same_meeting_excuses_nobody() -> None:
    assert not is_made_up_for((meeting(0.0, 2.8, -2.0, 0.0),), 1, 2.8e6, np.arange(4))


def test_nor_does_one_who_is_ahead_of_those_whom_the_rank_itself_keeps_late() -> None:
    """Rank 79 of pairs (78, 79) and (74, 75) and of 73, 75, 77 and 79: all odd ranks are late with it, and 74 is on time."""
    pair = replace(meeting(0.0, 1.0), members=np.array([74, 75]))
    found = (replace(meeting(0.0, 1.0), members=np.array([78, 79])), pair)
    assert is_made_up_for(found, 79, 1e6, np.array([74, 75, 78, 79]))
    assert not is_made_up_for(found, 79, 1e6, np.array([74, 75, 78, 79]), {(75, 79)})
    assert is_made_up_for(found, 79, 1e6, np.array([74, 75, 78, 79]), {(74, 79)})
