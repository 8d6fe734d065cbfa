"""Directed graphs given as arrays of edges: strongly connected components, what can reach what, shortest chains.

Small, plain algorithms: Tarjan's, iteratively (a chain of ten thousand waiting ranks must not overflow the stack), and
breadth-first search. Vertices are integers from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from rca.keys import Ints, distinct


class Graph:
    """Adjacency of `n` vertices in both directions."""

    def __init__(self, n: int, source: Ints, target: Ints) -> None:
        self.n = n
        self.out = _adjacency(n, source, target)
        self.into = _adjacency(n, target, source)

    def components(self) -> list[list[int]]:
        """Strongly connected components, each before those that can reach it (sinks first)."""
        order = np.full(self.n, -1, np.int64).tolist()
        low, on_stack = [0] * self.n, [False] * self.n
        stack: list[int] = []
        found: list[list[int]] = []
        counter = 0
        for root in range(self.n):
            if order[root] != -1:
                continue
            work = [(root, iter(self.out[root]))]
            order[root] = low[root] = counter
            counter += 1
            stack.append(root)
            on_stack[root] = True
            while work:
                vertex, following = work[-1]
                for other in following:
                    if order[other] == -1:
                        order[other] = low[other] = counter
                        counter += 1
                        stack.append(other)
                        on_stack[other] = True
                        work.append((other, iter(self.out[other])))
                        break
                    if on_stack[other]:
                        low[vertex] = min(low[vertex], order[other])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[vertex])
                    if low[vertex] == order[vertex]:
                        found.append(_pop_component(stack, on_stack, vertex))
        return found

    def reaching(self, targets: Iterable[int]) -> set[int]:
        """Vertices from which some target can be reached, targets included."""
        return set(self.next_hops(targets))

    def next_hops(self, targets: Iterable[int]) -> dict[int, int]:
        """Vertex → next vertex on a shortest chain to the nearest target; targets map to themselves."""
        following = {target: target for target in targets}
        queue = deque(following)
        while queue:
            vertex = queue.popleft()
            for waiter in self.into[vertex]:
                if waiter not in following:
                    following[waiter] = vertex
                    queue.append(waiter)
        return following


def _pop_component(stack: list[int], on_stack: list[bool], vertex: int) -> list[int]:
    component = []
    while True:
        other = stack.pop()
        on_stack[other] = False
        component.append(other)
        if other == vertex:
            return component


def _adjacency(n: int, source: Ints, target: Ints) -> list[list[int]]:
    """Lists of distinct neighbours."""
    edges = distinct(source * n + target)
    neighbours, starts = (edges % n).tolist(), np.searchsorted(edges, np.arange(n + 1) * n).tolist()
    return [neighbours[starts[vertex] : starts[vertex + 1]] for vertex in range(n)]
