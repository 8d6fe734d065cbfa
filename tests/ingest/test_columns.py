"""Columns answer as the rows would that they were made of, and take less memory."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.columns import Columns, Growing, floats, of_ranks, picked, rows_at, taken
from ingest.window import WINDOW_DTYPE, Rows


def some_rows(n: int) -> Rows:
    """Ops with small numbers, negative ones, points in time, and columns of nothing."""
    rows, random = np.zeros(n, WINDOW_DTYPE["op"]), np.random.default_rng(7)
    rows["comm_id"] = random.integers(0, 2**63, n)
    rows["peer"] = random.integers(-1, 9, n)
    rows["count"] = random.integers(0, 70_000, n)
    rows["done_ns"] = 1_790_000_000 * 10**9 + random.integers(0, 10**9, n)
    rows["rank"] = random.integers(0, 200, n)
    return rows


def grown(rows: Rows, sizes: list[int]) -> Columns:
    """The rows as columns, part by part, each part as narrow as it can be."""
    made, at = Growing(rows.dtype, len(rows)), 0
    for size in sizes:
        part = rows[at : at + size]
        made.add(size, {name: narrowest(part[name]) for name in rows.dtype.names or () if part[name].any()})
        at += size
    return made.made()


def narrowest(column: np.ndarray) -> np.ndarray:
    for kind in (np.uint8, np.uint16, np.uint32):
        if column.dtype.kind in "iu" and column.min() >= 0 and column.max() <= np.iinfo(kind).max:
            return column.astype(kind)
    return column


@pytest.mark.parametrize("sizes", [[90], [1, 40, 49], [0, 90, 0]])
def test_columns_are_of_the_tables_own_types_and_equal_to_those_of_the_rows(sizes: list[int]) -> None:
    rows = some_rows(90)
    columns = grown(rows, sizes)
    assert len(columns) == 90 and columns.dtype == rows.dtype
    for name in rows.dtype.names or ():
        assert columns[name].dtype == rows[name].dtype
        assert columns[name].tobytes() == rows[name].tobytes()


def test_positions_masks_and_slices_give_rows() -> None:
    rows = some_rows(90)
    columns = grown(rows, [50, 40])
    for key in (np.array([3, 1, 89, -1]), rows["rank"] > 99, slice(0, 0), slice(None, None, 7), [2, 4]):
        assert columns[key].tobytes() == rows[key].tobytes()
    assert np.asarray(columns).tobytes() == rows.tobytes()
    assert columns[5] == rows[5]


def test_single_columns_are_taken_at_any_positions() -> None:
    rows = some_rows(90)
    columns = grown(rows, [90])
    at = np.array([[0, 5], [-1, 7]])
    for name in ("peer", "count", "seq"):
        assert taken(columns, name, at).tolist() == taken(rows, name, at).tolist() == rows[name][at].tolist()


def test_some_columns_of_some_rows_are_picked_of_either_kind() -> None:
    rows, names, at = some_rows(90), ("rank", "peer", "seq"), np.array([80, 2, 2])
    for told in (rows, grown(rows, [90])):
        found = picked(told, at, names)
        assert len(found) == 3 and found.dtype.names == names
        assert [found[name].tolist() for name in names] == [rows[name][at].tolist() for name in names]


def test_no_column_may_be_written_to() -> None:
    columns = grown(some_rows(9), [9])
    with pytest.raises(ValueError, match="read-only"):
        columns["done_ns"][0] = 1


def test_a_column_that_nobody_has_is_unknown() -> None:
    with pytest.raises(KeyError):
        grown(some_rows(9), [9])["colour"]


def test_no_rows_are_columns_too() -> None:
    columns = Growing(WINDOW_DTYPE["op"], 0).made()
    assert len(columns) == 0 and len(columns["op"]) == 0 and len(columns[np.zeros(0, bool)]) == 0


def test_floats_are_the_numbers_less_what_they_count_from_and_minus_one_is_the_last_row() -> None:
    dtype = np.dtype([("at_ns", "<i8"), ("peer", "<i4"), ("n", "<u2"), ("left_out_ns", "<i8")])
    rows = np.zeros(5, dtype)
    rows["at_ns"], rows["peer"], rows["n"] = np.arange(5) + 10**18, [-1, 3, 2, -7, 4], [5, 4, 3, 2, 1]
    held = {"at_ns": rows["at_ns"].copy(), "peer": rows["peer"].astype(np.int8), "n": rows["n"].astype(np.uint8)}
    at = np.array([[0, 4], [-1, 2]])
    for name in dtype.names or ():
        for since in (0, 10**18) if name.endswith("_ns") else (0,):
            expected = (rows[name][at].astype(np.int64) - since).astype(np.float64)
            for told in (rows, Columns(dtype, 5, held)):
                assert floats(told, name, at, since).tolist() == expected.tolist()


def test_rows_at_positions_or_of_a_mask_are_those_that_indexing_says() -> None:
    rows = some_rows(300)
    for which in (rows["rank"] < 90, np.array([5, 5, -1, 0]), np.zeros(0, np.int64)):
        for told in (rows, grown(rows, [300])):
            assert rows_at(told, which).tobytes() == rows[which].tobytes()


def test_the_rows_of_some_ranks_are_copied_only_where_there_are_others() -> None:
    rows = some_rows(300)
    for ranks in (np.array([3, 7, 8]), np.arange(120), np.zeros(0, np.int64)):
        for told in (rows, grown(rows, [300])):
            assert of_ranks(told, ranks).tobytes() == rows[np.isin(rows["rank"], ranks)].tobytes()
    assert of_ranks(rows, np.arange(200)) is rows
