"""The distributed state machine: who waits for whom, and why (Mycroft §5.1).

From the last-known rows, every rank is placed in the ops that block it, and every op it is blocked in gives edges: to
members that have not entered it, and, per flow, to the peer or the link that the flow needs next. Receives are followed
before sends are judged: a rank whose own send says "GPU not ready" may only have nothing to forward. What is certain is
applied first: a stopped or dead process, and a proxy that leaves delivered data lying, wait for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import IB
from rca.hang import deaf
from rca.hang.behind import edges_to_unheard, nodes_behind
from rca.hang.disputed import Disputed, disputed_ops
from rca.hang.followers import followers
from rca.hang.fronts import Fronts, can_wait_for_data, known_fronts, ran_ns
from rca.hang.graph import Graph
from rca.hang.innode import hidden_in_node, late_in_node, ring_hop_edges, stops_in_receive
from rca.hang.innode_pairs import late_pairs, local_pairs
from rca.hang.kernels import Kernels, held_edges, kernels_of
from rca.hang.known import Known, last_known
from rca.hang.mates import Mates
from rca.hang.members import Members, known_members
from rca.hang.never_heard import edges_to_never_heard
from rca.hang.pairs import ABSENT, NO_FLOWS, SEEN, UNHEARD, Pairs, paired_flows
from rca.hang.transport import with_transport
from rca.hang.trees import comes_down
from rca.hang.waits import Edges, Why, edges, joined
from rca.keys import Groups, Ints, Keys, Mask, among, mix
from rca.ranks import PORT_DOWN, Ranks
from rca.settings import Settings


@dataclass(frozen=True, slots=True)
class Stalls:
    """(P,) masks over the flow pairs: what is wrong between the two ends. Only flows that stand still.

    wants_data: the receiver waits for what the sender has not sent, and its GPU has taken all that was. wants_credit: the sender
    waits for the receiver to post. is_lost: something was sent and neither arrived nor was given up: the link, or a proxy.
    not_taken: delivered by the network and not taken by the receiver's proxy. not_noticed: taken by the receiver, not noticed
    by the sender's.
    """

    wants_data: Mask
    wants_credit: Mask
    is_lost: Mask
    not_taken: Mask
    not_noticed: Mask


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Progress:
    """The state of a job at rest.

    is_cut: ranks that wait for nobody, by direct evidence. is_deaf: those among them whose proxy does not react.
    behind: (N + 1,) nodes last heard of before the job came to rest, as nodes_behind; their ranks are cut as well.
    vertices: ranks, then NICs, then links, then ops, then one for all never heard of. links: (L, 2) rank positions.
    certain: edges that follow from counters; hidden: edges inside a node that may exist. ran_ns: as fronts.ran_ns.
    kernels: what GPUs say of theirs.
    """

    known: Known
    members: Members
    pairs: Pairs
    fronts: Fronts
    stalls: Stalls
    disputed: Disputed
    is_cut: Mask
    is_deaf: Mask
    behind: Mask
    links: Ints
    waiting_ops: Ints
    certain: Edges
    hidden: Edges
    ran_ns: Ints
    kernels: Kernels
    graph: Graph

    @property
    def ranks(self) -> Ranks:
        return self.known.ranks

    @property
    def window(self) -> Window:
        return self.known.window

    @property
    def n_ranks(self) -> int:
        return len(self.ranks.rank)

    @property
    def first_link(self) -> int:
        return self.n_ranks + len(self.ranks.nics)

    @property
    def first_op(self) -> int:
        return self.first_link + len(self.links)

    @property
    def never_heard(self) -> int:
        return self.first_op + len(self.waiting_ops)


_MADE: WeakKeyDictionary[Window, tuple[Settings, Progress]] = WeakKeyDictionary()
"""What was made of each window that is still held, by which thresholds; without the window itself, so that it can go."""


def state_of(window: Window, settings: Settings) -> Progress:
    """The state machine of `window`: made once, as the look that sees a stall and the diagnosis that follows both ask."""
    by, made = _MADE.get(window, (None, None))
    if made is None or by != settings:
        made = _made(window, settings)
        _MADE[window] = settings, _of(replace(window, tables={}), made)
    return _of(window, made)


def _of(window: Window, state: Progress) -> Progress:
    return replace(state, known=replace(state.known, window=window))


def _made(window: Window, settings: Settings) -> Progress:
    known = last_known(window, settings)
    members = known_members(known)
    pairs = with_transport(paired_flows(known, members), settings)
    fronts = known_fronts(known, members, _awaited(pairs), settings)
    disputed = disputed_ops(known)
    is_same = ~among(pairs.key, disputed.key)
    ranks, behind = known.ranks, nodes_behind(known, settings)
    is_unheard = ranks.is_silent | behind[ranks.node]
    is_reset = _touches(pairs, ranks.is_gone | is_unheard)
    stalls = _stalls(pairs, is_same, is_reset, settings)
    nic = _nic_down(pairs, ranks)
    is_cut = ranks.is_gone | ranks.is_stopped | is_unheard
    is_deaf = _deaf(known, members, fronts, pairs, is_same, is_reset, stalls, nic, settings) & ~is_cut
    is_cut |= is_deaf
    link_of, links = _links(pairs, stalls, nic, is_cut)
    flow_edges = _flow_edges(pairs, fronts, stalls, nic, link_of, ranks, is_cut)
    op_edges, ops = _entry_edges(fronts, members, len(ranks.rank) + len(ranks.nics) + len(links), is_cut)
    inside, mates, ran = local_pairs(known, members), Mates(known, members), ran_ns(known, fronts)
    late = [*late_in_node(known, members, fronts), late_pairs(inside, fronts, len(ranks.rank))]
    kernels = kernels_of(known, members, settings)
    certain = kernels.waiting(joined([*flow_edges, *op_edges, *late]))
    certain = certain.where(~_of_rank(is_cut, certain.waiter))
    never_heard = len(ranks.rank) + len(ranks.nics) + len(links) + len(ops)
    hops = joined(
        [edges_to_unheard(known, members, fronts, pairs, is_unheard), ring_hop_edges(members, mates, fronts, pairs),
         held_edges(kernels, members, mates),
         edges_to_never_heard(known, members, fronts, pairs, certain, never_heard, settings)]
    )  # fmt: skip
    is_dead, seen = stops_in_receive(pairs, len(ranks.rank), settings), joined([certain, hops])
    hidden = joined([hops, hidden_in_node(known, members, mates, fronts, inside, seen, ran, is_dead)])
    hidden = kernels.waiting(hidden.where(~_of_rank(is_cut, hidden.waiter)))
    hidden = joined([hidden, followers(known, members, fronts, joined([certain, hidden]), is_cut)])
    both = joined([certain, hidden])
    return Progress(
        known, members, pairs, fronts, stalls, disputed, is_cut, is_deaf, behind, links, ops, certain, hidden,
        ran, kernels, Graph(never_heard + 1, both.waiter, both.target),
    )  # fmt: skip


def _awaited(pairs: Pairs) -> Keys:
    """(rank position, op) of ends that entered the op and show no flow, though the other end does."""
    takes, sends = pairs.receiver_end == NO_FLOWS, pairs.sender_end == NO_FLOWS
    return np.concatenate([mix(pairs.receiver, pairs.key)[takes], mix(pairs.sender, pairs.key)[sends]])


def _of_rank(mask: Mask, vertex: Ints) -> Mask:
    """(n,) `mask` of the rank a vertex is; False for vertices that are no ranks."""
    is_rank = (vertex >= 0) & (vertex < len(mask))
    return is_rank & mask[np.where(is_rank, vertex, 0)] if len(mask) else is_rank


def _touches(pairs: Pairs, mask: Mask) -> Mask:
    """(P,) flows with an end at one of these ranks."""
    return _of_rank(mask, pairs.sender) | _of_rank(mask, pairs.receiver)


def _stalls(pairs: Pairs, is_same: Mask, is_reset: Mask, settings: Settings) -> Stalls:
    """is_same: flows whose two ends count the same op. is_reset: an end is gone or unheard of; connections are reset, and what
    was acknowledged may be lost with them."""
    _, ready, transmitted, done = pairs.sent.T
    credit, received, _, consumed = pairs.taken.T
    sender, receiver = pairs.sender_end == SEEN, pairs.receiver_end == SEEN
    receiver_knows = pairs.receiver_end != UNHEARD
    stands = (pairs.still_ns >= settings.still_ns) & is_same & receiver_knows & (pairs.sender_end != UNHEARD)
    # A receiver that asks for more: it has given credit that nothing has filled yet.
    asks = receiver & (credit > received)
    has_refused = sender & (ready > transmitted)
    in_flight = sender & (transmitted > done)
    # With IB, done is the network's own acknowledgement: the data lies in the receiver's memory.
    is_ib = pairs.transport == IB
    not_taken = stands & asks & is_ib & (done > received) & (pairs.sender_end != ABSENT) & ~is_reset
    # What the receiver has taken has left the sender, over a socket too, and a proxy that looks would know it.
    not_noticed = stands & in_flight & (received >= transmitted) & (pairs.receiver_end != ABSENT) & ~is_reset
    underway = stands & ~not_taken & ~not_noticed
    is_lost = underway & asks & (transmitted > received)
    is_lost |= underway & is_ib & ((in_flight & (received < transmitted)) | (has_refused & (credit > transmitted)))
    return Stalls(
        wants_data=asks & (transmitted <= received) & (consumed >= received) & (pairs.sender_end != UNHEARD),
        wants_credit=((has_refused & (credit <= transmitted)) | (sender & ~is_ib & (transmitted > received) & ~asks))
        & (received < pairs.total) & receiver_knows,
        is_lost=is_lost, not_taken=not_taken, not_noticed=not_noticed,
    )  # fmt: skip


def _nic_down(pairs: Pairs, ranks: Ranks) -> Ints:
    """(P,) position of a NIC on this flow's way whose port is down, -1 when none is known to be."""
    found = np.full(len(pairs), -1, np.int64)
    for at in (pairs.receiver, pairs.sender):
        place = np.where(ranks.port == PORT_DOWN, ranks.nic, ranks.fallen)
        is_down = (at >= 0) & (place[at] >= 0)
        found[is_down] = place[at[is_down]]
    return found


