"""Rows that cannot be true are marked, and only those."""

from __future__ import annotations

import pytest

from ingest.impossible import FUTURE_NS_MAX, impossible_rows
from nccl_instrument import tables
from tests.builders import make_batch

NOW = 10**12


@pytest.mark.parametrize("table", sorted(make_batch().tables))
def test_a_healthy_batch_has_no_impossible_row(table: str) -> None:
    batch = make_batch()
    assert not impossible_rows(table, batch.rows(table), batch.mono_ns).any()


def test_flow_counters_out_of_order_or_beyond_the_op_are_impossible() -> None:
    flow = tables.empty_rows("flow", 5)
    flow["total_chunks"], flow["counters"] = 4, [4, 3, 2, 1]
    assert not impossible_rows("flow", flow, NOW).any()
    flow["counters"][1] = [1, 2, 2, 1]
    flow["total_chunks"][2] = 3
    flow["direction"][3] = 9
    flow["stuck_ns"][4] = -1
    assert impossible_rows("flow", flow, NOW).tolist() == [False, True, True, True, True]


def test_a_comm_rank_beyond_a_known_size_is_impossible() -> None:
    comm = tables.empty_rows("comm", 3)
    comm["n_ranks"], comm["comm_rank"] = [8, 8, 0], [7, 8, 8]
    assert impossible_rows("comm", comm, NOW).tolist() == [False, True, False]


def test_an_op_done_before_it_was_enqueued_or_at_a_time_that_cannot_be_is_impossible() -> None:
    op = tables.empty_rows("op", 5)
    op["enqueued_ns"], op["done_ns"] = 100, [0, 100, 99, NOW + FUTURE_NS_MAX + 1, 200]
    op["started_ns"][4] = -1
    assert impossible_rows("op", op, NOW).tolist() == [False, False, True, True, True]
