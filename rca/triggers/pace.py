"""How fast a job goes: the length of its iterations, and when that stops being normal (Mycroft Algorithm 1, second half).

The paper compares throughput and op interval with what they were; a training loop does the same ops in every iteration, so
both are told by how long iterations take, without the gaps inside one confusing them. Four things count: a pace that has
halved; a small change that stays, told by medians or, where it is not much more than jitter, by blocks (blocks.py), and
the sooner the clearer it is; a loss that comes and goes; and a normal that has crept away from that of the job's first
steady part, each step too small to be seen. One long iteration, an evaluation or a checkpoint, is none of them.
The normal is learned only while nothing is wrong, and kept with the job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from rca.settings import SECOND_NS, Settings
from rca.triggers.blocks import BLOCKS_MIN, lasting_shift, n_compared, n_judged
from rca.triggers.pieces import may_be_pieces, were_pieces

USUAL_KEPT = 256
KEPT_MAX = 1024  # of iterations so short that more are needed: a slowdown and what is usual take seconds to be known
CLEAR_OF_USUAL = 0.99  # of the iterations before were shorter, of CLEAR_KNOWN times `small_iterations` at least
CLEAR_KNOWN = 5
CLEAR_ITERATIONS = 2  # times `small_iterations`
CLEAR_DEVIATIONS = 2.0  # times `small_deviations`
CLEAR_PART = 0.4  # of `small_ns`: of ports read once a second three readings tell traffic of others from a slow NIC
LARGE_OF_USUAL = 0.95  # of the iterations before were shorter than of a large slowdown that lasts `small_ns`
OFTEN_DEVIATIONS = 3.0  # of a number that comes by chance
WINDOW_ITERATIONS = 8  # usual ones, so that four of twice the length would still show that they repeat
SEEN_ITERATIONS = (
    8  # usual ones that are read again where a longer history goes on: the rhythm that they have tells what follows
)


@dataclass(frozen=True, slots=True)
class Pace:
    """seen_ns: when the newest iteration known of began. warm_up: those left out because they came first. usual_ns:
    lengths of normal iterations, newest last. recent: (began_ns, length_ns) of those of the last minute, and of as many as
    blocks need, newest last; those that began up to counted_ns are in usual_ns already, or were slow. tried_ns: up to where a
    longer history was last read.
    anchor_ns: length of a normal iteration of the job's first steady part, the first USUAL_KEPT that were usual.
    """

    seen_ns: int = 0
    warm_up: int = 0
    usual_ns: tuple[int, ...] = ()
    recent: tuple[tuple[int, int], ...] = ()
    counted_ns: int = 0
    tried_ns: int = 0
    anchor_ns: int = 0


@dataclass(frozen=True, slots=True)
class Slowing:
    """since_ns: when the first slow iteration began, of 'crept' the first of `recent`, as it began unseen. kind: 'halved',
    'slower', 'recurring' or 'crept'. usual_ns of 'crept' is the job's first normal. Lengths in ns."""

    kind: str
    since_ns: int
    usual_ns: int
    now_ns: int
    n_iterations: int


def history_ns(pace: Pace, end_ns: int, settings: Settings, window_ns: int = 0) -> int:
    """How far back ops should be read, when a look's own window is too short for this job's iterations; 0: no need.

    window_ns: how long that window is. Where it holds enough iterations, also of twice the length, and reaches back to the
    newest that is known, as looks do that are taken less often, it tells all.
    """
    known = pace.usual_ns or tuple(length for _, length in pace.recent)
    usual = int(median(known)) if known else 0
    behind_ns = end_ns - pace.seen_ns
    if usual:
        is_told = WINDOW_ITERATIONS * usual <= window_ns and behind_ns <= window_ns - usual
        is_followed = is_told or behind_ns < 3 * usual + SECOND_NS
    else:  # the warm-up has no lengths yet
        is_followed = behind_ns < max(window_ns, settings.history_pause_ns)
    if is_followed or end_ns - pace.tried_ns < max(settings.history_pause_ns, 2 * usual):
        return 0
    is_known = len(pace.usual_ns) >= settings.usual_iterations_min
    back_ns = behind_ns + SEEN_ITERATIONS * usual if is_known else max(settings.pace_ns, SEEN_ITERATIONS * usual)
    return int(min(back_ns, settings.history_max_ns))


