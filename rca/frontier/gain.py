"""Direct-exposure gain: how much shorter the step would be had one stage taken what it usually does (StageFrontier §4).

A stage's durations are clipped to a baseline, never raised, and the frontier is taken anew. What others waited for the
stage stays in their own durations, so the gain is a lower bound where those waits would go, too; otherwise it only says
how much of the exposed time the stage's own work is.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from rca.frontier.accounting import Seconds


class Baseline(StrEnum):
    """What a stage usually takes: this rank's median over the window, all ranks' median, or a given reference."""

    RANK_MEDIAN = "rank_median"
    COHORT_MEDIAN = "cohort_median"
    REFERENCE = "reference"


def baseline_of(durations: Seconds, kind: Baseline, reference: Seconds | None = None) -> Seconds:
    """(1 or T, R, S) to be clipped to; reference: (S,) or (R, S), of a time without a stall."""
    if kind is Baseline.REFERENCE:
        if reference is None:
            raise ValueError("a reference baseline needs a reference")
        found: Seconds = np.broadcast_to(reference, durations.shape[1:])[None]
        return found
    if kind is Baseline.COHORT_MEDIAN:
        cohort: Seconds = np.broadcast_to(np.median(durations, axis=(0, 1)), durations.shape[1:])[None]
        return cohort
    return np.median(durations, axis=0, keepdims=True)


def gains(durations: Seconds, baseline: Seconds) -> Seconds:
    """(S,) share of the exposed time that goes when each stage alone is clipped; durations: (T, R, S)."""
    total = durations.sum(axis=2)
    exposed = total.max(axis=1)
    whole = float(exposed.sum())
    if whole <= 0:
        return np.zeros(durations.shape[2])
    saved = np.maximum(durations - baseline, 0.0)
    clipped = np.array([(total - saved[:, :, stage]).max(axis=1).sum() for stage in range(durations.shape[2])])
    found: Seconds = (exposed.sum() - clipped) / whole
    return found
