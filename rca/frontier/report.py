"""A window of stage durations of one group of ranks, and what the labeler says of it.

The window holds everything the labels depend on, so that the same window always gets the same report. Labels are
evidence on several axes, not a ladder of confidence (StageFrontier Table 12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from rca.frontier.accounting import Ranks, Seconds

VERSION: Final = 4
"""Of the formulas; stored with every report."""


class Label(StrEnum):
    FRONTIER_ACCOUNTING = "frontier_accounting"
    LIKELY_SYNC_WAIT = "likely_sync_wait"
    SYNC_WAIT_DEPENDENT = "sync_wait_dependent"
    DIRECT_EXPOSURE = "direct_exposure"
    FORWARD_DEVICE_SUPPORTED = "forward_device_supported"
    FORWARD_SPILLOVER_SUSPECTED = "forward_spillover_suspected"
    FORWARD_HOST_OVERHEAD_SUSPECTED = "forward_host_overhead_suspected"
    FORWARD_EVENT_SCOPE_LIMITED = "forward_event_scope_limited"
    CO_CRITICAL = "co_critical"
    GRADIENT_ACCUMULATION_AMBIGUOUS = "gradient_accumulation_ambiguous"
    ROLE_AWARE_NEEDED = "role_aware_needed"
    TELEMETRY_LIMITED = "telemetry_limited"


STRONG: Final = frozenset(
    {Label.DIRECT_EXPOSURE, Label.LIKELY_SYNC_WAIT, Label.SYNC_WAIT_DEPENDENT, Label.FORWARD_DEVICE_SUPPORTED}
)


@dataclass(frozen=True, slots=True)
class DeviceEvents:
    """Sampled device time of the forward stage. mean_s: (R,) of the samples that were ready, NaN for ranks without any.

    ready, asked: (R,) samples. is_scope_limited: a rank says that its streams are not all covered.
    """

    mean_s: Seconds
    ready: Ranks
    asked: Ranks
    is_scope_limited: bool = False

    @property
    def n_ready(self) -> int:
        return int(self.ready.sum())

    @property
    def n_asked(self) -> int:
        return int(self.asked.sum())


@dataclass(frozen=True, slots=True)
class StageWindow:
    """Steps of one diagnosis group with one schema.

    durations: (T, R, S) seconds, stages in order. ranks: (R,) global. overlap_s: (T, R) time counted twice. n_missing:
    ranks of the group that sent nothing. roles: (R,) what part each rank plays, () when all play the same or it is not
    known to differ. accumulation: micro-steps per step; is_indexed: whether the stages tell them apart. fits_wait_model:
    the group is one of synchronous data parallelism; why: how that is known, or why it is not. trouble: what went wrong in
    collecting. reference_s: (S,) what the stages took while the job was as usual. first_step: number of the first step.
    is_mean: each row is a mean of many steps. has_other_roles: the job has ranks of other roles, for which these may wait.
    """

    durations: Seconds
    stages: tuple[str, ...]
    ranks: tuple[int, ...]
    overlap_s: Seconds | None = None
    n_missing: int = 0
    roles: tuple[str, ...] = ()
    accumulation: int = 1
    is_indexed: bool = False
    fits_wait_model: bool = False
    why: str = ""
    events: DeviceEvents | None = None
    trouble: tuple[str, ...] = ()
    reference_s: Seconds | None = None
    first_step: int = 0
    is_mean: bool = False
    has_other_roles: bool = False


@dataclass(frozen=True, slots=True)
class Localization:
    """Who leads at a boundary. leader: the rank that leads clearly in most steps that have a clear leader, or None.

    n_led: steps in which it does; lead_s: its mean lead before the second then. tied: ranks in the tie set in most steps, at
    most 16 of `n_tied`. lag_s, lag_increase_s: the furthest before the median rank at the boundary, and what it gained in the
    stage, mean per step. gap_s: mean before the second. n_clear: steps with a clear leader; switch_share: how many of them
    changed it. leaders: (rank, steps that it leads clearly), most first, at most 8.
    """

    leader: int | None = None
    lead_s: float = 0.0
    tied: tuple[int, ...] = ()
    n_tied: int = 0
    lag_s: float = 0.0
    lag_increase_s: float = 0.0
    gap_s: float = 0.0
    n_clear: int = 0
    switch_share: float = 0.0
    n_led: int = 0
    leaders: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a window says. shares, gains: stage → value. routing: stages to look at, most first.

    gains: by the baseline that decides (`gain_baseline`); all_gains: baseline → stage → value. co_critical_stages: those
    the evidence cannot rank. at: who leads at the boundary of the first routed stage. step_s: mean exposed time of a step.
    downgrades: why stronger labels were withheld. fits_wait_model, why: the model-fit indicator and its reason.
    """

    labels: tuple[Label, ...]
    shares: dict[str, float]
    gains: dict[str, float]
    routing: tuple[str, ...]
    co_critical_stages: tuple[str, ...]
    at: Localization
    step_s: float
    downgrades: tuple[str, ...]
    n_steps: int
    n_ranks: int
    gain_baseline: str = ""
    all_gains: dict[str, dict[str, float]] = field(default_factory=dict)
    fits_wait_model: bool = False
    why: str = ""
    gates: dict[str, float] = field(default_factory=dict)
    version: int = VERSION

    @property
    def is_strong(self) -> bool:
        return any(label in STRONG for label in self.labels)

    @property
    def leader(self) -> int | None:
        return self.at.leader

    @property
    def lead_s(self) -> float:
        return self.at.lead_s

    @property
    def stage(self) -> str:
        """The stage that leads the exposed time; '' when nothing is exposed."""
        return self.routing[0] if self.routing else ""