def stretch(pace: Pace, since_ns: int, settings: Settings) -> float | None:
    """How many times as long as usual the iterations since then are on average; None where they are not followed."""
    lengths = [length for began, length in pace.recent if began >= since_ns]
    if len(pace.usual_ns) < settings.usual_iterations_min or not lengths:
        return None
    return mean(lengths) / mean(pace.usual_ns)


def learn(pace: Pace, began: Sequence[tuple[int, int]], settings: Settings) -> Pace:
    """`pace` with the iterations (began_ns, length_ns), oldest first, that are newer than it knows.

    They become usual when they are old enough to have been judged, unless the job is slow by then. What a young job's first
    looks took for iterations is forgotten once it is seen that they were pieces; what may be pieces is not taken in once the
    usual is known.
    """
    if len(pace.usual_ns) < USUAL_KEPT and were_pieces([one for one, _ in pace.recent], pace.seen_ns, began):
        pace = Pace(tried_ns=pace.tried_ns)
    if len(pace.usual_ns) >= settings.usual_iterations_min and may_be_pieces(pace.usual_ns, began):
        return pace
    fresh = [one for one in began if one[0] > pace.seen_ns]
    newest = fresh[-1][0] if fresh else pace.seen_ns
    skipped = min(max(settings.warm_up_iterations - pace.warm_up, 0), len(fresh))
    recent = [*pace.recent, *fresh[skipped:]][-KEPT_MAX:]
    kept = max(len(_lately(recent, newest, settings)), _n_judged(pace, settings))
    learned = replace(pace, seen_ns=newest, warm_up=pace.warm_up + skipped, recent=tuple(recent[-kept:]))
    slow = _changed(learned, settings)
    if slow is None:
        return _with_usual(learned, newest, settings)
    known = _taken_in(learned, [one for one in _unjudged(learned) if sum(one) <= slow.since_ns], settings)
    return replace(known, counted_ns=max(pace.counted_ns, newest))  # nor do they become usual once it has recovered


def unjudged(pace: Pace, settings: Settings) -> str:
    """That it cannot be told yet whether the job is slow, and how many of the iterations it takes are known; '' once it can."""
    if len(pace.usual_ns) >= settings.usual_iterations_min:
        return ""
    needed = settings.warm_up_iterations + settings.usual_iterations_min
    known = min(pace.warm_up, settings.warm_up_iterations) + len(pace.usual_ns)
    return f"Whether it is slow cannot be told yet: {known} of {needed} iterations are known."


def _lately(recent: Sequence[tuple[int, int]], newest: int, settings: Settings) -> tuple[tuple[int, int], ...]:
    """Those of the last minute."""
    return tuple(one for one in recent if one[0] >= newest - settings.pace_ns)


def _n_judged(pace: Pace, settings: Settings) -> int:
    """How many of the newest iterations blocks are made of."""
    return min(n_judged(median(pace.usual_ns), settings), KEPT_MAX) if pace.usual_ns else 1


def _with_usual(pace: Pace, newest: int, settings: Settings) -> Pace:
    judged_ns, n = newest - settings.judged_ns, _n_judged(pace, settings)
    if len(pace.usual_ns) >= BLOCKS_MIN * settings.small_iterations:  # slow ones must not be usual before they are seen
        judged_ns = min(judged_ns, pace.recent[-n][0]) if len(pace.recent) >= n else 0
    if len(pace.usual_ns) < settings.usual_iterations_min and len(pace.recent) > settings.small_iterations:
        judged_ns = max(
            judged_ns, pace.recent[-settings.small_iterations - 1][0]
        )  # there is nothing to judge them by yet
    return _taken_in(pace, [one for one in _unjudged(pace) if one[0] <= judged_ns], settings)


def _unjudged(pace: Pace) -> list[tuple[int, int]]:
    """Those of which it is not known yet whether they are usual."""
    return [one for one in pace.recent if one[0] > pace.counted_ns]


def _taken_in(pace: Pace, old: Sequence[tuple[int, int]], settings: Settings) -> Pace:
    """`pace` with these among what is usual."""
    if not old:
        return pace
    usual = (*pace.usual_ns, *(length for _, length in old))
    usual = usual[-min(max(USUAL_KEPT, n_compared(median(usual), settings)), KEPT_MAX) :]
    is_anchored = pace.anchor_ns and len(pace.usual_ns) >= USUAL_KEPT
    anchor = pace.anchor_ns if is_anchored else int(median(usual))
    return replace(pace, usual_ns=usual, counted_ns=old[-1][0], anchor_ns=anchor)


