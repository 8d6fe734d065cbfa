"""Trees reach everybody once, have few children, and use both images; rings turn both ways."""

from __future__ import annotations

import numpy as np
import pytest

from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.simulate.topology import build_topology, node_tree, tree_parents


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 13, 64, 1250])
@pytest.mark.parametrize("is_mirrored", [False, True])
def test_every_node_hangs_below_the_root_with_at_most_two_children(n: int, is_mirrored: bool) -> None:
    parent = node_tree(n, is_mirrored)
    assert (parent == -1).sum() == 1
    at, hops = np.arange(n), 0
    while (parent[at] >= 0).any():
        at, hops = np.where(parent[at] >= 0, parent[at], at), hops + 1
        assert hops <= 2 * np.log2(n) + 2, "a circle"
    assert len(set(at.tolist())) == 1
    assert np.bincount(parent[parent >= 0], minlength=n).max(initial=0) <= 2


def test_a_leaf_of_one_tree_is_an_inner_node_of_the_other() -> None:
    one, other = node_tree(16, False), node_tree(16, True)
    leaves = set(range(16)) - set(one.tolist())
    assert leaves & set(other.tolist())


def test_inside_a_node_the_tree_is_a_chain() -> None:
    parent = tree_parents(np.repeat(np.arange(4), 8), channel=1)
    inside = [int(parent[rank]) // 8 == rank // 8 for rank in range(32) if parent[rank] >= 0]
    assert inside.count(True) == 4 * 7
    assert inside.count(False) == 3


def test_odd_channels_turn_the_other_way() -> None:
    links = build_topology(Layout(tp=1, pp=1, dp=4, ranks_per_node=1), TESTBED).links
    steps = (links["to"] - links["from"]) % 4
    assert set(steps[links["channel"] == 0].tolist()) == {1}
    assert set(steps[links["channel"] == 1].tolist()) == {3}
