"""Replicas that are slow together are everybody's trouble only when they are more than a part of one node, and most of those
of whom anything is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rca.slow.cover import blamed_of, is_beyond_a_node
from rca.slow.delays import Delays
from rca.slow.launches import Launches


@pytest.mark.parametrize(
    ("node", "slow", "is_beyond"),
    [
        ((0, 0, 0, 1, 1, 1), (0, 1), False),
        ((0, 0, 0, 1, 1, 1), (0, 1, 2), False),
        ((0, 0, 0, 1, 1, 1), (0, 3), True),
        ((0, 0, 0, 0, 0, 0), (0, 1, 2, 3), True),
        ((-1, -1, 0, 1, 1, 1), (0, 1), True),
    ],
    ids=["some of a node", "all of a node", "of two nodes", "a job on one node", "of nodes nobody knows"],
)
def test_ranks_that_are_slow_together(node: tuple[int, ...], slow: tuple[int, ...], is_beyond: bool) -> None:
    assert is_beyond_a_node(np.array(node), np.isin(np.arange(6), slow)) is is_beyond


def blamed(n_ranks: int, late: int, told: int) -> tuple[int, bool]:
    """How many ranks are blamed, and whether everybody is, of n_ranks with one program, one on each node, the first of which
    are late, and of the first of which it is known."""
    rank = np.arange(n_ranks)
    iterations: Any = SimpleNamespace(programs=lambda: np.zeros(n_ranks, np.uint64))
    total = np.where(rank < late, 1e9, 0.0)
    is_blamed, is_everybody = blamed_of(iterations, rank, total, 1e9, rank < told)
    return int(is_blamed.sum()), is_everybody


@pytest.mark.parametrize(("told", "is_everybody"), [(40, False), (21, False), (20, True), (16, True)])
def test_those_of_whom_it_is_not_known_do_not_speak_for_the_others(told: int, is_everybody: bool) -> None:
    assert blamed(40, late=12, told=told) == (12, is_everybody)


@pytest.mark.parametrize(("late", "is_everybody"), [(4, False), (5, False), (6, True)])
def test_of_less_than_a_quarter_of_the_ranks_nothing_is_told_of_the_others(late: int, is_everybody: bool) -> None:
    assert blamed(40, late=late, told=late) == (late, is_everybody)


@pytest.mark.parametrize(("n_told", "is_everybody"), [(4, False), (8, False), (5, False)])
def test_of_few_nodes_that_are_told_nothing_is_told_of_the_others(n_told: int, is_everybody: bool) -> None:
    """Sixteen nodes of eight, one rank late on each of four of the first five, a rack say."""
    rank = np.arange(128)
    iterations: Any = SimpleNamespace(programs=lambda: rank.astype(np.uint64))
    total = np.where((rank % 8 == 0) & (rank // 8 < 4), 1e9, 0.0)
    is_blamed, said = blamed_of(iterations, rank // 8, total, 1e9, rank // 8 < n_told)
    assert (int(is_blamed.sum()), said) == (4, is_everybody)


@pytest.mark.parametrize(("n_struck", "is_everybody"), [(8, True), (6, True), (5, False)])
def test_half_the_ranks_of_most_nodes_are_everybody(n_struck: int, is_everybody: bool) -> None:
    """Eight nodes of four; the two where the rings leave a node show what all are late by, the two where they enter do not."""
    rank = np.arange(32)
    iterations: Any = SimpleNamespace(programs=lambda: np.zeros(32, np.uint64))
    total = np.where((rank % 4 >= 2) & (rank // 4 < n_struck), 1e9, 0.0)
    is_blamed, said = blamed_of(iterations, rank // 4, total, 1e9, np.ones(32, bool))
    assert (int(is_blamed.sum()), said) == (2 * n_struck, is_everybody)


@pytest.mark.parametrize(("other_stage", "is_everybody"), [(0.37e9, True), (0.15e9, False)])
def test_a_stage_that_loses_less_by_what_strikes_everybody_counts(other_stage: float, is_everybody: bool) -> None:
    """Two stages of 16; a pair of the other one is late by as much as makes it blamed too, so that not all replicas are."""
    rank = np.arange(32)
    iterations: Any = SimpleNamespace(programs=lambda: (rank // 16).astype(np.uint64))
    total = np.where(rank >= 16, 1e9, np.where(rank < 2, 0.45e9, other_stage))
    is_blamed, said = blamed_of(iterations, rank // 4, total, 1e9, np.ones(32, bool))
    assert (int(is_blamed.sum()), said) == (18, is_everybody)


def test_few_ranks_are_never_everybody() -> None:
    assert blamed(40, late=3, told=3) == (3, False)
    assert blamed(5, late=3, told=5) == (3, False)


NAN = np.nan


@pytest.mark.parametrize(
    ("own_ns", "told"),
    [
        ([[0.0, NAN], [NAN, NAN], [NAN, NAN]], [True, False]),
        ([[NAN, NAN], [NAN, 5.0], [NAN, NAN]], [True, False]),
        ([[NAN, NAN], [NAN, NAN], [NAN, 0.0]], [False, True]),
        ([[NAN, NAN], [NAN, NAN], [NAN, NAN]], [False, False]),
    ],
    ids=["in one iteration", "by one launch", "the other rank", "nobody"],
)
def test_a_rank_is_told_of_by_any_launch_whose_delay_is_known(own_ns: list[list[float]], told: list[bool]) -> None:
    assert delays(own_ns).is_told(np.array([True, True])).tolist() == told


def test_what_was_known_before_the_slowdown_does_not_tell_of_it() -> None:
    assert delays([[0.0, NAN], [NAN, NAN], [NAN, 0.0]]).is_told(np.array([False, True])).tolist() == [False, True]


def test_a_rank_without_launches_is_not_told_of() -> None:
    assert delays([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], (0, 2, 2, 3)).is_told(np.array([True, True])).tolist() == [
        True, False, True,
    ]  # fmt: skip


def delays(own_ns: list[list[float]], first: tuple[int, ...] = (0, 2, 3)) -> Delays:
    """Of two launches of one rank, and one of another, in two iterations."""
    own = np.array(own_ns)
    nothing = np.full(own.shape, NAN)
    launches = Launches(
        np.array(first), np.arange(len(own)).astype(np.uint64), nothing, nothing, nothing, np.zeros(len(own)),
        np.zeros(len(own), bool),
    )  # fmt: skip
    return Delays(launches, own, np.zeros(len(own)), np.arange(len(first) - 1))
