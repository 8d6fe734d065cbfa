"""Who belongs to which communicator, and how far each member has come in it.

"Entered op n" means: has enqueued at least n collectives there, whoever says so: the progress row, an op still in
progress, or a flow. This is what Algorithm 2 compares first (MinOp).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import OP_HAS_FLOWS
from rca.hang.known import Known
from rca.keys import Index, Ints, Mask, is_p2p, mix


@dataclass(frozen=True, slots=True)
class Members:
    """Arrays of (M,), one per known member, grouped by communicator.

    comm: position in comm_ids. rank_at: position of the rank. entered: collectives enqueued, 0 also when unknown.
    is_heard: some row told `entered`. is_untold: none did, though other rows of the rank are there, so that it may have entered
    anything. last_enqueued_ns: on the rank's own node's clock.
    comm_ids, first, n_ranks, n_nodes, is_local: per communicator; its known members are first[c]:first[c + 1].
    """

    comm: Ints
    comm_rank: Ints
    rank_at: Ints
    entered: Ints
    is_heard: Mask
    is_untold: Mask
    last_enqueued_ns: Ints
    comm_ids: npt.NDArray[np.uint64]
    first: Ints
    n_ranks: Ints
    n_nodes: Ints
    is_local: Mask
    by_place: Index

    def of(self, comm: int) -> slice:
        """The members of the communicator at that position."""
        return slice(int(self.first[comm]), int(self.first[comm + 1]))

    def is_in_node(self, comm: Ints) -> Mask:
        """(n,) whether the communicator at each position runs inside one node; False for unknown ones (-1)."""
        return np.append(self.is_local, False)[comm]

    def find(self, comm_id: npt.NDArray[np.uint64], comm_rank: Ints) -> Ints:
        """(n,) member with that rank inside that communicator, -1 where nobody is known."""
        return self.by_place.find(mix(comm_id, comm_rank))

    def comm_of(self, comm_id: npt.NDArray[np.uint64]) -> Ints:
        """(n,) position of each communicator, -1 where unknown."""
        if not len(self.comm_ids):
            return np.full(len(comm_id), -1, np.int64)
        place = np.minimum(np.searchsorted(self.comm_ids, comm_id), len(self.comm_ids) - 1)
        return np.where(self.comm_ids[place] == comm_id, place, -1)


def known_members(known: Known) -> Members:
    """Members of every communicator of the window, with how far they have come."""
    rows = known.window.members
    rows = rows[rows["rank"] >= 0]
    rows = rows[np.lexsort((rows["comm_rank"], rows["comm_id"]))]
    comm_ids, first, comm = np.unique(rows["comm_id"], return_index=True, return_inverse=True)
    by_place = Index(mix(rows["comm_id"], rows["comm_rank"]))
    entered, is_heard, last_enqueued = _entered(known, by_place, len(rows))
    n_nodes = rows["n_nodes"][first].astype(np.int64)
    rank_at = known.ranks.position(rows["rank"])
    is_untold = ~is_heard & (known.ranks.seen_ns[rank_at] > 0)
    return Members(
        comm=comm.astype(np.int64), comm_rank=rows["comm_rank"].astype(np.int64),
        rank_at=rank_at, entered=entered, is_heard=is_heard, is_untold=is_untold, last_enqueued_ns=last_enqueued,
        comm_ids=comm_ids, first=np.append(first, len(rows)).astype(np.int64),
        n_ranks=rows["n_ranks"][first].astype(np.int64), n_nodes=n_nodes, is_local=_is_local(known, comm_ids, n_nodes),
        by_place=by_place,
    )  # fmt: skip


def _entered(known: Known, by_place: Index, n: int) -> tuple[Ints, Mask, Ints]:
    entered, last = np.zeros(n, np.int64), np.zeros(n, np.int64)
    is_heard = np.zeros(n, bool)
    live = known.live[~is_p2p(known.live)]
    flow = known.flow[~is_p2p(known.flow)]
    for rows, column in ((known.progress, "n_enqueued"), (live, "op"), (flow, "op")):
        at = by_place.find(mix(rows["comm_id"], rows["comm_rank"]))
        rows, at = rows[at >= 0], at[at >= 0]
        np.maximum.at(entered, at, rows[column].astype(np.int64))
        is_heard[at] = True
    at = by_place.find(mix(known.progress["comm_id"], known.progress["comm_rank"]))
    last[at[at >= 0]] = known.progress["last_enqueued_ns"][at >= 0]
    return entered, is_heard, last


def _is_local(known: Known, comm_ids: npt.NDArray[np.uint64], n_nodes: Ints) -> Mask:
    """Communicators whose ops the network does not see: one node, or an unknown number of nodes and never a flow."""
    done = known.window.rows("op")
    has_flows = np.isin(comm_ids, known.flow["comm_id"])
    had_flows = np.isin(comm_ids, done["comm_id"][(done["flags"] & OP_HAS_FLOWS) != 0])
    found: Mask = ~has_flows & ((n_nodes == 1) | ((n_nodes <= 0) & ~had_flows))
    return found
