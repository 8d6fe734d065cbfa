"""Summing in memory: equal to adding op by op, bounded, and never more than a column can hold."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.sums import rollup
from ingest.sums.rollup import BIN, COUNTS, KEPT_SECONDS, OpBatch, Rollups, bus_share, quantiles_ns
from nccl_instrument.tables import FUNCS, OP_REOPENED, empty_rows
from nccl_instrument.wire import Rows
from tests.ingest.oracle import Key, Total, add_op

SECOND = 1_000_000_000


def ops(n: int, **columns: object) -> Rows:
    rows = empty_rows("op", n)
    rows["func"], rows["comm_id"], rows["bytes"] = 1, 7, 100
    rows["enqueued_ns"], rows["started_ns"], rows["done_ns"] = 5 * SECOND, 5 * SECOND, 6 * SECOND
    for name, value in columns.items():
        rows[name] = value
    return rows


def batch(rows: Rows, attempt: int = 1, shift_ns: int = 0) -> OpBatch:
    return OpBatch(attempt, 1, 1, shift_ns, rows)


def totals_of(rollups: Rollups) -> dict[Key, Total]:
    sums = rollups.changed()
    found: dict[Key, Total] = {}
    ends = np.cumsum(sums.n_bins)
    for i, key in enumerate(sums.keys.tolist()):
        total = found[tuple(key)] = Total()
        *total.counts, total.longest_ns = sums.counts[i].tolist()
        for entry in sums.bins[ends[i] - sums.n_bins[i] : ends[i]]:
            total.bins[int(entry["bin"])] = int(entry["n"])
    return found


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8),
    at_once=st.integers(1, 200),
)
def test_sums_are_those_of_adding_op_by_op(seed: int, sizes: list[int], at_once: int) -> None:
    rng = np.random.default_rng(seed)
    rollups, expected = Rollups(), defaultdict(Total)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollup, "ROWS_AT_ONCE", at_once)
        for _ in range(2):
            batches = [random_batch(rng, n) for n in sizes]
            rollups.add(batches)
            for one in batches:
                for op in one.ops[(one.ops["flags"] & OP_REOPENED) == 0]:
                    add_op(expected, one.attempt_id, one.shift_ns, op)
    assert totals_of(rollups) == dict(expected)


def random_batch(rng: np.random.Generator, n: int) -> OpBatch:
    rows = empty_rows("op", n)
    rows["comm_id"] = rng.choice(np.array([1, 2, 2**64 - 5], np.uint64), n)
    rows["func"], rows["bytes"] = rng.integers(0, 3, n), rng.integers(0, 2**40, n)
    rows["enqueued_ns"] = rng.integers(0, 2, n) * rng.integers(1, 30 * SECOND, n)
    rows["started_ns"] = rng.integers(0, 2, n) * (rows["enqueued_ns"] + 5)
    rows["done_ns"] = rng.integers(0, 2, n) * (rows["enqueued_ns"] + rng.integers(0, 2**34, n))
    rows["flags"] = rng.choice([0, 0, 0, OP_REOPENED], n)
    return OpBatch(int(rng.integers(1, 3)), 1, 1, int(rng.integers(-(2**40), 2**60)), rows)


def test_keys_that_sort_alike_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "_mixed", lambda attempts, *_: np.zeros(len(attempts), np.uint64))
    rollups = Rollups()
    rollups.add([batch(ops(1, comm_id=comm)) for comm in (1, 2, 1, 2, 1)])
    counts = {key[1]: total.counts[0] for key, total in totals_of(rollups).items()}
    assert counts == {1: 3, 2: 2}


def test_only_what_changed_is_written_again() -> None:
    rollups = Rollups()
    rollups.add([batch(ops(3)), batch(ops(2, comm_id=8))])
    assert len(rollups.changed().parts) == 2
    rollups.written()
    assert len(rollups.changed().parts) == 0
    rollups.add([batch(ops(1))])
    assert [total.counts[0] for total in totals_of(rollups).values()] == [4]


def test_ops_later_than_sums_are_kept_start_a_new_part() -> None:
    clock, late = [0.0], ops(1)
    rollups = Rollups(lambda: clock[0])
    rollups.add([batch(late)])
    first = rollups.changed().parts.tolist()
    rollups.written()
    clock[0] += KEPT_SECONDS / 2
    rollups.add([batch(ops(1, done_ns=500 * SECOND))])  # ahead of the others, and nobody's sum is ended by it
    rollups.written()
    rollups.add([batch(late)])
    assert rollups.changed().parts.tolist() == first
    rollups.written()
    clock[0] += KEPT_SECONDS + 1
    rollups.written()
    rollups.add([batch(late)])
    assert [total.counts[0] for total in totals_of(rollups).values()] == [1]
    assert rollups.changed().parts.tolist() != first


def test_ops_beyond_the_limit_of_sums_are_counted_and_the_others_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "SUMS_MAX", 2)
    rollups = Rollups()
    rollups.add([batch(ops(1, comm_id=1)), batch(ops(2, comm_id=2))])
    rollups.add([batch(np.concatenate([ops(5, comm_id=3), ops(1, comm_id=2)]))])
    assert rollups.ops_not_summed == 5
    assert sorted(total.counts[0] for total in totals_of(rollups).values()) == [1, 3]
    assert sum(sum(total.bins.values()) for total in totals_of(rollups).values()) == 4


def test_what_a_hostile_agent_claims_does_not_overflow_a_column() -> None:
    rollups = Rollups()
    for _ in range(3):
        rollups.add([batch(ops(20_000, bytes=2**50, started_ns=1, done_ns=2**57))])
    counts = rollups.changed().counts[0].tolist()
    assert dict(zip(COUNTS, counts, strict=True))["n_ops"] == 60_000
    assert dict(zip(COUNTS, counts, strict=True))["bytes"] == rollup.TOTAL_MAX
    assert max(counts) <= rollup.TOTAL_MAX and min(counts) > 0


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_a_quantile_of_added_parts_is_that_of_all_durations_within_a_bin(quantile: float) -> None:
    durations = np.random.default_rng(3).lognormal(16, 1, 4000).astype(np.int64)
    rollups = [Rollups(), Rollups()]
    for part, mine in zip(rollups, (durations[:100], durations[100:]), strict=True):
        part.add([batch(ops(len(mine), done_ns=5 * SECOND + mine))])
    bins = np.concatenate([part.changed().bins for part in rollups])
    found = quantiles_ns(bins, [quantile], int(durations.max()))[0]
    assert found == pytest.approx(np.quantile(durations, quantile), rel=0.045)


def test_without_durations_quantiles_are_zero() -> None:
    assert quantiles_ns(np.zeros(0, BIN), (0.5, 0.99), 0) == (0, 0)


@pytest.mark.parametrize(
    ("func", "share"),
    [("AllReduce", 1.75), ("AllGather", 7), ("ReduceScatter", 7), ("Broadcast", 1), ("Unknown", None)],
)
def test_a_link_carries_what_nccl_tests_says_it_does(func: str, share: float | None) -> None:
    assert bus_share(FUNCS.index(func), 8) == share


def test_bus_bandwidth_is_unknown_with_the_size_of_the_communicator() -> None:
    assert bus_share(FUNCS.index("AllReduce"), 0) is None
