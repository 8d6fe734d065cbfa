"""Rows picked and joined as plain bytes are those numpy picks and joins field by field."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from nccl_instrument.agent.plain import all_set, pick, stack
from nccl_instrument.agent.processes.segment_layout import FLOW


def flows(n: int, row_bytes: int) -> npt.NDArray[np.void]:
    """Rows as a segment has them; a newer plugin's are longer than what is known of them."""
    memory = np.random.default_rng(n).integers(0, 256, n * row_bytes, dtype=np.uint8)
    return np.ndarray((n,), FLOW, memory, 0, (row_bytes,))


@pytest.mark.parametrize("row_bytes", [FLOW.itemsize, FLOW.itemsize + 64])
def test_picked_rows_are_copies_of_those_rows(row_bytes: int) -> None:
    rows = flows(20, row_bytes)
    mask = np.arange(20) % 3 == 0
    for at in (np.array([3, 1, 1, 19]), mask, np.zeros(0, np.intp)):
        picked = pick(rows, at)
        assert picked.dtype == FLOW
        assert picked.tobytes() == rows[at].tobytes()
        assert not np.shares_memory(picked, rows)


def test_joined_rows_stand_one_behind_the_other() -> None:
    parts = [flows(n, FLOW.itemsize) for n in (2, 0, 5)]
    assert stack(parts).tobytes() == b"".join(part.tobytes() for part in parts)
    assert stack(parts[:1]) is parts[0]
    longer = [flows(n, FLOW.itemsize + 64) for n in (2, 3)]
    assert stack(longer).tobytes() == b"".join(part.tobytes() for part in longer)
    assert stack(parts).flags.writeable and not len(stack([parts[1], parts[1]]))


def test_a_column_is_all_set_when_none_is_zero() -> None:
    rows = np.array([(1, 2), (3, 0)], [("a", "<i8"), ("b", "<u4")])
    assert all_set(rows["a"]) and all_set(rows["a"][:0])
    assert not all_set(rows["b"])
