"""A window of stage durations of one group of ranks, and what the labeler says of it.

The window holds everything the labels depend on, so that the same window always gets the same report. Labels are
evidence on several axes, not a ladder of confidence (StageFrontier Table 12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from rca.frontier.accounting import Seconds


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

    n_ready, n_asked: over all ranks.
    """

    mean_s: Seconds
    n_ready: int
    n_asked: int


@dataclass(frozen=True, slots=True)
class StageWindow:
    """Steps of one diagnosis group with one schema.

    durations: (T, R, S) seconds, stages in order. ranks: (R,) global. overlap_s: (T, R) time counted twice. n_missing:
    ranks of the group that sent nothing. roles: (R,) what part each rank plays, () when all play the same or it is not
    known to differ. accumulation: micro-steps per step; is_indexed: whether the stages tell them apart. fits_wait_model:
    the group is one of synchronous data parallelism; why: how that is known. trouble: what went wrong in collecting.
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


@dataclass(frozen=True, slots=True)
class Report:
    """What a window says. shares, gains: stage → value. routing: stages to look at, most first.

    co_critical_stages: those the evidence cannot rank. leader: the rank that leads at the first routed stage, None when
    no rank leads clearly; lead_s: by how much, per step, on average. downgrades: why stronger labels were withheld.
    """

    labels: tuple[Label, ...]
    shares: dict[str, float]
    gains: dict[str, float]
    routing: tuple[str, ...]
    co_critical_stages: tuple[str, ...]
    leader: int | None
    lead_s: float
    step_s: float
    downgrades: tuple[str, ...]
    n_steps: int
    n_ranks: int
    version: int = field(default=1)

    @property
    def is_strong(self) -> bool:
        return any(label in STRONG for label in self.labels)
