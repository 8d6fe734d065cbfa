"""Ops that stand still on a node before they go on as fast as ever: a rank there that the network does not show has not begun.

    GPU that copies slowly    ▮▯▯▮▯▯▮▯▯▮▯▯▮   chunks lie a little each, all the time
    mate that begins late     ▮▮▯▯▯▯▯▯▯▯▯▮▮▮   one lies for as long as the mate is late, the others follow at their pace

A ring that passes through a node is seen where it enters and where it leaves. Behind a rank between them that has not begun,
arrived chunks lie untaken at the first of these as they do at a GPU whose copies are slow, and an op's record has their sum
alone. Flows in progress are looked at ten times a second, and say for how long each has not moved.
"""

from __future__ import annotations

import numpy as np

from ingest.columns import taken
from nccl_instrument.tables import CONSUMED, FUNC_RECV, FUNC_SEND, RECEIVE, RECEIVED
from rca.keys import Index, Ints, Mask, Rows, is_p2p, mix
from rca.slow.cover import SHARE_MIN
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats

LOOKS_MIN = 3
LONG_OF = 0.75  # quantile: of something that lasts X and is looked at now and then, a quarter of the looks find 0.75 X
STANDS_MIN = 0.2  # of what the op's chunks wait longer: usual waits, beside a short standstill, are looked at too
CHUNKS_MIN = 2.0  # times as long as a chunk of the op takes: a slow copy stands for one chunk


def hidden_mates(slowdown: Slowdown, room: int) -> Ints:
    """Global ranks of the communicator on its node that take part in the ops of a room (see `Inside`) and that the network does
    not show in them; ascending."""
    iterations, members = slowdown.iterations, slowdown.window.members
    places = np.flatnonzero(slowdown.inside.room == room)
    node = slowdown.nodes[iterations.rank_at[places[0]]]
    mates = members["rank"][members["comm_id"] == iterations.comm_id[places[0]]].astype(np.int64)
    at = slowdown.ranks.position(mates)
    there = mates[(at >= 0) & (slowdown.ranks.node[at] == node) & (node >= 0)]
    return np.setdiff1d(there, iterations.ranks[iterations.rank_at[places]])


def stands_still(slowdown: Slowdown, excess_ns: Floats) -> Mask:
    """(P,) the places of the ops on a node in which chunks wait longer by excess_ns (P,) in one go, and mates that the network
    does not show take part. Asked where a rank has excess enough to be blamed for it."""
    room, found = slowdown.inside.room, np.zeros(len(excess_ns), bool)
    enough = slowdown.sum(excess_ns) >= SHARE_MIN * slowdown.lost_ns
    func = slowdown.iterations.func
    asked = (excess_ns > 0) & enough[slowdown.iterations.rank_at] & (func != FUNC_SEND) & (func != FUNC_RECV)
    flows: dict[int, Rows] = {}
    for one in np.unique(room[asked]).tolist():
        places = np.flatnonzero(room == one)
        node = int(slowdown.nodes[slowdown.iterations.rank_at[places[0]]])
        if not len(hidden_mates(slowdown, one)):
            continue
        if node not in flows:
            flows[node] = slowdown.window.rows_on("flow", np.array([node]))
        worst = int(places[excess_ns[places].argmax()])
        found[places] = _stands(slowdown, worst, float(excess_ns[worst]), flows[node])
    return found


def _stands(slowdown: Slowdown, place: int, excess_ns: float, flows: Rows) -> bool:
    stood, n_chunks = _stood(slowdown, place, flows)
    if len(stood) < LOOKS_MIN:
        return False
    chunk_ns = float(slowdown.inside.lasted_slow[place]) / max(n_chunks, 1.0)
    return float(np.quantile(stood, LONG_OF)) >= max(STANDS_MIN * excess_ns, CHUNKS_MIN * chunk_ns)


def _stood(slowdown: Slowdown, place: int, flows: Rows) -> tuple[Floats, float]:
    """For how long, whenever a flow of this place was looked at in a slow iteration while something lay untaken, it had not
    moved since its rank began the op, ns; and how many chunks such a flow has."""
    iterations = slowdown.iterations
    told = iterations.row[place, slowdown.slow]
    told = told[told >= 0]
    number, ready = (taken(iterations.ops, name, told).astype(np.int64) for name in ("op", "first_ready_ns"))
    mine = (flows["rank"] == iterations.rank[place]) & (flows["comm_id"] == iterations.comm_id[place])
    mine &= (
        (flows["direction"] == RECEIVE)
        & (flows["counters"][:, RECEIVED] > flows["counters"][:, CONSUMED])
        & ~is_p2p(flows)
    )
    rows = flows[mine]
    at = Index(mix(number)).find(mix(rows["op"].astype(np.int64)))
    rows, at = rows[at >= 0], at[at >= 0]
    since = rows["tick_ns"].astype(np.int64) - ready[at]
    stood = np.minimum(rows["stuck_ns"], since).astype(np.float64)
    return stood[since > 0], float(np.median(rows["total_chunks"])) if len(rows) else 0.0
