"""What a rank usually does next, read off its own ring buffer: training repeats itself.

A rank that left out an op, or entered two in another order than ever before, breaks its own habit; those that wait for it
do not. That tells who deviates where the graph of waits shows only a circle, or two sides without a majority. Nothing is
said of a rank whose buffer holds too little.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rca.flight_recorder.recording import Entries, Recording

REPEATS_MIN: Final = 3


def overdue_by(recording: Recording, rank: int, group: str) -> int:
    """By how many ops more than ever before `rank` has gone on since its last collective of `group`; 0: none, or unknown."""
    rows = _collectives(recording, rank)
    mine = np.flatnonzero(rows["group"] == _number(recording, group))
    if len(mine) <= REPEATS_MIN:
        return 0
    usual = int(np.diff(mine).max()) - 1
    return max(len(rows) - 1 - int(mine[-1]) - usual, 0)


def is_unusual(recording: Recording, row: int) -> bool:
    """Whether this op has never before followed the one that its rank had entered before it in the same group."""
    entry = recording.entries[row]
    rows = _collectives(recording, int(entry["rank"]))
    rows = rows[rows["group"] == entry["group"]]
    names = rows["name"][rows["seq"] <= entry["seq"]]
    if len(names) <= REPEATS_MIN + 1:
        return False
    before = names[:-2] == names[-2]
    return not bool((before & (names[1:-1] == names[-1])).any())


def _collectives(recording: Recording, rank: int) -> Entries:
    rows = recording.entries
    mine: Entries = rows[(rows["rank"] == rank) & ~rows["is_p2p"]]
    return mine


def _number(recording: Recording, group: str) -> int:
    return next((number for number, one in enumerate(recording.groups) if one.name == group), -1)
