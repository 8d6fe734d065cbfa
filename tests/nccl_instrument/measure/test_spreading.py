"""Every byte of a transfer is in an epoch in which it was under way, exactly once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument.measure.spreading import SPAN, spread

US = 1_000


def spans(*rows: tuple[int, int, int, int]) -> np.ndarray:
    """(flow, from µs, to µs, bytes)."""
    return np.array([(flow, 0, a * US, b * US, n) for flow, a, b, n in rows], SPAN)


def cells(*rows: tuple[int, int, int, int], epoch_us: int = 32) -> list[tuple[int, int, int]]:
    found = spread(spans(*rows), epoch_us * US)
    return list(zip(*(found[name].tolist() for name in ("flow", "epoch", "n_bytes")), strict=True))


def test_a_transfer_is_shared_out_evenly_over_its_time() -> None:
    assert cells((0, 16, 80, 1000)) == [(0, 0, 250), (0, 1, 500), (0, 2, 250)]


def test_transfers_in_one_epoch_are_added_and_flows_kept_apart() -> None:
    assert cells((0, 0, 8, 100), (0, 8, 16, 50), (1, 8, 16, 7)) == [(0, 0, 150), (1, 0, 7)]


def test_a_transfer_that_ends_with_an_epoch_does_not_touch_the_next() -> None:
    assert cells((0, 0, 64, 64)) == [(0, 0, 32), (0, 1, 32)]


def test_what_was_posted_and_done_at_one_moment_is_in_its_epoch() -> None:
    assert cells((0, 32, 32, 9), (0, 100, 90, 5)) == [(0, 1, 9), (0, 3, 5)]


def test_few_bytes_over_a_long_time_mark_its_beginning_and_its_end() -> None:
    found = cells((0, 0, 320, 3))
    assert found[0][1] == 0 and found[-1][1] == 9
    assert sum(n for _, _, n in found) == 3


def test_nothing_gives_nothing() -> None:
    assert cells() == []
    assert cells((0, 0, 100, 0)) == []


@pytest.mark.parametrize("epoch_us", [7, 1001])
def test_epochs_that_cannot_be_are_refused(epoch_us: int) -> None:
    with pytest.raises(ValueError, match="epochs are"):
        cells((0, 0, 1, 1), epoch_us=epoch_us)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 2**32 - 1)), max_size=20),
    st.sampled_from([8_000, 32_000, 1_000_000]),
)
def test_no_byte_appears_or_goes_and_every_one_is_within_its_span(
    drawn: list[tuple[int, int, int]], epoch_ns: int
) -> None:
    at, rows = 0, []
    for pause, took, n_bytes in drawn:
        rows.append((3, 0, at + pause, at + pause + took, n_bytes))
        at += pause + took
    found = spread(np.array(rows, SPAN), epoch_ns)
    assert found["n_bytes"].sum() == sum(n for *_, n in rows)
    assert (np.diff(found["epoch"]) > 0).all() and (found["n_bytes"] > 0).all()
    touched = set[int]()
    for _, _, from_ns, to_ns, n_bytes in rows:
        if n_bytes:
            first, last = from_ns // epoch_ns, max(to_ns - 1, from_ns) // epoch_ns
            touched |= set(range(first, last + 1))
            assert last in found["epoch"] and (first in found["epoch"] or n_bytes == 1)
    assert set(found["epoch"].tolist()) <= touched