def _deaf(
    known: Known,
    members: Members,
    fronts: Fronts,
    pairs: Pairs,
    is_same: Mask,
    is_reset: Mask,
    stalls: Stalls,
    nic: Ints,
    settings: Settings,
) -> Mask:
    """(R,) ranks whose proxy provably does nothing."""
    ranks = known.ranks
    found = deaf.leaves_data(pairs, stalls.not_taken, stalls.not_noticed, nic, len(ranks.rank))
    found |= deaf.offers_nothing(known, settings)
    same = pairs.where(is_same)
    found |= deaf.takes_up_nothing(known, same, settings) | deaf.hides_a_kernel(known, members, fronts, same, settings)
    # A remote error stops a proxy, which is no fault of it.
    for at in (pairs.sender, pairs.receiver):
        found[at[is_reset & (at >= 0)]] = False
    return found


def _links(pairs: Pairs, stalls: Stalls, nic: Ints, is_cut: Mask) -> tuple[Ints, Ints]:
    """(P,) link of every flow that loses data between two ranks that are otherwise fine, and (L, 2) those links."""
    known = (pairs.sender >= 0) & (pairs.receiver >= 0)
    is_fine = known & ~is_cut[pairs.sender] & ~is_cut[pairs.receiver] if len(is_cut) else known
    chosen = np.flatnonzero(stalls.is_lost & (nic < 0) & is_fine)
    ends = np.sort(np.stack([pairs.sender[chosen], pairs.receiver[chosen]], axis=1), axis=1)
    links, which = np.unique(ends, axis=0, return_inverse=True) if len(chosen) else (np.zeros((0, 2), np.int64), chosen)
    link_of = np.full(len(pairs), -1, np.int64)
    link_of[chosen] = which.reshape(-1)
    return link_of, links


