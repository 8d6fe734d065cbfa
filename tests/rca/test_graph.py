"""Components, reachability and chains of the wait-for graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rca.hang.graph import Graph


def graph(n: int, edges: list[tuple[int, int]]) -> Graph:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    return Graph(n, pairs[:, 0], pairs[:, 1])


def test_a_chain_ends_in_its_sink() -> None:
    chain = graph(4, [(0, 1), (1, 2), (2, 3)])
    assert chain.components() == [[3], [2], [1], [0]]
    assert chain.reaching([3]) == {0, 1, 2, 3}
    assert chain.next_hops([3]) == {3: 3, 2: 3, 1: 2, 0: 1}


def test_a_cycle_is_one_component() -> None:
    assert sorted(map(sorted, graph(4, [(0, 1), (1, 0), (2, 0)]).components())) == [[0, 1], [2], [3]]


def test_a_long_chain_needs_no_deep_stack() -> None:
    n = 20_000
    assert len(graph(n, [(i, i + 1) for i in range(n - 1)]).components()) == n


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=24))
def test_two_vertices_share_a_component_when_each_reaches_the_other(edges: list[tuple[int, int]]) -> None:
    found = graph(8, edges)
    place = {vertex: i for i, component in enumerate(found.components()) for vertex in component}
    for a in range(8):
        for b in range(8):
            mutual = a in found.reaching([b]) and b in found.reaching([a])
            assert (place[a] == place[b]) == mutual
