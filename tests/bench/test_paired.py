"""The statistic of the overhead benchmark: right on made-up blocks whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.bench.paired import difference, loss_pct, slowdown_pct

RANDOM = np.random.default_rng(7)


def test_a_known_slowdown_is_found_though_blocks_differ_by_far_more() -> None:
    base = 180 * RANDOM.uniform(0.7, 1.5, 40)
    found = slowdown_pct(base, base * 1.01 * RANDOM.normal(1, 0.002, 40))
    assert found["mid"] == pytest.approx(1.0, abs=0.15)
    assert found["lower95"] < found["mid"] < found["upper95"] < 1.3


def test_no_effect_lies_inside_the_interval_and_one_spoilt_block_does_not_move_it() -> None:
    base = np.full(30, 180.0)
    treated = base * RANDOM.normal(1, 0.002, 30)
    treated[3] *= 5
    found = slowdown_pct(base, treated)
    assert found["lower95"] < 0 < found["upper95"] < 0.3


def test_the_interval_of_a_wide_scatter_is_wide() -> None:
    base = np.full(10, 180.0)
    found = slowdown_pct(base, base * RANDOM.normal(1, 0.2, 10))
    assert found["upper95"] - found["lower95"] > 5


def test_twice_the_time_is_half_of_the_bandwidth_lost_with_ordered_bounds() -> None:
    base = RANDOM.uniform(1, 2, (20, 5))
    found = loss_pct(base, base * 2)
    assert found["mid"] == pytest.approx(50) and found["lower95"] <= found["mid"] <= found["upper95"]
    gained = loss_pct(base, base / 2)
    assert gained["mid"] == pytest.approx(-100)


def test_differences_are_paired() -> None:
    base = np.arange(20.0) * 100
    assert difference(base, base + 3) == {"mid": 3.0, "lower95": 3.0, "upper95": 3.0}