def slowing(pace: Pace, settings: Settings) -> Slowing | None:
    """What has become slower, the surest first; None while the pace is normal or no normal is known."""
    return _changed(pace, settings) or _crept(pace, settings)


def _changed(pace: Pace, settings: Settings) -> Slowing | None:
    """What has become slower than the normal."""
    if len(pace.usual_ns) < settings.usual_iterations_min or not pace.recent:
        return None
    usual = int(median(pace.usual_ns))
    small = _small(pace, usual, settings)
    return (
        _lasting(pace, usual, settings.slow_factor * usual, settings.halved_iterations, settings.delta_min_ns, "halved")
        or _lasting(pace, usual, small, settings.small_iterations, settings.small_ns, "slower")
        or _clear(pace, usual, settings)
        or _large(pace, usual, settings)
        or _shifted(pace, settings)
        or _recurring(pace, usual, max(1.5 * usual, small), settings)
    )


def _clear(pace: Pace, usual: int, settings: Settings) -> Slowing | None:
    """A small slowdown that iterations before it never show, as far as enough of them are known, is told sooner."""
    span_ns, n = int(CLEAR_PART * settings.small_ns), CLEAR_ITERATIONS * settings.small_iterations
    slower = (1 + settings.small_share) * usual
    if median(length for _, length in pace.recent[-n:]) < slower:
        return None
    before = _before(pace, usual, n, span_ns, settings)
    if not before:
        return None
    longest = _quantile(before, CLEAR_OF_USUAL)
    far = CLEAR_DEVIATIONS * settings.small_deviations * _deviation(before)
    limit = max(slower, usual + far, longest)
    return _lasting(pace, usual, limit, n, span_ns, "slower")


def _large(pace: Pace, usual: int, settings: Settings) -> Slowing | None:
    """A large slowdown that few of the iterations before it show. Of a job that went at two paces lately nothing is far."""
    n = CLEAR_ITERATIONS * settings.small_iterations
    before = _before(pace, usual, n, settings.small_ns, settings)
    if not before:
        return None
    limit = max(settings.large_factor * usual, _quantile(before, LARGE_OF_USUAL))
    return _lasting(pace, usual, limit, n, settings.small_ns, "slower")


def _quantile(lengths: Sequence[int], share: float) -> int:
    """The length that this share of them does not exceed."""
    return sorted(lengths)[math.ceil(share * len(lengths)) - 1]


def _before(pace: Pace, usual: int, n: int, span_ns: int, settings: Settings) -> list[int]:
    """Lengths of what was before the newest n, or span_ns, and those before that are as long: the usual and the unjudged ones.
    Empty while too few are known to say what they never show.

    A job that is young, or was looked at lately, has most of what tells its usual in the latter.
    """
    lengths = [length for _, length in pace.recent]
    at = max(len(lengths) - n, 0)
    taken = sum(lengths[at:])
    while at > 0 and taken < span_ns:
        at -= 1
        taken += lengths[at]
    halfway = (usual + median(lengths[at:])) / 2
    while at > 0 and lengths[at - 1] >= halfway:
        at -= 1
    first = max(at - 1, 0)  # one straddles the onset
    found = [*pace.usual_ns, *(length for began, length in pace.recent[:first] if began > pace.counted_ns)]
    return found if len(found) >= CLEAR_KNOWN * settings.small_iterations else []


def _shifted(pace: Pace, settings: Settings) -> Slowing | None:
    """A small slowdown that lasts, by blocks of iterations."""
    shift = lasting_shift([length for _, length in pace.recent], pace.usual_ns, settings)
    if shift is None:
        return None
    n = len(pace.recent) - shift.first
    return Slowing("slower", pace.recent[shift.first][0], shift.usual_ns, shift.now_ns, n)


def _small(pace: Pace, usual: int, settings: Settings) -> float:
    """The length from which an iteration is slower than `usual`, by what normal ones vary."""
    return usual + max(settings.small_share * usual, settings.small_deviations * _deviation(pace.usual_ns))


def _deviation(lengths: Sequence[int]) -> float:
    middle = median(lengths)
    return 1.4826 * median(abs(length - middle) for length in lengths)


