"""The ops of some ranks are found in the table's own order, of however many ranks a job is."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Window
from rca.keys import Ints
from rca.slow.ops_of import RADIX_MAX, ops_of, ranks_told


def window_of(rank: Ints) -> Window:
    op = np.zeros(len(rank), WINDOW_DTYPE["op"])
    op["rank"] = rank
    return Window("job", 1, 0, 1, 1, 0, np.zeros(0, NODE), np.zeros(0, RANK), np.zeros(0, MEMBER), {"op": op})


@pytest.mark.parametrize("most", [9, RADIX_MAX - 2, RADIX_MAX - 1, 3 * RADIX_MAX])
def test_the_ops_of_some_ranks_are_those_that_a_plain_search_finds(most: int) -> None:
    rank = np.random.default_rng(3).integers(-1, 9, 4_000)
    rank[1_000:1_040] = most
    window = window_of(rank)
    for asked in ([], [3], [5, 0, 5], [most, 2], [-1], [most + 1], [7, 10**9]):
        expected = np.flatnonzero(np.isin(rank, [one for one in asked if one >= 0]))
        assert ops_of(window, np.array(asked, np.int64)).tolist() == expected.tolist()
    assert ranks_told(window).tolist() == sorted(set(rank[rank >= 0].tolist()))


def test_of_no_ops_none_are_found() -> None:
    window = window_of(np.zeros(0, np.int64))
    assert not len(ops_of(window, np.array([0, 1]))) and not len(ranks_told(window))
