"""Ranks whose proxy provably does nothing, although the process lives: it sleeps, or is not scheduled.

    network: "slice 7 delivered to rank 3"      rank 3: "received 6, waiting for the next"      → nobody looks

A proxy that runs leaves nothing lying that it could do at once. Each proof here is such a thing, seen to lie for a while,
and none of them rests on what the GPU, the NIC or another rank should have done.
"""

from __future__ import annotations

import numpy as np

from ingest.columns import rows_at
from nccl_instrument.tables import FUNC_SEND, FUNCS, GPU_READY, POSTED, SEND
from rca.counters import GPU_READY_NAME, absent
from rca.hang.fronts import Fronts
from rca.hang.known import Known
from rca.hang.members import Members
from rca.hang.pairs import NO_FLOWS, SEEN, Pairs
from rca.keys import Groups, Ints, Keys, Mask, Rows, among, is_p2p, latest, mix
from rca.settings import Settings

_ALL_REDUCE = FUNCS.index("AllReduce")
_GATHERS = (FUNCS.index("AllGather"), FUNCS.index("ReduceScatter"))


def leaves_data(pairs: Pairs, not_taken: Mask, not_noticed: Mask, nic: Ints, n_ranks: int) -> Mask:
    """(R,) ranks that do not take what the network delivered, or do not notice what it acknowledged.

    nic: (P,) NIC on the flow's way that is known to be down, -1 for none: then the network may be the reason.
    """
    found = np.zeros(n_ranks, bool)
    found[pairs.receiver[not_taken & (nic < 0) & (pairs.receiver >= 0)]] = True
    found[pairs.sender[not_noticed & (nic < 0) & (pairs.sender >= 0)]] = True
    return found


def offers_nothing(known: Known, settings: Settings) -> Mask:
    """(R,) ranks with a send whose connection is free and whose first buffer was not even offered to the GPU.

    Receives are no such proof: with registered buffers their posting waits for the kernel.
    """
    flow = known.flow
    connection = mix(known.flow_at, flow["comm_id"], flow["channel"], flow["peer"], flow["direction"], is_p2p(flow))
    is_first = np.zeros(len(flow), bool)
    is_first[latest(connection, -flow["op"].astype(np.int64))] = True
    is_idle = is_first & (flow["direction"] == SEND) & (flow["counters"][:, POSTED] == 0)
    idle = np.flatnonzero(is_idle & (flow["stuck_ns"] >= settings.still_ns))
    was_free = _freed_ns(known, idle) <= flow["tick_ns"][idle] - settings.still_ns
    found = np.zeros(len(known.ranks.rank), bool)
    found[known.flow_at[idle[was_free]]] = True
    return found


def _freed_ns(known: Known, at: Ints) -> Ints:
    """(k,) when the last op before these sends was over on their connection, on whatever channel; 0 of none in the window.

    A send stands still from when it was queued. The op before it may have ended since the tick that still tells of it.
    """
    flow, ops = known.flow[at], known.window.rows("op")
    if not len(at):
        return np.zeros(0, np.int64)
    theirs = np.flatnonzero(np.isin(ops["comm_id"], flow["comm_id"]) & (ops["done_ns"] > 0) & (known.op_at >= 0))
    over, is_pair = rows_at(ops, theirs), known.op_p2p[theirs]
    sends = ~is_pair | (over["func"] == FUNC_SEND)
    groups = Groups(_connections(known.op_at[theirs][sends], over[sends], is_pair[sends]))
    place, member = groups.find(_connections(known.flow_at[at], flow, is_p2p(flow)))
    freed = np.zeros(len(at), np.int64)
    np.maximum.at(freed, place, over["done_ns"][sends][member])
    return freed


def _connections(at: Ints, rows: Rows, is_pair: Mask) -> Keys:
    """Of each row its rank, communicator, and peer where it has but one."""
    return mix(at, rows["comm_id"], is_pair, np.where(is_pair, rows["peer"], 0))


def takes_up_nothing(known: Known, pairs: Pairs, settings: Settings) -> Mask:
    """(R,) ranks that enqueued an op long ago whose receiving flow, which the sender has, was never taken up.

    Sends are no such proof: another process of the node may execute them (PXN).
    """
    waiting = pairs.receiver_end == NO_FLOWS
    awaited = mix(pairs.receiver, pairs.key)[waiting]
    live = known.live
    is_old = (live["n_flows"] == 0) & (live["tick_ns"] - live["enqueued_ns"] >= settings.still_ns)
    found = np.zeros(len(known.ranks.rank), bool)
    found[known.live_at[is_old & among(mix(known.live_at, known.live_key), awaited)]] = True
    return found


def hides_a_kernel(known: Known, members: Members, fronts: Fronts, pairs: Pairs, settings: Settings) -> Mask:
    """(R,) ranks whose kernel is proven to run by what their mate in the ring passed on, while they report it unstarted.

    In a ring each rank may send its own share unasked; more than that came from the rank before it. Where that one is on
    the same node, and the only candidate, its kernel has begun, and has data for its own sends that the proxy ignores.
    """
    found = np.zeros(len(known.ranks.rank), bool)
    place = fronts.find(pairs.sender, pairs.key)
    func = fronts.func[place] if len(fronts.func) else np.zeros(len(pairs), np.int64)
    n_ranks = members.n_ranks[pairs.comm] if len(members.n_ranks) else np.ones(len(pairs), np.int64)
    steps = np.where(func == _ALL_REDUCE, 2 * (n_ranks - 1), np.where(np.isin(func, _GATHERS), n_ranks - 1, 0))
    has_more = (place >= 0) & (pairs.sender_end == SEEN) & ~pairs.p2p & (steps > 0) & (pairs.comm >= 0)
    has_more &= pairs.sent[:, GPU_READY] * steps > pairs.total
    senders = mix(pairs.sender, pairs.key, pairs.channel)
    one_way = has_more & ~among(senders, mix(pairs.receiver, pairs.key, pairs.channel))
    ignored = _unstarted(known, settings)
    for i in np.flatnonzero(one_way):
        before = _only_mate(known, members, pairs, int(i), senders)
        found[before] |= before >= 0 and int(mix(before, pairs.key[i : i + 1])[0]) in ignored
    return found


def _unstarted(known: Known, settings: Settings) -> set[int]:
    """Keys (rank position, op) of ops with a send that was offered long ago, and nothing of it reported ready."""
    if GPU_READY_NAME in absent(known.window):
        return set()
    flow = known.flow
    counters = flow["counters"]
    is_offered = (flow["direction"] == SEND) & (counters[:, POSTED] > 0) & (counters[:, GPU_READY] == 0)
    mask = is_offered & (flow["stuck_ns"] >= settings.still_ns)
    return set(mix(known.flow_at[mask], known.flow_key[mask]).tolist())


def _only_mate(known: Known, members: Members, pairs: Pairs, i: int, senders: Keys) -> int:
    """The one mate that can be before this sender in the ring: the only one that sends nothing over the network there."""
    at, node = int(pairs.sender[i]), known.ranks.node
    part = members.rank_at[members.of(int(pairs.comm[i]))]
    mates = part[(node[part] == node[at]) & (part != at) & (node[part] >= 0)]
    keys = mix(mates, np.full(len(mates), pairs.key[i]), pairs.channel[i])
    chosen = mates[~np.isin(keys, senders)]
    return int(chosen[0]) if len(chosen) == 1 else -1
