"""Findings about slowdowns, said alike: who, how much of the lost time, from what to what."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject
from rca.settings import SECOND_NS
from rca.slow.breakdown import began_ns, cover_of, parts_of
from rca.slow.slowdown import Slowdown, uses_sockets
from rca.slow.streams import Floats
from rca.words import capitalised, named

MS = 1_000_000
PER_ITERATION = "ms per iteration"
STRONG_SHARE = 0.5
SHELL_SAFE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def finding_of(
    rule: str, version: int, slowdown: Slowdown, who: tuple[int, ...], component: Component, kind: FaultKind,
    excess_ns: float, where: str, sentence: str, measured: str, told: str, shown: tuple[int, int],
) -> Finding:  # fmt: skip
    """A finding that blames the ranks at positions `who` of the iterations for excess_ns of every iteration.

    shown: in how many of how many ops of the first of them it shows.
    """
    ranks = tuple(int(rank) for rank in slowdown.iterations.ranks[list(who)])
    node = node_name(slowdown, who)
    share = excess_ns / slowdown.lost_ns if slowdown.lost_ns else 0.0
    grade = Grade.STRONG if share >= STRONG_SHARE else Grade.MODERATE
    said = sentence.format(who=named(ranks))
    subject = _subject(component, ranks, node)
    return Finding(
        rule=rule, version=version, subject=subject, component=component, kind=kind, culprits=ranks,
        score=round(min(0.5 + 0.5 * share, 1.0) * (1.0 if grade is Grade.STRONG else 0.8), 4), grade=grade,
        sentence=f"{capitalised(said)}: {excess_ns / MS:.0f} ms of every iteration, {where}.",
        evidence=(*_lengths(slowdown), Evidence(measured, round(excess_ns / MS, 1), PER_ITERATION, "op", ranks[0])),
        advice=f"On {node or f'the node of {named(ranks)}'}: {_of_card(told, slowdown, who)}.",
        cover=cover_of(slowdown, np.array(who, np.int64), shown), parts=parts_of(slowdown, who[0]),
        began_ns=began_ns(slowdown),
    )  # fmt: skip


def _of_card(told: str, slowdown: Slowdown, who: tuple[int, ...]) -> str:
    """Commands with the name of the only NIC of these ranks (positions), if it is known: an interface, or an RDMA card."""
    nic = np.unique(slowdown.ranks.nic[slowdown.at[list(who)]])
    if len(nic) != 1 or nic[0] < 0:
        return told
    name = slowdown.ranks.nics["name"][nic[0]].decode("ascii", "replace")
    if not SHELL_SAFE.fullmatch(name):
        return told
    if uses_sockets(slowdown.window):
        return told.replace("ethtool -S DEVICE", f"ethtool -S {name}")
    return told.replace("rdma statistic show", f"rdma statistic show link {name}/1")


def of_whole_node(found: Finding) -> Finding:
    """The same about the node, whose ranks the network may not all show: what its CPUs lack they lack for all."""
    node = found.subject.node
    return replace(found, subject=Subject("node", node, found.culprits, node)) if node else found


def for_everybody(
    rule: str, version: int, slowdown: Slowdown, component: Component, excess_ns: Floats, what: str
) -> Finding:
    """The finding that the whole job shows it, or most of it: no rank is blamed."""
    ranks = tuple(int(rank) for rank in slowdown.iterations.ranks[excess_ns > 0])
    n = len(slowdown.iterations.ranks)
    is_all = len(ranks) == n
    whose = f"Everybody {what}: all {n} ranks, so nobody is blamed." if is_all else (
        f"Most of the job {what}: {len(ranks)} of {n} ranks ({named(ranks)}). What they share is likelier than so many faults "
        "at once, so nobody is blamed."
    )  # fmt: skip
    return Finding(
        rule=rule, version=version, subject=Subject("job", slowdown.window.job, ranks), component=component,
        kind=FaultKind.GROUP_ANOMALY, culprits=(), score=0.8, grade=Grade.MODERATE,
        sentence=whose,
        evidence=(
            *_lengths(slowdown),
            Evidence("excess of the ranks, median", round(float(np.median(excess_ns)) / MS, 1), PER_ITERATION, "op"),
        ),
        advice="Look for what all nodes share: power or clock limits, the fabric, a change of the job's own work.",
    )  # fmt: skip


def excess_ms(finding: Finding) -> float:
    """What a finding of a slowdown accounts for, in ms of every iteration."""
    return max((float(one.value) for one in finding.evidence if one.unit == PER_ITERATION), default=0.0)


def _lengths(slowdown: Slowdown) -> tuple[Evidence, ...]:
    return (
        Evidence("iteration, usual", round(slowdown.usual_ns / SECOND_NS, 4), "s", "op"),
        Evidence("iteration, now", round(slowdown.slow_ns / SECOND_NS, 4), "s", "op"),
    )


def _subject(component: Component, ranks: tuple[int, ...], node: str) -> Subject:
    if component is Component.NODE:
        return Subject("node", node or named(ranks), ranks, node)
    kinds = {Component.NIC: "nic", Component.NETWORK: "nic", Component.COPY: "gpu", Component.GPU: "gpu"}
    return Subject(kinds.get(component, "process"), named(ranks), ranks, node)


def node_name(slowdown: Slowdown, who: tuple[int, ...]) -> str:
    """Name of the node that all these ranks (positions) are on; "" where they are on several, or it is not known."""
    nodes = np.unique(slowdown.node(np.array(who, np.int64)))
    return str(slowdown.window.nodes["name"][nodes[0]]) if len(nodes) == 1 and nodes[0] >= 0 else ""
