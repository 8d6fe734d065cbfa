"""Ports that had data to send and could not: whoever takes it is slower than who sends it.

    sender's memory ──▶ sender's port ══▶ switches ══▶ receiver's NIC ──▶ its memory

InfiniBand sends what the other side of a link has room for and no more. Behind a NIC that takes data slowly the links fill, back
to the port that sends it, and that port counts the time in which it has data and may not send (`port_xmit_wait`). A NIC that
fetches slowly what it sends has nothing to wait with. No network interface counts this, and no driver says how long a tick is, so
by how much a port waited is known between two bounds.
"""

from __future__ import annotations

import numpy as np

from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats
from rca.slow.traffic import ports_of, rates

TICK_NS = (1.0, 32.0)
"""How long a tick lasts at least and at most."""


def waits_grown_ns(slowdown: Slowdown) -> Floats:
    """(2, N) ns by which each of the ranks' ports waits longer in an iteration now, at least and at most; NaN where it is not
    counted, too seldom read, or where no port of the job has ever waited, which looks like a counter that stands still."""
    ports = ports_of(slowdown)
    counted = ports.rows["xmit_wait"].astype(np.int64)  # a port that does not count it says 2⁶⁴ - 1
    if not (counted > 0).any():
        return np.full((2, len(ports.at)), np.nan)
    usual, now = (rates(slowdown, ports, "xmit_wait", those) for those in (slowdown.usual, slowdown.slow))
    usual, now = usual * slowdown.usual_ns, now * slowdown.slow_ns
    grown, off = now[0] - usual[0], now[1] + usual[1]
    found = np.maximum([TICK_NS[0] * (grown - off), TICK_NS[1] * (grown + off)], 0.0)
    return np.where(ports.at >= 0, found, np.nan)
