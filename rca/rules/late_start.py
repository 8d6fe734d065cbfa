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

LEAD_MIN = 0.2  # of the delay before an op
LEAD_MIN_NS = 300_000.0
LEAD_NOISE = 4.0  # deviations of a mean over the slow iterations
LEAD_OVER_SECOND = 3.0
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
    lead = np.array([_lead_ns(slowdown, int(one), at) for one in at])
    order = np.argsort(-lead, kind="stable")
    is_clear = lead[order[0]] > 0 and lead[order[0]] >= LEAD_OVER_SECOND * lead[order[1]]
    return int(at[order[0]]) if is_clear else None


def _lead_ns(slowdown: Slowdown, one: int, at: Ints) -> float:
    """By how much a rank is later than every other of `at`, summed over the ops in which it clearly is."""
    mine = _by_op(slowdown, one)
    others = [_by_op(slowdown, int(other)) for other in at if other != one]
    total, n_slow = 0.0, float(slowdown.slow.sum())
    for op, (delay, noise) in mine.items():
        known = [other[op][0] for other in others if op in other]
        lead = delay - max(*known, 0.0) if known else 0.0  # that others are early does not make it late
        if lead >= max(LEAD_MIN * delay, LEAD_MIN_NS, LEAD_NOISE * noise / math.sqrt(n_slow)):
            total += lead
    return total


def _by_op(slowdown: Slowdown, rank_at: int) -> dict[tuple[int, int], tuple[float, float]]:
    """(call, how often it came before in the iteration) → (mean own delay, its noise), of one rank."""
    delayed = slowdown.delays
    places = delayed.launches.places_of(rank_at)
    own = delayed.own_ns[places][:, slowdown.slow]
    mean = np.where(np.isfinite(own), own, 0.0).sum(axis=1) / np.maximum(np.isfinite(own).sum(axis=1), 1)
    found: dict[tuple[int, int], tuple[float, float]] = {}
    seen: dict[int, int] = {}
    for kind, delay, noise in zip(delayed.launches.kind[places].tolist(), mean, delayed.noise_ns[places], strict=True):
        nth = seen[kind] = seen.get(kind, -1) + 1
        if np.isfinite(noise):
            found[kind, nth] = float(delay), float(noise)
    return found
