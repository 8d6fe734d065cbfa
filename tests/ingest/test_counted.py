"""An op is counted once, however often an agent that starts again sends it."""

from __future__ import annotations

import numpy as np
import pytest

from ingest import counted
from ingest.counted import CountedOps
from nccl_instrument.tables import OP_REOPENED, empty_rows
from nccl_instrument.wire import Rows


def ops(*numbers: int, comm: int = 1, rank: int = 0, func: int = 1, peer: int = -1) -> Rows:
    rows = empty_rows("op", len(numbers))
    rows["op"], rows["comm_id"], rows["comm_rank"], rows["func"], rows["peer"] = numbers, comm, rank, func, peer
    return rows


def taken(counts: CountedOps, boot: int, rows: Rows, node: int = 1) -> list[int]:
    return counts.take_new(node, boot, rows)["op"].tolist()


def test_what_the_next_boot_repeats_is_not_counted_again() -> None:
    counts = CountedOps()
    assert taken(counts, 10, ops(1, 2, 3)) == [1, 2, 3]
    assert taken(counts, 11, ops(2, 3, 4)) == [4]
    assert taken(counts, 11, ops(5)) == [5]
    assert taken(counts, 12, ops(3, 5, 6)) == [6]
    assert counts.ops_repeated == 4


def test_batches_of_one_boot_may_come_in_any_order() -> None:
    counts = CountedOps()
    assert taken(counts, 10, ops(7, 8)) == [7, 8]
    assert taken(counts, 10, ops(1, 2)) == [1, 2]
    assert taken(counts, 11, ops(9, 10)) == [9, 10]
    assert taken(counts, 10, ops(3, 4)) == [3, 4]  # its spool, late


@pytest.mark.parametrize("other", [{"comm": 2}, {"rank": 1}, {"func": 2}, {"peer": 3}])
def test_every_communicator_rank_kind_and_peer_counts_for_itself(other: dict[str, int]) -> None:
    counts = CountedOps()
    taken(counts, 10, ops(1, 2, 3))
    assert taken(counts, 11, ops(1, 2, **other)) == [1, 2]
    assert taken(counts, 11, np.concatenate([ops(3, 4), ops(3, 4, **other)])) == [4, 3, 4]


def test_nodes_count_for_themselves() -> None:
    counts = CountedOps()
    taken(counts, 10, ops(1, 2))
    assert taken(counts, 11, ops(1, 2), node=2) == [1, 2]


def test_a_record_that_replaces_an_earlier_one_was_counted_with_it() -> None:
    counts, again = CountedOps(), ops(2)
    again["flags"] = OP_REOPENED
    assert taken(counts, 10, ops(1, 2)) == [1, 2]
    assert taken(counts, 10, again) == []


def test_what_is_remembered_is_bounded_and_what_was_forgotten_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "SERIES_MAX", 3)
    counts = CountedOps()
    for comm in (1, 2):
        taken(counts, 10, ops(5, comm=comm), node=1)
        taken(counts, 20, ops(5, comm=comm), node=2)
    assert counts.series_forgotten == 2
    assert taken(counts, 21, ops(5), node=2) == []
    assert taken(counts, 11, ops(5), node=1) == [5]  # forgotten: counted twice rather than not at all
