"""Iterations are cut alike on a node: the same op has one number at all its ranks, and nothing is lost in the cutting."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from rca.keys import Ints
from rca.ranks import known_ranks
from rca.settings import DEFAULT
from rca.slow.cuts import same_cut
from rca.slow.iterations import Iterations, _launched, iterations_of, stretches
from tests.nccl_instrument.simulate.jobs import run, window_of

SEEN_DIFFERENTLY = (
    Layout(tp=2, pp=2, dp=4, ranks_per_node=4),  # where the world's ring enters a node only one rank sees its op
    Layout(tp=2, pp=4, dp=2, ranks_per_node=4),
)


@cache
def counted(layout: Layout) -> tuple[Iterations, Ints]:
    window = window_of(run(layout, seconds=5))
    iterations, ranks = iterations_of(window), known_ranks(window, DEFAULT)
    return iterations, ranks.node[ranks.position(iterations.ranks)]


def numbers(iterations: Iterations, node: Ints) -> dict[tuple[int, ...], set[int]]:
    """(node, communicator, op, what, with whom) → the iterations that its ranks count it to."""
    found: dict[tuple[int, ...], set[int]] = {}
    op, place_node = iterations.column("op"), np.repeat(node, np.diff(iterations.first))
    for place, iteration in np.argwhere(np.isfinite(op)).tolist():
        key = int(place_node[place]), int(iterations.comm_id[place]), int(op[place, iteration])
        of = int(iterations.func[place]), int(iterations.peer[place])
        found.setdefault((*key, *of), set()).add(iteration)
    return found


def test_the_same_op_has_one_number_at_all_ranks_of_a_node() -> None:
    iterations, node = counted(SEEN_DIFFERENTLY[0])
    before, after = (numbers(one, node) for one in (iterations, same_cut(iterations, node)))
    assert any(len(seen) > 1 for seen in before.values())
    assert all(len(seen) == 1 for seen in after.values())


@pytest.mark.parametrize("layout", SEEN_DIFFERENTLY)
def test_cutting_moves_ops_and_loses_only_those_at_the_windows_ends(layout: Layout) -> None:
    iterations, node = counted(layout)
    cut = same_cut(iterations, node)
    lost = (iterations.row >= 0).sum() - (cut.row >= 0).sum()
    assert 0 <= lost <= 2 * len(iterations.rank)
    assert set(cut.row[cut.row >= 0].tolist()) <= set(iterations.row[iterations.row >= 0].tolist())
    began = np.repeat(cut.began, np.diff(cut.first), axis=0)
    assert np.nanmedian(cut.ready - began) > 0 and np.nanmin(np.nanmedian(cut.ready - began, axis=1)) >= 0


def test_while_one_rank_keeps_its_mates_waiting_in_an_op_it_still_has_one_number() -> None:
    """Where most of the window is slow the longest rest is inside that op: between its mates' beginnings and its own."""
    slow = make_fault("gpu_slow", SEEN_DIFFERENTLY[0], 2.0, amount=5.0, seed=1)
    window = window_of(run(SEEN_DIFFERENTLY[0], slow, seconds=9))
    iterations, ranks = iterations_of(window), known_ranks(window, DEFAULT)
    node = ranks.node[ranks.position(iterations.ranks)]
    usual, _ = stretches(iterations, ORIGIN_NS + 2 * 10**9)
    by_all, by_usual = (numbers(one, node) for one in (same_cut(iterations, node), same_cut(iterations, node, usual)))
    assert any(len(seen) > 1 for seen in by_all.values())
    assert all(len(seen) == 1 for seen in by_usual.values())


def test_ranks_of_unknown_nodes_keep_their_own_count() -> None:
    iterations, node = counted(SEEN_DIFFERENTLY[0])
    cut = same_cut(iterations, np.full_like(node, -1))
    assert np.array_equal(cut.row, iterations.row) and np.array_equal(cut.began, iterations.began, equal_nan=True)


def test_ops_enqueued_at_one_instant_keep_the_order_they_had_before_the_slowdown() -> None:
    """Two of three ops end the other way round in most iterations; a fourth place is known in late iterations only."""
    before, since = [0, 1, 2], [0, 2, 1, 3]
    iterations = [before] * 4 + [since] * 12
    place = np.array([one for ops in iterations for one in ops])
    index = np.repeat(np.arange(16), [len(ops) for ops in iterations])
    nth = np.concatenate([np.arange(len(ops)) for ops in iterations])
    assert _launched(place, index, nth, 4).tolist() == [0, 1, 2, 3]
    assert _launched(place[12:], index[12:], nth[12:], 4).tolist() == [0, 2, 1, 3]
