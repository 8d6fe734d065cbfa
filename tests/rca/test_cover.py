"""Replicas that are slow together are everybody's trouble only when they are more than a part of one node."""

from __future__ import annotations

import numpy as np
import pytest

from rca.slow.cover import is_beyond_a_node


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
