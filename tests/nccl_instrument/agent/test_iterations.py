"""What an iteration is follows from the calls alone: every rank that sees the same calls cuts them alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument.agent.processes.segment_layout import OP
from nccl_instrument.agent.traffic.iterations import (
    PERIOD_UNKNOWN,
    SETTLE_NS,
    Calls,
    Iteration,
    Iterations,
    shortest_period,
)
from nccl_instrument.agent.traffic.sampling import Cost, Sampling
from nccl_instrument.tables import FUNCS, OP_P2P
from nccl_instrument.wire import Rows

MS = 1_000_000
WORLD, TP = 0xA, 0xB
SIZES = {WORLD: 8, TP: 2}
ALL_REDUCE, SEND = FUNCS.index("AllReduce"), FUNCS.index("Send")
NONE = np.zeros(0, OP)


def calls(comm_id: int, first: int, sizes: list[int], at_ms: list[float], **columns: int) -> Rows:
    """Collectives of these sizes, numbered from `first`, enqueued then."""
    rows = np.zeros(len(sizes), OP)
    rows["comm_id"], rows["op"], rows["bytes"], rows["func"] = (
        comm_id,
        np.arange(first, first + len(sizes)),
        sizes,
        ALL_REDUCE,
    )
    rows["ordinal"], rows["enqueued_ns"] = rows["op"], (np.array(at_ms) * MS).astype(np.int64)
    for name, value in columns.items():
        rows[name] = value
    return rows


def step(number: int) -> Rows:
    """A training step: three calls of everybody and four of the TP group, within ten ms of 100."""
    at = 100.0 * number
    world = calls(WORLD, 3 * number + 1, [100, 100, 7], [at + 2, at + 4, at + 8])
    tp = calls(TP, 4 * number + 1, [50] * 4, [at + 3, at + 5, at + 6, at + 9])
    return np.concatenate([world, tp])


def told(iterations: Iterations, n_steps: int, first: int = 0, live: Rows = NONE) -> list[Iteration]:
    found = []
    for number in range(first, n_steps):
        iterations.add(step(number), live, SIZES)
        found += iterations.over(live, (100 * number + 50) * MS)
    return found


def test_nothing_known_gives_no_iteration() -> None:
    iterations = Iterations()
    iterations.add(NONE, NONE, {})
    assert iterations.over(NONE, 0) == [] and iterations.newest == -1


def test_calls_of_all_communicators_between_two_beginnings_are_an_iteration() -> None:
    iterations = Iterations()
    whole = [one for one in told(iterations, 40) if one.number > 20]
    assert iterations.calls.period == 3
    assert [one.number for one in whole] == list(range(21, 39))
    for one in whole:
        assert (one.begins_ns, one.ends_ns) == ((100 * one.number + 2) * MS, (100 * one.number + 102) * MS)
        assert sorted(one.ops["bytes"].tolist()) == [7, 50, 50, 50, 50, 100, 100] and one.is_whole


def test_ranks_that_begin_to_look_at_different_times_number_iterations_alike() -> None:
    early, late = (told(Iterations(), 60, first) for first in (0, 17))
    of_both = {one.number: one.begins_ns for one in early}
    assert len(late) > 20 and all(of_both.get(one.number, one.begins_ns) == one.begins_ns for one in late[10:])


def test_an_iteration_is_not_over_while_an_op_of_it_moves() -> None:
    iterations = Iterations()
    told(iterations, 40)
    slow = calls(TP, 4 * 40 + 4, [50], [4009.0], n_flows_begun=2)
    iterations.add(step(40)[:-1], slow, SIZES)
    iterations.add(step(41), slow, SIZES)
    assert 40 not in [one.number for one in iterations.over(slow, 4200 * MS)]
    iterations.add(step(40)[-1:], NONE, SIZES)
    found = {one.number: one for one in iterations.over(NONE, 4300 * MS)}
    assert len(found[40].ops) == 7


def test_an_op_that_stays_inside_the_node_holds_nothing_up_for_long() -> None:
    iterations = Iterations()
    told(iterations, 40)
    silent = calls(TP, 164, [50], [4009.0])
    iterations.add(np.concatenate([step(40)[:-1], step(41)]), silent, SIZES)
    assert 40 not in [one.number for one in iterations.over(silent, 4200 * MS)]
    assert 40 in [one.number for one in iterations.over(silent, 4200 * MS + SETTLE_NS)]


def test_what_was_lost_spoils_the_iterations_under_way_and_no_later_one() -> None:
    iterations = Iterations()
    told(iterations, 40)
    iterations.add(step(40), NONE, SIZES)
    iterations.lose(4050 * MS)
    found = told(iterations, 45, 41)
    assert {one.number: one.is_whole for one in found if one.number >= 40} == {40: False, 41: True, 42: True, 43: True}


def test_sends_alone_are_counted_as_they_were_called() -> None:
    iterations, found = Iterations(), []
    for number in range(40):
        rows = calls(WORLD, 2 * number + 1, [64, 32], [100.0 * number, 100.0 * number + 1], flags=OP_P2P, func=SEND)
        iterations.add(rows, NONE, SIZES)
        found += iterations.over(NONE, (100 * number + 50) * MS)
    assert iterations.calls.period == 2 and len(found) > 20


@pytest.mark.parametrize("func", [SEND, FUNCS.index("Recv")])
def test_a_rank_that_only_sends_to_several_or_receives_from_them_counts_iterations_as_the_others_do(func: int) -> None:
    iterations = Iterations()
    for number in range(6):
        peers = [1, 2, 3]
        rows = calls(TP, number + 1, [50] * 3, [100.0 * number] * 3, flags=OP_P2P, func=func)
        rows["op"], rows["peer"], rows["ordinal"] = number + 1, peers, 3 * number + np.arange(1, 4)
        iterations.add(rows, NONE, {TP: 4})
    assert (iterations.calls.period, iterations.newest) == (3, 5)


def test_a_larger_communicator_takes_over() -> None:
    iterations = Iterations()
    iterations.add(calls(TP, 1, [50] * 4, [1.0, 2, 3, 4]), NONE, SIZES)
    assert iterations.governing == (TP, 0, False)
    iterations.add(step(0), NONE, SIZES)
    assert iterations.governing == (WORLD, 0, False)


@pytest.mark.parametrize("pattern", [[1], [1, 2], [5, 5, 5, 1], list(range(100))])
def test_the_shortest_pattern_that_repeats_is_found(pattern: list[int]) -> None:
    assert shortest_period(pattern * 10) == len(pattern)
    assert shortest_period([7, 8, 9, *(pattern * 10)]) == len(pattern)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=0, max_size=200, unique=True))
def test_calls_that_never_repeat_have_no_period(numbers: list[int]) -> None:
    assert shortest_period(numbers) == PERIOD_UNKNOWN


def test_as_many_iterations_are_measured_as_may_be_and_always_one_in_a_power_of_two() -> None:
    sampling = Sampling(rows_per_s=100)
    assert sampling.every == 1 and sampling.is_measured(7)
    sampling.told(1, Cost(rows=30, cells=10, transfers=10, took_ns=100 * MS))
    assert sampling.every == 4
    assert [n for n in range(13) if sampling.is_measured(n)] == [0, 4, 8, 12]
    sampling.told(2, Cost(rows=30, cells=10, transfers=10, took_ns=100 * MS))
    assert sampling.every == 8
    sampling.forget(1)
    assert sampling.every == 4


def test_what_one_node_measures_another_one_that_measures_more_has_too() -> None:
    few, many = Sampling(rows_per_s=10), Sampling(rows_per_s=100)
    for one in (few, many):
        one.told(1, Cost(rows=50, cells=0, transfers=0, took_ns=1000 * MS))
    assert (few.every, many.every) == (8, 1)
    assert all(many.is_measured(n) for n in range(100) if few.is_measured(n))


def test_without_rows_nothing_is_measured() -> None:
    sampling = Sampling(rows_per_s=0)
    assert not sampling.is_on and not sampling.is_any_measured(0, 10**6)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 50), st.integers(1, 400))
def test_any_of_a_stretch_is_measured_when_one_is(first: int, length: int, rows: int) -> None:
    sampling = Sampling(rows_per_s=10)
    sampling.told(1, Cost(rows, 0, 0, 1000 * MS))
    stretch = range(first, first + length + 1)
    assert sampling.is_any_measured(first, first + length) == any(sampling.is_measured(n) for n in stretch)


def counted(kinds: list[int], at_once: int = 64) -> Calls:
    """Calls of these kinds, some at a time, as cuts bring them."""
    found = Calls()
    for first in range(0, len(kinds), at_once):
        here = np.array(kinds[first : first + at_once], np.int64)
        found.add(np.arange(first + 1, first + 1 + len(here)), here, np.arange(first, first + len(here)) + 5)
        found.look()
    return found


def test_an_iteration_of_two_thousand_calls_is_found_though_most_of_them_are_alike() -> None:
    step_of = [1, 2, 2, 3] * 499 + [7, 8, 9]
    found = counted(step_of * 5)
    assert found.period == len(step_of) == 1999
    assert found.begin(3) == 3 * 1999 + 5 and found.begin(0) == 0, "what lies further back is forgotten"


def test_another_pattern_is_found_soon_after_a_long_time_of_the_first() -> None:
    found = counted([1, 2, 3] * 4_000 + [4, 5] * 800)
    assert found.period == 2


def test_calls_without_a_pattern_are_looked_through_seldom() -> None:
    draw = np.random.default_rng(3)
    found = Calls()
    looked: list[int] = []
    for first in range(0, 20_000, 50):
        found.add(np.arange(first + 1, first + 51), draw.integers(0, 2**40, 50), np.full(50, 5))
        before = found._checked
        found.look()
        looked += [first] * (found._checked != before)
    assert found.period == PERIOD_UNKNOWN and 10 < len(looked) < 60
