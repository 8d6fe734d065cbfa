"""What a treatment changes, told from paired blocks: in each block every variant ran once, close to the others in time.

A busy or warm machine slows whole blocks, so only differences inside a block count. Their median over blocks is the
figure (a burst of somebody else's work spoils a block, not the result); for its interval whole blocks are drawn again
with replacement (percentile bootstrap), never the runs inside a block, which are not independent of each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

DRAWS = 10_000
Interval = dict[str, float]


def slowdown_pct(base: Sequence[float], treated: Sequence[float]) -> Interval:
    """How much longer `treated` takes than `base`, in %; one duration per block each, in the same order."""
    return _interval(np.log(np.asarray(treated) / np.asarray(base)))


def loss_pct(base: npt.ArrayLike, treated: npt.ArrayLike) -> Interval:
    """How much bandwidth is lost, in %; (blocks, columns) durations of the same work, a block's median column counts."""
    return _interval(np.median(np.log(np.asarray(base) / np.asarray(treated)), axis=1), sign=-1)


def difference(base: Sequence[float], treated: Sequence[float]) -> Interval:
    """`treated` minus `base`, in their own unit."""
    return _bounds(np.asarray(treated, float) - np.asarray(base, float))


def _interval(logs: npt.NDArray[np.float64], sign: int = 1) -> Interval:
    """Median and 95 % interval of log ratios, as a percentage of the base."""
    bounds = _bounds(logs)
    low, high = sorted(sign * 100 * float(np.expm1(bounds[name])) for name in ("lower95", "upper95"))
    return {"mid": sign * 100 * float(np.expm1(bounds["mid"])), "lower95": low, "upper95": high}


def _bounds(values: npt.NDArray[np.float64]) -> Interval:
    drawn = np.random.default_rng(1).integers(0, len(values), (DRAWS, len(values)))
    low, high = np.percentile(np.median(values[drawn], axis=1), (2.5, 97.5))
    return {"mid": float(np.median(values)), "lower95": float(low), "upper95": float(high)}
