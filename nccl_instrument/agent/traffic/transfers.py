"""Chunks sent by one process as its plugin recorded them: kept until their iteration is over, then laid out flow by flow.

A flow is what NCCL has a connection for: communicator, own rank, peer and channel, sends and receives apart from collectives. Its
chunks are through in order, so what it moved when follows from them: a chunk from when it was posted, or its predecessor was
through, until it was through itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.plain import pick, stack
from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment_layout import TRANSFER
from nccl_instrument.agent.traffic.iterations import Iteration
from nccl_instrument.flows.epochs import cells_of
from nccl_instrument.measure.meter import MeterError
from nccl_instrument.measure.spreading import CELL, EPOCH_NS_MOST, SPAN, spread
from nccl_instrument.tables import FUNC_SEND, OP_P2P
from nccl_instrument.wire import Rows

KEPT_MAX: Final = 65_536
"""Rows of 64 bytes. What is more is joined: chunks of a flow and op that lie in one epoch are one row, and say the same of it.
Where that does not suffice epochs are twice as long, and so on, up to a millisecond: a long iteration is measured more coarsely.
"""
PASSES_MOST: Final = 4
NEARLY_EMPTY: Final = 64
CELLS_MAX: Final = 400_000
"""Of one iteration: a longer one is measured in epochs twice as long, and so on, up to a millisecond."""
SPAN_NS_MAX: Final = 5_000_000_000
"""A chunk that was longer under way (a link was down) is laid over its last so many nanoseconds: epochs of nothing but hope."""

HELD: Final = np.dtype([("n_chunks", "u4"), ("largest", "u4"), *TRANSFER.descr[1:]])
"""TRANSFER with, in the place of the stamp, how many chunks a row is and the bytes of the largest of them."""
Ints = npt.NDArray[np.int64]
Key = tuple[int, int, int, int, int]
_KEY: Final = ("comm_id", "comm_rank", "peer", "is_p2p", "channel")
_ORDER: Final = ("step", "op", *_KEY[::-1])


class Transfers:
    """What was read of one ring and may still be wanted. n_lost: records that were overwritten before they were read, or for
    which there was no room. epoch_ns: of the shortest epochs in which what is held can be told; longer where there was too much.
    """

    def __init__(self, ring: OpRing, epoch_ns: int) -> None:
        self.ring, self.epoch_ns, self._shortest_ns = ring, epoch_ns, epoch_ns
        self._coarse_until_ns = 0  # nothing that was done later is told in longer epochs
        self.n_lost = 0
        self._kept: list[Rows] = []
        self._n_kept = self._passes = 0

    def relieve(self) -> None:
        """Read the ring when it is a quarter full: between two cuts it must not come round. Looked at seldom while it is nearly
        empty: this is asked ten times a second of every process."""
        self._passes -= 1
        if self._passes > 0:
            return
        n_waiting, n_rows = self.ring.n_waiting, self.ring.n_rows
        self._passes = PASSES_MOST if n_waiting <= n_rows // NEARLY_EMPTY else 1
        if n_waiting > n_rows // 4:
            self.read()

    def read(self) -> None:
        rows, lost = self.ring.drain()
        self.n_lost += lost
        self._kept.append(held_of(rows))
        self._n_kept += len(rows)
        if self._n_kept > KEPT_MAX:
            self._squeeze()

    def _squeeze(self) -> None:
        """Make room for as much again; what there is no room for even then is lost, the oldest first."""
        rows = joined(stack(self._kept), self.epoch_ns)
        while len(rows) > KEPT_MAX // 2 and self.epoch_ns < EPOCH_NS_MOST:
            self.epoch_ns = min(2 * self.epoch_ns, EPOCH_NS_MOST)
            rows, self._coarse_until_ns = joined(rows, self.epoch_ns), int(rows["done_ns"].max())
        if len(rows) > KEPT_MAX:
            is_new = np.zeros(len(rows), np.bool_)
            is_new[np.argpartition(rows["done_ns"], len(rows) - KEPT_MAX)[len(rows) - KEPT_MAX :]] = True
            self.n_lost += int(rows["n_chunks"][~is_new].sum())
            rows = pick(rows, is_new)
        self._kept, self._n_kept = [rows], len(rows)

    def read_back(self) -> None:
        """What the ring still holds of what was skipped: of a process that stands still all of what it did last."""
        self.ring.position = max(0, self.ring.position - self.ring.n_rows)
        self._kept, self._n_kept = [held_of(self.ring.drain()[0])], 0

    def skip(self) -> None:
        """Nothing of what was sent so far is wanted."""
        self.ring.skip()
        self._kept, self._n_kept, self.epoch_ns = [], 0, self._shortest_ns

    def since(self, begins_ns: int) -> Rows:
        """(n,) HELD rows that were done since; older ones are forgotten."""
        rows = stack(self._kept) if self._kept else np.zeros(0, HELD)
        is_wanted = rows["done_ns"] >= begins_ns
        rows = rows if is_wanted.all() else pick(rows, is_wanted)
        self._kept, self._n_kept = [rows], len(rows)
        if begins_ns > self._coarse_until_ns:
            self.epoch_ns = self._shortest_ns
        return rows


def held_of(rows: Rows) -> Rows:
    """TRANSFER rows as HELD ones, in their place."""
    held = rows.view(HELD)
    held["n_chunks"], held["largest"] = 1, rows["bytes"]
    return held


def joined(rows: Rows, epoch_ns: int) -> Rows:
    """HELD rows by flow, op and order; those of one op that follow each other in an epoch are one: its bytes stay the same."""
    rows = pick(rows, np.lexsort([rows[name] for name in _ORDER]))
    begins = _changes(rows)
    before = np.zeros(len(rows), np.int64)
    before[1:] = rows["done_ns"][:-1]
    before[begins] = 0
    epoch = (rows["done_ns"] - 1) // epoch_ns
    is_inside = np.maximum(rows["posted_ns"], before) // epoch_ns == epoch
    follows = rows["step"][1:] == rows["step"][:-1] + rows["n_chunks"][:-1]
    follows &= (rows["op"][1:] == rows["op"][:-1]) & (epoch[1:] == epoch[:-1]) & is_inside[1:] & is_inside[:-1]
    first = np.flatnonzero(begins | np.append(True, ~follows)) if len(rows) else np.zeros(0, np.int64)
    found = pick(rows, first)
    if len(first) < len(rows):
        found["done_ns"] = rows["done_ns"][np.append(first[1:], len(rows)) - 1]
        found["bytes"] = np.minimum(np.add.reduceat(rows["bytes"].astype(np.int64), first), 2**32 - 1)
        found["n_chunks"] = np.add.reduceat(rows["n_chunks"], first)
        found["largest"] = np.maximum.reduceat(rows["largest"], first)
    return found


@dataclass(frozen=True, slots=True)
class Sent:
    """What the flows of an iteration moved. keys: (F,) of the flows, ordered; rows: (n,) HELD by flow and order; first:
    (F + 1,) where each flow's begin. cells: (m,) CELL of epochs of epoch_ns; is_whole: no chunk is missing.
    n_refused: epochs it would have had, where they were more than CELLS_MAX even of the longest: then it has none.
    """

    keys: list[Key]
    rows: Rows
    first: Ints
    cells: Rows
    epoch_ns: int
    is_whole: bool
    n_refused: int = 0

    def of(self, flow: int) -> Rows:
        """Its chunks."""
        return self.rows[self.first[flow] : self.first[flow + 1]]

    def slim(self) -> Sent:
        """The same with one row for each flow: its largest chunk and its queue pair."""
        if not len(self.rows):
            return self
        rows = pick(self.rows, self.first[:-1])
        for name in ("largest", "qpn"):
            rows[name] = np.maximum.reduceat(self.rows[name], self.first[:-1])
        return replace(self, rows=rows, first=np.arange(len(self.keys) + 1))

    def volumes(self, flows: Sequence[int]) -> tuple[Ints, Ints]:
        """(ops, bytes) that these flows moved together, by op."""
        rows = stack([self.of(flow) for flow in flows])
        ops, of = np.unique(rows["op"].astype(np.int64), return_inverse=True)
        return ops, np.bincount(of, weights=rows["bytes"], minlength=len(ops)).astype(np.int64)


def laid_out(rows: Rows, iteration: Iteration, epoch_ns: int) -> Sent:
    """The iteration's chunks among `rows`, flow by flow, and their bytes by epoch."""
    rows = pick(rows, np.lexsort([rows[name] for name in _ORDER])) if len(rows) else rows
    rows = pick(rows, _is_of(rows, iteration)) if len(rows) else rows
    starts = np.flatnonzero(_changes(rows)) if len(rows) else np.zeros(0, np.int64)
    keys = [tuple(int(rows[name][at]) for name in _KEY) for at in starts.tolist()]
    first = np.append(starts, len(rows)).astype(np.int64)
    spans = _spans(rows, first)
    epoch_ns = _epoch_that_fits(spans, epoch_ns)
    is_whole = _has_all(rows, first)
    if not epoch_ns:
        return Sent(
            [],
            rows[:0],
            np.zeros(1, np.int64),
            np.zeros(0, CELL),
            EPOCH_NS_MOST,
            False,
            _n_epochs(spans, EPOCH_NS_MOST),
        )
    return Sent(keys, rows, first, _cells(spans, epoch_ns), epoch_ns, is_whole)  # type: ignore[arg-type]


