"""One cut between iterations for all ranks of a node: whatever each counts by, what happens together has one number.

A rank counts iterations by its rarest op, and not all ranks of a node see the same ones, so one rank's fifth iteration
may begin in the middle of its neighbour's fourth. Ranks of one node share a clock: the time in an iteration at which
none of them begins anything for longest is where the iterations of all of them are cut.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.keys import Groups, Ints, Mask
from rca.slow.iterations import Iterations
from rca.slow.streams import Floats

USUAL_MIN = 3


def same_cut(iterations: Iterations, node: Ints, usual: Mask | None = None) -> Iterations:
    """`iterations` with the same cut for all ranks of a node; those of an unknown one stay. node: (R,), -1 unknown.

    usual: (I,) by which the cut is chosen, all unless there are a few. In slow ones the longest rest is where one rank has
    begun an op and waits for another, and a cut there gives their parts of one op to two iterations.
    """
    if not iterations.n or not len(iterations.rank):
        return iterations
    every = np.arange(iterations.n)
    chosen = every if usual is None or usual.sum() < USUAL_MIN else np.flatnonzero(usual)
    node_at = np.repeat(node, np.diff(iterations.first))
    shift, began = np.zeros(len(node_at), np.int64), iterations.began.copy()
    places_of, ranks_of = Groups(node_at), Groups(node)
    for one in np.unique(node[node >= 0]):
        places, mine = (np.sort(those.find(np.array([one]))[1]) for those in (places_of, ranks_of))
        marks = _marks(iterations.began[mine])
        if len(mine) > 1 and len(places) and len(marks[0]):
            phase = _phases(iterations.ready[places][:, chosen], chosen, *marks)
            cut = _widest_gap(phase)
            shift[places] = np.floor(phase - cut)
            began[mine] = np.interp(np.arange(iterations.n) + cut, marks[1], marks[0], left=np.nan, right=np.nan)
    return _moved(replace(iterations, began=began), shift)


def _marks(began: Floats) -> tuple[Floats, Floats]:
    """Times and numbers of iterations, by the rank that knows most of them, one more at each end; () of too few."""
    best = began[int(np.isfinite(began).sum(axis=1).argmax())]
    number = np.flatnonzero(np.isfinite(best)).astype(np.float64)
    if len(number) < 2:
        return np.zeros(0), np.zeros(0)
    at = best[number.astype(np.int64)]
    length = float(np.median(np.diff(at) / np.diff(number)))
    return np.concatenate([[at[0] - length], at, [at[-1] + length]]), np.concatenate(
        [[number[0] - 1], number, [number[-1] + 1]]
    )


def _phases(ready: Floats, of: Ints, at: Floats, number: Floats) -> Floats:
    """(n,) when in its iteration each of the places (n, I) begins, in iterations, as a median: below 0 or above 1 where
    the rank counts differently. of: (I,) numbers of the iterations."""
    where = np.interp(ready, at, number, left=np.nan, right=np.nan) - of
    where[~np.isfinite(where).any(axis=1), 0] = 0.0
    known = np.sort(where, axis=1)  # NaN goes last; np.nanmedian of few columns goes by masked arrays, ten times slower
    n = np.isfinite(known).sum(axis=1)
    middle = np.stack([(n - 1) // 2, n // 2], axis=1)
    found: Floats = np.take_along_axis(known, middle, axis=1).mean(axis=1)
    return found


def _widest_gap(phase: Floats) -> float:
    """The middle of the longest time in which nothing begins, from 0 to 1."""
    turn = np.sort(phase % 1.0)
    gaps = np.diff(np.append(turn, turn[0] + 1.0))
    widest = int(gaps.argmax())
    return float((turn[widest] + gaps[widest] / 2) % 1.0)


def _moved(iterations: Iterations, shift: Ints) -> Iterations:
    """Every place `shift` iterations later, and those that now come first in an iteration in front of the others."""
    if not shift.any():
        return iterations
    rank_at = iterations.rank_at
    order = np.lexsort((np.arange(len(shift)), -shift, rank_at))
    from_ = np.arange(iterations.n)[None, :] - shift[order][:, None]
    is_there = (from_ >= 0) & (from_ < iterations.n)
    at = np.clip(from_, 0, iterations.n - 1)

    def moved(values: Floats) -> Floats:
        return np.where(is_there, np.take_along_axis(values[order], at, axis=1), np.nan)

    return replace(
        iterations,
        func=iterations.func[order], comm_id=iterations.comm_id[order],
        peer=iterations.peer[order], kind=iterations.kind[order],
        row=np.where(is_there, np.take_along_axis(iterations.row[order], at, axis=1), -1),
        ready=moved(iterations.ready), end=moved(iterations.end), arrived=moved(iterations.arrived),
    )  # fmt: skip
