"""Frames of the grid: literal bytes, which vitest reads as well, and what any two grids are between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.incidents.pictures.topology_frames import (
    ALL,
    DELTA,
    HEAD,
    States,
    apply_frame,
    frame_between,
    frame_of_all,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"
BEFORE = States(7, 3, np.zeros(8, np.uint8), np.zeros(8, np.uint32), ("",))
AFTER = States(7, 4, np.array([0, 0, 4, 0, 0, 0, 0, 0], np.uint8), np.array([0, 0, 1, 0, 0, 0, 0, 0], np.uint32),
               ("", "the process is gone"))  # fmt: skip


def test_a_delta_is_these_bytes() -> None:
    frame = frame_between(12, BEFORE, AFTER)
    texts = b'["the process is gone"]'
    assert frame == b"".join([
        b"\x01\x01\x00\x00", b"\x07\x00\x00\x00", b"\x04\x00\x00\x00", b"\x0c\x00\x00\x00", b"\x01\x00\x00\x00",
        len(texts).to_bytes(4, "little"), b"\x02\x00\x00\x00", b"\x01\x00\x00\x00", b"\x04", texts,
    ])  # fmt: skip
    assert frame == (GOLDEN / "delta.bin").read_bytes()


def test_all_of_a_grid_is_these_bytes() -> None:
    assert frame_of_all(12, AFTER) == (GOLDEN / "all.bin").read_bytes()


cell = st.tuples(st.integers(0, 6), st.sampled_from(["", "a", "ü", "long " * 9]))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=20))
def test_a_frame_brings_any_grid_to_the_next_and_says_nothing_when_nothing_changed(
    cells: list[tuple[tuple[int, str], tuple[int, str]]],
) -> None:
    then, now = [before for before, _ in cells], [after for _, after in cells]
    before = _states(0, then, ())
    after = _states(1, now, before.texts)
    frame = frame_between(1, before, after)
    if frame is None:
        assert then == now
        return
    reached = apply_frame(before, frame)
    shown = [(int(state), reached.texts[note]) for state, note in zip(reached.state, reached.note, strict=True)]
    assert shown == now
    assert reached.offset == 1


def test_where_most_have_changed_all_are_sent_as_that_is_shorter() -> None:
    n = 1000
    before = States(1, 0, np.zeros(n, np.uint8), np.zeros(n, np.uint32), ("",))
    few, most = (np.where(np.arange(n) < k, 1, 0).astype(np.uint8) for k in (100, 900))
    kinds = []
    for state in (few, most):
        frame = frame_between(1, before, States(1, 1, state, before.note, ("",)))
        assert frame is not None
        kinds.append(frame[0])
        assert len(frame) <= HEAD.size + 5 * n + 4
    assert kinds == [DELTA, ALL]


@pytest.mark.parametrize("offset, epoch", [(4, 7), (6, 7), (5, 8)], ids=["again", "one missed", "other places"])
def test_a_delta_that_does_not_go_on_is_refused(offset: int, epoch: int) -> None:
    shown = States(7, 4, AFTER.state, AFTER.note, AFTER.texts)
    after = States(epoch, offset, BEFORE.state, AFTER.note, AFTER.texts)
    frame = frame_between(12, shown, after)
    assert frame is not None
    with pytest.raises(ValueError, match="missed"):
        apply_frame(shown, frame)


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_do_anything_but_be_refused_or_be_a_frame(frame: bytes) -> None:
    try:
        apply_frame(BEFORE, frame)
    except ValueError:
        return


def _states(offset: int, grid: list[tuple[int, str]], known: tuple[str, ...]) -> States:
    texts = tuple(dict.fromkeys([*known, *(text for _, text in grid)]))
    state = np.array([state for state, _ in grid], np.uint8)
    return States(1, offset, state, np.array([texts.index(text) for _, text in grid], np.uint32), texts)
