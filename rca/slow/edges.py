"""Which connection is slow: how long an op's data is on the wire from each rank to each peer, usually and now.

An op's record sums over its flows, so a rank that sends half of its data into a slow NIC looks half as slow as its owner. A
send has one peer; the rows of flows in progress say how a collective's time divides among its peers. Over a socket what is
on the wire may wait for its receiver, and a receiver for its sender: only what both wait for is the network's. Of a send it is
the shorter of the two waits, since one of them came first and waited for the other:

    receiver first   ▕··········· waits ·······════▏      sender first    ▕··· waits ····════▏
    sender                             ▕════▏             receiver                       ▕════▏
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from ingest.columns import rows_at
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, FUNCS, RDMA_DONE, RECEIVE, RECEIVED, SEND, SOCKET
from rca.keys import Index, Ints, Keys, Mask, Rows, distinct, in_sorted, is_p2p, latest, mix
from rca.slow.inside import EXCESS_MIN_NS, Inside, Wait
from rca.slow.iterations import Iterations
from rca.slow.slowdown import Slowdown, uses_sockets
from rca.slow.streams import Floats

BULK_MIN = 0.25  # of a full slot: what is sent in smaller pieces takes as long at any rate
CHUNKS_MIN = 5  # seen before and since
NODES_ASKED = 16  # for how much a slot holds
SHOWN_MIN = 0.2  # of its usual time: by less nothing counts as grown; of a long op EXCESS_MIN_NS is less still
_ALL_REDUCE = FUNCS.index("AllReduce")


@dataclass(frozen=True, slots=True)
class Edges:
    """Connections (E,): positions in the iterations' ranks, -1 where nothing says who the peer is, and for how many ns of
    an iteration a flow of it is on the wire. lasted_ns: how long its ops last now."""

    sender: Ints
    receiver: Ints
    usual_ns: Floats
    now_ns: Floats
    lasted_ns: Floats

    def grown(self) -> Floats:
        """(E,) by what share of its usual time each is longer on the wire."""
        found: Floats = np.where(self.usual_ns > 0, self.now_ns / np.maximum(self.usual_ns, 1.0) - 1.0, 0.0)
        return found


@dataclass(frozen=True, slots=True)
class _Side:
    """Edges as one of their ends sees them. mine, peer: positions of that end and the other. kind: of what they carry, equal
    at both ends. is_alone: a send or its receive. copy_ns: by how much longer chunks now wait for the end's own GPU."""

    mine: Ints
    peer: Ints
    kind: Keys
    is_alone: Mask
    usual_ns: Floats
    now_ns: Floats
    lasted_ns: Floats
    copy_ns: Floats


_EDGES: Final[WeakKeyDictionary[Slowdown, Edges]] = WeakKeyDictionary()
_SLOTS: Final[WeakKeyDictionary[Slowdown, float]] = WeakKeyDictionary()
"""Several rules ask for them of the same slowdown."""


def edges_of(slowdown: Slowdown) -> Edges:
    """The connections that carry data in bulk, from the ops and the rows of flows in progress."""
    if slowdown not in _EDGES:
        _EDGES[slowdown] = _edges_of(slowdown)
    return _EDGES[slowdown]


def _edges_of(slowdown: Slowdown) -> Edges:
    slot_bytes = slot_bytes_of(slowdown)
    if not uses_sockets(slowdown.window):
        sent = _side(slowdown, SEND, Wait.NETWORK, slot_bytes)
        return _merged(sent.mine, sent.peer, sent.usual_ns, sent.now_ns, sent.lasted_ns)
    sent, taken = _side(slowdown, SEND, Wait.CREDIT, slot_bytes), _side(slowdown, RECEIVE, Wait.DATA, slot_bytes)
    at = Index(mix(taken.peer, taken.mine, taken.kind)).find(mix(sent.mine, sent.peer, sent.kind))
    both = (at >= 0) & (sent.peer >= 0)
    at = at[both]
    usual = np.minimum(sent.usual_ns[both], taken.usual_ns[at])
    more = np.minimum((sent.now_ns - sent.usual_ns)[both], (taken.now_ns - taken.usual_ns)[at])
    lasted = np.maximum(sent.lasted_ns[both], taken.lasted_ns[at])
    at_once = (
        sent.now_ns[both] + taken.now_ns[at] - lasted
    )  # at least: what both wait beyond the op's own time overlaps
    more = np.minimum(more, at_once - usual)
    shorter = np.minimum(sent.now_ns[both], taken.now_ns[at]) - usual - taken.copy_ns[at]
    now = usual + np.maximum(np.where(sent.is_alone[both], shorter, more), 0.0)
    return _merged(sent.mine[both], sent.peer[both], usual, now, sent.lasted_ns[both])


