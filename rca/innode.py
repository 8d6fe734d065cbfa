"""Waiting that the network does not see: ops inside a node, and ring hops between ranks of one node.

Two things can be said. Certain: a member that has not entered an in-node op keeps those who have. Hidden: a rank that
holds others up without any visible reason may be held up itself by a mate on its node, unless the op they share is
known to be over because something enqueued after it has run.
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.fronts import NEVER, Fronts, can_wait_for_data, ran_ns
from rca.innode_pairs import LocalPairs, hidden_pairs
from rca.keys import Index, Ints, Mask, among, is_p2p, latest, mix
from rca.known import Known
from rca.members import Members
from rca.pairs import SEEN, Pairs
from rca.waits import Edges, Why, edges, joined


def late_in_node(known: Known, members: Members, fronts: Fronts) -> list[Edges]:
    """Certain edges from members of in-node communicators to those that have enqueued fewer ops there."""
    began = np.full(len(known.ranks.rank), NEVER, np.int64)
    np.minimum.at(began, fronts.at[fronts.has_begun], fronts.enqueued_ns[fronts.has_begun])
    enqueued = _enqueued_in_node(known)
    found = []
    for comm in np.flatnonzero(members.is_local):
        part = members.of(int(comm))
        entered, at = members.entered[part], members.rank_at[part]
        op = int(entered.min()) + 1
        ahead, late = np.flatnonzero(entered >= op), at[entered < op]
        if not len(ahead):
            continue
        # A rank that ran ahead is still in whatever began before it enqueued this op.
        since = [
            enqueued.get((int(at[i]), int(comm), op), int(members.last_enqueued_ns[part][i]) * (entered[i] == op))
            for i in ahead
        ]
        waiters = at[ahead][np.array(since) <= began[at[ahead]]]
        n = len(waiters) * len(late)
        found.append(
            edges(
                np.repeat(waiters, len(late)), np.tile(late, len(waiters)), Why.NOT_ENTERED, *_place(int(comm), op, n)
            )
        )
    return found


def hidden_in_node(known: Known, members: Members, fronts: Fronts, pairs: LocalPairs, certain: Edges) -> Edges:
    """Possible edges inside a node, of ranks that others wait for and that wait for nobody visibly."""
    n_ranks = len(known.ranks.rank)
    is_waited_for, waits = np.zeros(n_ranks, bool), np.zeros(n_ranks, bool)
    is_waited_for[certain.target[certain.target < n_ranks]] = True
    waits[_surely_waiting(fronts, certain, n_ranks)] = True
    has_passed = _passed(known, members, fronts)
    found: list[Edges] = []
    # Who waits for such a rank inside the node makes it one itself: so all of its node that wait for nobody visibly.
    node = known.ranks.node
    is_asked = ~waits & (is_waited_for | np.isin(node, node[is_waited_for & ~waits & (node >= 0)]))
    in_local = is_asked[members.rank_at] & members.is_local[members.comm]
    asking = np.flatnonzero(in_local & (members.entered > 0) & ~has_passed)
    ran = ran_ns(known, fronts)
    ran_to, stuck_at = _reached(known, members, fronts, np.unique(members.comm[asking]), ran)
    for mine in asking:
        found += _in_own_op(int(mine), members, has_passed, ran_to >= stuck_at[mine])
    return joined(
        [
            *found,
            hidden_pairs(pairs, is_asked, ran),
            _behind_over(known, members, fronts, is_asked),
            _behind_done(known, members, fronts, is_asked, ran),
        ]
    )


def _behind_over(known: Known, members: Members, fronts: Fronts, is_asked: Mask) -> Edges:
    """Edges to mates still in an op that is over here as far as flows tell: its kernel may wait for them inside."""
    node, mates_of = known.ranks.node, _mates(known, members)
    # A kernel that has begun and waits for nobody visibly is stuck by itself: the rank is not in anything enqueued after it.
    stuck = np.full(len(node), NEVER, np.int64)
    np.minimum.at(stuck, fronts.at[fronts.has_begun], fronts.enqueued_ns[fronts.has_begun])
    by_live = Index(mix(known.live_at, known.live_key))
    found = []
    for i in np.flatnonzero(fronts.is_front & ~fronts.p2p & (fronts.comm >= 0)):
        mates = np.array(mates_of.get((int(fronts.comm[i]), int(node[fronts.at[i]])), []), np.int64)
        mates = mates[members.entered[mates] >= fronts.op[i]]
        asked = members.rank_at[mates[is_asked[members.rank_at[mates]]]]
        over = asked[fronts.find(asked, np.full(len(asked), fronts.key[i])) < 0] if len(asked) else asked
        live = by_live.find(mix(over, np.full(len(over), fronts.key[i])))
        enqueued = np.where(live >= 0, known.live["enqueued_ns"][live], 0) if len(known.live) else np.zeros(len(over))
        over = over[enqueued <= stuck[over]]
        place = _place(int(fronts.comm[i]), int(fronts.op[i]), len(over))
        found.append(edges(over, np.full(len(over), fronts.at[i]), Why.IN_NODE, *place))
    return joined(found)


def _behind_done(known: Known, members: Members, fronts: Fronts, is_asked: Mask, ran: Ints) -> Edges:
    """Edges of ranks whose op has not begun to mates in the op before: its flows are through, its kernel may wait for a mate."""
    ops, at = known.window.rows("op"), known.op_at
    waits, is_stuck = np.zeros(len(is_asked), bool), np.zeros(len(is_asked), bool)
    waits[fronts.at[fronts.is_front]] = True
    is_stuck[fronts.at[fronts.has_begun]] = True
    wanted = np.append(is_asked & waits & ~is_stuck, False)
    done = np.flatnonzero(wanted[at] & (ops["done_ns"] > 0) & ~is_p2p(ops))
    last, number = done[latest(mix(at[done]), ops["enqueued_ns"][done].astype(np.int64))], ops["op"].astype(np.int64)
    found, mates_of, node = [], _mates(known, members), known.ranks.node
    for i in last[np.isin(at[last], fronts.at)]:
        comm = int(members.comm_of(ops["comm_id"][i : i + 1])[0])
        mates = members.rank_at[np.array(mates_of.get((comm, int(node[at[i]])), []), np.int64)]
        mates = mates[(mates != at[i]) & (ran[mates] <= int(ops["enqueued_ns"][i]))]
        place = _place(comm, int(number[i]), len(mates))
        found.append(edges(np.full(len(mates), at[i]), mates, Why.IN_NODE, *place))
    return joined(found)


def _place(comm: int, op: int, n: int) -> tuple[Ints, Ints]:
    return np.full(n, comm, np.int64), np.full(n, op, np.int64)


def _enqueued_in_node(known: Known) -> dict[tuple[int, int, int], int]:
    """(rank position, communicator position, op) → when it was enqueued, for ops of in-node communicators."""
    rows = known.live
    comm_ids = np.unique(known.window.members["comm_id"])
    local = np.flatnonzero(known.live["n_flows"] == 0)
    comm = np.searchsorted(comm_ids, rows["comm_id"][local])
    return {
        (int(at), int(c), int(op)): int(ns)
        for at, c, op, ns in zip(known.live_at[local], comm, rows["op"][local], rows["enqueued_ns"][local], strict=True)
    }


def _surely_waiting(fronts: Fronts, certain: Edges, n_ranks: int) -> Ints:
    """Ranks that wait visibly, in an op their GPU is known to be in.

    Where nothing shows that a kernel has started, "no data" in its op is true, and something before it may be the reason.
    """
    begun = mix(fronts.at, fronts.comm, fronts.op)[fronts.has_begun | fronts.sends_first]
    is_sure = (certain.why != Why.NO_DATA) | among(mix(certain.waiter, certain.comm, certain.op), begun)
    found: Ints = certain.waiter[is_sure & (certain.waiter < n_ranks)]
    return found


def _passed(known: Known, members: Members, fronts: Fronts) -> Mask:
    """(M,) members of in-node communicators that have run something enqueued after their last op there."""
    ran = np.zeros(len(known.ranks.rank), np.int64)
    produced = fronts.has_begun & (fronts.func != FUNC_RECV) & (fronts.enqueued_ns != NEVER)
    np.maximum.at(ran, fronts.at[produced], fronts.enqueued_ns[produced])
    rows = known.progress
    enqueued, done = rows["n_enqueued"] + rows["n_p2p_enqueued"], rows["n_done"] + rows["n_p2p_done"]
    comm = members.comm_of(rows["comm_id"])
    over_network = ~members.is_in_node(comm) & (comm >= 0)
    is_idle = over_network & (done >= enqueued) & (enqueued > 0)
    np.maximum.at(ran, known.progress_at[is_idle], rows["last_enqueued_ns"][is_idle])
    return members.is_local[members.comm] & (ran[members.rank_at] > members.last_enqueued_ns)


def _reached(known: Known, members: Members, fronts: Fronts, comms: Ints, ran: Ints) -> tuple[Ints, Ints]:
    """(M,) of the members of these communicators: the last op there that the GPU is known to have run, and the last that it
    can be in.

    Both follow from what the rank enqueued before and after it: what has run over the network, and what has not.
    """
    ran_to, stuck_at = np.zeros(len(members.comm), np.int64), members.entered.copy()
    if not len(comms):
        return ran_to, stuck_at
    stuck = np.full(len(known.ranks.rank), NEVER, np.int64)
    np.minimum.at(stuck, fronts.at, fronts.enqueued_ns)
    is_wanted = np.append(np.isin(np.arange(len(members.comm_ids)), comms), False)
    for table in ("op", "live_op"):
        rows = known.window.rows(table)
        comm_id, comm_rank = rows["comm_id"], rows["comm_rank"].astype(np.int64)
        chosen = np.flatnonzero(is_wanted[members.comm_of(comm_id)] & (rows["enqueued_ns"] > 0) & ~is_p2p(rows))
        mine = members.find(comm_id[chosen], comm_rank[chosen])
        chosen, mine = chosen[mine >= 0], mine[mine >= 0]
        at, op, enqueued = members.rank_at[mine], rows["op"][chosen].astype(np.int64), rows["enqueued_ns"][chosen]
        has_run, is_behind = enqueued < ran[at], enqueued > stuck[at]
        np.maximum.at(ran_to, mine[has_run], op[has_run])
        np.minimum.at(stuck_at, mine[is_behind], op[is_behind] - 1)
    return ran_to, stuck_at


def _in_own_op(mine: int, members: Members, has_passed: Mask, is_ahead: Mask) -> list[Edges]:
    """Edges from a member to its mates, unless its last op there is over or a mate has not even entered it.

    is_ahead: (M,) members that have run every op there that this one can be in: it does not wait for them.
    """
    comm, at = int(members.comm[mine]), int(members.rank_at[mine])
    part = members.of(comm)
    entered, op = members.entered[part], members.entered[mine]
    if (has_passed[part] & (entered == op)).any() or (entered < op).any():
        return []
    mates = members.rank_at[part][(members.rank_at[part] != at) & ~is_ahead[part]]
    return [edges(np.full(len(mates), at), mates, Why.IN_NODE, *_place(comm, int(op), len(mates)))]


def ring_hop_edges(known: Known, members: Members, fronts: Fronts, pairs: Pairs) -> Edges:
    """Possible edges to ring neighbours on the same node, which have no network flow.

    A rank that only sends over the network on some channel gets its input there from a mate, and waits for it while its
    GPU produces nothing; one that only receives there passes on to a mate, and waits for it while its buffers are full.
    """
    posted, ready, _, done = pairs.sent.T
    starved = (pairs.sender_end == SEEN) & (posted > ready) & (ready == done)
    asked, received = pairs.taken[:, 0], pairs.taken[:, 1]
    full = (pairs.receiver_end == SEEN) & (asked == received) & (received > 0)
    # A kernel that has not started is not in the op yet: whatever its rank waits for comes before.
    starved &= can_wait_for_data(fronts, pairs.sender, pairs.key)
    full &= can_wait_for_data(fronts, pairs.receiver, pairs.key)
    found, mates_of = [], _mates(known, members)
    for mask, at, other in ((starved, pairs.sender, pairs.receiver), (full, pairs.receiver, pairs.sender)):
        sending, taking = mix(at, pairs.key, pairs.channel), mix(other, pairs.key, pairs.channel)
        blocked = mask & ~pairs.p2p & (pairs.comm >= 0) & (at >= 0) & fronts.blocks(at, pairs.key)
        # In a tree the one that sends for its node does so both ways, and passes on what all its mates have reduced.
        one_way = blocked & (~among(sending, taking) | fronts.is_tree(at, pairs.key))
        same_way = set(sending.tolist())
        for i in np.flatnonzero(one_way):
            mates = np.array(mates_of.get((int(pairs.comm[i]), int(known.ranks.node[at[i]])), []), np.int64)
            found.append(_hops(pairs, int(i), int(at[i]), members.rank_at[mates], same_way))
    return joined(found)


def _mates(known: Known, members: Members) -> dict[tuple[int, int], list[int]]:
    """(communicator, node) → its members there, for communicators with several members on a node."""
    node = known.ranks.node[members.rank_at]
    found: dict[tuple[int, int], list[int]] = {}
    for i in np.flatnonzero((node >= 0) & (members.n_nodes[members.comm] < members.n_ranks[members.comm])):
        found.setdefault((int(members.comm[i]), int(node[i])), []).append(int(i))
    return found


def _hops(pairs: Pairs, i: int, at: int, mates: Ints, same_way: set[int]) -> Edges:
    """Edges to the mates that may be the neighbour: those without a network flow of the same direction there."""
    keys = mix(mates, np.full(len(mates), pairs.key[i]), pairs.channel[i])
    chosen = mates[np.array([int(key) not in same_way for key in keys], bool)]
    return edges(
        np.full(len(chosen), at), chosen, Why.IN_NODE, *_place(int(pairs.comm[i]), int(pairs.op[i]), len(chosen))
    )
