"""Expected volumes per peer, and the algorithm told by who sends to whom."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_instrument.flows.algorithm import infer_algorithm, infer_at_rank
from nccl_instrument.flows.expected import (
    Algorithm,
    OpShape,
    binary_tree,
    double_tree,
    moved_to,
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


@given(st.integers(2, 300), st.integers(0, 1))
def test_a_tree_joins_all_members_and_has_one_root(n: int, which: int) -> None:
    tree = double_tree(n)[which]
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
    volumes = tree_volumes(n_bytes, list(double_tree(n)), n)
    assert np.isclose(volumes.sum(), 2 * (n - 1) * n_bytes)
    assert (volumes == volumes.T).all()


@given(st.integers(3, 300))
def test_nobody_is_an_inner_member_of_both_trees_but_one(n: int) -> None:
    """So the two share the work: each sends the data's half up and down in one, and passes nothing on in the other."""
    inner = [set(tree.values()) for tree in double_tree(n)]
    assert len(inner[0] & inner[1]) <= 1


def test_the_trees_of_four_and_five_are_nccls() -> None:
    """Drawn by hand from ncclGetBtree and ncclGetDtree: member to parent."""
    assert double_tree(4) == ({1: 2, 2: 0, 3: 2}, {2: 1, 1: 3, 0: 1})
    assert double_tree(5) == ({1: 2, 2: 4, 3: 2, 4: 0}, {2: 3, 3: 0, 4: 3, 0: 1})


@given(st.integers(3, 64), st.randoms(use_true_random=False))
def test_the_algorithm_is_told_by_who_sends_to_whom(n: int, random_: random.Random) -> None:
    order = list(range(n))
    random_.shuffle(order)
    assert infer_algorithm(peers_of(ring_volumes("AllReduce", MIB, order)), n) is Algorithm.RING
    tree = {order[child]: order[parent] for child, parent in binary_tree(n).items()}
    assert infer_algorithm(peers_of(tree_volumes(MIB, [tree], n)), n) is Algorithm.TREE


@given(st.integers(5, 64))
def test_two_trees_are_told_from_one(n: int) -> None:
    both = tree_volumes(MIB, list(double_tree(n)), n)
    assert infer_algorithm(peers_of(both), n) is Algorithm.DOUBLE_TREE


@pytest.mark.parametrize(
    "peers", [{}, {0: {1}}, {0: {1}, 1: {0}, 2: {3}, 3: {2}}, {0: {1, 2}, 1: {2}, 2: {0}}, {0: set(), 1: set()}]
)
def test_a_pattern_that_is_neither_is_not_guessed(peers: dict[int, set[int]]) -> None:
    assert infer_algorithm(peers, max(len(peers), 2)) is None


def test_one_rank_tells_a_ring_by_two_ways_and_a_tree_by_the_same_peers_both_ways() -> None:
    assert infer_at_rank({0: [3], 1: [5]}, {0: [5], 1: [3]}) is Algorithm.RING
    assert infer_at_rank({0: [3, 4, 1]}, {0: [1, 3, 4]}) is Algorithm.TREE
    for sends, receives in [({}, {}), ({0: [1]}, {0: [1]}), ({0: [1]}, {1: [2]}), ({0: [1, 2]}, {0: [3]})]:
        assert infer_at_rank(sends, receives) is None  # a leaf of a tree looks like a ring of two


MIXED = [
    (OpShape("AllReduce", MIB, 4, "RING", "SIMPLE"), {1: 1, 3: 1}, 2, {1: 0.75 * MIB, 3: 0.75 * MIB}),
    (OpShape("AllReduce", MIB, 4, "RING", "LL"), {1: 2}, 2, {1: 3.0 * MIB}),
    (OpShape("AllReduce", 120, 2, "RING", "LL128"), {1: 1}, 1, {1: 128.0}),
    (OpShape("AllReduce", MIB, 8, "TREE", "SIMPLE"), {2: 2, 4: 1}, 4, {2: MIB / 2, 4: MIB / 4}),
    (OpShape("AllGather", 1000, 8, "RING", "SIMPLE"), {5: 4}, 4, {5: 7000.0}),
    (OpShape("Broadcast", 1000, 4, "RING", "SIMPLE", comm_rank=3, root=0), {0: 1, 2: 1}, 2, {2: 500.0}),
    (OpShape("Reduce", 1000, 4, "RING", "SIMPLE", comm_rank=0, root=0), {1: 1}, 1, {}),
    (OpShape("Send", 4096, 2, peer=1), {1: 4, 2: 1}, 4, {1: 4096.0}),
    (OpShape("Recv", 4096, 2, peer=3), {1: 4}, 4, {}),
    (OpShape("AlltoAll", 512, 3), {1: 1, 2: 1}, 1, {1: 512.0, 2: 512.0}),
    (OpShape("AllReduce", MIB, 8, "NVLS"), {1: 1}, 1, {}),
    (OpShape("AllReduce", MIB, 1, "RING"), {}, 1, {}),
]


@pytest.mark.parametrize(("op", "peers", "n_channels", "expected"), MIXED)
def test_what_goes_to_each_peer_is_the_channels_share(
    op: OpShape, peers: dict[int, int], n_channels: int, expected: dict[int, float]
) -> None:
    assert moved_to(op, peers, n_channels) == expected


def test_an_algorithm_that_is_not_said_is_taken_as_inferred() -> None:
    op = OpShape("AllReduce", MIB, 4)
    assert moved_to(op, {1: 1}, 1) == {}
    assert moved_to(op, {1: 1}, 1, Algorithm.RING) == {1: 1.5 * MIB}
