"""Who enters the group's ops last, step by step: what settles the stages that durations alone cannot rank.

    forward spills over        the rank launches its first op of backward on time, its GPU is ready for it late, and
                               later ops add nothing: the delay was on the device before backward began
    backward itself            the rank is late in later ops of the step than it was in the first
    all ranks alike            stages end together everywhere; the rank that enters the ops last is the one they wait for

Lateness is counted from each rank's own start of the step, so that clocks need not agree, against the median rank of the
same op.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.stage_schema import BACKWARD, FORWARD
from rca.frontier.accounting import Seconds
from rca.frontier.cutting import Cut
from rca.frontier.folding import folding_of
from rca.frontier.groups import SYNCHRONISING
from rca.frontier.report import Label
from rca.keys import Ints

OPS_MAX: Final = 64
SHARE_MIN: Final = 0.05
"""Of the step: a rank that enters less late than that is not who the others wait for."""
STEADY_MIN: Final = 0.5
FIRST_SHARE: Final = 0.8
"""So much of a rank's lateness must be there at the first op for it to have arisen before."""


@dataclass(frozen=True, slots=True)
class Entered:
    """Of (T, R, K) ops: how late each rank's host launched and its GPU was ready for the k-th op of a step, s after its own
    begin of the step. ranks: (R,). stage: (T, R, S) when each stage ended, s after the same. NaN where not seen."""

    ranks: tuple[int, ...]
    launched: Seconds
    ready: Seconds


@dataclass(frozen=True, slots=True)
class Last:
    """Who enters last. rank: its number. late_s: mean lateness of its GPU at the op where it is largest. first_s: at the
    first op; launched_s: of its host at the first op. n_steps: in how many of `of` it was last."""

    rank: int
    late_s: float
    first_s: float
    launched_s: float
    n_steps: int
    of: int

    @property
    def is_on_device(self) -> bool:
        """Whether the host launched the first op in time, and only the device was late."""
        return self.launched_s < (1 - FIRST_SHARE) * self.first_s

    @property
    def is_before_first(self) -> bool:
        """Whether the rank was as late at the first op as it ever became."""
        return self.first_s >= FIRST_SHARE * self.late_s


def entered(cut: Cut, told: Window) -> Entered | None:
    """The synchronising ops of every step, of the communicator that all of the group's ranks use; None when none does."""
    ops = told.rows("op")
    ops = ops[np.isin(ops["func"], SYNCHRONISING) & np.isin(ops["rank"], cut.ranks)]
    if not len(ops):
        return None
    comms, n_ops = np.unique(ops["comm_id"], return_counts=True)
    whole = [
        (int(n), int(comm))
        for comm, n in zip(comms, n_ops, strict=True)
        if len(np.unique(ops["rank"][ops["comm_id"] == comm])) == len(cut.ranks)
    ]
    if not whole:
        return None
    ops = ops[ops["comm_id"] == max(whole)[1]]
    launched = ops["enqueued_ns"].astype(np.int64)
    ready = np.where(ops["first_ready_ns"] > 0, ops["first_ready_ns"], ops["started_ns"]).astype(np.int64)
    return _by_step(cut, ops["rank"], ops["op"].astype(np.int64), launched, ready)


def _by_step(cut: Cut, rank: Ints, number: Ints, launched: Ints, ready: Ints) -> Entered:
    """Ops put into the step in which their host launched them, in the order of their numbers."""
    began = cut.ended_ns - (cut.durations.sum(axis=2) * 1e9).astype(np.int64)
    shape = (*cut.ended_ns.shape, OPS_MAX)
    found = np.full(shape, np.nan), np.full(shape, np.nan)
    for at, of in enumerate(cut.ranks):
        own = np.flatnonzero(rank == of)
        own = own[np.argsort(number[own], kind="stable")]
        step = np.searchsorted(began[:, at], launched[own], side="right") - 1
        is_in = (step >= 0) & (launched[own] < cut.ended_ns[np.maximum(step, 0), at])
        own, step = own[is_in], step[is_in]
        place = np.arange(len(step)) - np.searchsorted(step, step)
        few = place < OPS_MAX
        for values, told in zip(found, (launched, ready), strict=True):
            values[step[few], at, place[few]] = (told[own[few]] - began[step[few], at]) / 1e9
    n = int((~np.isnan(found[0])).any(axis=(0, 1)).sum())
    return Entered(cut.ranks, found[0][:, :, :n], found[1][:, :, :n])


def last_of(seen: Entered, step_s: float) -> Last | None:
    """The rank that steadily enters last, None when there is no such rank or it is hardly late."""
    if not seen.ready.size or len(seen.ranks) < 2:
        return None
    with np.errstate(all="ignore"):
        late = seen.ready - _median(seen.ready)
        hosts = seen.launched - _median(seen.launched)
    is_told = ~np.any(np.all(np.isnan(late), axis=2), axis=1)
    late, hosts = late[is_told], hosts[is_told]
    if not len(late):
        return None
    worst = np.nanmax(late, axis=2)
    leading = worst.argmax(axis=1)
    times = np.bincount(leading, minlength=len(seen.ranks))
    at = int(times.argmax())
    mean = np.nanmean(late[:, at], axis=0)
    found = Last(
        seen.ranks[at], float(mean.max()), float(mean[0]), float(np.nanmean(hosts[:, at, 0])), int(times[at]), len(late)
    )
    is_steady = found.n_steps >= STEADY_MIN * found.of
    return found if is_steady and found.late_s >= SHARE_MIN * step_s else None


def _median(values: Seconds) -> Seconds:
    """Over ranks, of what was seen; NaN where nothing was."""
    filled = np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values)
    found: Seconds = np.nanmedian(filled, axis=1, keepdims=True)
    return found


def settled_stage(cut: Cut, last: Last, leading: str, labels: Collection[Label] = ()) -> str:
    """The stage in which the delay of the rank that enters last arose, where it shows first in `leading`; '' unsettled.

    Backward holds what the device has not finished of forward. The device's own clock says so (labels), or the ops do: a
    first op that is launched in time and ready late, and no later op that is later still.
    """
    stages = folding_of(cut.stages.names).stages
    if leading != BACKWARD or FORWARD not in stages:
        return ""
    if Label.FORWARD_SPILLOVER_SUSPECTED in labels or (last.is_on_device and last.is_before_first):
        return FORWARD
    return BACKWARD
