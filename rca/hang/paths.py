"""From victims to culprits: the shortest chains of waiting, as edges between ranks.

The graph also has vertices for ops, links and NICs; they are folded into the edge that leads through them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from rca.findings import FaultKind, Finding, WaitEdge
from rca.hang.progress import Progress
from rca.hang.waits import SENTENCES, Edges, Why, joined


@dataclass(frozen=True, slots=True)
class Paths:
    """What leads to what a finding names. hops: vertex → next one on a shortest chain there. blamed: rank positions.

    reasons: (waiter, target) → its edge, see `_oldest`.
    """

    state: Progress
    blamed: frozenset[int]
    hops: dict[int, int]
    edges: Edges
    reasons: dict[tuple[int, int], int]

    def waiting(self) -> list[int]:
        """Positions of the ranks that only wait, nearest first."""
        return [vertex for vertex in self.hops if vertex < self.state.n_ranks and vertex not in self.blamed]

    def edge(self, at: int) -> WaitEdge | None:
        """What the rank at this position waits for next; None when that is no rank."""
        return _edge(self.state, at, self.hops, self.edges, self.reasons, set(self.blamed))

    def chain(self, at: int) -> list[int]:
        """Positions of the ranks from this one (left out) to what is named, which comes last; [] when it leads nowhere."""
        found, vertex = [], at
        while vertex in self.hops and vertex not in self.blamed and self.hops[vertex] != vertex:
            vertex = self.hops[vertex]
            found += [vertex] if vertex < self.state.n_ranks else []
        return found


def paths_to(state: Progress, best: Finding | None) -> Paths:
    """Everything that waits for what `best` names."""
    blamed, edges = frozenset(_ranks_of(state, best)), joined([state.certain, state.hidden])
    vertices = [state.never_heard] if is_of_never_heard(best) and not blamed else vertices_of(state, blamed)
    return Paths(state, blamed, state.graph.next_hops(vertices), edges, _oldest(edges, len(state.certain)))


def is_of_never_heard(best: Finding | None) -> bool:
    """Whether a finding can be about ranks nobody ever heard of: then none of them has a position."""
    return best is not None and best.kind is FaultKind.SILENCE


def victims_and_path(paths: Paths, limit: int) -> tuple[tuple[int, ...], tuple[WaitEdge, ...]]:
    """Ranks that only wait for what `paths` lead to, and at most `limit` edges that lead there, nearest first."""
    waiting = paths.waiting()
    path = [paths.edge(vertex) for vertex in waiting[:limit]]
    ranks = paths.state.ranks.names(np.array(waiting, np.int64))
    return ranks, tuple(edge for edge in path if edge is not None)


def _oldest(edges: Edges, n_certain: int) -> dict[tuple[int, int], int]:
    """(waiter, target) → the edge in the oldest op, certain ones first: the op that blocks, also shown as evidence."""
    is_hidden = np.arange(len(edges)) >= n_certain
    order = np.lexsort((edges.op, is_hidden))[::-1]
    return {(int(edges.waiter[i]), int(edges.target[i])): int(i) for i in order}


def _ranks_of(state: Progress, best: Finding | None) -> set[int]:
    if best is None:
        return set()
    started = np.array(sorted(best.suspects) or best.subject.ranks, np.int64)
    return {int(at) for at in state.ranks.position(started) if at >= 0}


def vertices_of(state: Progress, ranks: Collection[int]) -> list[int]:
    """Vertices of the ranks at these positions: they, their NICs and the lossy links that touch them."""
    at = np.array(sorted(ranks), np.int64)
    places = np.concatenate([state.ranks.nic[at], state.ranks.fallen[at]])
    links = np.flatnonzero(np.isin(state.links, at).any(axis=1))
    return sorted({*at.tolist(), *(state.n_ranks + places[places >= 0]).tolist(), *(state.first_link + links).tolist()})


def _edge(
    state: Progress,
    vertex: int,
    hops: dict[int, int],
    edges: Edges,
    reasons: dict[tuple[int, int], int],
    blamed: set[int],
) -> WaitEdge | None:
    row = reasons.get((vertex, hops[vertex]))
    target = hops[vertex]
    if target == state.never_heard:
        return None
    if target >= state.first_op:
        target = hops[target]
    if target >= state.n_ranks:
        target = _end_of(state, target, vertex, blamed)
    if row is None or target < 0 or target == vertex:
        return None
    ranks, comm = state.ranks.rank, int(edges.comm[row])
    comm_id = int(state.members.comm_ids[comm]) if comm >= 0 else 0
    why = _state_of_end(state, hops[vertex]) or SENTENCES[Why(int(edges.why[row]))].format(target=int(ranks[target]))
    return WaitEdge(int(ranks[vertex]), int(ranks[target]), comm_id, int(edges.op[row]), why)


def _state_of_end(state: Progress, vertex: int) -> str:
    """Why nobody can get on with this vertex, where that is known; '' where only the edge tells."""
    if state.n_ranks <= vertex < state.first_link:
        return "a NIC between them is down"
    if vertex >= state.n_ranks or not state.is_cut[vertex]:
        return ""
    ranks, who = state.ranks, f"rank {int(state.ranks.rank[vertex])}"
    for is_so, words in (
        (ranks.is_gone, f"the process of {who} has ended"),
        (ranks.is_stopped, f"the process of {who} is stopped"),
        (ranks.is_silent, f"the node of {who} sends no data"),
        (state.behind[ranks.node], f"the node of {who} has sent nothing since"),
        (state.is_deaf, f"the proxy of {who} does not react"),
    ):
        if is_so[vertex]:
            return words
    return ""


def _end_of(state: Progress, target: int, vertex: int, blamed: set[int]) -> int:
    """The rank behind a NIC or a link, as seen from a waiting rank."""
    if target >= state.first_link:
        a, b = (int(end) for end in state.links[target - state.first_link])
        return b if vertex == a else a
    nic = target - state.n_ranks
    users = [at for at in sorted(blamed) if at < state.n_ranks and nic in (state.ranks.nic[at], state.ranks.fallen[at])]
    return users[0] if users else -1
