"""Which end of a slow connection holds it up, where the connections alone do not tell: by what passes against the data.

    sender ──── data ───▶ receiver NIC ── flush ─▶ GPU         a NIC behind a slow PCIe hands over late what has arrived
           ◀── credits ──                                      a NIC that sends slowly sends its credits late, too

What waits to be handed over after it has arrived waits for that end's own NIC and PCIe (Table 4, receivers: not transmitted).
A credit travels with what its sender sends: a NIC that holds up all it sends holds up the credits that its neighbours wait
for, and gets theirs in time, if its NIC queues credits behind data at all. Where the one that owes them sends nothing that they
could queue behind, they come late through the NIC of who waits for them, which hands over late what arrives at it. A link that
is slow itself delays both ends' alike, and then nothing is told. Where ports count how long they had data to send that nobody
took (port_waits.py), a slow receiver makes the sender's wait, and a slow sender none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rca.keys import Ints, Mask
from rca.slow.ends import COVERED, Ends
from rca.slow.inside import Wait
from rca.slow.port_waits import waits_grown_ns
from rca.slow.slowdown import Slowdown, uses_sockets
from rca.slow.streams import Floats

FLUSH_MIN = 0.2  # of how much longer its data is on the wire
CREDIT_MIN = 0.3
WAITS_MIN = 0.01  # of how much longer its data is on the wire, by the shortest ticks
WAITS_NOT_MAX = 0.1  # by the longest
SENDS_MIN = 0.1  # of the time on the wire of the end that sends most: credits queue behind no less
BUSY_MIN = 0.6  # of the op's time
APART_MIN = 3.0  # times as much at one end as at the other: less is noise, or what both share


class Told(NamedTuple):
    """The ends that hold up what is slow, none where nothing tells. by: what alone told them, where that is not sure."""

    ends: tuple[int, ...] = ()
    by: str = ""


BY_CREDITS, BY_WAITS = "credits that come late tell", "how long ports had data that nobody took tells"


def told_apart(slowdown: Slowdown, ends: Ends, end_of: Ints, group: tuple[int, ...]) -> Told:
    """Those of `group` that hold up what is slow, by what arrives at them or leaves them late."""
    is_slow = (slowdown.inside.excess(Wait.NETWORK) > 0) & _is_busy(slowdown)
    wire = _of_ends(slowdown, _more(slowdown, "net_wait_ns", less="receive_net_wait_ns") * is_slow, end_of, group).max()
    if uses_sockets(slowdown.window) or not wire > 0:
        return Told()  # a socket takes what it is given: nobody waits for a credit where it is counted
    flushed = _of_ends(slowdown, _more(slowdown, "receive_net_wait_ns"), end_of, group) / wire
    late = flushed >= FLUSH_MIN
    if late.any() and _is_apart(flushed, late) and _explains(ends, group, late):
        return Told(_those(group, late))
    by_waits = _by_waits(slowdown, ends, end_of, group)
    return by_waits if by_waits.ends else _by_credits(slowdown, ends, end_of, group, is_slow, float(wire))


def _by_waits(slowdown: Slowdown, ends: Ends, end_of: Ints, group: tuple[int, ...]) -> Told:
    """Who takes what a port waits to send, or sends what none waits to; nobody where it is not told of every slow connection."""
    between = np.flatnonzero(ends.is_slow & np.isin(ends.sender, group) & np.isin(ends.receiver, group))
    nic_of = np.full(int(end_of.max()) + 1, -1)
    nic_of[end_of] = slowdown.ranks.nic[slowdown.at]
    of_nic = np.append(waits_grown_ns(slowdown), [[np.nan], [np.nan]], axis=1)  # -1: of a NIC that is not known
    least, most = of_nic[:, nic_of[ends.sender[between]]]
    more = (ends.now_ns - ends.usual_ns)[between]
    elsewhere = np.delete(of_nic[0], nic_of[ends.sender[ends.is_slow & (ends.sender >= 0)]])
    is_apart = np.isfinite(elsewhere).any() & (least >= APART_MIN * np.nan_to_num(elsewhere).max(initial=0.0))
    waits = (least >= WAITS_MIN * more) & is_apart
    does_not = most <= WAITS_NOT_MAX * more
    if not len(between) or not (waits | does_not).all():
        return Told()
    those = np.isin(group, np.where(waits, ends.receiver[between], ends.sender[between]))
    return Told(_those(group, those), BY_WAITS) if not those.all() and _explains(ends, group, those) else Told()


def _by_credits(
    slowdown: Slowdown, ends: Ends, end_of: Ints, group: tuple[int, ...], is_slow: Mask, wire: float
) -> Told:
    """Who holds up credits with the data it sends, or lets nobody's through. wire: ns by which the worst end's is longer."""
    waited = (
        _of_ends(slowdown, _more(slowdown, "peer_wait_ns", less="receive_peer_wait_ns") * is_slow, end_of, group) / wire
    )
    kept = waited >= CREDIT_MIN
    if not kept.any() or not _is_apart(waited, kept):
        return Told()
    sent = _of_ends(slowdown, slowdown.inside.usual[Wait.NETWORK], end_of, group)
    sends = sent >= SENDS_MIN * sent.max()
    holds = ~kept if sends[~kept].all() else kept if not sends[~kept].any() else np.zeros(len(group), bool)
    late_taken = _of_ends(slowdown, slowdown.inside.excess(Wait.COPY), end_of, group)[~kept] >= FLUSH_MIN * wire
    if not sends[~kept].any() and late_taken.any():
        return Told()  # it owes them because its GPU takes late what has come
    return Told(_those(group, holds), BY_CREDITS) if holds.any() and _explains(ends, group, holds) else Told()


def _is_busy(slowdown: Slowdown) -> Mask:
    """(P,) ops with chunks on the wire nearly all the time: one whose receiver is not there yet waits with nothing on it."""
    inside = slowdown.inside
    found: Mask = inside.slow[Wait.NETWORK] >= BUSY_MIN * inside.lasted_slow
    return found


def _more(slowdown: Slowdown, name: str, less: str = "") -> Floats:
    """(P,) by how much more of this an op of each place has now."""
    iterations = slowdown.iterations
    values = iterations.column(name) - (iterations.column(less) if less else 0.0)
    now, usual = (np.nan_to_num(np.nanmean(values[:, those], axis=1)) for those in (slowdown.slow, slowdown.usual))
    found: Floats = np.maximum(now - usual, 0.0)
    return found


def _of_ends(slowdown: Slowdown, values: Floats, end_of: Ints, group: tuple[int, ...]) -> Floats:
    """(G,) the sum of the values (P,) over the places of the ranks of each end."""
    of_rank = slowdown.sum(values)
    return np.array([of_rank[end_of == end].sum() for end in group])


def _is_apart(shares: Floats, those: Mask) -> bool:
    """Whether there are others, all with far less."""
    return not those.all() and bool(shares[those].min() >= APART_MIN * shares[~those].max())


def _explains(ends: Ends, group: tuple[int, ...], those: Mask) -> bool:
    """Whether these explain what is slow of the group."""
    cost = np.where(ends.is_slow, ends.now_ns - ends.usual_ns, 0.0)
    of_group, of_those = (np.any([ends.touched(one) for one in some], axis=0) for some in (group, _those(group, those)))
    return bool(cost[of_those].sum() >= COVERED * cost[of_group].sum())


def _those(group: tuple[int, ...], those: Mask) -> tuple[int, ...]:
    return tuple(one for one, is_one in zip(group, those.tolist(), strict=True) if is_one)
