"""A job's normal: the newest windows in which nothing had moved, and the first ones of the attempt.

    newest  ── 207 208 207 ──           what later windows are compared with
    first   ── 150 151 ──               kept: a step that grows a little in every window would take its normal along

Each window that counts as usual becomes part of the newest, so a slow growth would never stand out from them. The first
windows stay as they were, and of both the lower is what counts, as in rca/triggers/pace.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from rca.frontier.moved import Pace

NEWEST_KEPT: Final = 32
FIRST_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """One window in which nothing had moved. usual_s: ordered stage → median; ranks: the packet's table of ranks by stage."""

    pace: Pace
    usual_s: Mapping[str, float]
    ranks: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Normal:
    """newest: any order, at most NEWEST_KEPT; first: of the attempt, at most FIRST_KEPT."""

    newest: tuple[Seen, ...] = ()
    first: tuple[Seen, ...] = ()

    @property
    def newest_paces(self) -> tuple[Pace, ...]:
        return tuple(one.pace for one in self.newest)

    @property
    def held(self) -> tuple[Seen, ...]:
        """Those that windows are compared with."""
        if not self.first or _middle(self.newest) <= _middle(self.first):
            return self.newest
        return self.first

    def reference(self, windows_min: int) -> dict[str, float] | None:
        """Ordered stage → what it took while the job was as usual; None until that is known."""
        if len(self.newest) < windows_min:
            return None
        held = self.held
        return {stage: median(one.usual_s[stage] for one in held) for stage in held[0].usual_s}

    def late_s(self, rank: int, stage: str) -> float:
        """How late a rank usually ends a broad stage, before the median rank; 0 where it does not stand out."""
        return max(median(late_s(one.ranks, rank, stage) for one in self.held), 0.0) if self.newest else 0.0


def normal_of(seen: Sequence[Seen]) -> Normal:
    """Of every window in which nothing had moved, oldest first."""
    return Normal(tuple(seen[-NEWEST_KEPT:]), tuple(seen[:FIRST_KEPT]))


def late_s(ranks: Mapping[str, Any], rank: int, stage: str) -> float:
    """How much later than the median rank one ends a broad stage, mean per step; of a packet's table of ranks by stage, in
    which a rank that does not stand out may be missing: 0 then."""
    if rank not in ranks["rank"] or stage not in ranks["stages"]:
        return 0.0
    upto = ranks["stages"].index(stage) + 1
    ended = np.array(ranks["mean_ms"])[:, :upto].sum(axis=1)
    is_all = len(ended) == ranks["n_ranks"]
    middle = float(np.median(ended)) if is_all else sum(ranks["median_ms"][:upto])
    return float(ended[ranks["rank"].index(rank)] - middle) / 1e3


def _middle(seen: Sequence[Seen]) -> float:
    return median(one.pace.step_s for one in seen) if seen else 0.0