def _epoch_that_fits(spans: Rows, epoch_ns: int) -> int:
    """The length of epochs in which there are at most CELLS_MAX of them; 0 when there are more even of the longest."""
    while epoch_ns < EPOCH_NS_MOST and _n_epochs(spans, epoch_ns) > CELLS_MAX:
        epoch_ns = min(2 * epoch_ns, EPOCH_NS_MOST)
    return epoch_ns if _n_epochs(spans, epoch_ns) <= CELLS_MAX else 0


def _n_epochs(spans: Rows, epoch_ns: int) -> int:
    """How many epochs with bytes there are at most."""
    return int((spans["to_ns"] - spans["from_ns"]).sum()) // epoch_ns + len(spans)


def _changes(rows: Rows) -> npt.NDArray[np.bool_]:
    """(n,) whether a row begins another flow than the row before."""
    found = np.zeros(len(rows), np.bool_)
    for name in _KEY:
        found[1:] |= rows[name][1:] != rows[name][:-1]
    found[:1] = True
    return found


def _is_of(rows: Rows, iteration: Iteration) -> npt.NDArray[np.bool_]:
    """(n,) whether a chunk is of an op of the iteration; rows are sorted by flow. Ops of a stream have rising numbers."""
    ranges: dict[tuple[int, ...], tuple[int, int]] = {}
    for op in iteration.ops[["comm_id", "comm_rank", "peer", "flags", "func", "op"]].tolist():
        comm_id, comm_rank, peer, flags, func, number = op
        is_p2p = bool(flags & OP_P2P)
        if is_p2p and func != FUNC_SEND:
            continue
        stream = (comm_id, comm_rank, peer if is_p2p else -1, int(is_p2p))
        low, high = ranges.get(stream, (number, number))
        ranges[stream] = min(low, number), max(high, number)
    wanted = np.zeros(len(rows), np.bool_)
    bounds = [*np.flatnonzero(_changes(rows)).tolist(), len(rows)]
    for begin, end in pairwise(bounds):
        comm_id, comm_rank, peer, p2p, _ = (int(rows[name][begin]) for name in _KEY)
        low, high = ranges.get((comm_id, comm_rank, peer if p2p else -1, p2p), (1, 0))
        op = rows["op"][begin:end]
        wanted[begin:end] = (op >= low) & (op <= high)
    return wanted


