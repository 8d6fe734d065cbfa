"""What a NIC carried for others: the bytes it sends in an iteration now, against those of an iteration before.

The job does the same work in every iteration, however long it takes, so what is sent beyond the usual is not the job's.
"""

from __future__ import annotations

import numpy as np

from rca.keys import Ints, Mask, Rows
from rca.slowdown import Slowdown

TICKS_MIN = 3


def foreign_share(slowdown: Slowdown, users: Ints) -> float | None:
    """Share of the bytes sent now by the NIC of the ranks at `users` that is not the job's; None when it cannot be told.

    Wants the NIC known by name or alone on its node, and its counters in both times.
    """
    nic = np.unique(slowdown.ranks.nic[slowdown.at[users]])
    if len(nic) != 1 or nic[0] < 0:
        return None
    row, rows = slowdown.ranks.nics[nic[0]], slowdown.window.rows("nic")
    rows = rows[(rows["node"] == row["node"]) & (rows["index"] == row["index"])]
    rows = rows[np.argsort(rows["tick_ns"])]
    usual = _per_iteration(slowdown, rows, slowdown.usual, slowdown.usual_ns)
    now = _per_iteration(slowdown, rows, slowdown.slow, slowdown.slow_ns)
    if usual is None or not now:
        return None
    return max(0.0, 1.0 - usual / now)


def _per_iteration(slowdown: Slowdown, rows: Rows, those: Mask, length_ns: float) -> float | None:
    """Bytes sent in the time of one iteration of `those`."""
    iterations = slowdown.iterations
    since = np.nanmin(iterations.began[:, those]) + iterations.start_ns
    until = np.nanmax(iterations.began[:, those]) + iterations.start_ns
    inside = rows[(rows["tick_ns"] >= since) & (rows["tick_ns"] <= until)]
    if len(inside) < TICKS_MIN:
        return None
    sent = float(inside["tx_bytes"][-1]) - float(inside["tx_bytes"][0])
    return sent / float(inside["tick_ns"][-1] - inside["tick_ns"][0]) * length_ns
