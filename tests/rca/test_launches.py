"""What is one launch: sends and receives that are enqueued together, unless they usually begin one after another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.slow.launches import APART_NS, _are_apart, _begins

N = 40
MS = 1e6
USUAL = np.arange(N) < N // 2


def job(*ops_ms: tuple[float, float], now_ms: tuple[tuple[float, float], ...] = (), n_lost: int = 0) -> Any:
    """Sends and receives of one rank, enqueued at once. ops_ms: when each begins and ends; now_ms: in slow iterations, where
    that differs. n_lost: usual iterations of which it is not known when the last began."""
    times = np.array([ops_ms] * N) * MS
    if now_ms:
        times[~USUAL] = np.array(now_ms) * MS
    ready, end = times[:, :, 0].T.copy(), times[:, :, 1].T.copy()
    ready[-1, :n_lost] = np.nan
    n = len(ops_ms)
    func = np.where(np.arange(n) % 2 == 0, FUNC_SEND, FUNC_RECV)
    return SimpleNamespace(
        rank=np.zeros(n, np.int64), func=func, ready=ready, end=end, column=lambda name: np.zeros((n, N))
    )


def begins(one: Any, usual: Any = USUAL) -> list[bool]:
    return _begins(one, 1_000_000, usual).tolist()


def test_ops_of_one_kernel_are_one_launch() -> None:
    assert begins(job((0, 5), (0.1, 8))) == [True, False]


def test_an_op_that_begins_when_all_before_it_were_over_is_another_launch() -> None:
    assert begins(job((0, 5), (6, 8))) == [True, True]


@pytest.mark.parametrize("over_ns", [0.0, APART_NS / 2])
def test_ops_that_follow_at_once_are_of_one_kernel(over_ns: float) -> None:
    assert begins(job((0, 5), (5 + over_ns / MS, 8))) == [True, False]


def test_it_must_be_over_with_the_longest_before_it_not_with_the_last() -> None:
    assert begins(job((0, 9), (0.1, 2), (6, 12))) == [True, False, False]
    assert begins(job((0, 9), (0.1, 2), (10, 12))) == [True, False, True]


def test_after_a_launch_of_its_own_only_what_that_one_holds_counts() -> None:
    assert begins(job((0, 9), (10, 12), (10.1, 14), (15, 16))) == [True, True, False, True]


def test_of_iterations_that_are_not_known_nothing_is_said() -> None:
    assert begins(job((0, 5), (6, 8), n_lost=15)) == [True, True]
    assert begins(job((0, 5), (6, 8), n_lost=20)) == [True, False]


def test_a_few_iterations_in_which_they_were_apart_do_not_make_two_launches() -> None:
    one = job((0, 5), (0.1, 8))
    one.ready[1, :10] = 6 * MS
    assert begins(one) == [True, False]


def test_a_slowdown_that_pulls_ops_apart_or_together_does_not_change_what_was_one_launch() -> None:
    assert begins(job((0, 5), (0.1, 8), now_ms=((0, 5), (30, 38)))) == [True, False]
    assert begins(job((0, 5), (6, 8), now_ms=((0, 25), (6, 28)))) == [True, True]


def test_where_most_of_what_is_known_is_slow_the_few_usual_iterations_decide() -> None:
    few = np.arange(N) < 3
    one = job((0, 5), (0.1, 8))
    one.ready[1, 3:] = 30 * MS
    assert begins(one, few) == [True, False]


def test_collectives_are_launches_of_their_own() -> None:
    one = job((0, 5), (0.1, 8))
    one.func = np.zeros(2, np.int64)
    assert begins(one) == [True, True]


def test_a_rank_begins_a_launch_whatever_the_rank_before_it_does() -> None:
    one = job((0, 5), (0.1, 8))
    one.rank = np.array([0, 1])
    assert begins(one) == [True, True]
    assert _are_apart(one, np.array([True, True]), USUAL).tolist() == [False, False]
