"""What a page draws of a group's bytes on the wire (Pulse §6.2, Figures 7 to 21): a pure function of a window.

    times     of each rank: how long its ops lasted, and how long bytes moved in them
    rates     of each rank: bytes per second from an op's first byte to its last, op after op
    paths     of each rank and channel (or peer): the rate while bytes moved; one dark cell is a NIC or a link
    matrix    who sent how much to whom

Rows of iterations that lost something, or of which no op could be told, are left out and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ingest.window import Window
from nccl_instrument.flows.segmentation import DELTA_NS
from nccl_instrument.tables import TRAFFIC_FINISHED, TRAFFIC_P2P
from rca.flows.measured import rank_actual_ns, usable_rows
from rca.keys import Index, Ints, Rows, mix

Floats = npt.NDArray[np.float64]

OPS_KEPT: Final = 40
"""Newest ops of each rank that curves are drawn of and medians taken of."""


@dataclass(frozen=True, slots=True)
class GroupBytes:
    """A communicator with bytes on the wire. is_custom: its ops are sends and receives. n_ops: of all its ranks together."""

    comm_id: int
    name: str
    n_ranks: int
    n_ranks_seen: int
    n_ops: int
    n_bytes: int
    is_custom: bool


@dataclass(frozen=True, slots=True)
class OpTimes:
    """(n,) ops of ranks in one communicator, by rank and start. lasted_ns: from enqueued to done, from first to last byte
    where the op has no record. is_finished: its volume was reached at every peer.
    """

    rank: Ints
    op: Ints
    start_ns: Ints
    end_ns: Ints
    actual_ns: Floats
    lasted_ns: Floats
    n_bytes: Floats
    is_finished: npt.NDArray[np.bool_]

    def rate(self) -> Floats:
        """Bytes per second while bytes moved, NaN where none did."""
        return 1e9 * self.n_bytes / np.where(self.actual_ns > 0, self.actual_ns, np.nan)

    def only(self, kept: npt.NDArray[np.generic]) -> OpTimes:
        return OpTimes(*(getattr(self, name)[kept] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Paths:
    """rank: (R,); column: (C,) channels, or ranks that are sent to; rate: (R, C) bytes per second while bytes moved, the median
    of the ops, NaN where nothing was sent; n_bytes: (R, C); peer: (R, C) the rank at the other end, -1 for several.
    """

    rank: Ints
    column: Ints
    rate: Floats
    n_bytes: Floats
    peer: Ints


def groups_of(window: Window) -> list[GroupBytes]:
    """Communicators whose ranks sent something, most bytes first."""
    rows = usable_rows(window)
    names = dict(zip(window.members["comm_id"].tolist(), window.members["name"].tolist(), strict=True))
    sizes = dict(zip(window.members["comm_id"].tolist(), window.members["n_ranks"].tolist(), strict=True))
    found = []
    for comm_id in np.unique(rows["comm_id"]).tolist():
        mine = rows[rows["comm_id"] == comm_id]
        n_ops = len(np.unique(mix(mine["rank"], mine["op"])))
        found.append(
            GroupBytes(
                comm_id, names.get(comm_id, "") or f"{comm_id:016x}", sizes.get(comm_id, 0), len(np.unique(mine["rank"])),
                n_ops, int(mine["n_bytes"].sum()), bool((mine["flags"] & TRAFFIC_P2P).any()),
            )
        )  # fmt: skip
    return sorted(found, key=lambda group: (-group.n_bytes, group.name))


def op_times(window: Window, comm_id: int, kept: int = OPS_KEPT) -> OpTimes:
    """The newest `kept` ops of every rank of the communicator."""
    rows = usable_rows(window)
    rows = rows[rows["comm_id"] == comm_id]
    rows = rows[np.lexsort((rows["start_ns"], rows["rank"]))]
    of, n = _op_of(rows)
    _, first = np.unique(of, return_index=True)
    start, end = np.full(n, np.iinfo(np.int64).max), np.zeros(n, np.int64)
    np.minimum.at(start, of, rows["start_ns"])
    np.maximum.at(end, of, rows["end_ns"])
    is_open = np.bincount(of, weights=(rows["flags"] & TRAFFIC_FINISHED) == 0, minlength=n) > 0
    found = OpTimes(
        rows["rank"][first].astype(np.int64), rows["op"][first].astype(np.int64), start, end,
        rank_actual_ns(rows, of, n), (end - start).astype(np.float64),
        np.bincount(of, weights=rows["n_bytes"], minlength=n).astype(np.float64), ~is_open,
    )  # fmt: skip
    found = replace(found, lasted_ns=_lasted(window, comm_id, found))
    order = np.lexsort((found.start_ns, found.rank))
    found = found.only(order)
    return found.only(_newest(found.rank, kept))


def finished_times(times: OpTimes) -> OpTimes:
    """Without ops that have not moved all: their times are those of a part. All of them where none has."""
    return times.only(times.is_finished) if times.is_finished.any() else times


def _op_of(rows: Rows) -> tuple[Ints, int]:
    """(n,) of each row, sorted by rank and start, its op: 0 … n-1. Sends to several peers that go on together are one
    custom collective; they are numbered for each peer apart.
    """
    is_p2p = (rows["flags"] & TRAFFIC_P2P) != 0
    rank = rows["rank"].astype(np.int64)
    until = np.full(len(rows), np.iinfo(np.int64).min)
    for one in np.unique(rank[is_p2p]).tolist():
        mine = np.flatnonzero(is_p2p & (rank == one))
        until[mine[1:]] = np.maximum.accumulate(rows["end_ns"][mine])[:-1]
    burst = np.cumsum(is_p2p & (rows["start_ns"] > until + DELTA_NS))
    _, of = np.unique(mix(rank, np.where(is_p2p, burst, rows["op"]), is_p2p), return_inverse=True)
    return of.ravel(), int(of.max(initial=-1)) + 1


def _newest(rank: Ints, kept: int) -> npt.NDArray[np.bool_]:
    """Of each rank (sorted) the last `kept`."""
    last = np.append(np.flatnonzero(np.diff(rank)), len(rank) - 1) if len(rank) else rank
    upto = np.repeat(last, np.diff(np.append(-1, last))) if len(rank) else rank
    found: npt.NDArray[np.bool_] = upto - np.arange(len(rank)) < kept
    return found


def _lasted(window: Window, comm_id: int, found: OpTimes) -> Floats:
    """How long the ops lasted by their own records."""
    ops = window.rows("op")
    ops = ops[(ops["comm_id"] == comm_id) & (ops["done_ns"] > 0)]
    at = Index(mix(found.rank, found.op)).find(mix(ops["rank"], ops["op"]))
    lasted = np.zeros(len(found.rank))
    np.maximum.at(lasted, at[at >= 0], (ops["done_ns"] - ops["enqueued_ns"]).astype(np.float64)[at >= 0])
    return np.where(lasted > 0, lasted, found.lasted_ns)


def paths_of(window: Window, comm_id: int, *, by_peer: bool, since_ns: int = 0) -> Paths:
    """Rates of the communicator's ranks by channel, or by whom they send to. since_ns: of what began then or later."""
    rows = usable_rows(window)
    rows = rows[(rows["comm_id"] == comm_id) & (rows["actual_ns"] > 0) & (rows["start_ns"] >= since_ns)]
    peer = _global_ranks(window, comm_id, rows["peer"].astype(np.int64))
    rank, at = np.unique(rows["rank"].astype(np.int64), return_inverse=True)
    column, to = np.unique(peer if by_peer else rows["channel"].astype(np.int64), return_inverse=True)
    cell, shape = at * max(len(column), 1) + to, (len(rank), len(column))
    n = int(np.prod(shape))
    rates = _medians(cell, 1e9 * rows["n_bytes"] / rows["actual_ns"], n)
    n_bytes = np.bincount(cell, weights=rows["n_bytes"], minlength=n).astype(np.float64)
    low, high = np.full(n, np.iinfo(np.int64).max), np.full(n, -1)
    np.minimum.at(low, cell, peer)
    np.maximum.at(high, cell, peer)
    one = np.where(low == high, high, -1)
    return Paths(rank, column, rates.reshape(shape), n_bytes.reshape(shape), one.reshape(shape))


def _medians(cell: Ints, values: Floats, n: int) -> Floats:
    """(n,) the median of each cell's values, NaN for none."""
    order = np.lexsort((values, cell))
    cell, values = cell[order], values[order]
    count = np.bincount(cell, minlength=n)
    first = np.cumsum(count) - count
    found = np.full(n, np.nan)
    has = count > 0
    found[has] = values[first[has] + (count[has] - 1) // 2]
    return found


def _global_ranks(window: Window, comm_id: int, comm_rank: Ints) -> Ints:
    """(n,) global ranks of members of the communicator, -1 unknown."""
    members = window.members[window.members["comm_id"] == comm_id]
    at = Index(mix(members["comm_rank"])).find(mix(comm_rank))
    ranks = members["rank"].astype(np.int64)
    found: Ints = np.where(at >= 0, ranks[at] if len(ranks) else at, -1)
    return found


def left_out(window: Window) -> int:
    """Rows of sends that nothing is drawn of."""
    rows = window.rows("traffic")
    sends = rows[rows["direction"] == 0]
    return len(sends) - len(usable_rows(window))