def _flow_edges(
    pairs: Pairs, fronts: Fronts, stalls: Stalls, nic: Ints, link_of: Ints, ranks: Ranks, is_cut: Mask
) -> list[Edges]:
    n = len(ranks.rank)
    sender, receiver, key = pairs.sender, pairs.receiver, pairs.key
    sends_here, takes_here = fronts.blocks(sender, key), fronts.blocks(receiver, key)
    has_begun = can_wait_for_data(fronts, receiver, key) & ~comes_down(fronts, pairs)
    lost = stalls.is_lost | stalls.not_taken | stalls.not_noticed
    place = np.where(nic >= 0, n + nic, np.where(link_of >= 0, n + len(ranks.nics) + link_of, -1))
    cut_sender, cut_receiver = _of_rank(is_cut, sender), _of_rank(is_cut, receiver)
    place = np.where(place >= 0, place, np.where(cut_receiver, receiver, np.where(cut_sender, sender, -1)))
    not_taken = stalls.not_taken & (nic < 0)
    data_to = np.where(pairs.sender_end == ABSENT, Why.NOT_ENTERED, Why.NO_DATA)
    credit_to = np.where(pairs.receiver_end == ABSENT, Why.NOT_ENTERED, Why.NO_CREDIT)
    found = []
    for why in (Why.NOT_ENTERED, Why.NO_DATA):
        mask = stalls.wants_data & takes_here & has_begun & (data_to == why)
        found.append(_masked(receiver, sender, why, pairs, mask))
    for why in (Why.NOT_ENTERED, Why.NO_CREDIT):
        mask = stalls.wants_credit & sends_here & (credit_to == why)
        found.append(_masked(sender, receiver, why, pairs, mask))
    found.append(_masked(sender, receiver, Why.NOT_TAKEN, pairs, not_taken & sends_here))
    found.append(_masked(sender, place, Why.LOST, pairs, lost & ~not_taken & sends_here))
    found.append(_masked(receiver, place, Why.LOST, pairs, lost & ~not_taken & takes_here))
    return found


