"""Whether a job's step time has moved against its own normal, and what a window that moved says.

    usual windows  ─ 207 207 208 ─┐                      routed:      a strong label names the stage
    newest window  ─────────────── 327 ▲ moved           unlocalised: no stage may be called the cause

The normal is the windows in which nothing had moved; it is learned only from those, and held against the first of them
(normal.py). A window moves when its mean step, without the longest three, is longer by a share that matters, and by more
than windows usually vary, also than one window can tell. A growth that goes on from window to window is no variation: what
a window is away from the middle of its two neighbours is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Final

import numpy as np

from rca.frontier.accounting import Seconds
from rca.frontier.report import Label, Report
from rca.settings import Settings

MAD: Final = 1.4826
LONGEST_LEFT_OUT: Final = 3
"""Of 120 steps; what comes every ten steps remains."""
GROWN_MIN: Final = 0.6
"""Share of what was added to the step that is worth a hint."""
EXPLAINS_MIN: Final = 0.5
"""Share of what was added to the step that a rank must be later by to be why."""
NEIGHBOURS_MIN: Final = 4
"""Windows from which on each is compared with its neighbours."""


class Verdict(StrEnum):
    """What a window says of its group, for lists and figures."""

    LEARNING = "learning"  # no normal yet
    USUAL = "usual"
    FASTER = "faster"  # another pace, nobody's trouble
    ROUTED = "routed"
    UNLOCALISED = "unlocalised"


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one window: its mean exposed step without the longest few (`lasting`), how well that is known from it alone, and
    what each stage exposed of a step; seconds."""

    step_s: float
    error_s: float
    exposed_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moved:
    """verdict, and the numbers it rests on; usual_s 0 while there is no normal. growth: stage → its share of what was
    added to the step, of a window that moved; explains: what share of it the leading rank is later by than usual."""

    verdict: Verdict
    step_s: float
    usual_s: float
    n_usual: int
    threshold_s: float
    growth: Mapping[str, float] = field(default_factory=dict)
    explains: float = 1.0

    @property
    def has_moved(self) -> bool:
        return self.verdict in (Verdict.ROUTED, Verdict.UNLOCALISED)

    @property
    def is_one_rank(self) -> bool:
        """Whether the rank that leads is why the step is longer."""
        return self.explains >= EXPLAINS_MIN


def moved(
    report: Report, pace: Pace, usual: Sequence[Pace], settings: Settings, held: Sequence[Pace] | None = None
) -> Moved:
    """The verdict of a window, against those before it in which nothing had moved, in the order in which they came. held: those
    of a normal that is kept (normal.py); the same if left out."""
    held = held or usual
    if len(usual) < settings.stage_usual_windows:
        return Moved(Verdict.LEARNING, pace.step_s, 0.0, len(usual), 0.0)
    middle = median(one.step_s for one in held)
    known = max(varies(usual), median(one.error_s for one in usual))
    threshold = max(settings.stage_moved_share * middle, settings.stage_moved_deviations * known)
    verdict, grown = Verdict.USUAL, dict[str, float]()
    if pace.step_s >= middle + threshold:
        verdict = Verdict.ROUTED if report.is_strong else Verdict.UNLOCALISED
        grown = _growth(pace, held)
    elif pace.step_s <= middle - threshold:
        verdict = Verdict.FASTER
    return Moved(verdict, pace.step_s, middle, len(usual), middle + threshold, grown)


def varies(usual: Sequence[Pace]) -> float:
    """Standard deviation of windows from one to the next, s: of what each is away from the middle of its neighbours, so that a
    steady growth adds nothing to it; of few windows, from their median."""
    steps = np.array([one.step_s for one in usual])
    if len(steps) < NEIGHBOURS_MIN:
        return float(MAD * np.median(np.abs(steps - np.median(steps))))
    apart = steps[1:-1] - (steps[:-2] + steps[2:]) / 2
    return float(MAD * np.median(np.abs(apart)) / np.sqrt(1.5))


def pace_of(report: Report, exposed: Seconds) -> Pace:
    """Of a window's report and the exposed time of its steps, (T,)."""
    kept = lasting(exposed)
    error_s = float(kept.std() / np.sqrt(len(kept)))
    return Pace(float(kept.mean()), error_s, {stage: share * report.step_s for stage, share in report.shares.items()})


def lasting(exposed: Seconds) -> Seconds:
    """The steps of a window without its longest few: one long step, an evaluation or a checkpoint, moves nothing."""
    n_left_out = min(LONGEST_LEFT_OUT, len(exposed) // 4)
    found: Seconds = np.sort(exposed)[: len(exposed) - n_left_out]
    return found


def _growth(pace: Pace, usual: Sequence[Pace]) -> dict[str, float]:
    """Stage → its share of what all stages that grew have grown by."""
    middle = {stage: median(one.exposed_s.get(stage, 0.0) for one in usual) for stage in pace.exposed_s}
    more = {stage: max(now_s - middle[stage], 0.0) for stage, now_s in pace.exposed_s.items()}
    whole = sum(more.values())
    return {stage: round(by_s / whole, 6) for stage, by_s in more.items()} if whole > 0 else {}


def is_normal(found: Moved) -> bool:
    """Whether later windows may be compared with this one."""
    return not found.has_moved


def next_look(found: Moved, report: Report) -> str:
    """What to look at next, in a sentence; '' when there is nothing to look at."""
    if found.verdict is Verdict.ROUTED:
        return f"Profile {_who(found, report)} in {report.stage}; it leads the exposed time of the group."
    if found.verdict is not Verdict.UNLOCALISED:
        return ""
    if Label.TELEMETRY_LIMITED in report.labels:
        return "Restore the recording first: what is missing may hold the cause."
    if Label.ROLE_AWARE_NEEDED in report.labels:
        return "Declare the ranks' roles, or trace their communicators, so that only ranks of one role are compared."
    grown = max(found.growth, key=lambda stage: found.growth[stage], default="")
    if grown and found.growth[grown] >= GROWN_MIN:
        of = f", where rank {report.leader} leads" if _is_led(found, report) and grown == report.stage else ""
        return (
            f"No stage may be called the cause, but {found.growth[grown]:.0%} of what was added to the step is in"
            f" {grown}{of}: look there first."
        )
    if Label.CO_CRITICAL in report.labels:
        stages = " and ".join(report.co_critical_stages) or report.stage
        return f"Look at who enters the group's ops last: {stages} cannot be told apart from stages alone."
    return (
        "No stage stands out: look at what slows everything, as CPU contention, scheduling or the file system do"
        " (`top`, `vmstat 1`, `iostat -x 1`, GPU utilisation of the group's nodes)."
    )


def _who(found: Moved, report: Report) -> str:
    if _is_led(found, report):
        return f"rank {report.leader}"
    return f"one of ranks {', '.join(str(rank) for rank in report.at.tied)}" if report.at.n_tied == 2 else "any rank"


def _is_led(found: Moved, report: Report) -> bool:
    return report.leader is not None and found.is_one_rank
