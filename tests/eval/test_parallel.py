"""Cases side by side: every one comes back, from processes of their own, and a failure reaches the caller."""

from __future__ import annotations

import os
import time
from multiprocessing import active_children

import pytest

from tests.eval.parallel import in_parallel


def _where(number: int) -> tuple[int, int]:
    return number, os.getpid()


def _fails(number: int) -> int:
    raise ValueError(f"case {number} cannot be run")


def test_every_case_comes_back_from_another_process() -> None:
    found = dict(in_parallel(_where, range(5), 2))
    assert set(found) == set(range(5))
    assert os.getpid() not in found.values()


def test_one_at_a_time_stays_here_and_in_order() -> None:
    assert list(in_parallel(_where, range(3), 1)) == [(number, os.getpid()) for number in range(3)]


def test_a_case_that_fails_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="cannot be run"):
        list(in_parallel(_fails, range(2), 2))


def _takes(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_whoever_is_interrupted_leaves_no_process_behind() -> None:
    rows = in_parallel(_takes, [0.0, 300.0, 300.0], 2)
    assert next(rows) == 0.0
    rows.close()  # type: ignore[attr-defined]  # as an interrupt of the caller does
    assert active_children() == []
