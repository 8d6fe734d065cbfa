"""Ranks of which nothing was ever heard, as those of a node without an agent: who may wait for them.

    rank 5 ──▶ ?      rank 5 shows nothing that it waits for, but it is in an op with ranks nobody hears of

Or of which nothing is heard in one communicator, though they tell of others: the wait is for the rank itself then.

What they do nobody knows, so that whoever is in an op with them may wait for them: it must not be taken for one that waits for
nobody. Nothing is known of them but their number, so one vertex stands for them all. Only what is seen where somebody is heard
says more: a GPU that has what it needs and does not go on, or a port that is down.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.hang.fronts import Fronts
from rca.hang.innode import passed
from rca.hang.known import Known
from rca.hang.members import Members
from rca.hang.pairs import SEEN, UNHEARD, Pairs
from rca.hang.waits import Edges, Why, edges, joined
from rca.keys import Ints, Mask, among, mix
from rca.ranks import PORT_DOWN, Ranks
from rca.settings import Settings


def edges_to_never_heard(
    known: Known, members: Members, fronts: Fronts, pairs: Pairs, certain: Edges, vertex: int, settings: Settings
) -> Edges:
    """Possible edges to `vertex`, which stands for all ranks never heard of: of who is in a collective with them or at the other
    end of a flow, and does not itself show that it waits for nobody there. Of who has a dead port, to that."""
    is_partly = np.append(members.n_ranks > np.diff(members.first), False)
    untold = _untold_of(members)
    is_unheard = (pairs.sender_end == UNHEARD) | (pairs.receiver_end == UNHEARD)
    if not (is_partly | (untold >= 0)).any() and not is_unheard.any():
        return joined([])
    may_wait = fronts.is_front & ~fronts.p2p & _may_wait(fronts, pairs)
    may_wait &= ~_stands_on_node(known.ranks, fronts, pairs, settings)
    front = np.flatnonzero(may_wait & is_partly[fronts.comm])
    told = np.flatnonzero(may_wait & (untold[fronts.comm] >= 0))
    found = joined(
        [
            _edges(vertex, fronts.at[front], fronts.comm[front], fronts.op[front]),
            edges(fronts.at[told], untold[fronts.comm[told]], Why.UNTOLD, fronts.comm[told], fronts.op[told]),
            _inside(known, members, fronts, certain, is_partly, vertex),
            *_in_flows(fronts, pairs, vertex),
        ]
    )
    return _over_dead_ports(known.ranks, found)


def _untold_of(members: Members) -> Ints:
    """(C + 1,) the first rank position of each communicator of which nothing is told there; -1 where none is, and last."""
    untold = np.flatnonzero(members.is_untold)[::-1]
    found = np.full(len(members.comm_ids) + 1, -1, np.int64)
    found[members.comm[untold]] = members.rank_at[untold]
    return found


def _edges(vertex: int, at: Ints, comm: Ints, op: Ints) -> Edges:
    return edges(at, np.full(len(at), vertex, np.int64), Why.NEVER_HEARD, comm, op)


def _may_wait(fronts: Fronts, pairs: Pairs) -> Mask:
    """(F,) whether a rank in a collective can be waiting for others in it: not while its kernel, which sends first, has not
    filled the first buffer it was offered, nor while its own proxy has offered none."""
    has_send = np.zeros(len(fronts.at), bool)
    place = fronts.find(pairs.sender, pairs.key)
    has_send[place[(place >= 0) & (pairs.sender_end == SEEN)]] = True
    found: Mask = ~fronts.is_mute & (fronts.has_begun | ~fronts.sends_first | ~has_send)
    return found


def _stands_on_node(ranks: Ranks, fronts: Fronts, pairs: Pairs, settings: Settings) -> Mask:
    """(F,) whether a ring stands on the rank's own node: what came in on a channel is not taken, and there is room, with nothing
    under way, for what goes out on it. One of its GPUs has what it needs."""
    posted, ready, _, done = pairs.sent.T
    _, _, flushed, consumed = pairs.taken.T
    stands = ~pairs.p2p & (pairs.still_ns >= settings.still_ns)
    node = np.append(ranks.node, -1)
    has_input = stands & (pairs.receiver_end == SEEN) & (consumed < flushed) & (node[pairs.receiver] >= 0)
    has_room = stands & (pairs.sender_end == SEEN) & (posted > ready) & (ready == done) & (node[pairs.sender] >= 0)
    into = mix(node[pairs.receiver], pairs.key, pairs.channel)[has_input]
    out = np.flatnonzero(has_room)
    out = out[among(mix(node[pairs.sender], pairs.key, pairs.channel)[out], into)]
    found: Mask = ~fronts.tree & among(mix(node[fronts.at], fronts.key), mix(node[pairs.sender], pairs.key)[out])
    return found


def _inside(known: Known, members: Members, fronts: Fronts, certain: Edges, is_partly: Mask, vertex: int) -> Edges:
    """Of ranks that others wait for, whose last op in a communicator inside their node is not known to be over."""
    is_waited_for = np.isin(members.rank_at, certain.target) & members.is_local[members.comm]
    inside = np.flatnonzero(is_waited_for & is_partly[members.comm] & (members.entered > 0))
    if len(inside):
        inside = inside[~passed(known, members, fronts)[inside]]
    return _edges(vertex, members.rank_at[inside], members.comm[inside], members.entered[inside])


def _in_flows(fronts: Fronts, pairs: Pairs, vertex: int) -> list[Edges]:
    """Of sends and receives. Room that a send with nothing under way does not fill, and data that a receive does not take, is the
    rank's own doing."""
    posted, ready, _, done = pairs.sent.T
    _, received, _, consumed = pairs.taken.T
    sends, takes = (posted <= ready) | (ready > done), consumed >= received
    found = []
    for at, other, other_end, may_wait in (
        (pairs.sender, pairs.receiver, pairs.receiver_end, sends), (pairs.receiver, pairs.sender, pairs.sender_end, takes),
    ):  # fmt: skip
        to = pairs.p2p & (other_end == UNHEARD) & may_wait & fronts.blocks(at, pairs.key)
        never, told = np.flatnonzero(to & (other < 0)), np.flatnonzero(to & (other >= 0))
        found.append(_edges(vertex, at[never], pairs.comm[never], pairs.op[never]))
        found.append(edges(at[told], other[told], Why.UNTOLD, pairs.comm[told], pairs.op[told]))
    return found


def _over_dead_ports(ranks: Ranks, found: Edges) -> Edges:
    """The edges, those of ranks whose own port is down to that NIC."""
    is_down = ranks.port[found.waiter] == PORT_DOWN
    target = np.where(is_down, len(ranks.rank) + ranks.nic[found.waiter], found.target)
    return replace(found, target=target, why=np.where(is_down, int(Why.LOST), found.why))
