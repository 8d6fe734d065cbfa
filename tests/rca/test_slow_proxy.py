"""Which long iterations are examined for a proxy that sleeps: a pause may fall into two that follow each other."""

from __future__ import annotations

import numpy as np
import pytest

from rca.rules.slow_proxy import long_runs


def runs(*more_ms: int) -> list[list[int]]:
    """Of iterations that much longer than usual each."""
    more = np.array(more_ms, np.float64)
    return [run.tolist() for run in long_runs(more > 0, more)]


@pytest.mark.parametrize("at", range(1, 5))
def test_a_pause_across_two_of_a_row_of_long_iterations_is_examined_whole_wherever_it_lies(at: int) -> None:
    more = [0, 50, 50, 50, 50, 50, 0]
    more[at], more[at + 1] = 500, 500
    assert runs(*more)[0] == [at, at + 1]


def test_every_long_iteration_is_examined_once_and_the_costliest_come_first() -> None:
    found = runs(10, 900, 20, 0, 400, 0, 0, 30, 700, 600, 40)
    assert found == [[8, 9], [1, 2], [4], [10], [7], [0]]


def test_iterations_that_do_not_follow_each_other_are_not_put_together() -> None:
    assert runs(500, 0, 500) == [[0], [2]]


def test_where_none_is_long_none_is_examined() -> None:
    assert runs(0, 0, 0) == runs(0) == []
