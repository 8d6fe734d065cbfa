"""What is usual, learned anew, because somebody said that the job was changed on purpose.

A batch that was made larger or a longer sequence doubles an iteration and is no fault; by itself the normal would go on
holding it against what was before (a slow pace never becomes usual). What was learned before the change is let go; what has
been seen since becomes the new normal as soon as there is enough of it, without another warm-up.
"""

from __future__ import annotations

from dataclasses import replace

from rca.triggers.kinds import Kind
from rca.triggers.normal import Normal
from rca.triggers.pace import Pace


def anew(normal: Normal, since_ns: int, declaration: int) -> Normal:
    """`normal` without what is older than since_ns, data time, of the change. declaration: its number, so that it counts once."""
    kinds = {key: _kind_anew(kind, since_ns) for key, kind in normal.kinds.items()}
    return replace(normal, intervals={}, pace=_pace_anew(normal.pace, since_ns), kinds=kinds, declaration=declaration)


def _pace_anew(pace: Pace, since_ns: int) -> Pace:
    recent = tuple(one for one in pace.recent if one[0] >= since_ns)
    return replace(pace, usual_ns=(), recent=recent, counted_ns=since_ns - 1, tried_ns=0, anchor_ns=0)


def _kind_anew(kind: Kind, since_ns: int) -> Kind:
    return replace(kind, usual=(), recent=tuple(block for block in kind.recent if block[0] >= since_ns))
