"""Nodes that were last heard of before the job came to rest: what their ranks do now, nobody knows.

    node A ▮▮▮▮▮▮▮▮▮▮▮▮ │ at rest      node B ▮▮▮▮▮▮▮▮▮▮▮ │      node C ▮▮▮▮▮▮▮……│…………   its last rows are of a running job

A hang is noticed after seconds, a silent node after ten. In between, the old rows of a node look like those of ranks that
stopped by themselves, one by one, and must not be taken for that. Of nodes never heard of: rca/hang/never_heard.py.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rca.hang.fronts import Fronts
from rca.hang.known import Known
from rca.hang.members import Members
from rca.hang.pairs import FINISHED, Pairs
from rca.hang.waits import Edges, Why, edges, joined
from rca.keys import Ints, Mask, in_sorted, mix
from rca.settings import SECOND_NS, Settings

LAG_NS: Final = 2 * SECOND_NS
"""Twice what lies between two batches of an agent: further behind than chance and delivery make a node."""


def heard_ns(known: Known) -> Ints:
    """(N,) until when each node's ranks are known: its newest batch, unless that and those before told nothing of them."""
    nodes, ranks = known.window.nodes, known.ranks
    newest = np.zeros(len(nodes), np.int64)
    placed = ranks.node >= 0
    np.maximum.at(newest, ranks.node[placed], ranks.seen_ns[placed])
    told = nodes["watermark_ns"].astype(np.int64)
    return np.where(newest >= told - LAG_NS, told, newest)


def nodes_behind(known: Known, settings: Settings) -> Mask:
    """(N + 1,) nodes heard of last before the others came to rest; the last entry stands for "no node"."""
    heard, ranks = heard_ns(known), known.ranks
    n_ranks = np.bincount(ranks.node[ranks.node >= 0], minlength=len(heard))
    if not len(heard):
        return np.zeros(1, bool)
    # Half of the nodes have been heard until here at least: one whose clock runs ahead leaves nobody behind.
    lags = (n_ranks > 0) & (np.sort(heard)[len(heard) // 2] - heard >= LAG_NS)
    behind = np.append(lags, False)
    if lags.any():
        behind[:-1] &= heard < _rest_ns(known, behind) + settings.still_ns
    return behind


def _rest_ns(known: Known, behind: Mask) -> int:
    """When the ranks of the other nodes last got on with anything."""
    is_other = ~behind[known.ranks.node]
    moved = (known.flow["tick_ns"] - known.flow["stuck_ns"])[is_other[known.flow_at]]
    done = known.progress["last_done_ns"][np.append(is_other, False)[known.progress_at]]
    return max(int(moved.max(initial=0)), int(done.max(initial=0)))


def edges_to_unheard(known: Known, members: Members, fronts: Fronts, pairs: Pairs, is_unheard: Mask) -> Edges:
    """Possible edges to ranks nobody hears, from those in a collective with them or at the other end of a flow: what these miss
    may have to come from there."""
    unheard = np.flatnonzero(is_unheard[members.rank_at])[::-1]
    of_comm = np.full(len(members.comm_ids) + 1, -1, np.int64)
    of_comm[members.comm[unheard]] = members.rank_at[unheard]
    front = np.flatnonzero(fronts.is_front & ~fronts.p2p & (of_comm[fronts.comm] >= 0))
    target = of_comm[fronts.comm[front]]
    left = ~in_sorted(mix(target, fronts.key[front]), known.finished)
    front, target = front[left], target[left]
    found = [edges(fronts.at[front], target, Why.UNHEARD, fronts.comm[front], fronts.op[front])]
    is_open = pairs.p2p & (pairs.sender_end != FINISHED) & (pairs.receiver_end != FINISHED)
    for at, other in ((pairs.sender, pairs.receiver), (pairs.receiver, pairs.sender)):
        to = np.flatnonzero(is_open & (other >= 0) & np.append(is_unheard, False)[other] & fronts.blocks(at, pairs.key))
        found.append(edges(at[to], other[to], Why.UNHEARD, pairs.comm[to], pairs.op[to]))
    return joined(found)
