"""Whatever an agent claims, a look ends: triggers and rules do not raise on garbage that ingest lets pass."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace

import pytest

from tests.eval.fuzz_windows import check_window, garbled_window
from tests.windows import make_window


@pytest.mark.parametrize("seed", range(40))
def test_garbage_in_a_window_is_looked_at_without_an_error(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an overflow is an error nobody raised
        check_window(garbled_window(random.Random(seed)))


def test_flows_of_a_job_whose_ranks_are_unknown_are_no_error() -> None:
    window = make_window(8, nic_down=1)
    check_window(replace(window, ranks=window.ranks[:0], members=window.members[:0]))
