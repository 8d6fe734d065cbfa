"""Long iterations that come and go in a job known too briefly to say that it has more of them than usual.

A job hiccups at a rate of its own. Who has seen half a minute without a long iteration, and then six in a minute, cannot
tell by counting that this is new (pace.py asks for more), and in the end takes them for the job's habit. Mycroft (§4.2)
looks for a cause at every doubled op interval; so do we, and as counting proves nothing the symptom stands only where
somebody is caught in the act: for that two spells are enough, of a job known for long too, where counting waits for more.
It ends by itself: what is usual learns the long iterations, and then they are the habit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from rca.settings import Settings
from rca.triggers.pace import Pace, Slowing

LONG: Final = 1.5  # times as long as usual
SPELLS_MIN: Final = 2  # one is a pause
LEAST_PART: Final = 0.5  # of `pace_ns`: of two spells in a row the time between is short, and what they cost is little


def may_recur(pace: Pace, settings: Settings) -> Slowing | None:
    """Long iterations apart from each other that cost a part of the time since the first, of a job whose usual holds fewer such
    spells than make a symptom; asked where `pace.slowing` says nothing."""
    if len(pace.usual_ns) < settings.usual_iterations_min:
        return None
    usual = int(median(pace.usual_ns))
    recent = [one for one in pace.recent if one[0] >= pace.seen_ns - settings.pace_ns]
    lengths = [length for _, length in recent]
    spells = _spells(lengths, LONG * usual)
    if len(spells) < SPELLS_MIN or len(_spells(pace.usual_ns, LONG * usual)) >= settings.recurring_min:
        return None
    long = [length for length in lengths if length >= LONG * usual]
    span_ns = max(sum(recent[-1]) - recent[spells[0]][0], LEAST_PART * settings.pace_ns)
    if sum(long) - usual * len(long) < settings.recurring_share * span_ns:
        return None
    return Slowing("recurring", recent[spells[0]][0], usual, sum(lengths) // len(lengths), len(long))


def _spells(lengths: Sequence[int], limit: float) -> list[int]:
    """Where long ones begin, each after one that is not."""
    long = [False, *(length >= limit for length in lengths)]
    return [at for at, (before, one) in enumerate(pairwise(long)) if one and not before]
