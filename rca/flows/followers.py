"""Connections that are long only because another one is: where epochs hide pauses (Pulse §6.1), those of a whole ring are.

    1 ══▶ 2 ══▶ 3 ══▶ 4 ══▶ 1      the ring of one op: all a fifth longer, whichever of them is slow
          ║           │
          5           6            elsewhere only 2 is slower: 2 it is. Without an elsewhere nothing tells

A sender that keeps more of its rate than the law says lets the others' pauses vanish in their epochs (Figure 9): they look as
slow as it is, and the fewest ends that touch all that is slow are anybody. So of ends joined by such connections those are
blamed that are slow towards all they talk to, of whom one is not slow itself; else all of them are tied.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.keys import Mask
from rca.slow.ends import OWN_MIN, Ends

OWN_ALL = 0.9
"""Of an end's own connections, slow: it is so towards everybody."""
AS_MUCH = 1.05
"""Times what the costliest connection of an end costs: who only follows it loses no more."""
ALONE = 2
"""Ends: so many that lose most are blamed, two NICs of one way that others use among them; of more some may follow."""
LIKE_MOST = 0.75
"""Of what the costliest connection costs: about as much."""
BULK = 0.5
"""Of the time that the costliest connection usually takes: as long."""
GROWN_LEAST = 0.1
"""Of its usual time: an end whose ways elsewhere are longer by so much is slow by itself, one by half of it may be."""
LEAST = 0.01
"""Of the longest connection's usual time: what is shorter, a number that all tell each other, varies by chance."""


def hidden_ways(ends: Ends, hidden_above: float) -> Mask:
    """(C,) slow connections that keep so much of their rate that the pauses they cause are not seen."""
    kept: Mask = ends.is_slow & (ends.usual_ns >= hidden_above * ends.now_ns) & (ends.receiver >= 0)
    return kept


def followers(ends: Ends, hidden_above: float, those: tuple[int, ...]) -> Mask:
    """(C,) hidden connections joined to one of these ends by others, which cost no more than its own costliest."""
    hidden, found = hidden_ways(ends, hidden_above), np.zeros(len(ends.sender), bool)
    cost = ends.now_ns - ends.usual_ns
    for group in _joined(ends, hidden):
        mine = [end for end in those if end in group]
        if mine:
            own = np.any([ends.touched(end) for end in mine], axis=0) & ends.is_slow
            inside = hidden & np.isin(ends.sender, list(group))
            found |= inside & (cost <= AS_MUCH * cost[own].max(initial=0.0))
    return found


def without_followers(ends: Ends, hidden_above: float, waits: Ends) -> Ends:
    """`ends` where of several that are chosen some may only follow: those that are slow by themselves, else a tie. waits: the
    same ends by what ops wait for."""
    hidden, found = hidden_ways(ends, hidden_above), ends
    for group in _joined(ends, hidden):
        blamed = tuple(one for one in found.chosen if one in group)
        if len(blamed) > 1:
            told, tied = _told_in(ends, group, waits)
            rest = [(one, of) for one, of in zip(found.chosen, found.rivals, strict=True) if one not in group]
            chosen = [*((one, ()) for one in told), *rest]
            found = replace(
                found, chosen=tuple(one for one, _ in chosen), rivals=tuple(of for _, of in chosen),
                undecided=(*found.undecided, *([tied] if tied else [])),
            )  # fmt: skip
    return found


def _waited_for(waits: Ends, group: tuple[int, ...]) -> tuple[int, ...]:
    """Those of a group whose ways out of it are longer by what ops wait for, if the others' are not.

    What is sent elsewhere is little, and its time on the wire as uncertain as long; how long its chunks were waited for is not.
    """
    grown = {end: _grown_outside(waits, end, group) for end in group}
    told = tuple(end for end in group if grown[end] >= max(GROWN_LEAST, LIKE_MOST * max(grown.values())))
    others = max((grown[end] for end in group if end not in told), default=np.inf)
    return told if others < GROWN_LEAST / 2 else ()


def _grown_outside(waits: Ends, end: int, group: tuple[int, ...]) -> float:
    """By what share of its usual time an end's connections to others than the group are longer."""
    mine = waits.touched(end) & (waits.receiver >= 0)
    mine &= ~(np.isin(waits.sender, group) & np.isin(waits.receiver, group))
    usual = float(waits.usual_ns[mine].sum())
    return float(waits.now_ns[mine].sum()) / usual - 1.0 if usual > 0 else 0.0


def _told_in(ends: Ends, group: set[int], waits: Ends) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ends of a group that are slow by themselves, else those of which nothing tells).

    Who follows loses no more than who is slow, and the less the further away: first those all of whose ways that carry
    as much lose about the most; of a small ring that may be all, and then those of them that are slow elsewhere, too.
    """
    slow = tuple(sorted(end for end in group if _own_share(ends, end) >= OWN_MIN))
    full = tuple(end for end in slow if _loses_most(ends, end))
    if 0 < len(full) <= ALONE:
        return full, ()
    told = _waited_for(waits, full) or tuple(end for end in full if _is_slow_elsewhere(ends, end, full))
    return (told, ()) if told else ((), full or slow)


def _loses_most(ends: Ends, end: int) -> bool:
    """Whether all its connections that carry much lose about as much as the costliest."""
    cost = np.where(ends.is_slow, ends.now_ns - ends.usual_ns, 0.0)
    mine = ends.touched(end) & (ends.receiver >= 0) & (ends.usual_ns >= BULK * ends.usual_ns[cost.argmax()])
    return bool(mine.any()) and bool((cost[mine] >= LIKE_MOST * cost.max()).all())


def _joined(ends: Ends, those: Mask) -> list[set[int]]:
    """Sets of ends that these connections join."""
    groups: list[set[int]] = []
    for one, other in zip(ends.sender[those].tolist(), ends.receiver[those].tolist(), strict=True):
        near = [group for group in groups if one in group or other in group]
        groups = [group for group in groups if group not in near] + [set[int]().union({one, other}, *near)]
    return groups


def _own_share(ends: Ends, end: int) -> float:
    """Share of its own connections that are slow, of those that carry something."""
    mine = ends.touched(end) & (ends.usual_ns >= LEAST * ends.usual_ns.max(initial=0.0))
    return float(ends.is_slow[mine].mean()) if mine.any() else 0.0


def _is_slow_elsewhere(ends: Ends, end: int, full: tuple[int, ...]) -> bool:
    """Whether it is slow towards everybody, of whom one is slow towards few and not one of those in question."""
    mine = ends.touched(end) & ends.is_slow & (ends.receiver >= 0)
    others = {int(one) for one in np.concatenate([ends.sender[mine], ends.receiver[mine]])} - {*full}
    return _own_share(ends, end) >= OWN_ALL and any(_own_share(ends, other) < OWN_MIN for other in others)
