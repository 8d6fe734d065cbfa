"""Ranks of one node that are late together: whether one of them leads, or all of them are slow, or nobody can tell.

Inside the node they keep each other late where the network sees nothing, so most of a delay is the same for all. Before an
op that follows the last of those meetings the slow one stands out from the others. What is inherited is inherited alike,
while work that takes longer also varies by more: when mates who are all late begin their ops less evenly than they
used to, each of them works more slowly, as when something else computes on their node.
"""

from __future__ import annotations

import math

import numpy as np

from rca.keys import Ints, Mask
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats

Op = tuple[int, int]
"""A call, and how often it came before in the iteration."""

LEAD_MIN = 0.2  # of the delay before an op
LEAD_SPREAD = 3.0  # times as much as the others differ among themselves
SPREAD_OF = 3
LEAD_MIN_NS = 300_000.0
LEAD_OFTEN = 0.5  # of a lead, in the median iteration: what happens now and then, the mean shows too
LEAD_NOISE = 4.0  # deviations of a mean over the slow iterations
LEADS_MIN = 0.75  # of all leads: what else they share, the NIC say, may put another one last once
AS_OFTEN = 0.9  # of the leads of the one that leads most: who leads less often was kept late by it
MANY = 4
UNEVEN_MIN = 0.2  # of their ops
UNEVEN_OF_FEW_MIN = 0.4  # where they are known for a few iterations: one op or two may be uneven by chance
EVEN_NOISE = 4.0  # deviations of a median deviation, or of a mean
UNEVEN_MIN_NS = 5_000.0  # what telling the time takes
ALONE_MIN = 4.0  # times as uneven as they begin after a meeting
ALONE_MIN_NS = 20_000.0
ALIKE_SHARE = 0.05  # of the delay before an op: two are not slow by exactly the same; one alone leads by most of it
FEW = 10  # iterations
DEVIATION = 1.4826  # times a median deviation
MAD_NOISE = 1.17  # of a median deviation of n values, times the root of n


def leaders(slowdown: Slowdown, at: Ints) -> Ints:
    """Those of these ranks (positions) that begin clearly later than all others whenever some do; () where none does."""
    if len(at) == 1:
        return at
    by_op = [_by_op(slowdown, int(one)) for one in at]
    lead_ns = np.zeros(len(at))
    total_ns = 0.0
    for op in {op for mine in by_op for op in mine}:
        there = np.array([op in mine for mine in by_op])
        places = [mine[op] for mine in by_op if op in mine]
        if 2 * len(places) < len(at) or (slowdown.delays.launches.is_tree[places].any() and not there.all()):
            continue  # the two ends of what passes through the node: who is further on begins later
        lead, is_late = _lead_ns(slowdown, places)
        total_ns += lead
        lead_ns[np.flatnonzero(there)[is_late]] += lead
    most = float(lead_ns.max())
    is_clear = most > 0 and most >= LEADS_MIN * total_ns
    return at[lead_ns >= AS_OFTEN * most] if is_clear else at[:0]


def are_less_even(slowdown: Slowdown, at: Ints) -> bool:
    """Whether these ranks (positions), all late, begin their ops less evenly than they used to: so many that one alone
    does not do it."""
    if len(at) < MANY:
        return False
    ready = slowdown.delays.launches.ready
    grown, together = 0, [places for places in _together(slowdown, at) if len(places) > 1]
    for places in together:
        before, now = (_unevenness_ns(ready[places][:, those]) for those in (slowdown.usual, slowdown.slow))
        noise = EVEN_NOISE * MAD_NOISE * math.sqrt(1 / max(before[1], 1) + 1 / max(now[1], 1))
        grown += now[0] > before[0] * (1 + noise) + UNEVEN_MIN_NS
    least = UNEVEN_MIN if slowdown.slow.sum() >= FEW else UNEVEN_OF_FEW_MIN
    return grown > 0 and grown >= least * len(together)


def are_late_alike(slowdown: Slowdown, at: Ints) -> bool:
    """Whether these ranks (positions), of whom nobody leads, are all late of their own where each used to begin by itself."""
    together = [places for places in _together(slowdown, at) if len(places) == len(at)]
    ready = slowdown.delays.launches.ready
    before = [_unevenness_ns(ready[places][:, slowdown.usual])[0] for places in together]
    least = max(ALONE_MIN * min(before, default=0.0), ALONE_MIN_NS)
    return any(
        usual >= least and _is_alike(slowdown, places, usual) for places, usual in zip(together, before, strict=True)
    )


def _together(slowdown: Slowdown, at: Ints) -> list[list[int]]:
    """The places of every op of these ranks, op by op."""
    by_op = [_by_op(slowdown, int(one)) for one in at]
    ops = {op for mine in by_op for op in mine}
    return [[mine[op] for mine in by_op if op in mine] for op in ops]


def mates_of(slowdown: Slowdown, at: Ints) -> tuple[Ints, Ints]:
    """Of ranks (positions) of one node: all of its ranks that have launches, by position, and all that the job has
    there, by rank. The ranks themselves where the node is unknown."""
    node = slowdown.node(at[:1])[0]
    if node < 0:
        return at, slowdown.iterations.ranks[at]
    seen = np.flatnonzero(slowdown.nodes == node)
    return seen, slowdown.ranks.rank[slowdown.ranks.node == node]