def _masked(waiter: Ints, target: Ints, why: Why, pairs: Pairs, mask: Mask) -> Edges:
    return edges(waiter[mask], target[mask], why, pairs.comm[mask], pairs.op[mask])


def _entry_edges(fronts: Fronts, members: Members, first: int, is_cut: Mask) -> tuple[list[Edges], Ints]:
    """Edges rank → op → members that have not entered it. (O, 2) communicator and op of every such op vertex."""
    blocking = fronts.is_front & ~fronts.p2p & (fronts.comm >= 0)
    waiters, comm, op = fronts.at[blocking], fronts.comm[blocking], fronts.op[blocking]
    _, one, which = np.unique(mix(comm, op), return_index=True, return_inverse=True)
    place, member = Groups(mix(members.comm)).find(mix(comm[one]))
    is_late = (members.entered[member] < op[one][place]) & ~members.is_untold[member]
    n_late = np.bincount(place[is_late], minlength=len(one))
    has_vertex = (n_late > 0) & (n_late < np.bincount(place, minlength=len(one)))
    vertex = np.where(has_vertex, first + np.cumsum(has_vertex) - 1, -1)
    late = np.flatnonzero(is_late & has_vertex[place])
    over, target = one[place[late]], members.rank_at[member[late]]
    vertices = vertex[which]
    found = [
        edges(vertex[place[late]], target, Why.NOT_ENTERED, comm[over], op[over]),
        edges(waiters, vertices, Why.NOT_ENTERED, comm, op),
    ]
    return found, np.stack([comm[one], op[one]], axis=1)[has_vertex]
