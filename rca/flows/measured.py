"""What was measured on the wire, laid over the job's iterations (Pulse §6.2): actual time, volume and span of every op.

    place ──▶ iteration ──▶ rows of `traffic` of that op at that rank: one per channel and peer, sends only

Actual time leaves the pauses out in which a rank only waits for others. Of a rank it is the time in which any of its flows moved
bytes; of a connection, that of the slowest of its channels. What lacks an iteration's transfers counts nowhere, nor do epochs of
another length than the most: longer ones fold pauses into it, which would look like a slow wire (Pulse Figure 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from ingest.columns import taken
from ingest.window import Window
from nccl_instrument.tables import (
    FUNC_RECV,
    FUNC_SEND,
    NO_OP,
    OP_P2P,
    SEND,
    TRAFFIC_FINISHED,
    TRAFFIC_INCOMPLETE,
    TRAFFIC_P2P,
)  # fmt: skip
from rca.keys import Index, Ints, Keys, Mask, Rows, Told, latest, mix
from rca.slow.iterations import Iterations
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats


@dataclass(frozen=True, slots=True)
class Measured:
    """Of the places (P, I), ns and bytes, NaN where nothing was measured: actual_ns, n_bytes, began and ended (since
    iterations.start_ns). rows: (n,) the usable rows of `traffic`, all of epochs of one length; place, iteration: (n,) of
    each, -1 unknown.
    """

    actual_ns: Floats
    n_bytes: Floats
    began: Floats
    ended: Floats
    rows: Rows
    place: Ints
    iteration: Ints

    def seen(self, those: Mask) -> int:
        """How many of these iterations (I,) were measured somewhere."""
        return int(np.isfinite(self.actual_ns[:, those]).any(axis=0).sum())


def usable_rows(window: Window) -> Rows:
    """(n,) rows of sends with an op, each flow's newest of the op, without those of iterations that lost something."""
    rows = window.rows("traffic")
    rows = rows[(rows["direction"] == SEND) & (rows["rank"] >= 0) & (rows["op"] != NO_OP)]
    rows = rows[(rows["flags"] & TRAFFIC_INCOMPLETE) == 0]
    key = mix(_op_keys(rows), rows["channel"], rows["peer"])
    is_final = (rows["flags"] & TRAFFIC_FINISHED) != 0
    found: Rows = rows[latest(key, rows["end_ns"] + is_final)]
    return found


def incomplete_share(window: Window) -> float:
    """Share of the rows that belong to iterations of which something was lost."""
    flags = window.rows("traffic")["flags"]
    return float(((flags & TRAFFIC_INCOMPLETE) != 0).mean()) if len(flags) else 0.0


def compared_epoch_ns(rows: Rows) -> int:
    """The length of the epochs that most rows were measured in, the shorter of two; 0 without rows."""
    lengths, n = np.unique(rows["epoch_ns"], return_counts=True)
    return int(lengths[n.argmax()]) if len(lengths) else 0


def other_epochs_share(window: Window) -> float:
    """Share of the usable rows that are left out, since they were measured in epochs of another length."""
    rows = usable_rows(window)
    return float((rows["epoch_ns"] != compared_epoch_ns(rows)).mean()) if len(rows) else 0.0


_MEASURED: Final[WeakKeyDictionary[Slowdown, Measured]] = WeakKeyDictionary()
"""Several questions are asked of the same slowdown."""


def measured_in(slowdown: Slowdown) -> Measured:
    """What was measured of a slowdown's iterations."""
    if slowdown not in _MEASURED:
        _MEASURED[slowdown] = measured_of(slowdown.window, slowdown.iterations)
    return _MEASURED[slowdown]


def measured_of(window: Window, iterations: Iterations) -> Measured:
    """The rows of `window` laid over these iterations."""
    rows = usable_rows(window)
    rows = rows[rows["epoch_ns"] == compared_epoch_ns(rows)]
    place, iteration = np.nonzero(iterations.row >= 0)
    at = np.zeros(0, np.int64)
    if len(rows):
        at = Index(_keys_of_ops(iterations.ops, iterations.row[place, iteration])).find(_op_keys(rows))
    row_place, row_iteration = (np.where(at >= 0, one[at], -1) if len(one) else at for one in (place, iteration))
    shape = iterations.row.shape
    cell = np.where(at >= 0, row_place * max(shape[1], 1) + row_iteration, -1)
    kept = cell >= 0
    of, n_cells = cell[kept], int(np.prod(shape))
    known = np.bincount(of, minlength=n_cells) > 0
    n_bytes = np.bincount(of, weights=rows["n_bytes"][kept], minlength=n_cells)
    laid = [
        np.where(known, one, np.nan).reshape(shape)
        for one in (
            rank_actual_ns(rows[kept], of, n_cells),
            n_bytes,
            *_spans(rows[kept], of, n_cells, iterations.start_ns),
        )
    ]
    return Measured(laid[0], laid[1], laid[2], laid[3], rows, row_place, row_iteration)


def rank_actual_ns(rows: Rows, of: Ints, n: int) -> Floats:
    """(n,) ns in which any flow of each group of rows moved bytes. of: (rows,) the group of each.

    Without shares (an older node) it is not more than the flows' times together, nor than from the first byte to the last.
    """
    longest, together = np.zeros(n), np.bincount(of, weights=rows["actual_ns"], minlength=n)
    np.maximum.at(longest, of, rows["actual_ns"].astype(np.float64))
    if not len(rows):
        return longest
    began, ended = _spans(rows, of, n, 0)
    between = np.maximum(longest, np.minimum(together, ended - began))
    if "share_ns" not in (rows.dtype.names or ()):
        return between
    is_known = np.bincount(of, weights=rows["share_ns"] < 0, minlength=n) == 0
    shares = np.bincount(of, weights=rows["share_ns"], minlength=n)
    return np.where(is_known, np.maximum(shares, longest), between)


def _spans(rows: Rows, of: Ints, n: int, start_ns: int) -> tuple[Floats, Floats]:
    began, ended = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(began, of, (rows["start_ns"] - start_ns).astype(np.float64))
    np.maximum.at(ended, of, (rows["end_ns"] - start_ns).astype(np.float64))
    return began, ended


def _op_keys(rows: Rows) -> Keys:
    """(n,) of which op at which rank a row of `traffic` tells; sends are numbered for each peer apart."""
    p2p = (rows["flags"] & TRAFFIC_P2P) != 0
    return mix(rows["rank"], rows["comm_id"], rows["op"], p2p, np.where(p2p, rows["peer"], -1))


def _keys_of_ops(ops: Told, at: Ints) -> Keys:
    """(n,) the same of the ops at these positions, column by column: a row of an op is long."""
    rank, comm_id, op, func, peer, flags = (
        taken(ops, name, at) for name in ("rank", "comm_id", "op", "func", "peer", "flags")
    )
    p2p = ((flags & OP_P2P) != 0) | (func == FUNC_SEND) | (func == FUNC_RECV)
    number = np.where(func == FUNC_RECV, 0, op)  # what is received is numbered like what is sent to the same peer
    return mix(rank, comm_id, number, p2p, np.where(p2p, peer, -1))