def _has_all(rows: Rows, first: Ints) -> bool:
    """Whether each flow's chunks of each op are numbered from 0 on without a hole."""
    step, op = rows["step"].astype(np.int64), rows["op"]
    n_chunks = rows["n_chunks"].astype(np.int64)
    begins = np.zeros(len(rows), np.bool_)
    begins[first[:-1]] = True
    begins[1:] |= op[1:] != op[:-1]
    follows = np.zeros(len(rows), np.bool_)
    follows[1:] = step[1:] == step[:-1] + n_chunks[:-1]
    return bool((np.where(begins, step == 0, follows)).all())


def _spans(rows: Rows, first: Ints) -> Rows:
    spans = np.zeros(len(rows), SPAN)
    spans["flow"] = np.repeat(np.arange(len(first) - 1), np.diff(first))
    before = np.zeros(len(rows), np.int64)
    before[1:] = rows["done_ns"][:-1]
    before[first[:-1]] = 0
    spans["to_ns"] = np.maximum(rows["done_ns"], before)
    least = np.maximum(spans["to_ns"] - SPAN_NS_MAX, 0)
    spans["from_ns"] = np.minimum(np.maximum(np.maximum(rows["posted_ns"], before), least), spans["to_ns"])
    spans["n_bytes"] = rows["bytes"]
    return spans


def _cells(spans: Rows, epoch_ns: int) -> Rows:
    try:
        return spread(spans, epoch_ns)
    except MeterError:  # not built on this node: the same in numpy, many times slower
        ends = np.maximum(spans["to_ns"], spans["from_ns"] + 1)
        found = cells_of(
            spans["flow"].astype(np.int64), spans["from_ns"], ends, spans["n_bytes"].astype(np.int64), epoch_ns
        )
        cells = np.zeros(len(found), CELL)
        for to, name in (("flow", "flow"), ("epoch", "epoch"), ("n_bytes", "bytes")):
            cells[to] = found[name]
        return cells
