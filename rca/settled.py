"""Makes the conditions of a finding agree with its direct evidence: what Table 4 reads off counters gives way to it.

A verdict compares the counters of two ends, and the end of a dead NIC or a stopped process counts like a failed receiver
or a GPU that produces nothing. Where a port or process state is known, the reading that supports it is marked, and a
verdict that points elsewhere is "overruled".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rca.findings import Component, Condition, State

_AT_NIC = {("send", State.NOT_TRANSMITTED), ("send", State.NOT_DELIVERED)}
_AT_PROXY = {("send", State.NOT_STARTED), ("receive", State.NOT_STARTED), ("receive", State.GPU_NOT_READY)}
OVERRULED = "overruled"
NO_CAUSE = "-"


def settled(found: tuple[Condition, ...], culprits: Collection[int], component: Component) -> tuple[Condition, ...]:
    """`found` with verdicts that agree with `culprits` (global ranks) having this part at fault, by direct evidence."""
    return tuple(replace(one, verdict=_verdict(one, culprits, component)) for one in found)


def _verdict(one: Condition, culprits: Collection[int], component: Component) -> str:
    if one.rank in culprits:
        local = _AT_NIC if component is Component.NIC else _AT_PROXY
        is_supported = (one.direction, one.state) in local or _is_hand_over(one, component)
        return "local" if is_supported else OVERRULED
    if one.peer_rank in culprits:
        return OVERRULED if one.remote_cause == NO_CAUSE else "remote"
    return one.verdict


def _is_hand_over(one: Condition, component: Component) -> bool:
    """Data that a proxy does not hand to its socket is the proxy's; only sockets have no remote cause there."""
    state = (one.direction, one.state) == ("send", State.NOT_TRANSMITTED)
    return component is not Component.NIC and state and one.remote_cause == NO_CAUSE
