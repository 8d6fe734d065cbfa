"""What an op's time inside was spent on: the same however many places are looked at together."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ingest.window import load_window
from rca.ranks import known_ranks
from rca.settings import DEFAULT
from rca.slow import inside
from rca.slow.iterations import Iterations, iterations_of

WINDOW = Path(__file__).parent / "recorded_slow" / "slow_compute_3.npz"


@cache
def job() -> tuple[Iterations, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    window = load_window(WINDOW)
    iterations, ranks = iterations_of(window), known_ranks(window, DEFAULT)
    return iterations, ranks.node[ranks.position(iterations.ranks)]


def waits(*, is_socket: bool) -> inside.Inside:
    iterations, node = job()
    early = np.arange(iterations.n) < iterations.n // 2
    return inside.inside_of(iterations, node, is_socket, early, ~early)


@pytest.mark.parametrize("cells", [1, 1000])
@pytest.mark.parametrize("is_socket", [False, True])
def test_a_large_job_taken_in_blocks_has_the_waits_of_all_at_once(
    monkeypatch: pytest.MonkeyPatch, cells: int, is_socket: bool
) -> None:
    whole = waits(is_socket=is_socket)
    monkeypatch.setattr(inside, "BLOCK_CELLS", cells)
    in_blocks = waits(is_socket=is_socket)
    for stretch in ("usual", "slow", "noise"):
        for wait in inside.Wait:
            np.testing.assert_allclose(getattr(in_blocks, stretch)[wait], getattr(whole, stretch)[wait], rtol=1e-9)
    assert any(np.nansum(values) > 0 for values in whole.slow.values())


def test_a_room_is_never_cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "BLOCK_CELLS", 1)
    room = np.array([2, 0, 1, 0, 2, 2, 3])
    blocks = list(inside._blocks(room, 1))
    assert [set(room[at].tolist()) for at in blocks] == [{0}, {1}, {2}, {3}]
    assert sorted(np.concatenate(blocks).tolist()) == list(range(len(room)))
