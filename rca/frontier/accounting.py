"""Frontier accounting: where in the step the group's time was first exposed (StageFrontier §3).

At each stage boundary the rank that is furthest along is the frontier; its increments, the advances, add up to the step's
exposed time exactly. So a delay is charged once, to the boundary where it first shows, and not again to the stages in
which the others wait for it.

    rank 0  data ██████ fwd ██ bwd ██            frontier   6   8   10
    rank 1  data ██ fwd ██ bwd ██████            advances   6   2    2     (per-stage maxima would say 6 + 2 + 6)

Durations are (T, R, S) seconds: steps, ranks, stages in order. Clocks need not agree: only durations are used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepAccounts:
    """One step. advances: (S,); leader: (S,) the rank furthest along at each boundary; gap: (S,) to the second.

    lag: (S,) of the furthest before the median rank. total: (R,) each rank's own step.
    """

    advances: Seconds
    leader: Ranks
    gap: Seconds
    lag: Seconds
    total: Seconds

    @property
    def exposed(self) -> float:
        """The step's exposed time: the longest rank."""
        return float(self.total.max())


def account_step(durations: Seconds) -> StepAccounts:
    """Accounts of one step; durations: (R, S) of at least one rank, finite and not negative. ValueError else."""
    if durations.ndim != 2 or not durations.size:
        raise ValueError("a step has at least one rank and one stage")
    if not np.isfinite(durations).all() or (durations < 0).any():
        raise ValueError("stage durations are finite and not negative")
    prefix = np.cumsum(durations, axis=1)
    frontier = prefix.max(axis=0)
    second = np.partition(prefix, -2, axis=0)[-2] if len(prefix) > 1 else frontier
    return StepAccounts(
        advances=np.diff(frontier, prepend=0.0), leader=prefix.argmax(axis=0), gap=frontier - second,
        lag=frontier - np.median(prefix, axis=0), total=prefix[:, -1],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Accounts:
    """A window of steps. advances, leader, gap, lag: (T, S); exposed: (T,)."""

    advances: Seconds
    leader: Ranks
    gap: Seconds
    lag: Seconds
    exposed: Seconds

    @property
    def n_steps(self) -> int:
        return len(self.exposed)

    @property
    def shares(self) -> Seconds:
        """(S,) of the window's exposed time, weighted by step time; zeros when there is none."""
        whole = float(self.exposed.sum())
        found: Seconds = self.advances.sum(axis=0) / whole if whole > 0 else np.zeros(self.advances.shape[1])
        return found

    @property
    def lag_increase(self) -> Seconds:
        """(T, S) how much the furthest gained on the median rank within each stage; negative where the others caught up."""
        found: Seconds = np.diff(self.lag, axis=1, prepend=0.0)
        return found


def account(steps: Iterable[Seconds]) -> Accounts:
    """Accounts of a window, one (R, S) step at a time: no more than one step is held."""
    done = [account_step(np.asarray(step, np.float64)) for step in steps]
    if not done:
        raise ValueError("a window has at least one step")
    return Accounts(
        np.stack([one.advances for one in done]), np.stack([one.leader for one in done]),
        np.stack([one.gap for one in done]), np.stack([one.lag for one in done]),
        np.array([one.exposed for one in done]),
    )  # fmt: skip


def slack(durations: Seconds) -> Seconds:
    """(R, S) how far each rank is behind the frontier at each boundary of a step, in time it can still spend unseen.

    The slack identity: an advance is the largest of the stage's durations after each rank's slack before it is taken off.
    """
    prefix = np.cumsum(durations, axis=1)
    found: Seconds = prefix.max(axis=0) - prefix
    return found


def tied_leaders(durations: Seconds, stage: int, tolerance: float) -> Ranks:
    """Ranks whose prefix at a boundary is within `tolerance` (a share of the frontier) of the furthest, furthest first."""
    prefix = durations[:, : stage + 1].sum(axis=1)
    order = np.argsort(-prefix, kind="stable")
    tied: Ranks = order[prefix[order] >= (1 - tolerance) * prefix.max()]
    return tied
