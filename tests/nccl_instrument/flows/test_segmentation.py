"""Ops are found where they began and ended, whatever gaps, headers and pauses lie in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nccl_instrument.flows.segmentation import Segment, segment

EPOCH = 32_000
MS = 1_000_000
LATER = 10**12


def series(*stretches: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(first epoch, epochs, bytes in each) → epochs and bytes."""
    epochs = np.concatenate([np.arange(first, first + n) for first, n, _ in stretches])
    return epochs.astype(np.int64), np.concatenate([np.full(n, size) for _, n, size in stretches]).astype(np.int64)


def cut(
    *stretches: tuple[int, int, int], expected: list[float], now_ns: int = LATER, delta_ns: int = MS
) -> list[Segment]:
    return segment(*series(*stretches), expected, epoch_ns=EPOCH, now_ns=now_ns, delta_ns=delta_ns)


def spans(found: list[Segment]) -> list[tuple[int, int]]:
    return [(one.start_ns // EPOCH, one.end_ns // EPOCH) for one in found]


def test_two_ops_with_a_gap_between_them() -> None:
    found = cut((0, 10, 100), (100, 10, 100), expected=[1000, 1000])
    assert spans(found) == [(0, 10), (100, 110)]
    assert [(one.n_bytes, one.actual_ns, one.is_finished, one.is_cut) for one in found] == [
        (1000, 10 * EPOCH, True, False)
    ] * 2


def test_headers_and_messages_of_synchronisation_belong_to_the_op_before_them() -> None:
    found = cut((0, 10, 104), (12, 1, 8), (100, 10, 104), expected=[1000, 1000])
    assert spans(found) == [(0, 13), (100, 110)]


def test_a_long_pause_before_the_volume_has_gone_is_inside_the_op() -> None:
    found = cut((0, 5, 100), (500, 5, 100), expected=[1000])
    assert spans(found) == [(0, 505)]
    assert found[0].actual_ns == 10 * EPOCH


def test_a_pause_shorter_than_delta_is_inside_the_op_even_when_the_volume_has_gone() -> None:
    assert len(cut((0, 10, 100), (30, 1, 8), expected=[1000, 1000])) == 1
    assert len(cut((0, 10, 100), (30, 1, 8), expected=[1000, 1000], delta_ns=EPOCH)) == 2


def test_ops_without_a_gap_are_cut_by_volume_and_marked() -> None:
    found = cut((0, 20, 100), expected=[1000, 1000])
    assert spans(found) == [(0, 10), (10, 20)]
    assert all(one.is_cut for one in found)


def test_an_op_that_lacks_volume_or_silence_is_not_finished() -> None:
    assert not cut((0, 5, 100), expected=[1000])[0].is_finished
    assert not cut((0, 10, 100), expected=[1000], now_ns=10 * EPOCH)[0].is_finished
    assert cut((0, 10, 100), expected=[1000], now_ns=10 * EPOCH + MS)[0].is_finished


def test_ops_of_different_sizes_each_have_their_own_volume() -> None:
    found = cut((0, 2, 100), (100, 30, 100), (500, 1, 50), expected=[200, 3000, 50])
    assert [one.n_bytes for one in found] == [200, 3000, 50]


def test_nothing_gives_nothing() -> None:
    none = np.zeros(0, np.int64)
    assert segment(none, none, [100], epoch_ns=EPOCH, now_ns=LATER) == []


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 3000), st.integers(35, 200)), min_size=1, max_size=12))
def test_every_op_that_a_gap_follows_is_found_exactly(ops: list[tuple[int, int, int]]) -> None:
    at, stretches = 0, []
    for n, size, pause in ops:
        stretches.append((at, n, size))
        at += n + pause
    found = cut(*stretches, expected=[float(n * size) for n, size, _ in ops])
    assert spans(found) == [(first, first + n) for first, n, _ in stretches]
    assert all(one.is_finished and not one.is_cut for one in found)
    assert [one.n_bytes for one in found] == [n * size for n, size, _ in ops]


def test_the_epoch_in_which_one_op_ends_and_the_next_begins_counts_at_both() -> None:
    found = cut((0, 20, 100), expected=[950, 1050])
    assert spans(found) == [(0, 10), (9, 20)]
    assert [one.n_bytes for one in found] == [950, 1050]
    assert [one.is_joined for one in found] == [True, False]


def test_what_was_fed_is_not_written_into() -> None:
    epochs, n_bytes = np.arange(20), np.full(20, 100)
    found = segment(epochs, n_bytes, [950.0, 1050.0], epoch_ns=1000, now_ns=10**9)
    assert [one.n_bytes for one in found] == [950, 1050]
    assert (n_bytes == 100).all() and (epochs == np.arange(20)).all()


def test_an_op_that_follows_at_once_and_then_pauses_is_not_headers() -> None:
    size = 100_000
    found = cut((0, 10, size), (10, 5, size), (200, 5, size), expected=[10.0 * size, 10.0 * size])
    assert spans(found) == [(0, 10), (10, 205)]
    assert [one.is_cut for one in found] == [True, True]


def test_what_is_more_than_expected_belongs_to_the_last_op_that_is() -> None:
    size = 100_000
    assert spans(cut((0, 15, size), expected=[10.0 * size])) == [(0, 15)]


def test_a_rank_whose_chunks_are_rounded_to_a_little_less_is_done() -> None:
    found = cut((0, 10, 100_000), (200, 10, 100_000), expected=[1_000_500.0, 1_000_500.0])
    assert spans(found) == [(0, 10), (200, 210)]
    assert [one.is_finished for one in found] == [True, True]
