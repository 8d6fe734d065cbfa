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

from ingest.columns import taken
from rca.keys import Ints, Keys, Mask, Told, firsts, grouped, mix, stream_keys

PATTERN_MAX = 512
REPEATS_MIN = 4
BEATS_MAX = 256
RESTS_MAX = 2  # of a loop that repeats four times more would be its own
REST_MIN = 3.0  # times the longest time in which it begins nothing by itself
RANKS_ASKED = 128
UNEVEN_MIN = 0.1
ALIKE_MAX = 0.3  # of by how much steps differ at most
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


def known_streams(rows: Told) -> Streams:
    """The streams of `rows` of an `op` table, in any order."""
    key, _, of_row = grouped(stream_keys(rows))
    seen = _one_of_each(of_row, rows["op"], len(key))
    bounds = np.searchsorted(of_row[seen], np.arange(len(key) + 1))
    kind = mix(*(taken(rows, name, seen) for name in ("func", "count", "dtype")))
    at = taken(rows, "first_ready_ns", seen).astype(np.float64)
    pattern = np.zeros(len(key))
    told = _of_some(rows["rank"])
    asked = np.zeros(len(key), bool)
    asked[of_row[told]] = True
    at = _without_rests(at, asked[of_row[seen]])
    for one in np.flatnonzero(asked):
        first, last = bounds[one], bounds[one + 1]
        pattern[one] = _pattern_ns(kind[first:last], at[first:last])
    iteration = _iteration_ns(pattern, of_row[told], rows["rank"][told])
    interval = _intervals(at, bounds)
    whole = iteration / np.where(interval > 0, interval, np.inf)
    return Streams(key, interval, np.rint(whole).astype(np.int64), iteration, of_row)


def _one_of_each(stream: Ints, op: npt.NDArray[np.uint64], n_streams: int) -> Ints:
    """Positions of one row of every op, whoever told of it; by stream and number."""
    if not len(op):
        return np.zeros(0, np.int64)
    span = int(op.max()) - int(op.min()) + 1
    if n_streams * span < 2**62:
        return firsts(stream * span + (op - op.min()).astype(np.int64))
    order = np.lexsort((op, stream))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (stream[order][1:] != stream[order][:-1]) | (op[order][1:] != op[order][:-1])
    found: Ints = order[is_first]
    return found


def _of_some(rank: npt.NDArray[np.int32]) -> Mask:
    """(n,) the rows of RANKS_ASKED ranks, of all where there are no more: the loop is the same everywhere."""
    ranks = np.flatnonzero(np.bincount(rank)) if len(rank) else np.zeros(0, np.int64)
    chosen = ranks[np.argsort(mix(ranks), kind="stable")][:RANKS_ASKED]  # mixed: a stride would meet one stage alone
    found: Mask = np.isin(rank, chosen)
    return found


def _without_rests(at: Floats, told: Mask) -> Floats:
    """(n,) the times without what is a pause of the whole job, a checkpoint say: of streams whose first op lies before it and of
    those that begin after it the ops would seem to come at different rates. told: (n,) whose times tell it."""
    begins = np.sort(at[told])
    if len(begins) < REPEATS_MIN:
        return at
    gaps = np.diff(begins)
    longest = np.argsort(gaps)[::-1][: RESTS_MAX + 1]
    usual = gaps[longest[-1]]
    excess = sorted(
        ((begins[one], gaps[one] - usual) for one in longest[:-1] if gaps[one] > REST_MIN * usual), reverse=True
    )
    for since, rest in excess:
        at = at - np.where(at > since, rest, 0.0)
    return at


def _intervals(at: Floats, bounds: Ints) -> Floats:
    """(S,) mean time between the ops of each stream; 0 for streams of too few."""
    n, found = np.diff(bounds), np.zeros(len(bounds) - 1)
    known = np.flatnonzero(n >= REPEATS_MIN)
    found[known] = (at[bounds[known + 1] - 1] - at[bounds[known]]) / (n[known] - 1)
    return found


def _pattern_ns(kind: Keys, at: Floats) -> float:
    """Time of the shortest pattern that repeats; 0 when none repeats often enough."""
    if len(kind) < REPEATS_MIN:
        return 0.0
    interval = float(at[-1] - at[0]) / (len(at) - 1)
    for period in range(1, min(len(kind) // REPEATS_MIN, PATTERN_MAX) + 1):
        if (kind[period:] == kind[:-period]).mean() > 0.98:
            return interval * period * _beats(np.diff(at[::period]))
    return 0.0


def _beats(steps: Floats) -> int:
    """After how many of these steps their lengths repeat: calls of one size may still come in bursts. 1: at once."""
    if len(steps) < 2 * REPEATS_MIN:
        return 1
    lengths = steps / max(float(steps.mean()), 1.0)
    changes = _changes(lengths)
    repeats = changes <= ALIKE_MAX * changes.max()
    if changes.max() < UNEVEN_MIN or not repeats.any():
        return 1
    beats = int(np.argmax(repeats)) + 1
    first = _changes(lengths[: max(2 * beats, 2 * REPEATS_MIN)])
    return 1 if first.max() <= ALIKE_MAX * changes.max() else beats  # what began later is trouble that comes and goes


def _changes(lengths: Floats) -> Floats:
    """(L,) by how much lengths differ from those 1, 2, … L before, on average; the largest tenth may be accidents."""
    n = len(lengths)
    lags = np.arange(1, min(n // REPEATS_MIN, BEATS_MAX) + 1)
    later = lags[:, None] + np.arange(n)
    steps = np.where(later < n, np.abs(lengths[np.minimum(later, n - 1)] - lengths), np.inf)
    counted = np.maximum(1, (0.9 * (n - lags)).astype(np.int64))
    summed = np.cumsum(np.sort(steps, axis=1), axis=1)
    found: Floats = np.take_along_axis(summed, counted[:, None] - 1, axis=1)[:, 0] / counted
    return found


def _iteration_ns(pattern: Floats, of_row: Ints, rank: Ints) -> float:
    """The shortest pattern time in which most streams of the ranks come back a whole number of times."""
    pairs = np.unique(of_row << 32 | rank) >> 32
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
