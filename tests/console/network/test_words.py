"""What the network tab's pictures say where only some of a group's ranks were measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from console.network.figures import paths_figure, rank_rows, times_figure
from console.network.panel import span_words
from rca.flows.pictures import OpTimes, Paths, finished_times


def alike(n: int) -> OpTimes:
    one = np.ones(n)
    rank = np.arange(n)
    return OpTimes(rank, rank, rank, rank + 10, 1e6 * one, 2e6 * one, 1e6 * one, one > 0)


def paths(n: int) -> Paths:
    return Paths(np.arange(n), np.arange(1), np.full((n, 1), 1e9), np.full((n, 1), 1e6), np.full((n, 1), -1))


def test_all_ranks_are_alike_only_where_all_were_measured() -> None:
    assert times_figure(alike(4), 0, 4)["text"].endswith("All ranks are alike.")
    said = times_figure(alike(2), 0, 64)["text"]
    assert said.startswith("Of the 2 of 64 ranks that were measured: ops lasted") and "All ranks" not in said
    assert "alike" not in times_figure(alike(1), 0, 64)["text"]


def test_nobody_is_called_alike_who_is_not_though_nobody_stands_out() -> None:
    uneven = replace(alike(4), actual_ns=1e6 * np.array([0.76, 1.0, 1.0, 1.24]))
    said = times_figure(uneven, 0, 4)["text"]
    assert said.endswith("Nobody stands out.") and "alike" not in said


@pytest.mark.parametrize(
    ("mean_ns", "said"),
    [
        ({0: 25.1e6}, "25.1 ms"),
        ({0: 25.11e6, 1: 25.12e6}, "25.1 ms on each of them"),
        ({0: 20e6, 1: 25.1e6}, "20 to 25.1 ms, longest on stage 1"),
    ],
)
def test_what_is_the_same_on_all_stages_is_told_once(mean_ns: dict[int, float], said: str) -> None:
    assert span_words(mean_ns) == said


def test_a_path_is_slower_than_its_rank_where_a_rank_has_several() -> None:
    assert "together" not in paths_figure(paths(4), 4, by_peer=False)["text"]
    two = Paths(np.arange(4), np.arange(2), np.full((4, 2), 1e9), np.full((4, 2), 1e6), np.full((4, 2), -1))
    assert "all its paths together" in paths_figure(two, 4, by_peer=False)["text"]


def test_of_ops_that_have_not_moved_all_no_time_is_compared() -> None:
    half = replace(alike(4), is_finished=np.array([True, True, False, True]))
    assert finished_times(half).rank.tolist() == [0, 1, 3]
    assert finished_times(replace(half, is_finished=np.zeros(4, bool))).rank.tolist() == [0, 1, 2, 3], (
        "nothing else is there"
    )
    rows = rank_rows(finished_times(half), 0, {2: 1, 3: 2})
    assert {row["rank"]: row["unfinished"] for row in rows} == {0: 0, 1: 0, 2: 1, 3: 2}
    assert rows[-1]["rank"] == 2 and rows[-1]["actual_ms"] is None


@pytest.mark.parametrize(
    ("n", "of"), [(4, "All paths are"), (2, "All paths of the 2 of 4 ranks that were measured are")]
)
def test_all_paths_are_as_fast_of_those_that_were_measured(n: int, of: str) -> None:
    assert paths_figure(paths(n), 4, by_peer=False)["text"].startswith(f"{of} about as fast")
