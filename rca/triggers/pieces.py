"""Whether what was taken for a job's iterations were pieces of them: what its first looks see may repeat faster than it does.

    known       | | ·      | | ·             two bursts of ops in each step
    seen now    |——————————|——————————|      the step itself, which nobody can tell before it has come back

A loop is known by four rounds (slow/streams.py), so lengths learned in less time than four of those seen now cannot have
been rounds of it, if several of them lie close together in one. One that is far longer than the others, with a checkpoint in it,
is no round. Nor can the rounds of a job that has come back from a pause be told before there are four of them again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from rca.slow.streams import REPEATS_MIN

CLOSE_MAX: Final = 0.75
"""Of a round: what is counted at another rank begins at other times, yet no closer together than rounds are."""
LONG_MIN: Final = 2.0
"""Times the middle round."""


def were_pieces(known: Sequence[int], seen_ns: int, rounds: Sequence[tuple[int, int]]) -> bool:
    """known: when what was counted so far began, up to seen_ns. rounds: (began_ns, length_ns) as counted now. Oldest first."""
    if not known or not rounds:
        return False
    longest = LONG_MIN * median(length for _, length in rounds)
    return any(
        length <= longest and seen_ns - known[0] < REPEATS_MIN * length and _is_divided(known, began, length)
        for began, length in rounds
    )


def may_be_pieces(usual: Sequence[int], rounds: Sequence[tuple[int, int]]) -> bool:
    """Whether what is counted now in a job whose rounds are known may be pieces of these: shorter, and all of it within less
    than four of them, as after a pause so long that nothing before it is in the window. rounds: as above."""
    if not usual or not rounds:
        return False
    round_ns, (last, length) = median(usual), rounds[-1]
    is_short = last + length - rounds[0][0] < REPEATS_MIN * round_ns
    return is_short and median(length for _, length in rounds) <= CLOSE_MAX * round_ns


def _is_divided(known: Sequence[int], began: int, length: int) -> bool:
    inside = known[bisect_right(known, began) : bisect_left(known, began + length)]
    return any(later - one <= CLOSE_MAX * length for one, later in pairwise(inside))
