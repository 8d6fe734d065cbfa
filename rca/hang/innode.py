"""Waiting that the network does not see: ops inside a node, and ring hops between ranks of one node.

Two things can be said. Certain: a member that has not entered an in-node op keeps those who have. Hidden: a rank that
holds others up without any visible reason may be held up itself by a mate on its node, unless the op they share is
known to be over because something enqueued after it has run.
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.hang.fronts import NEVER, Fronts, can_wait_for_data
from rca.hang.innode_pairs import LocalPairs, hidden_pairs
from rca.hang.known import Known
from rca.hang.mates import Mates
from rca.hang.members import Members
from rca.hang.pairs import SEEN, Pairs
from rca.hang.waits import Edges, Why, edges, joined
from rca.keys import Groups, Index, Ints, Mask, among, collective_keys, in_sorted, is_p2p, latest, mix
from rca.settings import Settings


def late_in_node(known: Known, members: Members, fronts: Fronts) -> list[Edges]:
    """Certain edges from members of in-node communicators to those that have enqueued fewer ops there."""
    began = np.full(len(known.ranks.rank), NEVER, np.int64)
    np.minimum.at(began, fronts.at[fronts.has_begun], fronts.enqueued_ns[fronts.has_begun])
    if not members.is_local.any():
        return []
    told, most = ~members.is_untold, members.entered.max()
    least = np.minimum.reduceat(np.where(told, members.entered, most), members.first[:-1])
    op, is_local = least[members.comm] + 1, members.is_local[members.comm] & told
    ahead, late = np.flatnonzero(is_local & (members.entered >= op)), np.flatnonzero(is_local & (members.entered < op))
    # A rank that ran ahead is still in whatever began before it enqueued this op.
    ahead = ahead[_enqueued_in_node(known, members, ahead, op[ahead]) <= began[members.rank_at[ahead]]]
    place, target = Groups(mix(members.comm[late])).find(mix(members.comm[ahead]))
    ahead, target = ahead[place], late[target]
    at, target_at = members.rank_at[ahead], members.rank_at[target]
    return [edges(at, target_at, Why.NOT_ENTERED, members.comm[ahead], op[ahead])]


def hidden_in_node(
    known: Known,
    members: Members,
    mates: Mates,
    fronts: Fronts,
    pairs: LocalPairs,
    certain: Edges,
    ran: Ints,
    is_dead: Mask,
) -> Edges:
    """Possible edges inside a node, of ranks that others wait for and that wait for nobody visibly, and are not known to have
    stopped by themselves (is_dead)."""
    n_ranks = len(known.ranks.rank)
    is_waited_for, waits = np.zeros(n_ranks, bool), np.zeros(n_ranks, bool)
    is_waited_for[certain.target[certain.target < n_ranks]] = True
    waits[_surely_waiting(fronts, certain, n_ranks)] = True
    has_passed = passed(known, members, fronts)
    # Who waits for such a rank inside the node makes it one itself: so all of its node that wait for nobody visibly.
    node = known.ranks.node
    is_asked = ~waits & (is_waited_for | np.isin(node, node[is_waited_for & ~waits & (node >= 0)]))
    is_asked &= ~is_dead
    in_local = is_asked[members.rank_at] & members.is_local[members.comm]
    asking = np.flatnonzero(in_local & (members.entered > 0) & ~has_passed)
    ran_to, stuck_at = _reached(known, members, fronts, np.unique(members.comm[asking]), ran)
    return joined(
        [
            _in_own_op(asking, members, has_passed, ran_to, stuck_at[asking]),
            hidden_pairs(pairs, is_asked, ran),
            _behind_over(known, members, mates, fronts, is_asked),
            _behind_done(known, members, mates, fronts, is_asked, ran),
        ]
    )


def stops_in_receive(pairs: Pairs, n_ranks: int, settings: Settings) -> Mask:
    """(R,) ranks whose GPU has begun a receive, has all it needs to go on with it, and does not: a receive needs nobody else."""
    received, consumed = pairs.taken[:, 1], pairs.taken[:, 3]
    lies = pairs.p2p & (pairs.receiver_end == SEEN) & (consumed > 0) & (consumed < received)
    found = np.zeros(n_ranks, bool)
    found[pairs.receiver[lies & (pairs.still_ns >= settings.still_ns)]] = True
    return found


def _behind_over(known: Known, members: Members, mates: Mates, fronts: Fronts, is_asked: Mask) -> Edges:
    """Edges to mates still in an op that is over here as far as flows tell: its kernel may wait for them inside."""
    # What keeps a kernel from starting was enqueued before it, and one that has begun and waits for nobody visibly is stuck by
    # itself: nothing that was enqueued after either holds the rank.
    holds = fronts.has_begun | fronts.sends_first & ~fronts.is_mute
    stuck = np.full(len(known.ranks.rank), NEVER, np.int64)
    np.minimum.at(stuck, fronts.at[holds], fronts.enqueued_ns[holds])
    front = np.flatnonzero(fronts.is_front & ~fronts.p2p & (fronts.comm >= 0))
    asked, mate = mates.find(fronts.comm[front], fronts.at[front])
    front, at = front[asked], members.rank_at[mate]
    own = mix(at, fronts.key[front])
    is_over = is_asked[at] & (members.entered[mate] >= fronts.op[front]) & (fronts.by_rank.find(own) < 0)
    front, at, own = front[is_over], at[is_over], own[is_over]
    live = Index(mix(known.live_at, known.live_key)).find(own)
    enqueued = np.where(live >= 0, known.live["enqueued_ns"][live] if len(known.live) else 0, 0)
    front, at = front[enqueued <= stuck[at]], at[enqueued <= stuck[at]]
    return edges(at, fronts.at[front], Why.IN_NODE, fronts.comm[front], fronts.op[front])


def _behind_done(known: Known, members: Members, mates: Mates, fronts: Fronts, is_asked: Mask, ran: Ints) -> Edges:
    """Edges of ranks whose op has not begun to mates in the op before: its flows are through, its kernel may wait for a mate."""
    ops, at = known.window.rows("op"), known.op_at
    waits, is_stuck = np.zeros(len(is_asked), bool), np.zeros(len(is_asked), bool)
    waits[fronts.at[fronts.is_front]] = True
    is_stuck[fronts.at[fronts.has_begun]] = True
    wanted = np.append(is_asked & waits & ~is_stuck, False)
    done = np.flatnonzero(wanted[at])
    done = done[(ops["done_ns"][done] > 0) & ~known.op_p2p[done]]
    last = done[latest(mix(at[done]), ops["enqueued_ns"][done].astype(np.int64))]
    comm = members.comm_of(ops["comm_id"][last])
    asked, mate = mates.find(comm, at[last])
    row, waiter, target = last[asked], at[last][asked], members.rank_at[mate]
    keep = (target != waiter) & (ran[target] <= ops["enqueued_ns"][row].astype(np.int64))
    return edges(waiter[keep], target[keep], Why.IN_NODE, comm[asked][keep], ops["op"][row[keep]].astype(np.int64))


def _enqueued_in_node(known: Known, members: Members, mine: Ints, op: Ints) -> Ints:
    """(n,) when these members enqueued an op of their communicator; 0 where it is not known and others came later."""
    key = collective_keys(members.comm_ids[members.comm[mine]], op)
    live = Index(mix(known.live_at, known.live_key)).find(mix(members.rank_at[mine], key))
    last = np.where(members.entered[mine] == op, members.last_enqueued_ns[mine], 0)
    return np.where(live >= 0, known.live["enqueued_ns"][live].astype(np.int64) if len(known.live) else 0, last)


def _surely_waiting(fronts: Fronts, certain: Edges, n_ranks: int) -> Ints:
    """Ranks that wait visibly, in an op their GPU is known to be in.

    Where nothing shows that a kernel has started, "no data" in its op is true, from a peer or a mate, and something before it
    may be the reason.
    """
    begun = mix(fronts.at, fronts.comm, fronts.op)[fronts.has_begun | fronts.sends_first]
    is_sure = ~np.isin(certain.why, (Why.NO_DATA, Why.IN_NODE)) | among(
        mix(certain.waiter, certain.comm, certain.op), begun
    )
    found: Ints = certain.waiter[is_sure & (certain.waiter < n_ranks)]
    return found


def passed(known: Known, members: Members, fronts: Fronts) -> Mask:
    """(M,) members of in-node communicators that have run something enqueued after their last op there."""
    ran = np.zeros(len(known.ranks.rank), np.int64)
    produced = fronts.has_begun & (fronts.func != FUNC_RECV) & (fronts.enqueued_ns != NEVER)
    np.maximum.at(ran, fronts.at[produced], fronts.enqueued_ns[produced])
    rows = known.progress
    comm = members.comm_of(rows["comm_id"])
    over_network = (
        ~members.is_in_node(comm) & (comm >= 0) & (rows["n_p2p_enqueued"] == 0)
    )  # see ran_ns: receives run ahead
    is_idle = over_network & (rows["n_done"] >= rows["n_enqueued"]) & (rows["n_enqueued"] > 0)
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
        chosen = np.flatnonzero(is_wanted[members.comm_of(comm_id)])
        p2p = known.op_p2p[chosen] if table == "op" else is_p2p(rows)[chosen]
        chosen = chosen[(rows["enqueued_ns"][chosen] > 0) & ~p2p]
        mine = members.find(comm_id[chosen], comm_rank[chosen])
        chosen, mine = chosen[mine >= 0], mine[mine >= 0]
        at, op, enqueued = members.rank_at[mine], rows["op"][chosen].astype(np.int64), rows["enqueued_ns"][chosen]
        has_run, is_behind = enqueued < ran[at], enqueued > stuck[at]
        np.maximum.at(ran_to, mine[has_run], op[has_run])
        np.minimum.at(stuck_at, mine[is_behind], op[is_behind] - 1)
    return ran_to, stuck_at


def _in_own_op(mine: Ints, members: Members, has_passed: Mask, ran_to: Ints, stuck_at: Ints) -> Edges:
    """Edges from members to their mates, unless their last op there is over or a mate has not even entered it.

    ran_to: (M,) as _reached says. stuck_at: (n,) of `mine`: who has run up to there is not waited for.
    """
    asked, mate = Groups(mix(members.comm)).find(mix(members.comm[mine]))
    one, op = mine[asked], members.entered[mine][asked]
    is_out = (has_passed[mate] & (members.entered[mate] == op)) | (members.entered[mate] < op)
    is_out &= ~members.is_untold[mate]
    goes_on = np.zeros(len(mine), bool)
    goes_on[asked[is_out]] = True
    keep = ~goes_on[asked] & (mate != one) & (ran_to[mate] < stuck_at[asked])
    one, mate = one[keep], mate[keep]
    return edges(members.rank_at[one], members.rank_at[mate], Why.IN_NODE, members.comm[one], members.entered[one])


def ring_hop_edges(members: Members, mates: Mates, fronts: Fronts, pairs: Pairs) -> Edges:
    """Possible edges to ring neighbours on the same node, which have no network flow.

    A rank that only sends over the network on some channel gets its input there from a mate, and waits for it while its
    GPU produces nothing; one that only receives there passes on to a mate, and waits for it while its buffers are full.
    """
    posted, ready, _, done = pairs.sent.T
    starved = (pairs.sender_end == SEEN) & (posted > ready) & (ready == done)
    given, received = pairs.taken[:, 0], pairs.taken[:, 1]
    full = (pairs.receiver_end == SEEN) & (given == received) & (received > 0)
    # A kernel that has not started is not in the op yet: whatever its rank waits for comes before.
    starved &= can_wait_for_data(fronts, pairs.sender, pairs.key)
    full &= can_wait_for_data(fronts, pairs.receiver, pairs.key)
    found = []
    for mask, at, other in ((starved, pairs.sender, pairs.receiver), (full, pairs.receiver, pairs.sender)):
        same_way, taking = np.sort(mix(at, pairs.key, pairs.channel)), mix(other, pairs.key, pairs.channel)
        blocked = mask & ~pairs.p2p & (pairs.comm >= 0) & (at >= 0) & fronts.blocks(at, pairs.key)
        # In a tree the one that sends for its node does so both ways, and passes on what all its mates have reduced.
        is_two_way = among(mix(at, pairs.key, pairs.channel), taking)
        one_way = np.flatnonzero(blocked & (~is_two_way | fronts.is_tree(at, pairs.key)))
        asked, mate = mates.find(pairs.comm[one_way], at[one_way])
        flow, mate_at = one_way[asked], members.rank_at[mate]
        # The neighbour has no network flow of the same direction there.
        keep = ~in_sorted(mix(mate_at, pairs.key[flow], pairs.channel[flow]), same_way)
        flow, mate_at = flow[keep], mate_at[keep]
        found.append(edges(at[flow], mate_at, Why.IN_NODE, pairs.comm[flow], pairs.op[flow]))
    return joined(found)
