"""Small slowdowns that last: blocks of iterations against what blocks of the usual ones vary by.

A single iteration says little about a few per cent: its jitter is as large. The mean of a block varies much less, and how
much is measured on the job's own usual blocks, so that what makes neighbours alike (a wandering pace, kinds of steps that
alternate) counts as well. What is far off in a block, evaluations, checkpoints, pauses and hiccups, is left out of it, twice:
the middle fifth alone holds against many of them, the middle three fifths against kinds of steps in random order, and
both must be slow, in two blocks in a row. Blocks are tried from short to long: the shorter the clearer it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt

from rca.settings import Settings

Floats = npt.NDArray[np.float64]

FACTORS: Final = (1, 2, 4)
"""Of `small_iterations`: the blocks that are tried."""
BLOCKS_MIN: Final = 10  # usual ones of the shortest kind; before, nothing is known of what they vary by
LONG_BLOCKS_MIN: Final = 5
ENOUGH_BLOCKS: Final = 20  # overlapping by half
TRIMMED: Final = (0.2, 0.4)
"""Shares left out at each end: with the first alone three hiccups of ten were a slow block, with the second alone 40 % of
random long steps where 30 % are usual."""
FOUND: Final = 0.6
"""Of `small_share`: blocks slower by this are told, or a slowdown of just that share would be missed half the time."""


@dataclass(frozen=True, slots=True)
class Shift:
    """first: of the lengths that are slow. usual_ns, now_ns: of an iteration, what is far off left out."""

    first: int
    usual_ns: int
    now_ns: int


def n_judged(usual_ns: float, settings: Settings) -> int:
    """How many iterations a slowdown may need to be seen: two of the longest blocks."""
    return 2 * _sizes(usual_ns, settings)[-1]


def n_compared(usual_ns: float, settings: Settings) -> int:
    """How many usual iterations the longest blocks are compared with."""
    return LONG_BLOCKS_MIN * _sizes(usual_ns, settings)[-1]


def lasting_shift(lengths: npt.ArrayLike, usual: npt.ArrayLike, settings: Settings) -> Shift | None:
    """What has become slower for good. lengths: (n,) ns of the newest iterations, oldest first. usual: (m,) the same of
    normal ones before; they are compared as they followed each other."""
    newest, known = np.asarray(lengths, np.float64), np.asarray(usual, np.float64)
    if len(known) < BLOCKS_MIN * settings.small_iterations:
        return None
    found = [_shift(newest, known, trimmed, settings) for trimmed in TRIMMED]
    return found[0] if all(found) else None


def _shift(newest: Floats, known: Floats, trimmed: float, settings: Settings) -> Shift | None:
    """The same by blocks of which this share is left out at each end."""
    shorter = 0.0
    for n in _sizes(float(np.median(known)), settings):
        if len(newest) < 2 * n or len(known) < LONG_BLOCKS_MIN * n:
            return None
        centre, varied, slowest = _varied(known, n, trimmed)
        is_few = len(known) < ENOUGH_BLOCKS * n / 2
        spread = max(varied, shorter / np.sqrt(2)) if is_few else varied  # a few may be alike by chance
        shorter = varied
        limit = max(centre * (1 + FOUND * settings.small_share), centre + settings.small_deviations * spread, slowest)
        both = newest[-2 * n :].reshape(2, n)
        means = _means(both, trimmed)
        if both.sum() >= settings.small_ns and (means >= limit).all():
            return _since(newest, n, centre, float(means.mean()))
    return None


def _sizes(usual_ns: float, settings: Settings) -> list[int]:
    """Iterations of the blocks that are tried, ascending: of short ones at least as many as two last `small_ns`."""
    least = ceil(settings.small_ns / (2 * max(usual_ns, 1.0)))
    return sorted({max(factor * settings.small_iterations, least) for factor in FACTORS})


def _means(blocks: Floats, trimmed: float) -> Floats:
    """(k,) of each block (k, n) the mean of what is neither among its shortest nor its longest."""
    cut = int(trimmed * blocks.shape[1])
    found: Floats = np.sort(blocks, axis=1)[:, cut : blocks.shape[1] - cut].mean(axis=1)
    return found


def _varied(known: Floats, n: int, trimmed: float) -> tuple[float, float, float]:
    """What blocks of n usual iterations last: on average, one deviation of it (the larger of two robust ones), and what
    one in twenty is beyond."""
    means = _means(np.lib.stride_tricks.sliding_window_view(known, n)[:: max(n // 2, 1)], trimmed)
    middle, upper, slowest = (float(one) for one in np.quantile(means, (0.5, 0.9, 0.95)))
    return middle, max(1.4826 * float(np.median(np.abs(means - middle))), (upper - middle) / 1.2816), slowest


def _since(newest: Floats, n: int, centre: float, now: float) -> Shift:
    """Where it most likely began: blocks that follow are nearer to now than to usual, those before are not."""
    means = _means(np.lib.stride_tricks.sliding_window_view(newest, n), TRIMMED[0])
    gained = np.cumsum((means - (centre + now) / 2)[::-1])[::-1]  # of all from here on
    first = min(int(np.argmax(gained)) + n // 2 * (means[0] < (centre + now) / 2), len(newest) - n)
    return Shift(first, int(centre), int(_means(newest[first:][None, :], TRIMMED[0])[0]))
