"""Streams: the ops that follow each other by number, and how often each comes back in an iteration of the training loop.

A training loop repeats itself, so an op can be compared with the same op of earlier iterations. Nobody tells us where an
iteration begins: it is found from the ops. A stream is one communicator's collectives, or one pair's sends; its pattern
is the shortest run of kinds and sizes that repeats; the iteration is the shortest time in which nearly every stream of
nearly every rank goes through its pattern a whole number of times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rca.keys import Ints, Keys, Mask, Rows, mix, stream_keys

PATTERN_MAX = 512
REPEATS_MIN = 4
BEATS_MAX = 256
UNEVEN_MIN = 0.1
WHOLE_SHARE = 0.8
ROUND_TOLERANCE = 0.12

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Streams:
    """Arrays of (S,), ordered by key. interval_ns: between two ops. per_iteration: ops in one, 0: too rare or too few.

    iteration_ns is 0 where nothing repeats. of_row: (n,) stream of every row they were made from.
    """

    key: Keys
    interval_ns: Floats
    per_iteration: Ints
    iteration_ns: float
    of_row: Ints


def known_streams(rows: Rows) -> Streams:
    """The streams of `rows` of an `op` table, in any order."""
    key, of_row = np.unique(stream_keys(rows), return_inverse=True)
    of_row = of_row.astype(np.int64)
    order = np.lexsort((rows["op"], of_row))
    stream, op = of_row[order], rows["op"][order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (stream[1:] != stream[:-1]) | (op[1:] != op[:-1])
    seen = order[is_first]  # one row of every op, whoever told of it
    bounds = np.searchsorted(of_row[seen], np.arange(len(key) + 1))
    kind = mix(rows["func"][seen], rows["count"][seen], rows["dtype"][seen])
    at = rows["first_ready_ns"][seen].astype(np.float64)
    interval, pattern = np.zeros(len(key)), np.zeros(len(key))
    for one in range(len(key)):
        first, last = bounds[one], bounds[one + 1]
        interval[one], pattern[one] = _rhythm(kind[first:last], at[first:last])
    iteration = _iteration_ns(pattern, of_row, rows["rank"])
    whole = iteration / np.where(interval > 0, interval, np.inf)
    return Streams(key, interval, np.rint(whole).astype(np.int64), iteration, of_row)


def _rhythm(kind: Keys, at: Floats) -> tuple[float, float]:
    """(time between ops, time of the shortest pattern that repeats); zeros when it does not repeat often enough."""
    if len(kind) < REPEATS_MIN:
        return 0.0, 0.0
    interval = float(at[-1] - at[0]) / (len(at) - 1)
    for period in range(1, min(len(kind) // REPEATS_MIN, PATTERN_MAX) + 1):
        if (kind[period:] == kind[:-period]).mean() > 0.98:
            return interval, interval * period * _beats(np.diff(at[::period]))
    return interval, 0.0


def _beats(steps: Floats) -> int:
    """After how many of these steps their lengths repeat: calls of one size may still come in bursts. 1: at once."""
    if len(steps) < 2 * REPEATS_MIN:
        return 1
    lengths = steps / max(float(steps.mean()), 1.0)
    changes = [_change(lengths, lag) for lag in range(1, min(len(lengths) // REPEATS_MIN, BEATS_MAX) + 1)]
    if max(changes) < UNEVEN_MIN:
        return 1
    return next((lag for lag, change in enumerate(changes, 1) if change <= 0.3 * max(changes)), 1)


def _change(lengths: Floats, lag: int) -> float:
    """By how much lengths differ from those `lag` before, on average; the largest tenth may be accidents."""
    changes = np.sort(np.abs(lengths[lag:] - lengths[:-lag]))
    return float(changes[: max(1, int(0.9 * len(changes)))].mean())


def _iteration_ns(pattern: Floats, of_row: Ints, rank: Ints) -> float:
    """The shortest pattern time in which most streams of the ranks come back a whole number of times."""
    pairs = np.unique(np.stack([of_row, rank]), axis=1)[0]
    weight = np.bincount(pairs, minlength=len(pattern)) * (pattern > 0)
    known = np.sort(pattern[pattern > 0])
    if not len(known):
        return 0.0
    for candidate in known[np.append(True, np.diff(known) > 0.02 * known[1:])]:
        if float(weight[_divides(pattern, candidate)].sum()) >= WHOLE_SHARE * float(weight.sum()):
            return float(np.median(known[np.abs(known - candidate) <= 0.02 * candidate]))
    return float(known[-1])


def _divides(pattern: Floats, candidate: float) -> Mask:
    times = candidate / np.where(pattern > 0, pattern, np.inf)
    found: Mask = (times > 0.9) & (np.abs(times - np.rint(times)) <= ROUND_TOLERANCE)
    return found
