"""Advances add up to the exposed time exactly, and the summaries err as far as the paper proves, not further."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rca.frontier.accounting import Seconds, account, account_step, by_stage, slack, tied_leaders
from rca.frontier.folding import folding_of
from rca.frontier.gain import Baseline, baseline_of, gains
from rca.frontier.routing import candidates, co_critical, leader_switches
from rca.frontier.summaries import SUMMARIES, per_stage_average, per_stage_max

STEPS = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6)), elements=st.floats(0, 1e3, width=32)
)
DELAY = np.array([[[9.0, 1, 2], [1, 1, 10], [1, 1, 10]]])  # rank 0's data stall; the others wait for it in backward


@given(STEPS)
def test_advances_are_never_negative_and_add_up_to_the_longest_rank(durations: Seconds) -> None:
    found = account(durations)
    assert (found.advances >= 0).all()
    assert np.allclose(found.advances.sum(axis=1), durations.sum(axis=2).max(axis=1), rtol=1e-12, atol=1e-9)
    assert found.exposed.sum() == 0 or np.isclose(found.shares.sum(), 1)


@given(STEPS)
def test_an_advance_is_the_largest_duration_after_the_slack_before_it(durations: Seconds) -> None:
    for step in durations:
        before = np.concatenate([np.zeros((len(step), 1)), slack(step)[:, :-1]], axis=1)
        assert np.allclose(account_step(step).advances, (step - before).max(axis=0), rtol=1e-12, atol=1e-9)


@given(STEPS)
def test_per_stage_maxima_count_at_most_min_of_ranks_and_stages_times(durations: Seconds) -> None:
    exposed = durations.sum(axis=2).max(axis=1)
    counted = durations.max(axis=1).sum(axis=1)
    most = min(durations.shape[1:])
    assert (counted >= exposed * (1 - 1e-12) - 1e-9).all()
    assert (counted <= most * exposed * (1 + 1e-12) + 1e-9).all()


@given(STEPS)
def test_averages_hide_at_most_a_factor_of_the_ranks(durations: Seconds) -> None:
    exposed = durations.sum(axis=2).max(axis=1)
    counted = durations.mean(axis=1).sum(axis=1)
    assert (counted <= exposed * (1 + 1e-12) + 1e-9).all()
    assert (counted >= exposed / durations.shape[1] * (1 - 1e-12) - 1e-9).all()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_both_bounds_are_reached(n: int) -> None:
    apart = np.eye(n)[None]
    assert apart.max(axis=1).sum() == n * account(apart).exposed[0]
    alone = np.zeros((1, n, n))
    alone[0, 0, 0] = 1.0
    assert alone.mean(axis=1).sum() == account(alone).exposed[0] / n


@given(STEPS, st.floats(0, 1), st.randoms(use_true_random=False))
def test_errors_of_measurement_grow_no_further_than_proved(durations: Seconds, most: float, random: object) -> None:
    error = np.random.default_rng(random.randint(0, 2**32)).uniform(-most, most, durations.shape)  # type: ignore[attr-defined]
    measured = np.maximum(durations + error, 0.0)
    most = float(np.abs(measured - durations).max())
    change = np.abs(account(measured).advances - account(durations).advances)
    stage = np.arange(1, durations.shape[2] + 1)
    assert (change <= (2 * stage - 1) * most + 1e-9).all()


def test_a_delay_that_others_wait_for_is_charged_once_where_it_began() -> None:
    found = account(DELAY)
    assert found.advances.tolist() == [[9.0, 1.0, 2.0]]
    assert found.leader[0, 0] == 0
    assert found.gap[0, 0] == 8.0
    assert np.isclose(found.shares.argmax(), 0)
    assert per_stage_max(DELAY).argmax() == 2
    assert per_stage_average(DELAY).argmax() == 2
    assert found.lag_increase[0].tolist() == [8.0, 0.0, -8.0]


def test_the_same_matrix_cannot_tell_a_wait_from_another_path() -> None:
    both = np.array([[[10.0, 0], [0, 10]]])
    found = account(both)
    assert found.advances.tolist() == [[10.0, 0.0]]
    assert gains(both, baseline_of(both, Baseline.REFERENCE, np.zeros(2))).tolist() == [0.0, 0.0]


@given(STEPS)
def test_a_gain_is_never_negative_and_never_more_than_the_stage(durations: Seconds) -> None:
    for kind in (Baseline.RANK_MEDIAN, Baseline.COHORT_MEDIAN):
        found = gains(durations, baseline_of(durations, kind))
        assert (found >= -1e-12).all()
        exposed = durations.sum(axis=2).max(axis=1).sum()
        assert (found * exposed <= durations.max(axis=1).sum(axis=0) + 1e-6).all()


def plain(durations: Seconds) -> list[list[float]]:
    """The paper's three loops."""
    found = []
    for step in durations:
        before, advances = 0.0, []
        for stage in range(durations.shape[2]):
            reached = max(sum(step[rank][: stage + 1]) for rank in range(durations.shape[1]))
            advances.append(reached - before)
            before = reached
        found.append(advances)
    return found


