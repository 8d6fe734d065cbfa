"""Rows laid out together are the rows that each batch would have made, and the newest of each is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.traces.stacked import OF_ONE, Stack, is_plain, narrowed, newest
from ingest.window import WINDOW_DTYPE
from nccl_instrument.planes import PlaneTable
from nccl_instrument.tables import DTYPE
from nccl_instrument.wire import TraceBatch, encode_batch, open_batch


def piece(table: str, seed: int, n_rows: int) -> PlaneTable:
    """Rows of any bytes, as they travel: few row by row, many in planes."""
    rows = np.random.default_rng(seed).integers(0, 256, (n_rows, DTYPE[table].itemsize), np.uint8)
    rows[:, seed % rows.shape[1]] = 0
    batch = TraceBatch("job", "node", bytes(16), 1, 1, 1, {table: rows.view(DTYPE[table])[:, 0]})
    return open_batch(encode_batch(batch)).inflate()[table]


def written(stack: Stack, table: str, at: np.ndarray | None = None) -> list[bytes]:
    rows = np.zeros(len(stack) if at is None else len(at), WINDOW_DTYPE[table])
    stack.write(rows, at)
    assert not rows["rank"].any() and not rows["node"].any()
    return [row[: DTYPE[table].itemsize] for row in (one.tobytes() for one in rows)]


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(WINDOW_DTYPE)), st.lists(st.tuples(st.integers(0, 99), st.integers(1, 90)), min_size=1))
def test_every_piece_makes_the_rows_that_it_would_make_alone(table: str, made: list[tuple[int, int]]) -> None:
    pieces = [piece(table, seed, n_rows) for seed, n_rows in made]
    found: list[bytes] = []
    for kind in {is_plain(one) for one in pieces}:
        chunk = [one for one in pieces if is_plain(one) is kind]
        stack = Stack(table, chunk)
        rows = written(stack, table)
        some = np.arange(0, len(stack), 3)
        assert written(stack, table, some) == [rows[at] for at in some]
        for name in DTYPE[table].names or ():
            if DTYPE[table][name].shape == ():
                alone = np.concatenate([one.rows()[name] for one in chunk])
                assert stack[name].tobytes() == alone.tobytes()
                assert stack.narrow(name).astype(alone.dtype).tobytes() == alone.tobytes()
                assert name in stack.names or not alone.any()
        found += rows
    assert sorted(found) == sorted(row.tobytes() for one in pieces for row in one.rows())


@pytest.mark.parametrize("table", sorted(OF_ONE))
@pytest.mark.parametrize("n_ticks", [2, 60])  # row by row, and in planes
def test_of_what_is_in_progress_the_newest_row_of_each_is_kept(table: str, n_ticks: int) -> None:
    rows = np.zeros(3 * n_ticks, DTYPE[table])
    rows["comm_rank"] = np.arange(len(rows)) % 3
    rows["tick_ns"] = 1000 + np.arange(len(rows)) // 3
    rows["tick_ns"][-1] = 7  # of the last, the newest tick came before
    batch = TraceBatch("job", "node", bytes(16), 1, 1, 1, {table: rows})
    stack = Stack(table, [open_batch(encode_batch(batch)).inflate()[table]])
    kept = newest(table, stack, np.arange(len(rows)))
    assert kept.tolist() == [len(rows) - 4, len(rows) - 3, len(rows) - 2]
    earlier = newest(table, stack, np.arange(3))
    assert earlier.tolist() == [0, 1, 2], "only what is asked about counts"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=90))
def test_the_newest_rows_of_each_are_kept_in_whatever_order_ticks_come(told: list[tuple[int, int]]) -> None:
    rows = np.zeros(len(told), DTYPE["progress"])
    rows["tick_ns"], rows["comm_rank"] = np.array(told).T
    batch = TraceBatch("job", "node", bytes(16), 1, 1, 1, {"progress": rows})
    stack = Stack("progress", [open_batch(encode_batch(batch)).inflate()["progress"]])
    last = {rank: max(tick for tick, of in told if of == rank) for _, rank in told}
    expected = [at for at, (tick, rank) in enumerate(told) if tick == last[rank]]
    assert newest("progress", stack, np.arange(len(told))).tolist() == expected


def test_few_rows_that_travel_by_themselves_do_not_widen_what_comes_in_planes() -> None:
    rows = np.zeros(90, DTYPE["op"])
    rows["comm_id"], rows["peer"] = 300, -1
    by_rows, in_planes = (
        open_batch(encode_batch(TraceBatch("job", "node", bytes(16), 1, 1, 1, {"op": some}))).inflate()["op"]
        for some in (rows[:3], rows)
    )
    assert not is_plain(by_rows) and is_plain(in_planes)
    for name, width in (("comm_id", 2), ("peer", 1)):
        assert Stack("op", [by_rows]).narrow(name).dtype.itemsize == width
        assert Stack("op", [in_planes]).narrow(name).dtype.itemsize == width


@pytest.mark.parametrize(
    ("numbers", "width"), [([], 1), ([0, 255], 1), ([-1, 127], 1), ([-1, 300], 2), ([-(2**40)], 8)]
)
def test_whole_numbers_take_as_few_bytes_as_they_need_and_stay_equal(numbers: list[int], width: int) -> None:
    column = np.array(numbers, np.int64)
    assert narrowed(column).tolist() == numbers
    assert narrowed(column).dtype.itemsize == (width if numbers else 1)
