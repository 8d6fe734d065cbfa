"""What sampled device time says of the forward stage, rank by rank (StageFrontier §6.2, Table 12).

    the host's forward is long on a rank    its device is, too: supported; is not: the host holds it up
    the device's is, the host's is not      the time shows later, most often in backward: spill-over
    forward leads on all ranks alike        the device is busy for most of it: supported; for less: the host holds it up

A rank stands out by what clipping it would be worth. It is judged by its own samples, and by those of at least half of the
others; where they are missing nothing is said but that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nccl_instrument.stage_schema import FORWARD
from rca.frontier.accounting import Seconds
from rca.frontier.gates import Gates
from rca.frontier.report import DeviceEvents, Label
from rca.keys import Mask

BUSY_SHARE: Final = 0.5
"""Of the host's forward: a device that works for less of it waits for its host."""


def forward_labels(
    events: DeviceEvents | None, stages: Sequence[str], wall: Seconds, shares: Seconds, routing: Sequence[int],
    exposed_s: float, gates: Gates,
) -> list[Label]:  # fmt: skip
    """Labels of the forward stage; [] without samples. wall: (R, G) mean seconds of each stage; exposed_s: mean per step."""
    if events is None or FORWARD not in stages or not (events.n_asked or events.is_scope_limited):
        return []
    at = list(stages).index(FORWARD)
    if events.is_scope_limited or not _is_told(events, gates):
        return [Label.FORWARD_EVENT_SCOPE_LIMITED]
    stands_out, usable = gates.static_gain * exposed_s, _usable(events, gates)
    slow = _outlier(wall[:, at], stands_out)
    if slow is not None and not usable[slow]:
        return [Label.FORWARD_EVENT_SCOPE_LIMITED]
    is_device = _outlier(np.where(usable, events.mean_s, np.nan), stands_out) is not None
    if slow is None and not is_device:
        return _alike(events, usable, wall[:, at], leads=_leads(at, shares, routing, gates))
    return _of_a_rank(is_device=is_device, is_wall=slow is not None, is_routed=at in routing)


def _of_a_rank(*, is_device: bool, is_wall: bool, is_routed: bool) -> list[Label]:
    if is_device and is_routed:
        supported = [Label.FORWARD_DEVICE_SUPPORTED]
        return supported if is_wall else [*supported, Label.FORWARD_SPILLOVER_SUSPECTED]
    if is_device:
        return [Label.FORWARD_SPILLOVER_SUSPECTED]
    return [Label.FORWARD_HOST_OVERHEAD_SUSPECTED] if is_routed else []


def _alike(events: DeviceEvents, usable: Mask, wall: Seconds, *, leads: bool) -> list[Label]:
    """No rank stands out: whether the device is what forward takes its time for, where forward leads the step."""
    if not leads:
        return []
    is_busy = float(np.median(events.mean_s[usable] / np.maximum(wall[usable], 1e-9))) >= BUSY_SHARE
    return [Label.FORWARD_DEVICE_SUPPORTED if is_busy else Label.FORWARD_HOST_OVERHEAD_SUSPECTED]


def _leads(at: int, shares: Seconds, routing: Sequence[int], gates: Gates) -> bool:
    return bool(len(routing)) and routing[0] == at and float(shares[at]) >= gates.dominance


def _is_told(events: DeviceEvents, gates: Gates) -> bool:
    """Whether enough of what was asked for came back, and of enough ranks to compare one with the others."""
    is_enough = events.n_ready >= max(gates.event_samples_min, gates.ready_ratio * events.n_asked)
    return is_enough and 2 * int((events.ready > 0).sum()) > len(events.ready)


def _usable(events: DeviceEvents, gates: Gates) -> Mask:
    """(R,) ranks that may be judged by their own samples."""
    found: Mask = events.ready >= np.maximum(gates.event_samples_min, gates.ready_ratio * events.asked)
    return found


def _outlier(seconds: Seconds, stands_out: float) -> int | None:
    """The rank that is longest, where it is so much longer than the median one."""
    if np.isnan(seconds).all():
        return None
    rank = int(np.nanargmax(seconds))
    return rank if seconds[rank] - float(np.nanmedian(seconds)) >= stands_out else None
