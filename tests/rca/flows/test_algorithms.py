"""Rings, trees and double trees of simulated jobs are told apart by who sends to whom, channel by channel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nccl_instrument.flows.expected import Algorithm
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import FUNCS
from rca.flows.algorithms import algorithms_in
from tests.nccl_instrument.simulate.jobs import run, window_of

EIGHT_NODES = Layout(tp=1, pp=1, dp=8, ranks_per_node=1)


@pytest.mark.parametrize(
    ("reduce", "channels", "found"),
    [("ring", 2, Algorithm.RING), ("tree", 1, Algorithm.TREE), ("tree", 2, Algorithm.DOUBLE_TREE)],
)
def test_two_channels_whose_trees_take_different_ways_are_a_double_tree(
    reduce: str, channels: int, found: Algorithm
) -> None:
    """NCCL mirrors the tree of every second channel; each of them is a plain tree by itself."""
    physics = replace(TESTBED, traffic_rows=10**6, slices_every=1, dp_reduce=reduce, n_channels=channels)
    seen = algorithms_in(window_of(run(EIGHT_NODES, seconds=3.0, physics=physics)))
    those = [one for one in seen if FUNCS[one.func] == "AllReduce" and one.reported == reduce.upper()]
    assert those and {one.inferred for one in those} == {found} and all(one.agrees for one in seen)
