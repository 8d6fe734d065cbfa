"""What an iteration is, found from the ops alone."""

from __future__ import annotations

import numpy as np
import pytest

from nccl_instrument.tables import FUNCS
from rca.keys import Rows
from rca.slow.streams import known_streams
from tests.windows import WINDOW_DTYPE

MS = 10**6


def ops(*calls: tuple[float, int, int], rounds: int = 12, round_ms: float = 200.0, comm: int = 7) -> Rows:
    """One rank's ops of a communicator: (ms into the round, func, count) of each call, repeated."""
    rows = np.zeros(len(calls) * rounds, WINDOW_DTYPE["op"])
    for at, row in enumerate(rows):
        ms, row["func"], row["count"] = calls[at % len(calls)]
        row["enqueued_ns"] = row["first_ready_ns"] = (at // len(calls) * round_ms + ms) * MS
        row["op"], row["comm_id"], row["peer"] = at + 1, comm, -1
    return rows


def test_calls_of_different_sizes_repeat_with_the_iteration() -> None:
    streams = known_streams(ops((0, 4, 100), (20, 4, 100), (50, 3, 200)))
    assert streams.iteration_ns == pytest.approx(200 * MS, rel=0.05)
    assert streams.per_iteration.tolist() == [3]


def test_calls_of_one_size_are_told_apart_by_the_time_between_them() -> None:
    assert known_streams(ops((0, 5, 1), (10, 5, 1), (20, 5, 1), (30, 5, 1))).per_iteration.tolist() == [4]


@pytest.mark.parametrize("seed", range(20))
def test_calls_of_one_size_at_no_regular_time_are_an_iteration_each(seed: int) -> None:
    rows = ops(*[(0.0, FUNCS.index("AllReduce"), 1)], rounds=60, round_ms=10)
    rows["first_ready_ns"] = np.cumsum(np.random.default_rng(seed).exponential(10 * MS, len(rows))).astype(np.int64)
    assert known_streams(rows).per_iteration.tolist() == [1]


def test_too_few_calls_are_no_iteration() -> None:
    assert known_streams(ops((0, 5, 1), rounds=3)).iteration_ns == 0
    assert known_streams(ops((0, 5, 1), rounds=0)).iteration_ns == 0


@pytest.mark.parametrize("every", [4, 5, 7])
def test_steps_that_now_and_then_take_longer_since_some_time_are_an_iteration_each(every: int) -> None:
    rows = ops((0.0, FUNCS.index("AllReduce"), 1), rounds=120)
    longer = np.where((np.arange(120) >= 30) & (np.arange(120) % every == 0), 300 * MS, 0)
    rows["first_ready_ns"] += np.cumsum(longer)
    streams = known_streams(rows)
    assert streams.per_iteration.tolist() == [1]


def test_bursts_that_grow_longer_are_still_one_iteration_each() -> None:
    rows = ops((0, 5, 1), (10, 5, 1), (20, 5, 1), (30, 5, 1), rounds=40)
    rows["first_ready_ns"] += np.cumsum(np.where(np.arange(160) >= 40, 8 * MS, 0))
    assert known_streams(rows).per_iteration.tolist() == [4]


@pytest.mark.parametrize(("n_pauses", "n_ranks"), [(1, 1), (2, 1), (1, 256), (2, 1000)])
def test_a_pause_of_the_whole_job_does_not_change_how_often_a_stream_comes(n_pauses: int, n_ranks: int) -> None:
    """One stream's first op lies before the first pause, in which the other's does not yet exist."""
    calls = [(0.0, 4, 1), (18.0, 4, 1), (44.0, 4, 1)]
    first, other = (ops(*calls, rounds=20, comm=comm) for comm in (7, 8))
    other = other[1:]
    for rows in (first, other):
        paused = [np.where(rows["op"] > 1 + 30 * pause, 14_000 * MS, 0) for pause in range(n_pauses)]
        rows["first_ready_ns"] += np.sum(paused, axis=0)
    told = np.tile(np.concatenate([first, other]), n_ranks)  # each op by all ranks, of which some are asked
    told["rank"] = np.repeat(np.arange(n_ranks), len(first) + len(other))
    streams = known_streams(told)
    assert streams.per_iteration.tolist() == [3, 3]
    assert streams.iteration_ns == pytest.approx(200 * MS, rel=0.05)


@pytest.mark.parametrize("rounds", [4, 20])
def test_what_a_loop_waits_for_in_every_round_is_no_pause(rounds: int) -> None:
    streams = known_streams(ops((0, 4, 100), (20, 4, 100), (50, 3, 200), rounds=rounds, round_ms=15_000))
    assert streams.per_iteration.tolist() == [3]
    assert streams.iteration_ns == pytest.approx(3 * ((rounds - 1) * 15_000 + 50) / (3 * rounds - 1) * MS, rel=0.01)