def _lead_ns(slowdown: Slowdown, places: list[int]) -> tuple[float, Mask]:
    """By how much some of the ranks that begin an op at these places come later than all others did not use to, and which.

    Ranks of one node have one clock, so their starts are compared as they are: delays since each one's own last end would
    make a rank that came early to one op seem late at the next. Of ranks that are all
    slow some come last too, but by no more than they differ among themselves, or than chance makes of how they vary now.
    """
    nobody = np.zeros(len(places), bool)
    if len(places) < 2:
        return 0.0, nobody
    later = _later_ns(slowdown, places)
    order = np.argsort(later, kind="stable")
    gaps = np.diff(later[order])
    first = len(places) - len(places) // 2 - 1  # at most half of them can stand out
    split = first + int(gaps[first:].argmax())
    early, late = order[: split + 1], order[split + 1 :]
    ahead = [places[one] for one in late]
    usual_ns = float(slowdown.delays.noise_ns[ahead].max()) / math.sqrt(slowdown.slow.sum())
    noise = max(usual_ns, _chance_ns(slowdown, places))
    own_ns = mean_known(slowdown.delays.own_ns[ahead][:, slowdown.slow])
    spread = max(float(np.ptp(later[early])), float(np.ptp(later[late])))
    is_told = len(early) >= SPREAD_OF  # else too few to tell by how much they differ
    least = LEAD_SPREAD * spread if is_told else max(LEAD_MIN * float(own_ns.max()), spread)
    if gaps[split] < max(least, LEAD_MIN_NS, LEAD_NOISE * noise):
        return 0.0, nobody
    if _typical_lead_ns(slowdown, ahead, [places[one] for one in early]) < LEAD_OFTEN * gaps[split]:
        return 0.0, nobody
    nobody[late] = True
    return float(gaps[split]), nobody


def _typical_lead_ns(slowdown: Slowdown, late: list[int], early: list[int]) -> float:
    """By how much more than usual the first of these begins after the last of those, in the median iteration in which all are
    known; ∞ where there is none before or since."""
    ready = slowdown.delays.launches.ready
    lead = ready[late].min(axis=0) - ready[early].max(axis=0)
    before, since = (lead[those & np.isfinite(lead)] for those in (slowdown.usual, slowdown.slow))
    return float(np.median(since) - np.median(before)) if len(before) and len(since) else math.inf


def _is_alike(slowdown: Slowdown, places: list[int], usual_ns: float) -> bool:
    """Whether all begin later of their own, and by nearly the same, as far as their usual unevenness lets that be seen."""
    own = mean_known(slowdown.delays.own_ns[places][:, slowdown.slow])
    noise = EVEN_NOISE * DEVIATION * usual_ns * math.sqrt(1 / slowdown.slow.sum() + 1 / slowdown.usual.sum())
    most = max(noise, ALIKE_SHARE * float(own.min()))
    return float(own.min()) >= LEAD_MIN_NS and float(np.ptp(_later_ns(slowdown, places))) <= most


def _later_ns(slowdown: Slowdown, places: list[int]) -> Floats:
    """By how much more than usual each of these begins after the middle of them."""
    ready = slowdown.delays.launches.ready[places]
    apart = ready - _median(ready)
    return mean_known(apart[:, slowdown.slow]) - mean_known(apart[:, slowdown.usual])


def _chance_ns(slowdown: Slowdown, places: list[int]) -> float:
    """Deviation of the mean place, against the middle of them, of the one of these that varies most, over the slow iterations
    that are known; ∞ where fewer than two are."""
    ready = slowdown.delays.launches.ready[places][:, slowdown.slow]
    apart = ready - _median(ready)
    known = np.isfinite(apart).all(axis=0)
    n = int(known.sum())
    return float(apart[:, known].std(axis=1, ddof=1).max()) / math.sqrt(n) if n > 1 else math.inf


def _by_op(slowdown: Slowdown, rank_at: int) -> dict[Op, int]:
    """The places of one rank whose delay is known."""
    launches, noise = slowdown.delays.launches, slowdown.delays.noise_ns
    found: dict[Op, int] = {}
    seen: dict[int, int] = {}
    places = launches.places_of(rank_at)
    for place, kind in zip(range(places.start, places.stop), launches.kind[places].tolist(), strict=True):
        nth = seen[kind] = seen.get(kind, -1) + 1
        if np.isfinite(noise[place]):
            found[kind, nth] = place
    return found


def _unevenness_ns(ready: Floats) -> tuple[float, float]:
    """Median deviation of the starts (ranks, iterations) from those of the others, each rank's own usual place among them
    left out, and of how many independent values it is."""
    known = np.flatnonzero(np.isfinite(ready).all(axis=0))
    if not len(known):
        return 0.0, 0.0
    apart, n = ready[:, known] - _median(ready[:, known]), len(known)
    if n < FEW:  # of three one is the median itself: deviations from it seem half as large as they are
        apart = (apart - apart.mean(axis=1, keepdims=True)) * math.sqrt(n / max(n - 1, 1))
    else:
        apart -= np.median(apart, axis=1, keepdims=True)
    return float(np.median(np.abs(apart))), float((len(ready) - 1) * n)


def mean_known(values: Floats) -> Floats:
    """Means of the last axis over what is known; 0 where nothing is."""
    known = np.isfinite(values)
    found: Floats = np.where(known, values, 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)
    return found


def _median(ready: Floats) -> Floats:
    """(I,) medians over the ranks, NaN where one of them is not known."""
    found: Floats = np.median(ready, axis=0)
    return found
