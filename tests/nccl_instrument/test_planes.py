"""A column made of planes equals the column of the rows, however few bytes it came in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from nccl_instrument import planes, tables
from nccl_instrument.planes import PlaneTable, Sent, to_planes


def as_sent(table: str, rows: np.ndarray) -> PlaneTable:
    every = to_planes(table, rows)
    numbers = tuple(every.any(axis=1).nonzero()[0].tolist())
    return PlaneTable(Sent(table, every.shape[0], every.shape[1], numbers), every[list(numbers)].reshape(-1))


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from(sorted(tables.TABLES)), st.sampled_from([0x00, 0x01, 0x7F, 0xFF]))
def test_a_column_equals_that_of_the_rows(data: st.DataObject, table: str, mask: int) -> None:
    size = tables.DTYPE[table].itemsize
    raw = data.draw(npst.arrays(np.uint8, (data.draw(st.integers(1, 4)), size)))
    keep = data.draw(npst.arrays(np.bool_, size))
    rows = np.ascontiguousarray(np.where(keep, raw, raw & mask)).view(tables.DTYPE[table]).reshape(-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "NARROW_ROWS", 0)
        sent = as_sent(table, rows)
        for name in rows.dtype.names or ():
            assert (sent[name] == rows[name]).all(), name
        assert sent.rows().tobytes() == rows.tobytes()


def test_a_small_number_is_handed_out_as_small_as_it_came() -> None:
    flow = tables.empty_rows("flow", 500)
    flow["stuck_ns"], flow["bytes"], flow["peer"] = 200, 70_000, -1
    sent = as_sent("flow", flow)
    assert [sent[name].dtype for name in ("stuck_ns", "bytes", "peer")] == [np.uint8, np.uint32, np.int32]


def test_a_column_an_older_writer_did_not_have_is_unknown() -> None:
    flow = tables.empty_rows("flow", 500)
    flow["nic"] = 3
    whole = to_planes("flow", flow)
    sent = Sent("flow", len(whole) - 2, 500, tuple(range(len(whole) - 2)))
    assert (PlaneTable(sent, whole[:-2].reshape(-1))["nic"] == -1).all()
