"""Which connection is slow: how long a chunk is on the wire from each rank to each peer, and whose NIC all slow ones share.

An op's record sums over its flows, so a rank that sends half of its data into a slow NIC looks half as slow as its owner.
The rows of flows in progress tell peers apart. Of the connections that became slow, the fewest ends that all of them touch
are to blame: a slow NIC is slow towards everybody, its peers only towards it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import RDMA_DONE, SEND
from rca.keys import Index, Ints, Keys, Mask, Rows, among, is_p2p, latest, mix
from rca.slowdown import Slowdown
from rca.streams import Floats

SLOW_MIN = 0.5  # of the excess of the slowest: a slow NIC is about as slow to all
CHUNKS_MIN = 20  # seen before and since
EXCESS_MIN = 0.2  # longer than usual, else it is not slow
COVERED = 0.9  # of the excess of all connections
OWN_MIN = 0.7  # of its own connections
TIE_MIN = 0.9  # of what the best end touches: which of such ends it is cannot be told


@dataclass(frozen=True, slots=True)
class Edges:
    """Connections of (E,): positions in the iterations' ranks, and by what share of its usual time
    each chunk is longer on the wire now."""

    sender: Ints
    receiver: Ints
    excess: Floats

    def is_slow(self) -> Mask:
        """(E,) which are about as slow as the slowest."""
        found: Mask = (self.excess > 0) & (self.excess >= SLOW_MIN * self.excess.max(initial=0.0))
        return found


def edges_of(slowdown: Slowdown, at: Ints) -> Edges:
    """The connections seen before and during the slowdown of the ranks at these positions and of whom they talk to."""
    ranks = slowdown.iterations.ranks
    rows = slowdown.window.rows("flow")
    sent = np.flatnonzero(rows["direction"] == SEND)  # rows are copied last: there are millions
    comm_id, comm_rank, peer = (rows[name][sent] for name in ("comm_id", "comm_rank", "peer"))
    theirs = np.isin(rows["rank"][sent], ranks[at])
    peers = np.unique(mix(comm_id[theirs], peer[theirs]))
    theirs_at = np.unique(mix(comm_id[theirs], comm_rank[theirs]))
    senders = among(mix(comm_id, comm_rank), peers)
    towards = among(mix(comm_id, peer), theirs_at)
    rows = rows[sent[theirs | senders | towards]]
    rows = rows[rows["counters"][:, RDMA_DONE] > 0]
    key = mix(rows["rank"], rows["comm_id"], rows["channel"], rows["peer"], rows["op"], is_p2p(rows))
    rows = rows[latest(key, rows["tick_ns"])]
    sender, receiver = np.searchsorted(ranks, rows["rank"]), receivers_of(slowdown, rows["comm_id"], rows["peer"])
    rows, sender, receiver = rows[receiver >= 0], sender[receiver >= 0], receiver[receiver >= 0]
    _, kind, of_kind = np.unique(
        mix(sender, receiver, rows["comm_id"], rows["func"]), return_index=True, return_inverse=True
    )  # chunks of different communicators differ in size
    before, after = (_on_wire(rows, of_kind, len(kind), those) for those in _times(slowdown, rows["tick_ns"]))
    known = (before[1] > 0) & (after[1] > 0)
    expected = np.where(known, before[0] / np.maximum(before[1], 1) * after[1], 0.0)
    _, first, of_edge = np.unique(sender[kind] << 32 | receiver[kind], return_index=True, return_inverse=True)
    usual, now, chunks = (
        np.bincount(of_edge, weights=np.where(known, values, 0.0), minlength=len(first))
        for values in (expected, after[0], np.minimum(before[1], after[1]))
    )
    seen = (chunks >= CHUNKS_MIN) & (usual > 0)
    longer = now[seen] / usual[seen] - 1.0
    at = kind[first][seen]
    return Edges(sender[at], receiver[at], np.where(longer > EXCESS_MIN, longer, 0.0))


def receivers_of(slowdown: Slowdown, comm_id: Keys, peer: Ints) -> Ints:
    """(n,) positions of peers told by communicator and place in it, -1 unknown."""
    members, ranks = slowdown.window.members, slowdown.iterations.ranks
    found = Index(mix(members["comm_id"], members["comm_rank"])).find(mix(comm_id, peer))
    rank = np.where(found >= 0, members["rank"][found], -1)
    at = np.minimum(np.searchsorted(ranks, rank), max(len(ranks) - 1, 0))
    return np.where((rank >= 0) & (ranks[at] == rank), at, -1) if len(ranks) else np.full(len(peer), -1)


def _times(slowdown: Slowdown, tick_ns: Ints) -> tuple[Mask, Mask]:
    iterations = slowdown.iterations
    ended = np.nanmax(iterations.end[:, slowdown.usual]) + iterations.start_ns
    began = np.nanmin(iterations.began[:, slowdown.slow]) + iterations.start_ns
    return tick_ns < ended, tick_ns >= began


def _on_wire(rows: Rows, of: Ints, n: int, those: Mask) -> tuple[Floats, Floats]:
    """(ns on the wire, chunks) of each of n kinds of flow in the rows of `those`."""
    weights = (rows["net_wait_ns"][those], rows["counters"][those, RDMA_DONE])
    on_wire, chunks = (np.bincount(of[those], weights=one, minlength=n).astype(np.float64) for one in weights)
    return on_wire, chunks


def shared_ends(edges: Edges, end_of: Ints) -> Ints | None:
    """The fewest ends that nearly all slow connections touch; None when rows do not say. end_of: (R,) NIC, or rank."""
    slow = edges.is_slow()
    if not slow.any():
        return None
    sender, receiver, excess = end_of[edges.sender], end_of[edges.receiver], edges.excess
    left, chosen = np.where(slow, excess, 0.0), list[int]()
    while left.sum() > (1 - COVERED) * excess[slow].sum():
        ends = np.unique(np.concatenate([sender[left > 0], receiver[left > 0]]))
        touched = np.array([left[(sender == one) | (receiver == one)].sum() for one in ends])
        share = np.array([slow[sender == one].mean() if (sender == one).any() else 1.0 for one in ends])
        best = ends[(share >= OWN_MIN) & (touched >= TIE_MIN * touched.max())]
        if not len(best):
            return None
        chosen += best.tolist()
        left = np.where(np.isin(sender, best) | np.isin(receiver, best), 0.0, left)
    return np.array(chosen, np.int64)


def only_sends_slowly(edges: Edges, at: int) -> bool | None:
    """Whether what the rank sends is much longer on the wire and what it is sent is not: None when rows do not say.

    The receiving NIC acknowledges, so a rank whose proxy is slow makes its own sends seem long and nobody else's.
    """
    sent, taken = edges.excess[edges.sender == at], edges.excess[edges.receiver == at]
    if not len(sent) or not len(taken):
        return None
    return bool(np.median(sent) * SLOW_MIN > np.median(taken))