def receivers_of(slowdown: Slowdown, comm_id: Keys, peer: Ints) -> Ints:
    """(n,) positions of peers told by communicator and place in it, -1 unknown."""
    members, ranks = slowdown.window.members, slowdown.iterations.ranks
    found = Index(mix(members["comm_id"], members["comm_rank"])).find(mix(comm_id, peer))
    rank = _of_member(members, "rank", found, -1)
    at = np.minimum(np.searchsorted(ranks, rank), max(len(ranks) - 1, 0))
    return np.where((rank >= 0) & (ranks[at] == rank), at, -1) if len(ranks) else np.full(len(peer), -1)


def _merged(sender: Ints, receiver: Ints, usual: Floats, now: Floats, lasted: Floats) -> Edges:
    """One edge for all that goes from one rank to another."""
    _, first, of = np.unique(sender << 32 | (receiver + 1), return_index=True, return_inverse=True)
    sums = [np.bincount(of, weights=one, minlength=len(first)).astype(np.float64) for one in (usual, now, lasted)]
    return Edges(sender[first], receiver[first], *sums)


def slot_bytes_of(slowdown: Slowdown) -> float:
    """Of the fullest chunks seen on their way; 0 when none was."""
    if slowdown not in _SLOTS:
        _SLOTS[slowdown] = _fullest(slowdown.window.rows_on("flow", _some_nodes(len(slowdown.window.nodes))))
    return _SLOTS[slowdown]


def _some_nodes(n: int) -> Ints:
    """At most NODES_ASKED of n: slots are as large everywhere. Mixed, as a stride would meet one stage of a pipeline alone."""
    return np.sort(np.argsort(mix(np.arange(n)))[:NODES_ASKED])


def _fullest(flow: Rows) -> float:
    received = np.where(flow["direction"] == RECEIVE, flow["counters"][:, RECEIVED], 0)
    at = np.flatnonzero(received)
    return float((flow["bytes"][at] / received[at]).max(initial=0.0))


def _side(slowdown: Slowdown, direction: int, wait: Wait, slot_bytes: float) -> _Side:
    """What the ranks wait for in one direction: summed over the ops of a kind, divided among its peers."""
    iterations, inside = slowdown.iterations, slowdown.inside
    alone, other = (FUNC_SEND, FUNC_RECV) if direction == SEND else (FUNC_RECV, FUNC_SEND)
    places = np.flatnonzero((iterations.func != other) & _is_bulk(slowdown, slot_bytes))
    rank_at = iterations.rank_at[places]
    is_alone = iterations.func[places] == alone
    func = np.where(is_alone, 0, iterations.func[places])
    comm, peer = iterations.comm_id[places], np.where(is_alone, iterations.peer[places], -1)
    number = np.where(is_alone, _numbers(iterations)[places], 0)
    _, first, of = np.unique(mix(rank_at, comm, func, peer, number), return_index=True, return_inverse=True)
    before = _before_ready(slowdown) if wait is Wait.DATA else 0.0
    values = (inside.usual[wait], _grown(inside, wait), inside.lasted_slow + before, inside.excess(Wait.COPY))
    usual, more, lasted, copy = (
        np.bincount(of, weights=np.nan_to_num(one[places]), minlength=len(first)).astype(np.float64) for one in values
    )
    mine, comm, func, peer, is_alone = rank_at[first], comm[first], func[first], peer[first], is_alone[first]
    number = number[first]
    shared = np.flatnonzero(~is_alone)
    at, peers, usually, now = _divided(
        slowdown, direction, mix(mine, comm, func, peer)[shared], comm[shared], more[shared]
    )
    at, peer = np.concatenate([np.flatnonzero(is_alone), shared[at]]), np.concatenate([peer[is_alone], peers])
    usually, now = (np.concatenate([np.ones(is_alone.sum()), part]) for part in (usually, now))
    now = np.where(more[at] > 0, now, usually)  # within the noise nobody's part has changed
    peer = np.where((peer < 0) & ~is_alone[at], _only_other(slowdown, mine[at], comm[at]), peer)
    who = np.where(peer >= 0, receivers_of(slowdown, comm[at], peer), -1)
    return _Side(
        mine[at], who, mix(comm[at], func[at], number[at]), is_alone[at], usual[at] * usually,
        (usual + more)[at] * now, lasted[at], copy[at],
    )  # fmt: skip


