"""What epochs of a length can show."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.window import WINDOW_DTYPE
from rca.flows.granularity import SLICE_BYTES_MIN, hidden_above, sight_of, slice_ns
from rca.keys import Rows


def test_what_an_epoch_hides_follows_from_the_slice_time() -> None:
    one = slice_ns(2**20, 2, 50e9)
    assert 40_000 < one < 43_000
    assert abs(hidden_above(1_000_000, 40_000) - 1 / 26) < 1e-9  # 40(p - 1) µs reach 1 ms at p = 26
    assert hidden_above(32_000, one) > 0.5


def sends(
    rank: int = 0, comm_id: int = 1, channels: int = 2, slice_bytes: int = 2**18, n_bytes: int = 2**24,
    epoch_ns: int = 32_000, nic: bytes = b"mlx5_0",
) -> Rows:  # fmt: skip
    """A row for each channel of an op."""
    rows = np.zeros(channels, WINDOW_DTYPE["traffic"])
    rows["rank"], rows["comm_id"], rows["nic"], rows["channel"] = rank, comm_id, nic, np.arange(channels)
    rows["slice_bytes"], rows["n_bytes"], rows["epoch_ns"] = slice_bytes, n_bytes, epoch_ns
    return rows


def nics(**gbps: int) -> Rows:
    rows = np.zeros(len(gbps), WINDOW_DTYPE["nic"])
    rows["name"], rows["speed_mbps"] = [name.encode() for name in gbps], [1000 * one for one in gbps.values()]
    return rows


def hidden(*rows: Rows, nic: Rows | None = None) -> float:
    sight = sight_of(np.concatenate(rows), nics(mlx5_0=400) if nic is None else nic)
    assert sight is not None
    return sight.hidden_above


def test_without_rows_or_epochs_nothing_is_said() -> None:
    assert sight_of(sends()[:0], nics(mlx5_0=400)) is None
    assert sight_of(sends(epoch_ns=0), nics(mlx5_0=400)) is None


def test_slices_of_256_kib_in_two_channels_hide_above_a_quarter() -> None:
    assert hidden(sends()) == pytest.approx(0.247, abs=0.001)


def test_what_is_not_known_hides_more_never_less() -> None:
    known = hidden(sends())
    assert hidden(sends(slice_bytes=0)) < known
    assert hidden(sends(), sends(slice_bytes=0)) < known
    slow = nics(mlx5_0=100)
    assert hidden(sends(), nic=slow) > hidden(sends(nic=b""), nic=nics(mlx5_0=100, mlx5_1=400))
    assert hidden(sends(), nic=slow) > hidden(sends(), nic=slow[:0]) == known


def test_other_flows_with_larger_slices_or_more_channels_hide_nothing_less() -> None:
    known = hidden(sends())
    assert hidden(sends(), sends(slice_bytes=2**30, n_bytes=2**31 - 1)) == known
    assert hidden(sends(), sends(comm_id=2, channels=16)) == known
    assert hidden(sends(), sends(nic=b"mlx5_1"), nic=nics(mlx5_0=400, mlx5_1=100)) == known


def test_longer_epochs_and_fewer_channels_of_any_flow_hide_more() -> None:
    known = hidden(sends())
    assert hidden(sends(), sends(rank=1, epoch_ns=64_000)) < known
    assert hidden(sends(), sends(rank=1, channels=1)) < known


def test_an_op_smaller_than_a_slice_has_no_pauses_to_hide() -> None:
    tiny = sends(comm_id=3, slice_bytes=8, n_bytes=8)
    assert hidden(sends(), tiny) == hidden(sends())
    assert hidden(tiny) < hidden(sends(slice_bytes=SLICE_BYTES_MIN))
