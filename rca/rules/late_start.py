"""A rank that starts late by its own fault: what it waited for was over, and its own work took longer (Mycroft §7.1, #3–#5).

    earlier op ends ──▶ |· usual work ·|··· own delay ···| ──▶ next op starts, everybody else waits in it

Ranks that wait for each other inside a node, where the network does not see it, are late together: the one that is
latest among them is blamed, and the node when none is. Abstains when everything late was kept waiting. docs/rules/late_start.md
"""

from __future__ import annotations

import math

import numpy as np

from rca.counters import GPU_READY_NAME
from rca.cover import blamed_of
from rca.findings import Component, FaultKind, Finding, Symptom
from rca.keys import Ints
from rca.settings import Settings
from rca.slow_words import finding_of, for_everybody
from rca.slowdown import Slowdown
from rca.streams import Floats

RULE = "late_start"
VERSION = 2
NEEDS = frozenset({GPU_READY_NAME})

Places = dict[tuple[int, int], int]
"""(call, how often it came before in the iteration) → its place, of one rank."""

LEAD_MIN = 0.2  # of the delay before an op
LEAD_MIN_NS = 300_000.0
LEAD_NOISE = 4.0  # deviations of a mean over the slow iterations
LEAD_OVER_SECOND = 3.0  # as often as any other: what else they share, the NIC say, may put one of them last once
TOLD_GPU = "`nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE`, `nvidia-smi dmon -c 5`, `dmesg | grep -i xid`"
TOLD_NODE = "`top -b -n 1 | head -30`, `nvidia-smi`, `nvidia-smi dmon -c 5`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per rank, or node, that is late of its own; () when nobody is."""
    del symptom, settings
    own = own_delay_ns(slowdown)
    is_blamed, is_everybody = blamed_of(slowdown.iterations, own, slowdown.lost_ns)
    if is_everybody:
        return (for_everybody(RULE, VERSION, slowdown, Component.GPU, own, "takes longer for its own work"),)
    group = slowdown.delays.group
    groups = [np.flatnonzero(is_blamed & (group == one)) for one in np.unique(group[is_blamed])]
    return tuple(_finding(slowdown, own, at) for at in groups)


def own_delay_ns(slowdown: Slowdown) -> Floats:
    """(R,) own delay of every rank per slow iteration, beyond what it usually has: of those who are late constantly."""
    delays = slowdown.delays
    own = np.maximum(delays.per_iteration_ns(slowdown.slow) - delays.per_iteration_ns(slowdown.usual), 0.0)
    return np.where(delays.is_constant(slowdown.slow), own, 0.0)


def _finding(slowdown: Slowdown, own: Floats, at: Ints) -> Finding:
    latest = _latest(slowdown, at)
    who = at if latest is None else np.array([latest])
    is_node = latest is None and len(at) > 1
    return finding_of(
        RULE, VERSION, slowdown, tuple(who.tolist()), Component.NODE if is_node else Component.GPU,
        FaultKind.COMPUTATION_FAIL_SLOW, float(own[who].max()), "before it starts its ops",
        "All of {who} take longer for their own work" if is_node else "{who} takes longer for its own work",
        "own delay per iteration", TOLD_NODE if is_node else TOLD_GPU, slowdown.delays.shown(int(at[0]), slowdown.slow),
    )  # fmt: skip


def _latest(slowdown: Slowdown, at: Ints) -> int | None:
    """The one of ranks that wait for each other that is clearly later than all others in some of its ops; None if none is.

    Inside the node they keep each other late, so most of the delay is the same for all; only before the first op after
    the last of those meetings the one that causes it stands out.
    """
    if len(at) == 1:
        return int(at[0])
    by_op = [_by_op(slowdown, int(one)) for one in at]
    leads = [_leads_ns(slowdown, mine, [one for one in by_op if one is not mine]) for mine in by_op]
    times, total = np.array([len(lead) for lead in leads]), np.array([sum(lead) for lead in leads])
    order = np.argsort(-total, kind="stable")
    is_clear = times[order[0]] > 0 and times[order[0]] >= LEAD_OVER_SECOND * np.delete(times, order[0]).max()
    return int(at[order[0]]) if is_clear else None


def _leads_ns(slowdown: Slowdown, mine: Places, others: list[Places]) -> list[float]:
    """By how much a rank begins later than every other than it used to, in each op in which it clearly does.

    Ranks of one node have one clock, so their starts are compared as they are: delays since each one's own last end would
    make a rank that came early to one op seem late at the next.
    """
    launches, found, n_slow = slowdown.delays.launches, list[float](), float(slowdown.slow.sum())
    for op, place in mine.items():
        beside = [other[op] for other in others if op in other]
        delay, noise = _delay_ns(slowdown, place), float(slowdown.delays.noise_ns[place])
        if not beside:
            continue
        gap = launches.ready[place] - launches.ready[beside]
        lead = float(np.min(_mean(gap[:, slowdown.slow]) - _mean(gap[:, slowdown.usual])))
        if lead >= max(LEAD_MIN * delay, LEAD_MIN_NS, LEAD_NOISE * noise / math.sqrt(n_slow)):
            found.append(lead)
    return found


def _by_op(slowdown: Slowdown, rank_at: int) -> Places:
    """The places of one rank whose delay is known."""
    launches, noise = slowdown.delays.launches, slowdown.delays.noise_ns
    found: Places = {}
    seen: dict[int, int] = {}
    places = launches.places_of(rank_at)
    for place, kind in zip(range(places.start, places.stop), launches.kind[places].tolist(), strict=True):
        nth = seen[kind] = seen.get(kind, -1) + 1
        if np.isfinite(noise[place]):
            found[kind, nth] = place
    return found


def _delay_ns(slowdown: Slowdown, place: int) -> float:
    """Mean own delay of a launch in the slow iterations."""
    return float(_mean(slowdown.delays.own_ns[place : place + 1, slowdown.slow])[0])


def _mean(values: Floats) -> Floats:
    """(n,) means of the last axis over what is known; 0 where nothing is."""
    known = np.isfinite(values)
    found: Floats = np.where(known, values, 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)
    return found
