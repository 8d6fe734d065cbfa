"""The ops a rank is really blocked in, out of all it has enqueued.

NCCL ranks run ahead: a rank that waits in one op has often enqueued a dozen more behind it, and those show flows too.
A rank is blocked in every unfinished op whose kernel has begun, and in the oldest one it has enqueued; the rest merely
queue behind. An op inside the node is invisible, but known to be unfinished while a member has not entered it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import ALGOS, CONSUMED, FUNC_RECV, FUNCS, GPU_READY, OP_NO_NETWORK, POSTED, SEND
from rca.hang.known import Known
from rca.hang.members import Members
from rca.keys import Index, Ints, Keys, Mask, among, is_p2p, mix
from rca.settings import Settings

NEVER = np.iinfo(np.int64).max
_SENDS_FIRST = tuple(FUNCS.index(name) for name in ("AllReduce", "AllGather", "ReduceScatter", "Send"))
_RINGS = tuple(ALGOS.index(name) for name in ("RING", "Unknown"))


@dataclass(frozen=True, slots=True)
class Fronts:
    """Arrays of (F,), one per unfinished op that a rank has over the network.

    at: rank position. comm: position of the communicator, -1 unknown. is_front: the rank is blocked in it.
    has_begun: its kernel produced or took data. is_mute: entered, but its proxy posted nothing for it.
    sends_first: its kernel needs no input for its first send, so that "nothing ready" means "not started". tree: an AllReduce
    that is no ring.
    """

    at: Ints
    key: Keys
    comm: Ints
    op: Ints
    p2p: Mask
    func: Ints
    enqueued_ns: Ints
    has_begun: Mask
    is_mute: Mask
    sends_first: Mask
    tree: Mask
    is_front: Mask
    by_rank: Index

    def find(self, at: Ints, key: Keys) -> Ints:
        """(n,) position here of each (rank position, op key), -1 where that rank has no such op."""
        return self.by_rank.find(mix(at, key))

    def blocks(self, at: Ints, key: Keys) -> Mask:
        """(n,) whether that rank is blocked in that op."""
        place = self.find(at, key)
        return (place >= 0) & (self.is_front[place] if len(self.is_front) else False)

    def is_tree(self, at: Ints, key: Keys) -> Mask:
        """(n,) whether that rank is in a collective there whose ranks wait for what others reduced before they send at all."""
        place = self.find(at, key)
        if not len(self.at):
            return np.zeros(len(at), bool)
        found: Mask = (place >= 0) & self.tree[place]
        return found


def known_fronts(known: Known, members: Members, awaited: Keys, settings: Settings) -> Fronts:
    """All unfinished ops with network flows, with those marked that block their rank.

    awaited: keys (rank position, op) of ops that a peer has a flow for. An op without any flow of its own, seen or
    awaited, crosses no NIC at this rank, whatever it does at others.
    """
    over_network = (known.live["flags"] & OP_NO_NETWORK) == 0
    comm = members.comm_of(known.live["comm_id"])
    over_network &= ~members.is_in_node(comm)
    own_flow, own_live = mix(known.flow_at, known.flow_key), mix(known.live_at, known.live_key)
    has_flows = (known.live["n_flows"] > 0) | among(own_live, own_flow) | among(own_live, awaited)
    live = np.flatnonzero(over_network & has_flows)
    unseen = np.flatnonzero(~among(own_flow, own_live))
    _, first = np.unique(own_flow[unseen], return_index=True)
    young = unseen[first]  # ops newer than the last one-second tick: known by their flows only
    at = np.concatenate([known.live_at[live], known.flow_at[young]])
    key = np.concatenate([known.live_key[live], known.flow_key[young]])
    rows = (known.live[live], known.flow[young])
    op, func = (np.concatenate([r[name] for r in rows]).astype(np.int64) for name in ("op", "func"))
    comm_ids = np.concatenate([r["comm_id"] for r in rows])
    p2p = np.concatenate([is_p2p(r) for r in rows])
    enqueued = np.concatenate([known.live["enqueued_ns"][live], np.full(len(young), NEVER)]).astype(np.int64)
    algo = np.concatenate([known.live["algo"][live], np.zeros(len(young), np.uint8)])
    by_rank, is_ring = Index(mix(at, key)), np.isin(algo, _RINGS)
    has_begun, is_mute = _begun(known, by_rank, len(at), live)
    return Fronts(
        at=at, key=key, comm=members.comm_of(comm_ids), op=op, p2p=p2p, func=func, enqueued_ns=enqueued,
        has_begun=has_begun, is_mute=is_mute, sends_first=np.isin(func, _SENDS_FIRST) & is_ring,
        tree=(func == FUNCS.index("AllReduce")) & ~is_ring,
        is_front=_front(at, enqueued, has_begun, p2p, len(known.ranks.rank), settings), by_rank=by_rank,
    )  # fmt: skip


def can_wait_for_data(fronts: Fronts, at: Ints, key: Keys) -> Mask:
    """(n,) whether a rank in an op can be waiting for data there: not while its kernel, which sends first, has not started."""
    place = fronts.find(at, key)
    if not len(fronts.at):
        return np.zeros(len(at), bool)
    found: Mask = (place < 0) | fronts.has_begun[place] | ~fronts.sends_first[place]
    return found


def ran_ns(known: Known, fronts: Fronts) -> Ints:
    """(R,) when the last op over the network that the rank's GPU has run, or begun, was enqueued.

    What is enqueued before an op that runs, and is waited for on the GPU, is over. A receive is no such sign, begun or done: it
    may have been posted ahead, on a stream of its own, and needs nothing that comes before it.
    """
    ran, ops, at = np.zeros(len(known.ranks.rank), np.int64), known.window.rows("op"), known.op_at
    done = np.flatnonzero((ops["done_ns"] > 0) & (at >= 0) & (ops["func"] != FUNC_RECV))
    np.maximum.at(ran, at[done], ops["enqueued_ns"][done])
    begun = fronts.has_begun & (fronts.enqueued_ns != NEVER) & (fronts.func != FUNC_RECV)
    np.maximum.at(ran, fronts.at[begun], fronts.enqueued_ns[begun])
    return ran


def _begun(known: Known, by_rank: Index, n: int, live: Ints) -> tuple[Mask, Mask]:
    """Which ops have begun on the GPU, and of which the proxy has posted nothing at all."""
    counters, n_rows = known.flow["counters"], np.zeros(n, np.int64)
    moved = np.where(known.flow["direction"] == SEND, counters[:, GPU_READY], counters[:, CONSUMED]) > 0
    place = by_rank.find(mix(known.flow_at, known.flow_key))
    place, moved, counters = place[place >= 0], moved[place >= 0], counters[place >= 0]
    has_begun, has_posted = np.zeros(n, bool), np.zeros(n, bool)
    has_begun[place[moved]] = True
    has_posted[place[counters[:, POSTED] > 0]] = True
    np.add.at(n_rows, place, 1)
    # Flows that are complete are no longer reported: fewer rows than flows means that some are.
    has_begun[: len(live)] |= n_rows[: len(live)] < known.live["n_flows"][live]
    return has_begun, ~has_posted & ~has_begun


def _front(at: Ints, enqueued: Ints, has_begun: Mask, p2p: Mask, n_ranks: int, settings: Settings) -> Mask:
    oldest = np.full(n_ranks, NEVER, np.int64)
    np.minimum.at(oldest, at, enqueued)
    first = oldest[at]
    # Sends and receives of one group run together, though they are enqueued one after the other.
    grouped = p2p & (enqueued != NEVER) & (enqueued - np.minimum(first, NEVER - 1) <= settings.group_ns)
    found: Mask = has_begun | (enqueued == first) | grouped
    return found
