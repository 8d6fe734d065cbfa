"""Rows that cannot be true are marked, and only those."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.door.impossible import FUTURE_NS_MAX, impossible_rows, is_in_order
from nccl_instrument import planes, tables, wire
from nccl_instrument.wire import encode_batch, open_batch
from tests.builders import make_batch

NOW = 10**12


@pytest.mark.parametrize("table", sorted(make_batch().tables))
def test_a_healthy_batch_has_no_impossible_row(table: str) -> None:
    batch = make_batch()
    assert not impossible_rows(table, batch.rows(table), batch.mono_ns).any()


@pytest.mark.parametrize("table", sorted(set(make_batch().tables) - {"comm"}))
def test_a_healthy_table_is_seen_to_be_in_order_at_a_glance(table: str) -> None:
    batch = make_batch()
    assert is_in_order(table, open_batch(encode_batch(batch)).inflate()[table], batch.mono_ns)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(sorted(tables.TABLES)), st.booleans(), st.sampled_from([0, 31]))
def test_what_is_in_order_at_a_glance_has_no_impossible_row(
    data: st.DataObject, table: str, narrow: bool, n_by_rows: int
) -> None:
    """Healthy rows with one byte changed anywhere: what is let through must be possible."""
    more = {name: tables.empty_rows(name, 2) for name in ("loss", "status", *tables.GROUPS["stage"], "traffic")}
    batch = make_batch(tables={**make_batch().tables, **more})
    rows = np.repeat(batch.rows(table), 2)
    raw = rows.view(np.uint8).reshape(len(rows), -1)
    at = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, raw.shape[1] - 1))
    raw[at] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "NARROW_ROWS", 0 if narrow else 10**6)
        patch.setattr(wire, "BY_ROWS_MAX", n_by_rows)
        sent = open_batch(encode_batch(replace(batch, tables={table: rows}))).inflate()[table]
        bad = impossible_rows(table, rows, batch.mono_ns)
        assert (impossible_rows(table, sent, batch.mono_ns) == bad).all()
        assert not (bad.any() and is_in_order(table, sent, batch.mono_ns))


def test_flow_counters_out_of_order_or_beyond_the_op_are_impossible() -> None:
    flow = tables.empty_rows("flow", 5)
    flow["total_chunks"], flow["counters"] = 4, [4, 3, 2, 1]
    assert not impossible_rows("flow", flow, NOW).any()
    flow["counters"][1] = [1, 2, 2, 1]
    flow["total_chunks"][2] = 3
    flow["direction"][3] = 9
    flow["stuck_ns"][4] = -1
    assert impossible_rows("flow", flow, NOW).tolist() == [False, True, True, True, True]


def test_traffic_that_took_longer_than_it_lasted_or_was_more_than_an_op_has_is_impossible() -> None:
    rows = tables.empty_rows("traffic", 7)
    rows["start_ns"], rows["end_ns"], rows["actual_ns"], rows["n_bytes"] = 100, 200, 100, 5
    assert not impossible_rows("traffic", rows, NOW).any()
    rows["actual_ns"][1], rows["end_ns"][2], rows["n_bytes"][3] = 101, 99, 2**50 + 1
    rows["op"][4], rows["source"][5], rows["end_ns"][6] = -2, 9, NOW + FUTURE_NS_MAX + 1
    assert impossible_rows("traffic", rows, NOW).tolist() == [False, *[True] * 6]


def test_a_comm_rank_beyond_a_known_size_is_impossible() -> None:
    comm = tables.empty_rows("comm", 3)
    comm["n_ranks"], comm["comm_rank"] = [8, 8, 0], [7, 8, 8]
    assert impossible_rows("comm", comm, NOW).tolist() == [False, True, False]


def test_an_op_done_before_it_was_enqueued_or_at_a_time_that_cannot_be_is_impossible() -> None:
    op = tables.empty_rows("op", 5)
    op["enqueued_ns"], op["done_ns"] = 100, [0, 100, 99, NOW + FUTURE_NS_MAX + 1, 200]
    op["started_ns"][4] = -1
    assert impossible_rows("op", op, NOW).tolist() == [False, False, True, True, True]
