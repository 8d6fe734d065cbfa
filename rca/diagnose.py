"""From a window and a symptom to a diagnosis: runs the rules, ranks what they found, says what was not seen.

A pure function of its arguments, so that a saved window gives the same diagnosis on a laptop as it did in production
(`python -m rca window.npz`). It may name nobody; it grades itself down when the culprit's data has holes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import DATA_LOSSES, LOSSES, TRANSPORTS
from rca.findings import Diagnosis, Finding, Grade, Symptom, WaitEdge
from rca.paths import victims_and_path
from rca.progress import Progress, state_of
from rca.rules import deadlock, hang, mismatch, silence
from rca.settings import DEFAULT, Settings
from rca.transport import UNKNOWN
from rca.words import lower, named

Rule = Callable[[Progress, Symptom, Settings], tuple[Finding, ...]]

RULES: tuple[Rule, ...] = (mismatch.explain, hang.explain, silence.explain, deadlock.explain)
_GRADES = list(Grade)
_HOLES = [LOSSES.index(name) for name in DATA_LOSSES]


def diagnose(window: Window, symptom: Symptom, settings: Settings = DEFAULT) -> Diagnosis:
    """Everything the rules say about `symptom`, best finding first."""
    state = state_of(window, settings)
    findings = _ranked([finding for rule in RULES for finding in rule(state, symptom, settings)])
    downgraded, findings = _downgrade(state, findings)
    best = findings[0] if findings else None
    victims, path = victims_and_path(state, best, settings.path_edges_max)
    return Diagnosis(
        symptom=symptom, findings=tuple(findings[: settings.findings_max]), victims=victims, path=path,
        communicators=_communicators(state, path), missing=_missing(state), downgraded=downgraded,
        thresholds=settings.thresholds(), analysed_ns=window.end_ns,
    )  # fmt: skip


def _ranked(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (_GRADES.index(finding.grade), -finding.score))


def _downgrade(state: Progress, findings: list[Finding]) -> tuple[tuple[str, ...], list[Finding]]:
    """One grade less for findings about nodes that lost data inside the window."""
    losses = state.window.rows("loss")
    serious = losses[np.isin(losses["kind"], _HOLES) & (losses["count"] > 0)]
    lossy = {str(state.window.nodes["name"][node]) for node in serious["node"] if node >= 0}
    reasons, found = [], []
    for finding in findings:
        nodes = _nodes_of(state, finding) & lossy
        if nodes:
            reasons.append(f"{', '.join(sorted(nodes))} lost trace data: '{finding.subject.name}' is graded down.")
        found.append(
            replace(finding, grade=lower(finding.grade), score=round(finding.score - 0.2, 4)) if nodes else finding
        )
    return tuple(reasons), _ranked(found)


def _nodes_of(state: Progress, finding: Finding) -> set[str]:
    """Names of the nodes a finding is about: its ranks' and those of the flows it rests on."""
    ranks = {*finding.subject.ranks, *(condition.peer_rank for condition in finding.conditions)}
    at = state.ranks.position(np.array(sorted(ranks), np.int64))
    nodes = state.ranks.node[at[at >= 0]]
    return {str(name) for name in state.window.nodes["name"][nodes[nodes >= 0]]}


def _communicators(state: Progress, path: tuple[WaitEdge, ...]) -> dict[str, str]:
    """Number → name of every communicator that blocks somebody or lies on the path."""
    comms = np.unique(state.fronts.comm[state.fronts.is_front & (state.fronts.comm >= 0)])
    ids = {*state.members.comm_ids[comms].tolist(), *(edge.comm_id for edge in path if edge.comm_id)}
    rows = state.window.members
    names = dict(zip(rows["comm_id"].tolist(), rows["name"].tolist(), strict=True))
    return {str(comm_id): str(names.get(comm_id, "")) for comm_id in sorted(ids)}


def _missing(state: Progress) -> tuple[str, ...]:
    """What was not seen, in sentences."""
    window, ranks, members = state.window, state.ranks, state.members
    found = []
    if ranks.is_silent.any():
        found.append(f"No data from {named(ranks.names(np.flatnonzero(ranks.is_silent)))}: the node is silent.")
    late = window.nodes["name"][window.nodes["catching_up"]]
    if len(late):
        found.append(f"Still catching up: {', '.join(map(str, late[:8]))}.")
    unseen = (ranks.seen_ns == 0) & ~ranks.is_silent
    if unseen.any():
        found.append(f"Nothing in this window from {named(ranks.names(np.flatnonzero(unseen)))}.")
    if window.world_size > len(ranks.rank):
        found.append(f"{window.world_size - len(ranks.rank)} of {window.world_size} ranks never reported.")
    unsaid = int((state.known.flow["transport"] == UNKNOWN).sum())
    if unsaid:
        found.append(_transport_sentence(state, unsaid))
    for comm in np.flatnonzero(members.n_ranks > np.diff(members.first))[:8]:
        known, n = int(np.diff(members.first)[comm]), int(members.n_ranks[comm])
        found.append(f"Communicator {int(members.comm_ids[comm]):#x}: {n - known} of {n} members never reported.")
    return tuple(found)


def _transport_sentence(state: Progress, n_flows: int) -> str:
    """That rows do not say which transport they use, and what became of that."""
    kinds = sorted({TRANSPORTS[int(kind)] for kind in state.pairs.transport if kind != UNKNOWN})
    n_unknown = int((state.pairs.transport == UNKNOWN).sum())
    said = f"Transport unknown for {n_flows} flow rows (NCCL_NET is not set)"
    if n_unknown == 0:
        return f"{said}: taken as {' and '.join(kinds)}, as they behave."
    return f"{said}: for {n_unknown} flows only conclusions valid for IB and sockets are drawn."
