"""Sends and receives inside a node, as experts exchange their tokens: each has a number for its pair and direction.

    rank 61:  receive 274 from rank 57      rank 57:  send 272 to rank 61 was its last      → 61 waits for 57

The network sees nothing of them. Their numbers at the two ends tell who has not come, however unevenly a group of them is
filled; where both have come to the same number, each may be what the other waits for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import FUNC_SEND
from rca.hang.fronts import NEVER, Fronts
from rca.hang.known import Known
from rca.hang.members import Members
from rca.hang.waits import Edges, Why, edges, joined
from rca.keys import Index, Ints, Mask, is_p2p, latest, mix


@dataclass(frozen=True, slots=True)
class LocalPairs:
    """Arrays of (L,), one per member of an in-node communicator, peer and direction that it has enqueued ops for.

    at, peer_at: rank positions. op: the last it has enqueued; enqueued_ns: when. ready_op: how far the other end has come.
    waits_since_ns: when it enqueued the first that the other end has not; NEVER where there is none.
    """

    comm: Ints
    at: Ints
    peer_at: Ints
    op: Ints
    enqueued_ns: Ints
    ready_op: Ints
    waits_since_ns: Ints


def local_pairs(known: Known, members: Members) -> LocalPairs:
    """The sends and receives inside nodes of the window."""
    parts = [_rows(known, members, table) for table in ("op", "live_op")]
    member, peer, is_send, op, enqueued = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    newest = latest(mix(member, peer, is_send), op)
    own, other = mix(member, peer, is_send), mix(peer, member, ~is_send)[newest]
    at_other = Index(own[newest]).find(other)
    ready = np.where(at_other >= 0, op[newest][at_other] if len(newest) else 0, 0)
    ready = np.where(members.is_untold[peer[newest]], op[newest], ready)  # it may have come as far
    first = Index(mix(own, op)).find(mix(own[newest], ready + 1))
    since = np.where(first >= 0, enqueued[first] if len(enqueued) else 0, enqueued[newest])
    return LocalPairs(
        comm=members.comm[member[newest]], at=members.rank_at[member[newest]], peer_at=members.rank_at[peer[newest]],
        op=op[newest], enqueued_ns=enqueued[newest], ready_op=ready,
        waits_since_ns=np.where(op[newest] > ready, since, NEVER),
    )  # fmt: skip


def _rows(known: Known, members: Members, table: str) -> tuple[Ints, Ints, Mask, Ints, Ints]:
    """Member, peer's member, direction, number and time of enqueueing of a table's sends and receives inside nodes."""
    rows = known.window.rows(table)
    chosen = np.flatnonzero(known.op_p2p if table == "op" else is_p2p(rows))
    chosen = chosen[rows["enqueued_ns"][chosen] > 0]
    comm_id = rows["comm_id"][chosen]
    is_local = members.is_in_node(members.comm_of(comm_id))
    chosen, comm_id = chosen[is_local], comm_id[is_local]
    member = members.find(comm_id, rows["comm_rank"][chosen].astype(np.int64))
    peer = members.find(comm_id, rows["peer"][chosen].astype(np.int64))
    keep = (member >= 0) & (peer >= 0)
    chosen = chosen[keep]
    is_send: Mask = rows["func"][chosen] == FUNC_SEND
    numbers = rows["op"][chosen].astype(np.int64), rows["enqueued_ns"][chosen].astype(np.int64)
    return member[keep], peer[keep], is_send, *numbers


def late_pairs(pairs: LocalPairs, fronts: Fronts, n_ranks: int) -> Edges:
    """Certain edges to the peer that has not enqueued its end; not of ranks that are still in something that began before."""
    began = np.full(n_ranks, NEVER, np.int64)
    np.minimum.at(began, fronts.at[fronts.has_begun], fronts.enqueued_ns[fronts.has_begun])
    waits = np.flatnonzero((pairs.waits_since_ns < NEVER) & (pairs.waits_since_ns <= began[pairs.at]))
    return edges(pairs.at[waits], pairs.peer_at[waits], Why.NOT_ENTERED, pairs.comm[waits], pairs.ready_op[waits] + 1)


def hidden_pairs(pairs: LocalPairs, is_asked: Mask, ran_ns: Ints) -> Edges:
    """Possible edges of ranks that wait for nobody visibly to the peers of their last exchange inside the node.

    ran_ns: (R,) when the last op that the rank's GPU is known to have run was enqueued: what came before it is over.
    """
    is_open = is_asked[pairs.at] & (pairs.op == pairs.ready_op) & (ran_ns[pairs.at] <= pairs.enqueued_ns)
    back = Index(mix(pairs.at, pairs.peer_at, pairs.comm, pairs.op))
    has_peer_run = np.zeros(len(pairs.at), bool)
    other = back.find(mix(pairs.peer_at, pairs.at, pairs.comm, pairs.op))
    known = other >= 0
    has_peer_run[known] = ran_ns[pairs.peer_at[known]] > pairs.enqueued_ns[other[known]]
    chosen = np.flatnonzero(is_open & ~has_peer_run)
    return joined([edges(pairs.at[chosen], pairs.peer_at[chosen], Why.IN_NODE, pairs.comm[chosen], pairs.op[chosen])])
