"""Frontier accounting: where in the step the group's time was first exposed (StageFrontier §3).

At each stage boundary the rank that is furthest along is the frontier; its increments, the advances, add up to the step's
exposed time exactly. So a delay is charged once, to the boundary where it first shows, and not again to the stages in
which the others wait for it.

    rank 0  data ██████ fwd ██ bwd ██            frontier   6   8   10
    rank 1  data ██ fwd ██ bwd ██████            advances   6   2    2     (per-stage maxima would say 6 + 2 + 6)

Durations are (T, R, S) seconds: steps, ranks, stages in order. Clocks need not agree: only durations are used. One pass
over each step, one step at a time, all ranks of a stage at once: fastest where ranks lie side by side in memory, as
`by_stage` lays them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]

CELLS_AT_ONCE: Final = 65_536
"""Ranks × steps that are accounted together: half a megabyte, which stays in the cache."""
MEDIAN_RANKS_MAX: Final = 1024
"""A median over more ranks than this is taken of so many of them, drawn once: it decides nothing that 3 % of the ranks
could change, and a selection over all of 100,000 would cost more than the rest of the accounting."""


@dataclass(frozen=True, slots=True)
class StepAccounts:
    """One step. advances: (S,); leader: (S,) the rank furthest along at each boundary; gap: (S,) to the second.

    lag: (S,) of the furthest before the median rank. exposed: the longest rank's step.
    """

    advances: Seconds
    leader: Ranks
    gap: Seconds
    lag: Seconds
    exposed: float


def account_step(durations: Seconds) -> StepAccounts:
    """Accounts of one step; durations: (R, S) of at least one rank, finite and not negative. ValueError else."""
    if durations.ndim != 2 or not durations.size:
        raise ValueError("a step has at least one rank and one stage")
    of = _block(durations[None])
    return StepAccounts(of.advances[0], of.leader[0], of.gap[0], of.lag[0], float(of.exposed[0]))


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
        """(S,) of the window's exposed time, weighted by step time (Equation 2); zeros when there is none."""
        whole = float(self.exposed.sum())
        found: Seconds = self.advances.sum(axis=0) / whole if whole > 0 else np.zeros(self.advances.shape[1])
        return found

    @property
    def lag_increase(self) -> Seconds:
        """(T, S) how much the furthest gained on the median rank within each stage; negative where the others caught up."""
        found: Seconds = np.diff(self.lag, axis=1, prepend=0.0)
        return found


def account(steps: Iterable[Seconds]) -> Accounts:
    """Accounts of a window, (R, S) step by step: no more steps are held at once than make up CELLS_AT_ONCE."""
    done = [_block(block) for block in _blocks(steps)]
    if not done:
        raise ValueError("a window has at least one step")
    columns = ("advances", "leader", "gap", "lag", "exposed")
    return Accounts(*(np.concatenate([getattr(one, name) for one in done]) for name in columns))


def _blocks(steps: Iterable[Seconds]) -> Iterator[Seconds]:
    """(B, R, S) of a few steps of few ranks, or one step of many: numpy's calls cost more than the work on 100 ranks."""
    if isinstance(steps, np.ndarray):
        if steps.ndim != 3 or not steps.size:
            raise ValueError("a window has at least one step, and a step at least one rank and one stage")
        at_once = max(1, CELLS_AT_ONCE // steps.shape[1])
        yield from (steps[at : at + at_once] for at in range(0, len(steps), at_once))
        return
    held: list[Seconds] = []
    for step in steps:
        held.append(np.asarray(step, np.float64))
        if len(held) * len(held[0]) >= CELLS_AT_ONCE:
            yield np.stack(held)
            held = []
    if held:
        yield np.stack(held)


def _block(block: Seconds) -> Accounts:
    """Accounts of (B, R, S) steps; ValueError when a duration is not finite or negative."""
    n_steps, n_ranks, n_stages = block.shape
    stages, prefix = block.transpose(2, 0, 1), np.zeros((n_steps, n_ranks))
    if stages.strides[2] != stages.itemsize:
        stages = np.ascontiguousarray(stages)
    frontier, gap, lag = (np.empty((n_steps, n_stages)) for _ in range(3))
    leader, rows, drawn = np.empty((n_steps, n_stages), np.int64), np.arange(n_steps), sampled_ranks(n_ranks)
    for stage in range(n_stages):
        if not stages[stage].min() >= 0:  # NaN fails this, too
            raise ValueError("stage durations are finite and not negative")
        prefix += stages[stage]
        first = prefix.argmax(axis=1)
        furthest = prefix[rows, first]
        frontier[:, stage], leader[:, stage] = furthest, first
        lag[:, stage] = furthest - np.median(prefix if drawn is None else prefix[:, drawn], axis=1)
        prefix[rows, first] = -1.0
        gap[:, stage] = furthest - prefix.max(axis=1) if n_ranks > 1 else 0.0
        prefix[rows, first] = furthest
    if not np.isfinite(frontier[:, -1]).all():
        raise ValueError("stage durations are finite and not negative")
    return Accounts(np.diff(frontier, axis=1, prepend=0.0), leader, gap, lag, frontier[:, -1].copy())


def by_stage(durations: Seconds) -> Seconds:
    """The same (T, R, S) with the ranks of a stage side by side in memory."""
    return np.ascontiguousarray(durations.transpose(0, 2, 1)).transpose(0, 2, 1)


def slack(durations: Seconds) -> Seconds:
    """(R, S) how far each rank is behind the frontier at each boundary of a step, in time it can still spend unseen.

    The slack identity (Equation 3): an advance is the largest of the stage's durations after each rank's slack before it
    is taken off.
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


def times_tied(durations: Seconds, stage: int, tolerance: float) -> Ranks:
    """(R,) in how many steps of a (T, R, S) window each rank is in the tie set of a boundary."""
    times = np.zeros(durations.shape[1], np.int64)
    for step in durations:
        prefix = step[:, : stage + 1].sum(axis=1)
        times += prefix >= (1 - tolerance) * prefix.max()
    return times


@lru_cache(maxsize=64)
def sampled_ranks(n_ranks: int) -> Ranks | None:
    """Which ranks stand for all in a median, in order; None when all do. The same for the same number of ranks."""
    if n_ranks <= MEDIAN_RANKS_MAX:
        return None
    return np.sort(np.random.default_rng(n_ranks).choice(n_ranks, MEDIAN_RANKS_MAX, replace=False)).astype(np.int64)
