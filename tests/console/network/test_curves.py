"""Rate curves from raw epochs: no byte lost to thinning out, pauses seen as soon as the stretch is short enough."""

from __future__ import annotations

import numpy as np
import pytest

from console.network.curves import Moved, curve_of, moved_by_flow, moved_by_rank, pauses
from nccl_instrument.epochs import CELL, FLOW, ITERATION, Epochs

US, MS = 1_000, 1_000_000
EPOCH = 32 * US
WALL_NS, MONO_NS = 1_790_000_000 * 10**9, 10**9


def epochs_of(*flows: tuple[int, int, int, list[tuple[int, int]]], epoch_ns: int = EPOCH) -> Epochs:
    """flows: communicator, peer, channel, [(epoch, bytes)], all in one iteration."""
    iterations = np.array([(7, 0, 10**9, epoch_ns, 1, True)], ITERATION)
    rows, cells = np.zeros(len(flows), FLOW), []
    for at, (comm, peer, channel, held) in enumerate(flows):
        rows[at]["comm_id"], rows[at]["peer"], rows[at]["channel"] = comm, peer, channel
        cells += [(at, epoch, n_bytes) for epoch, n_bytes in held]
    return Epochs(0, 1, "nic0", "plugin", WALL_NS, MONO_NS, iterations, rows, np.array(cells, CELL))


def steady(first: int, n: int, n_bytes: int = 400_000) -> list[tuple[int, int]]:
    return [(first + at, n_bytes) for at in range(n)]


def at(epoch: int) -> int:
    return WALL_NS - MONO_NS + epoch * EPOCH


@pytest.mark.parametrize("n_columns", [7, 100, 5_000])
def test_no_byte_is_lost_however_few_points_are_drawn(n_columns: int) -> None:
    moved = moved_by_rank(epochs_of((1, 1, 0, steady(100, 900)), (1, 1, 1, steady(150, 333, 17))), 1)
    curve = curve_of(moved, at(0), at(2_000), n_columns)
    total = float((curve.mean * np.diff(curve.edges_ns)).sum()) / 1e9
    assert total == pytest.approx(900 * 400_000 + 333 * 17) and len(curve.mean) <= n_columns + 1
    assert curve.peak.max() == pytest.approx((400_000 + 17) * 1e9 / EPOCH)


def test_a_pause_of_an_epoch_shows_in_overview_as_a_mean_below_the_peak_and_zoomed_as_nothing() -> None:
    held = [one for one in steady(0, 4_000) if one[0] % 4]
    moved = moved_by_rank(epochs_of((1, 1, 0, held)), 1)
    wide = curve_of(moved, at(0), at(4_000), 100)
    assert wide.epochs == 40 and wide.mean[10] == pytest.approx(0.75 * wide.peak[10])
    close = curve_of(moved, at(1_000), at(1_040), 100)
    assert close.epochs == 1 and (close.mean == 0).sum() == 10 and (close.mean == close.peak).all()


def test_flows_lie_apart_and_another_communicators_bytes_do_not_count() -> None:
    epochs = epochs_of((1, 1, 0, steady(0, 3)), (1, 1, 1, steady(1, 3)), (2, 1, 0, steady(0, 9)))
    flows = moved_by_flow(epochs, 1)
    assert list(flows) == [(1, 0, False), (1, 1, False)]
    assert flows[1, 1, False].begins_ns.tolist() == [at(1), at(2), at(3)]
    assert moved_by_rank(epochs, 1).n_bytes.tolist() == [400_000, 800_000, 800_000, 400_000]
    assert not len(moved_by_rank(epochs, 3).begins_ns)


def test_a_node_whose_clock_is_wrong_lies_beside_the_others() -> None:
    moved = moved_by_rank(epochs_of((1, 1, 0, steady(5, 1))), 1, offset_ns=3 * MS)
    assert moved.begins_ns.tolist() == [at(5) - 3 * MS]


def test_epochs_of_two_lengths_are_drawn_on_one_grid() -> None:
    moved = Moved(np.array([at(0), at(1), at(10)]), np.array([EPOCH, EPOCH, 2 * EPOCH]), np.array([64, 64, 128]))
    curve = curve_of(moved, at(0), at(20), 100)
    assert curve.mean[[0, 1, 2, 10, 11, 12]].tolist() == pytest.approx([2e-3 * 1e9, 2e6, 0, 2e6, 2e6, 0], abs=1)


def test_pauses_of_milliseconds_and_of_microseconds_are_told_apart() -> None:
    moved = moved_by_rank(epochs_of((1, 1, 0, [*steady(0, 3), *steady(5, 2), *steady(100, 4)])), 1)
    begins, lengths = pauses(moved, at(0), at(200), 1)
    assert begins.tolist() == [at(3), at(7)] and lengths.tolist() == [2 * EPOCH, 93 * EPOCH]
    assert pauses(moved, at(0), at(200), MS)[1].tolist() == [93 * EPOCH]


def test_nothing_in_the_stretch_is_a_rate_of_nothing() -> None:
    moved = moved_by_rank(epochs_of((1, 1, 0, steady(0, 3))), 1)
    curve = curve_of(moved, at(100), at(200))
    assert curve.mean.tolist() == [0.0] and not len(pauses(moved, at(100), at(200), 1)[0])
