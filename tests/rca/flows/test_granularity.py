"""What epochs of a length can show."""

from __future__ import annotations

from rca.flows.granularity import hidden_above, slice_ns


def test_what_an_epoch_hides_follows_from_the_slice_time() -> None:
    one = slice_ns(2**20, 2, 50e9)
    assert 40_000 < one < 43_000
    assert abs(hidden_above(1_000_000, 40_000) - 1 / 26) < 1e-9  # 40(p - 1) µs reach 1 ms at p = 26
    assert hidden_above(32_000, one) > 0.5