def _grown(inside: Inside, wait: Wait) -> Floats:
    """(P,) as Inside.excess, but a short op's wait counts when it has grown by much less than that asks for."""
    more = inside.slow[wait] - inside.usual[wait]
    least = 3 * inside.noise[wait] + np.minimum(EXCESS_MIN_NS, SHOWN_MIN * inside.usual[wait])
    return np.where(np.isfinite(more) & (more > least), more, 0.0)


def _numbers(iterations: Iterations) -> Ints:
    """(P,) the how many-th of its pair's sends in an iteration each is, by the number that both ends have for it."""
    row = iterations.row
    if not row.size:
        return np.zeros(len(row), np.int64)
    seen = row[np.arange(len(row)), (row >= 0).argmax(axis=1)]
    key = mix(iterations.rank_at, iterations.comm_id, iterations.func, iterations.peer)
    _, of, n = np.unique(key, return_inverse=True, return_counts=True)
    found: Ints = iterations.ops["op"][seen].astype(np.int64) % n[of]
    return found


def _before_ready(slowdown: Slowdown) -> Floats:
    """(P,) how long a rank now waits in an op before its own GPU is ready: it may be waiting for data by then."""
    iterations = slowdown.iterations
    waited = iterations.column("first_ready_ns") - iterations.column("started_ns")
    found: Floats = np.nan_to_num(np.nanmean(waited[:, slowdown.slow], axis=1))
    return np.maximum(found, 0.0)


def _only_other(slowdown: Slowdown, mine: Ints, comm: Keys) -> Ints:
    """(n,) the other place of a communicator of two, -1 in larger ones."""
    members = slowdown.window.members
    found = Index(mix(members["comm_id"], members["rank"])).find(mix(comm, slowdown.iterations.ranks[mine]))
    return np.where(_of_member(members, "n_ranks", found, 0) == 2, 1 - _of_member(members, "comm_rank", found, 0), -1)


def _of_member(members: Rows, name: str, found: Ints, unknown: int) -> Ints:
    """(n,) a column of the members at these places, `unknown` where the place is -1."""
    if not len(members):
        return np.full(len(found), unknown, np.int64)
    return np.where(found >= 0, members[name][found], unknown).astype(np.int64)


def _is_bulk(slowdown: Slowdown, slot_bytes: float) -> Mask:
    """(P,) which ops send full slots, or nearly: small ones are as fast over a slow NIC."""
    iterations = slowdown.iterations
    members = slowdown.window.members
    found = Index(members["comm_id"].astype(np.uint64)).find(iterations.comm_id)
    size = _of_member(members, "n_ranks", found, 1)
    piece = np.nanmax(iterations.column("bytes") / np.maximum(iterations.column("channels"), 1), axis=1, initial=0.0)
    piece = np.where((iterations.func == _ALL_REDUCE) & ~_is_tree(slowdown), piece / np.maximum(size, 1), piece)
    bulk: Mask = piece >= BULK_MIN * (slot_bytes or BULK_MIN * piece.max(initial=0.0))
    return bulk


def _is_tree(slowdown: Slowdown) -> Mask:
    found: Mask = np.nanmax(slowdown.iterations.column("algo"), axis=1, initial=0.0) == 1
    return found


