"""What a NIC carried for others: the bytes it sends in an iteration now, against those of an iteration before.

The job does the same work in every iteration, however long it takes, so what is sent beyond the usual is not the job's.
It sends in bursts, though, and counters are read about once a second: how many bursts fall between two readings varies, and
a difference which that explains is nobody's traffic.
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
    return None if usual is None or now is None else share_of(usual, now)


def share_of(usual: tuple[float, float], now: tuple[float, float]) -> float:
    """Share of what is sent now beyond the usual, both with the error they may have; 0 when the errors explain it."""
    more = now[0] - usual[0]
    return more / now[0] if more > usual[1] + now[1] else 0.0


def sent_per_ns(tick_ns: Ints, sent: Ints) -> tuple[float, float] | None:
    """Rate at which a counter grew, and by how much that may be off: both ends may lie anywhere in a burst."""
    if len(tick_ns) < TICKS_MIN:
        return None
    passed, grown = (tick_ns - tick_ns[0]).astype(np.float64), (sent - sent[0]).astype(np.float64)
    rate = float(grown[-1] / passed[-1])
    return rate, 2.0 * float(np.abs(grown - rate * passed).max() / passed[-1])


def _per_iteration(slowdown: Slowdown, rows: Rows, those: Mask, length_ns: float) -> tuple[float, float] | None:
    """Bytes sent in the time of one iteration of `those`, and the error that may have."""
    iterations = slowdown.iterations
    since = np.nanmin(iterations.began[:, those]) + iterations.start_ns
    until = np.nanmax(iterations.began[:, those]) + iterations.start_ns
    inside = rows[(rows["tick_ns"] >= since) & (rows["tick_ns"] <= until)]
    found = sent_per_ns(inside["tick_ns"], inside["tx_bytes"].astype(np.int64))
    return (found[0] * length_ns, found[1] * length_ns) if found else None
