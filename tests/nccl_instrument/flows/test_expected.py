"""Expected volumes per peer, and the algorithm told by who sends to whom."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_instrument.flows.expected import (
    Algorithm,
    Tree,
    binary_tree,
    infer_algorithm,
    ring_volume,
    ring_volumes,
    tree_volumes,
)

MIB = 2**20


def peers_of(volumes: np.ndarray) -> dict[int, set[int]]:
    return {member: set(np.flatnonzero(row).tolist()) for member, row in enumerate(volumes)}


@pytest.mark.parametrize(
    ("func", "expected"), [("AllReduce", 2 * 4 * 3 / 4), ("AllGather", 12), ("ReduceScatter", 12), ("Broadcast", 4)]
)
def test_a_rings_volume_is_the_papers(func: str, expected: float) -> None:
    assert ring_volume(func, 4, 4) == expected
    assert ring_volume(func, 4, 1) == 0


def test_an_op_that_is_no_ring_is_refused() -> None:
    with pytest.raises(ValueError, match="no ring"):
        ring_volume("AllToAll", 4, 4)


def test_a_broadcasts_chain_ends_before_its_root() -> None:
    assert peers_of(ring_volumes("Broadcast", 8, [2, 0, 1])) == {0: {1}, 1: set(), 2: {0}}


@given(st.integers(2, 300), st.booleans())
def test_a_tree_joins_all_members_and_has_one_root(n: int, is_shifted: bool) -> None:
    tree = binary_tree(n, is_shifted=is_shifted)
    assert len(tree) == n - 1
    (root,) = set(range(n)) - tree.keys()
    for member in range(n):
        for _ in range(n):
            if member == root:
                break
            member = tree[member]
        assert member == root
    children = list(tree.values())
    assert max(children.count(parent) for parent in set(children)) <= 3


@given(st.integers(2, 64), st.integers(1, 10**6))
def test_trees_move_the_data_up_and_down(n: int, n_bytes: int) -> None:
    trees: list[Tree] = [binary_tree(n), binary_tree(n, is_shifted=True)]
    volumes = tree_volumes(n_bytes, trees, n)
    assert np.isclose(volumes.sum(), 2 * (n - 1) * n_bytes)
    assert (volumes == volumes.T).all()


@given(st.integers(3, 64), st.randoms(use_true_random=False))
def test_the_algorithm_is_told_by_who_sends_to_whom(n: int, random_: random.Random) -> None:
    order = list(range(n))
    random_.shuffle(order)
    assert infer_algorithm(peers_of(ring_volumes("AllReduce", MIB, order)), n) is Algorithm.RING
    tree = {order[child]: order[parent] for child, parent in binary_tree(n).items()}
    assert infer_algorithm(peers_of(tree_volumes(MIB, [tree], n)), n) is Algorithm.TREE


@given(st.integers(5, 64))
def test_two_trees_are_told_from_one(n: int) -> None:
    both = tree_volumes(MIB, [binary_tree(n), binary_tree(n, is_shifted=True)], n)
    assert infer_algorithm(peers_of(both), n) is Algorithm.DOUBLE_TREE


@pytest.mark.parametrize(
    "peers", [{}, {0: {1}}, {0: {1}, 1: {0}, 2: {3}, 3: {2}}, {0: {1, 2}, 1: {2}, 2: {0}}, {0: set(), 1: set()}]
)
def test_a_pattern_that_is_neither_is_not_guessed(peers: dict[int, set[int]]) -> None:
    assert infer_algorithm(peers, max(len(peers), 2)) is None
