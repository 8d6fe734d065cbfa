"""From a window and a straggler symptom to a diagnosis (Mycroft Algorithm 2, AnalyzeStragglerRootCause).

The rules compare the iterations before the symptom with those after it. What shows inside a rank's own ops is nobody else's
doing, so it comes before a late start, which a neighbour inside the node may have caused where the network sees nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingest.window import Window
from rca.findings import Diagnosis, FaultKind, Finding, Symptom, WaitEdge
from rca.holes import downgrade, ranked, unseen
from rca.ranks import known_ranks
from rca.rules import late_start, slow_copy, slow_nic, slow_proxy
from rca.settings import Settings
from rca.slowdown import Slowdown, slowdown_of
from rca.why_not import of_slowdown
from rca.words import communicator_names

Rule = Callable[[Slowdown, Symptom, Settings], tuple[Finding, ...]]

RULES: tuple[tuple[Rule, ...], ...] = (
    (slow_proxy.explain,),
    (slow_copy.explain, slow_nic.explain),
    (late_start.explain,),
)
"""Earlier ones explain what later ones would say of the same group of ranks."""


def diagnose_slowdown(window: Window, symptom: Symptom, settings: Settings) -> Diagnosis:
    """Everything the rules say about a job that has become slower, best finding first."""
    slowdown = slowdown_of(window, symptom.at_ns, settings)
    ranks = slowdown.ranks if slowdown else known_ranks(window, settings)
    downgraded, findings = downgrade(window, ranks, _findings(slowdown, symptom, settings) if slowdown else [])
    culprits = findings[0].culprits if findings else ()
    victims, path = _victims(slowdown, culprits, settings.path_edges_max) if slowdown else ((), ())
    missing = unseen(window, ranks)
    if slowdown is None:
        missing = (*missing, "Too few iterations before or after the slowdown are in this window to compare them.")
    return Diagnosis(
        symptom=symptom, findings=tuple(findings[: settings.findings_max]), victims=victims, path=path,
        communicators=communicator_names(window, {edge.comm_id for edge in path}), missing=missing, downgraded=downgraded,
        thresholds=settings.thresholds(), analysed_ns=window.end_ns,
        alternatives=of_slowdown(slowdown, tuple(findings)) if slowdown else (),
    )  # fmt: skip


def _findings(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> list[Finding]:
    """What the rules say, each of ranks whose group no earlier rule has explained."""
    found: list[Finding] = []
    for rules in RULES:
        explained = {group for finding in found for group in _groups(slowdown, finding)}
        said = [finding for rule in rules for finding in rule(slowdown, symptom, settings)]
        found += [
            finding for finding in said if not (_groups(slowdown, finding) & explained or _is_vague(finding, found))
        ]
    return ranked(found)


def _is_vague(finding: Finding, found: list[Finding]) -> bool:
    """Once somebody is named, that others are slow too is what victims are."""
    return finding.kind is FaultKind.GROUP_ANOMALY and any(other.culprits for other in found)


def _groups(slowdown: Slowdown, finding: Finding) -> set[int]:
    at = np.isin(slowdown.iterations.ranks, finding.culprits)
    return set(slowdown.delays.group[at].tolist())


def _victims(slowdown: Slowdown, culprits: tuple[int, ...], limit: int) -> tuple[tuple[int, ...], tuple[WaitEdge, ...]]:
    """Every other rank, and how the lateness reaches it: communicator by communicator, away from the culprits."""
    members = slowdown.window.members
    reached, edges = set(culprits), []
    front = list(culprits)
    while front:
        following = []
        for rank in front:
            for comm_id in np.unique(members["comm_id"][members["rank"] == rank]):
                for other in members["rank"][members["comm_id"] == comm_id].tolist():
                    if other >= 0 and other not in reached:
                        reached.add(other)
                        following.append(other)
                        edges.append(WaitEdge(other, rank, int(comm_id), 0, "is kept waiting in every iteration"))
        front = following
    return tuple(sorted(reached - set(culprits))), tuple(edges[:limit])
