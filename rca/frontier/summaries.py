"""The summaries that dashboards show of the same matrix, for comparison (StageFrontier Table 4).

Each gives one score per stage, as a share, so that they route alike; none adds up to the exposed time. Durations are
(T, R, S) seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from rca.frontier.accounting import Seconds


def per_stage_max(durations: Seconds) -> Seconds:
    """(S,) the slowest rank of each stage and step. Counts one delay up to min(R, S) times (Proposition 1)."""
    return _shares(durations.max(axis=1).sum(axis=0))


def per_stage_average(durations: Seconds) -> Seconds:
    """(S,) the mean over ranks. Hides the tail of one rank by a factor of up to R (Proposition 2)."""
    return _shares(durations.mean(axis=1).sum(axis=0))


def rank_spread(durations: Seconds) -> Seconds:
    """(S,) the slowest rank less the median one."""
    return _shares((durations.max(axis=1) - np.median(durations, axis=1)).sum(axis=0))


def slowest_rank(durations: Seconds) -> Seconds:
    """(S,) the stages of each step's slowest rank."""
    slowest = durations.sum(axis=2).argmax(axis=1)
    return _shares(durations[np.arange(len(durations)), slowest].sum(axis=0))


def first_rank(durations: Seconds) -> Seconds:
    """(S,) the stages of rank 0, all others unseen."""
    return _shares(durations[:, 0].sum(axis=0))


SUMMARIES: Final[Mapping[str, Callable[[Seconds], Seconds]]] = {
    "per-stage max": per_stage_max,
    "per-stage average": per_stage_average,
    "raw rank spread": rank_spread,
    "slowest-rank breakdown": slowest_rank,
    "rank-0 local total": first_rank,
}


def _shares(scores: Seconds) -> Seconds:
    whole = float(scores.sum())
    found: Seconds = scores / whole if whole > 0 else np.zeros(len(scores))
    return found
