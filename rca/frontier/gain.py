"""Direct-exposure gain: how much shorter the step would be had one stage taken what it usually does (StageFrontier §4).

A stage's durations are clipped to a baseline, never raised, and the frontier is taken anew (Equation 4). What others
waited for the stage stays in their own durations, so the gain is a lower bound where those waits would go, too; otherwise
it only says how much of the exposed time the stage's own work is.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from rca.frontier.accounting import Ranks, Seconds, sampled_ranks


class Baseline(StrEnum):
    """What a stage usually takes: this rank's median over the window, all ranks' median, or a time without a stall."""

    RANK_MEDIAN = "rank_median"
    COHORT_MEDIAN = "cohort_median"
    REFERENCE = "reference"


def baseline_of(durations: Seconds, kind: Baseline, reference: Seconds | None = None) -> Seconds:
    """(1, R, S) to be clipped to; reference: (S,) or (R, S), of a time without a stall. Medians over very many ranks are
    taken of some (accounting.MEDIAN_RANKS_MAX)."""
    if kind is Baseline.REFERENCE:
        if reference is None:
            raise ValueError("a reference baseline needs a reference")
        found: Seconds = np.broadcast_to(reference, durations.shape[1:])[None]
        return found
    if kind is Baseline.COHORT_MEDIAN:
        drawn = sampled_ranks(durations.shape[1])
        some = durations if drawn is None else durations[:, drawn]
        cohort: Seconds = np.broadcast_to(np.median(some, axis=(0, 1)), durations.shape[1:])[None]
        return cohort
    return np.median(durations, axis=0, keepdims=True)


def gains(durations: Seconds, baseline: Seconds, of: Ranks | None = None) -> Seconds:
    """(S,) share of the exposed time that goes when each stage alone is clipped; durations: (T, R, S).

    of: (S,) which stages are clipped together (folding.py); then (G,).
    """
    together = np.arange(durations.shape[2]) if of is None else of
    whole, clipped = 0.0, np.zeros(int(together.max()) + 1)
    usual = np.ascontiguousarray(baseline[0].T)
    for step in durations:
        stages = np.ascontiguousarray(step.T)
        total = stages.sum(axis=0)
        whole += float(total.max())
        for broad in range(len(clipped)):
            saved = sum(np.maximum(stages[stage] - usual[stage], 0.0) for stage in np.flatnonzero(together == broad))
            clipped[broad] += (total - saved).max()
    if whole <= 0:
        return np.zeros(len(clipped))
    found: Seconds = (whole - clipped) / whole
    return found