def _divided(
    slowdown: Slowdown, direction: int, groups: Keys, comm: Keys, more: Floats
) -> tuple[Ints, Ints, Floats, Floats]:
    """(group, peer, usual factor, factor now) for each peer of these groups of collectives: by how much a flow of the peer
    waits longer than the mean one. A group whose flows were not seen has one edge, to nobody known."""
    rows = _flow_rows(slowdown, direction, comm[more > 0])
    mine = np.searchsorted(slowdown.iterations.ranks, rows["rank"])
    key = mix(mine, rows["comm_id"], rows["func"], -1)
    _, flow, of_flow = np.unique(mix(key, rows["peer"], rows["channel"]), return_index=True, return_inverse=True)
    total = _means(of_flow, rows["total_chunks"].astype(np.float64), len(flow))
    _, edge, of_edge = np.unique(mix(key[flow], rows["peer"][flow]), return_index=True, return_inverse=True)
    of_group = np.unique(key[flow], return_inverse=True)[1]
    usually, now = (
        _factors(_per_chunk(rows, of_flow, len(flow), those, direction) * total, of_edge, of_group)
        for those in _times(slowdown, rows["tick_ns"])
    )
    asked = Index(groups).find(key[flow[edge]])
    found, asked = np.flatnonzero(asked >= 0), asked[asked >= 0]
    peer = rows["peer"][flow[edge]].astype(np.int64)[found]
    unseen = np.setdiff1d(np.arange(len(groups)), asked)
    ones = np.ones(len(unseen))
    return (
        np.concatenate([asked, unseen]), np.concatenate([peer, np.full(len(unseen), -1)]),
        np.concatenate([usually[found], ones]), np.concatenate([now[found], ones]),
    )  # fmt: skip


def _factors(waits: Floats, of_edge: Ints, of_group: Ints) -> Floats:
    """(E,) how long a flow of each edge waits, of the mean of its group; 1 where a flow of the group was not seen.
    waits: (F,) of each flow, for all chunks of an op. of_edge, of_group: (F,)."""
    n_edges = int(of_edge.max(initial=-1)) + 1
    group = np.zeros(n_edges, np.int64)
    group[of_edge] = of_group
    mine = _means(of_edge, waits, n_edges)
    mean = _means(of_group, waits, int(of_group.max(initial=-1)) + 1)[group]
    known = np.isfinite(mean) & (mean > 0)
    return np.where(known, mine / np.where(known, mean, 1.0), 1.0)


def _flow_rows(slowdown: Slowdown, direction: int, comms: Keys) -> Rows:
    """The newest row of each flow of collectives of these communicators."""
    comms, members = distinct(comms), slowdown.window.members
    mates = slowdown.ranks.position(members["rank"][in_sorted(members["comm_id"], comms)])
    nodes = slowdown.ranks.node[mates[mates >= 0]]
    rows = slowdown.window.newest_on("flow", distinct(nodes[nodes >= 0]), comms)
    passed = RDMA_DONE if direction == SEND else RECEIVED
    those = (rows["direction"] == direction) & (rows["counters"][:, passed] > 0)
    those &= np.isin(rows["rank"], slowdown.iterations.ranks)
    rows = rows_at(rows, those & ~is_p2p(rows))
    key = mix(rows["rank"], rows["comm_id"], rows["func"], rows["channel"], rows["peer"], rows["op"])
    return rows_at(rows, latest(key, rows["tick_ns"]))


def _per_chunk(rows: Rows, of: Ints, n: int, those: Mask, direction: int) -> Floats:
    """(n,) ns that a chunk of each flow waits in the rows of `those`, NaN unknown."""
    waits = rows["net_wait_ns"] if direction == SEND else rows["peer_wait_ns"]
    if direction == SEND and (rows["transport"] == SOCKET).any():
        waits = waits + rows["peer_wait_ns"]
    passed = rows["counters"][:, RDMA_DONE if direction == SEND else RECEIVED]
    waited, chunks = (np.bincount(of[those], weights=one[those], minlength=n) for one in (waits, passed))
    return np.where(chunks >= CHUNKS_MIN, waited / np.maximum(chunks, 1), np.nan)


def _means(of: Ints, values: Floats, n: int) -> Floats:
    """(n,) of the values of each group; NaN where one of them is."""
    found: Floats = np.bincount(of, weights=values, minlength=n) / np.maximum(np.bincount(of, minlength=n), 1)
    return found


def _times(slowdown: Slowdown, tick_ns: Ints) -> tuple[Mask, Mask]:
    iterations = slowdown.iterations
    ended = np.nanmax(iterations.end[:, slowdown.usual]) + iterations.start_ns
    began = np.nanmin(iterations.began[:, slowdown.slow]) + iterations.start_ns
    return tick_ns < ended, tick_ns >= began