def _crept(pace: Pace, settings: Settings) -> Slowing | None:
    """A normal that has moved away from the job's first one; the newest iterations must be as slow, not only those kept."""
    if not pace.anchor_ns or len(pace.usual_ns) < USUAL_KEPT or len(pace.recent) < settings.small_iterations:
        return None
    newest = pace.recent[-settings.small_iterations :]
    now = min(median(pace.usual_ns), median(length for _, length in newest))
    if now < _small(pace, pace.anchor_ns, settings):
        return None
    lately = _lately(pace.recent, pace.seen_ns, settings)
    return Slowing("crept", lately[0][0], pace.anchor_ns, int(now), len(lately))


def _lasting(pace: Pace, usual: int, limit: float, n: int, span_ns: int, kind: str) -> Slowing | None:
    """The newest iterations, at least n and together at least span_ns long, reach the limit, and nearly all go that way."""
    newest = pace.recent[-n:]
    taken = sum(length for _, length in newest)
    at = len(pace.recent) - len(newest)
    while taken < span_ns and at > 0:
        at -= 1
        taken += pace.recent[at][1]
    lengths = [length for _, length in pace.recent[at:]]
    halfway = (usual + limit) / 2
    if len(lengths) < n or taken < span_ns or median(lengths) < limit:
        return None
    if sum(length >= halfway for length in lengths) < 0.8 * len(lengths):
        return None
    while at > 0 and pace.recent[at - 1][1] >= halfway:
        at -= 1
    slow = [one for one in pace.recent[at:] if one[1] >= halfway]
    return Slowing(kind, slow[0][0], usual, int(median(length for _, length in slow)), len(slow))


def _recurring(pace: Pace, usual: int, limit: float, settings: Settings) -> Slowing | None:
    """Long iterations that come back: several, apart from each other, that cost a good part of the time."""
    recent = _lately(pace.recent, pace.seen_ns, settings)
    long = [(at, one) for at, one in enumerate(recent) if one[1] >= limit]
    spells = [one for i, (at, one) in enumerate(long) if i == 0 or at > long[i - 1][0] + 1]
    lost = sum(one[1] - usual for _, one in long)
    span = recent[-1][0] + recent[-1][1] - recent[0][0]
    if len(spells) < _more_often(pace, limit, span, settings) or lost < settings.recurring_share * span:
        return None
    mean = sum(length for _, length in recent) // len(recent)
    return Slowing("recurring", spells[0][0], usual, mean, len(long))


def _more_often(pace: Pace, limit: float, span: int, settings: Settings) -> float:
    """How many long iterations within `span` are more than chance makes of the usual ones: jobs hiccup at rates of their own.

    Of a job that has had none, so many that as many would have been seen in the time that is known as usual.
    """
    known_ns = sum(pace.usual_ns)
    expected = float(sum(one >= limit for one in pace.usual_ns)) * span / known_ns
    unseen = settings.recurring_min * span / known_ns if not expected else 0.0
    return max(float(settings.recurring_min), expected + OFTEN_DEVIATIONS * math.sqrt(expected), unseen)


def pace_to_json(pace: Pace) -> dict[str, Any]:
    """Plain JSON of `pace`, lengths in microseconds."""
    usual = [length // 1000 for length in pace.usual_ns]
    numbers = {name: getattr(pace, name) for name in ("seen_ns", "warm_up", "counted_ns", "tried_ns", "anchor_ns")}
    return {**numbers, "usual_us": usual, "recent": [list(one) for one in pace.recent]}


def pace_from_json(raw: Mapping[str, Any]) -> Pace:
    """What `pace_to_json` wrote; an empty mapping is a job whose pace is not known. ValueError on anything else."""
    try:
        return Pace(
            seen_ns=int(raw.get("seen_ns", 0)),
            warm_up=int(raw.get("warm_up", 0)),
            usual_ns=tuple(int(us) * 1000 for us in raw.get("usual_us", ())),
            recent=tuple((int(began), int(length)) for began, length in raw.get("recent", ())),
            counted_ns=int(raw.get("counted_ns", 0)),
            tried_ns=int(raw.get("tried_ns", 0)),
            anchor_ns=int(raw.get("anchor_ns", 0)),
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not a pace: {error}") from error


def seconds(ns: float) -> str:
    """'178 ms' or '3.2 s'."""
    return f"{ns / 1e6:.0f} ms" if ns < SECOND_NS else f"{ns / SECOND_NS:.1f} s"