@given(STEPS)
def test_the_accounting_is_that_of_the_plain_loops(durations: Seconds) -> None:
    assert np.allclose(account(durations).advances, plain(durations), rtol=1e-9, atol=1e-9)
    assert np.array_equal(account(by_stage(durations)).advances, account(durations).advances)


def test_the_sync_wait_fixture_is_recovered_where_maximum_and_average_recover_nothing() -> None:
    rng = np.random.default_rng(0)
    right = {"frontier": 0, "max": 0, "average": 0}
    for _ in range(100):
        own = rng.uniform(0.9, 1.1, (20, 8, 3)) * np.array([1.0, 1.0, 3.0])
        own[:, rng.integers(8), 0] += 6.0
        own[:, :, 2] += own[:, :, :2].sum(axis=2).max(axis=1, keepdims=True) - own[:, :, :2].sum(axis=2)
        right["frontier"] += int(account(own).shares.argmax() == 0)
        right["max"] += int(per_stage_max(own).argmax() == 0)
        right["average"] += int(per_stage_average(own).argmax() == 0)
    assert right == {"frontier": 100, "max": 0, "average": 0}


def test_a_median_over_very_many_ranks_is_close_to_that_of_all() -> None:
    step = np.random.default_rng(3).uniform(1, 2, (5000, 2))
    found = account_step(step)
    exact = np.cumsum(step, axis=1).max(axis=0) - np.median(np.cumsum(step, axis=1), axis=0)
    assert np.allclose(found.lag, exact, atol=0.05)


def test_a_group_of_one_rank_has_its_own_vector_and_no_gap() -> None:
    found = account_step(np.array([[1.0, 2, 3]]))
    assert (found.advances.tolist(), found.gap.tolist(), found.lag.tolist()) == ([1, 2, 3], [0, 0, 0], [0, 0, 0])


def test_micro_steps_fold_after_the_frontier_was_taken() -> None:
    folding = folding_of(("data[0]", "back[0]", "data[1]", "back[1]", "rest"))
    assert folding.stages == ("data", "back", "rest")
    found = account(np.array([[[5.0, 1, 1, 1, 1], [1, 1, 1, 6, 1]]]))
    assert folding.sums(found.advances).tolist() == [[6.0, 3.0, 1.0]]
    assert folding.boundary(found, 0) == 0


def test_the_gain_of_a_stage_is_what_clipping_it_saves() -> None:
    slow = np.tile(np.array([[1.0, 2, 3]]), (5, 2, 1))
    slow[3, 1, 0] = 7.0
    found = gains(slow, baseline_of(slow, Baseline.RANK_MEDIAN))
    assert np.allclose(found, [6 / 36, 0, 0])


def test_candidates_are_the_fewest_stages_that_cover_enough() -> None:
    shares = np.array([0.1, 0.5, 0.3, 0.1])
    assert candidates(shares, 0.8) == (1, 2)
    assert candidates(shares, 0.81) == (1, 2, 0)
    assert candidates(shares, 0.4) == (1,)
    assert candidates(np.zeros(3), 0.8) == ()


def test_near_ties_by_share_or_gain_are_co_critical() -> None:
    assert co_critical(np.array([0.46, 0.42, 0.12]), np.array([0.0, 0.0, 0.0]), 0.05) == (0, 1)
    assert co_critical(np.array([0.6, 0.3, 0.1]), np.array([0.01, 0.2, 0.18]), 0.05) == (0, 1, 2)
    assert co_critical(np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.01, 0.0]), 0.05) == (0,)


def test_only_changes_between_clear_leaders_are_switches() -> None:
    steps = np.ones((4, 3, 1))
    steps[0, 0], steps[1, 1], steps[3, 1] = 2.0, 2.0, 2.0
    assert leader_switches(account(steps), 0, 0.05, 0.001) == (0.5, 3)
    assert leader_switches(account(np.ones((4, 3, 1))), 0, 0.05, 0.001) == (0.0, 0)
    assert tied_leaders(steps[2], 0, 0.05).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "bad", [np.full((1, 2, 2), np.nan), np.full((1, 2, 2), -1.0), np.zeros((1, 0, 2)), np.zeros((0, 2, 2))]
)
def test_what_cannot_be_a_duration_is_refused(bad: Seconds) -> None:
    with pytest.raises(ValueError, match=r"a step|durations|a window"):
        account(bad)


def test_every_summary_is_a_share_and_survives_an_empty_window() -> None:
    for summary in SUMMARIES.values():
        assert np.isclose(summary(DELAY).sum(), 1)
        assert summary(np.zeros((2, 2, 2))).tolist() == [0.0, 0.0]
