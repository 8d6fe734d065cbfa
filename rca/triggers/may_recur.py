"""Long iterations that come and go in a job known too briefly to say that it has more of them than usual.

A job hiccups at a rate of its own. Who has seen half a minute without a long iteration, and then six in a minute, cannot
tell by counting that this is new (pace.py asks for more), and in the end takes them for the job's habit. Mycroft (§4.2)
looks for a cause at every doubled op interval; so do we, and as counting proves nothing the symptom stands only where
somebody is caught in the act. It ends by itself: what is usual learns the long iterations, and then they are the habit.
"""

from __future__ import annotations

from statistics import median
from typing import Final

from rca.settings import Settings
from rca.triggers.pace import Pace, Slowing

LONG: Final = 1.5  # times as long as usual


def may_recur(pace: Pace, settings: Settings) -> Slowing | None:
    """Long iterations apart from each other that cost a part of the time, of a job whose usual holds fewer than make a symptom;
    asked where `pace.slowing` says nothing."""
    if len(pace.usual_ns) < settings.usual_iterations_min:
        return None
    usual = int(median(pace.usual_ns))
    limit = LONG * usual
    if sum(length >= limit for length in pace.usual_ns) >= settings.recurring_min:
        return None
    recent = [one for one in pace.recent if one[0] >= pace.seen_ns - settings.pace_ns]
    long = [(at, one) for at, one in enumerate(recent) if one[1] >= limit]
    spells = [one for i, (at, one) in enumerate(long) if i == 0 or at > long[i - 1][0] + 1]
    if len(spells) < settings.recurring_min:
        return None
    span = sum(recent[-1]) - recent[0][0]
    if sum(length - usual for _, (_, length) in long) < settings.recurring_share * span:
        return None
    mean = sum(length for _, length in recent) // len(recent)
    return Slowing("recurring", spells[0][0], usual, mean, len(long))
