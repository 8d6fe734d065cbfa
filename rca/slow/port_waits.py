"""Ports that had data to send and could not: whoever takes it is slower than who sends it.

    sender's memory ──▶ sender's port ══▶ switches ══▶ receiver's NIC ──▶ its memory

InfiniBand sends what the other side of a link has room for and no more. Behind a NIC that takes data slowly the links fill, back
to the port that sends it, and that port counts the time in which it has data and may not send (`port_xmit_wait`). A NIC that
fetches slowly what it sends has nothing to wait with. No network interface counts this, and sysfs does not say how long a tick
is, so by how much a port waited is known between two bounds. What waits as long in every second as before waits longer in an
iteration that takes longer: that is no more of it, and the lower bound leaves it out.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats
from rca.slow.traffic import ports_of, rates

TICK_NS = (0.1, 32.0)
"""How long a tick lasts at least (some ports count as often as eight bytes would have passed) and at most."""
_GROWN: Final[WeakKeyDictionary[Slowdown, Floats]] = WeakKeyDictionary()


def waits_grown_ns(slowdown: Slowdown) -> Floats:
    """(2, N) ns by which each of the ranks' ports waits longer in an iteration now, at least and at most; NaN where it is not
    counted or too seldom read, and of a port that does not wait at all now: its counter may stand still, at 0 or anywhere.
    Asked for every link whose ends are not told apart, and worked out once."""
    if slowdown not in _GROWN:
        _GROWN[slowdown] = _grown_ns(slowdown)
    return _GROWN[slowdown]


def _grown_ns(slowdown: Slowdown) -> Floats:
    ports = ports_of(slowdown)
    if not len(ports.key):
        return np.full((2, len(ports.at)), np.nan)
    usual, now = (rates(slowdown, ports, "xmit_wait", those) for those in (slowdown.usual, slowdown.slow))
    off = now[1] * slowdown.slow_ns + usual[1] * slowdown.usual_ns
    least = (now[0] - usual[0]) * slowdown.slow_ns - off
    most = now[0] * slowdown.slow_ns - usual[0] * slowdown.usual_ns + off
    found = np.maximum([TICK_NS[0] * least, TICK_NS[1] * most], 0.0)
    return np.where((ports.at >= 0) & (now[0] > 0), found, np.nan)
