"""What a rank usually does next, read off its own ring buffer: training repeats itself.

    before   … a b b c d   a b b c d   a b b c d
    now      … a b b c d   a b c d              after `a b`, every time before came `b`: it left one out

What came after the three longest stretches that end like the present one is what was due. A rank that entered something
else breaks its own habit; those that wait for it do not. That tells who deviates where the graph of waits shows only a
circle, or two sides without a majority. Nothing is said of a rank whose buffer holds too little.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from rca.flight_recorder.recording import Entries, Recording
from rca.keys import Ints

REPEATS_MIN: Final = 3
LOOKED_BACK: Final = 64
"""How many of a rank's newest ops may be the one at which it left its habit."""
REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True)
class Deviation:
    """The first op by which a rank left its habit. row: position of its entry; due: of an op that was due instead, as it was
    entered at another time; since: collectives it has entered after it, 0 also when the next was the one that was due."""

    rank: int
    row: int
    due: int
    since: int


def deviations(recording: Recording, ranks: tuple[int, ...]) -> list[Deviation]:
    """Of each of these ranks that has left its habit, and not together with most others that entered the same op."""
    rows = recording.entries
    unusual = {rank: _unusual(recording, rank) for rank in ranks}
    deviated = Counter(_op(rows[one.row]) for found in unusual.values() for one in found)
    mine = rows[np.isin(rows["rank"], ranks) & ~rows["is_p2p"]]
    entered = Counter(op for op in map(_op, mine) if op in deviated) if deviated else Counter()
    first = []
    for found in unusual.values():
        alone = [one for one in found if entered[op := _op(rows[one.row])] == 1 or 2 * deviated[op] <= entered[op]]
        first += alone[:1]
    return first


def is_unusual(recording: Recording, row: int) -> bool:
    """Whether another op was due when its rank entered this one."""
    return any(one.row == row for one in _unusual(recording, int(recording.entries["rank"][row])))


def _op(entry: np.void) -> tuple[int, int]:
    return int(entry["group"]), int(entry["seq"])


def _unusual(recording: Recording, rank: int) -> list[Deviation]:
    """Every op among its newest that was not due, oldest first."""
    at = np.flatnonzero((recording.entries["rank"] == rank) & ~recording.entries["is_p2p"])[-REMEMBERED:]
    mine = recording.entries[at]
    found: dict[int, Deviation] = {}
    for words in (_words(mine, ("group", "name")), _words(mine, ("group", "name", "shape", "place"))):
        known = np.flatnonzero(words >= 0)
        for position, due in _surprises(words[known]):
            here = int(known[position])
            is_exchange = position + 1 < len(known) and words[known[position + 1]] == words[known[due]]
            since = 0 if is_exchange else len(at) - 1 - here
            found.setdefault(here, Deviation(rank, int(at[here]), int(at[known[due]]), since))
    return [found[here] for here in sorted(found)]


def _words(mine: Entries, columns: tuple[str, ...]) -> Ints:
    """(n,) a number per kind of op; -1 where one of the columns is not known."""
    table = np.stack([mine[column].astype(np.int64) for column in columns], axis=1)
    numbers: Ints = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return np.where((table >= 0).all(axis=1), numbers, -1)


def _surprises(words: Ints) -> list[tuple[int, int]]:
    """Of (n,) words, every position among the newest at which something else was due, and where that last came."""
    n = len(words)
    found = []
    alike = np.zeros(n, np.int64)  # how long a stretch before i equals the one before j
    for i in range(1, n):
        alike[1:i] = np.where(words[: i - 1] == words[i - 1], alike[: i - 1] + 1, 0)
        if n - i > LOOKED_BACK:
            continue
        best = np.argsort(-alike[:i], kind="stable")[:REPEATS_MIN]
        if len(best) == REPEATS_MIN and alike[best[-1]] >= 1 and not (words[best] == words[i]).any():
            followers = words[best]
            if (followers == followers[0]).all():
                found.append((i, int(best.max())))
    return found
