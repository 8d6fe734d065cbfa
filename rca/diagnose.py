"""From a window and a symptom to a diagnosis: runs the rules, ranks what they found, says what was not seen.

A pure function of its arguments, so that a saved window gives the same diagnosis on a laptop as it did in production
(`python -m rca window.npz`). It may name nobody; it grades itself down when the culprit's data has holes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import TRANSPORTS
from rca.asked import Asking
from rca.cards import with_failed_completions
from rca.clocks import node_clocks
from rca.counters import absent, judged, marked
from rca.findings import Diagnosis, Finding, Symptom, SymptomKind, WaitEdge
from rca.hang.cut import n_cut
from rca.hang.paths import paths_to, victims_and_path
from rca.hang.progress import Progress, state_of
from rca.hang.transport import UNKNOWN
from rca.holes import NOT_LOOKED_AT, best_of, downgrade, ranked, unseen
from rca.rules import deadlock, hang, idle, mismatch, never_arrived, own_counts, silence
from rca.rules.least_sent import with_least_sent
from rca.settings import DEFAULT, Settings
from rca.slow.diagnose import diagnose_slowdown
from rca.slow.replicas import unlike_replicas
from rca.triggers.external import excused, taken_as
from rca.why_not import of_hang
from rca.words import NOTHING_TO_EXPLAIN, communicator_names

Rule = Callable[[Progress, Symptom, Settings], tuple[Finding, ...]]

RULES: tuple[Rule, ...] = (
    mismatch.explain, hang.explain, silence.explain, deadlock.explain, idle.explain, own_counts.explain,
    never_arrived.explain,
)  # fmt: skip


COMMUNICATORS_TOLD: Final = 8


def diagnose(window: Window, symptom: Symptom, settings: Settings = DEFAULT) -> Diagnosis:
    """Everything the rules say about `symptom`, best finding first."""
    window = marked(window)
    if symptom.kind is SymptomKind.EXTERNAL:
        found = _diagnose_asked(window, symptom, settings)
    elif symptom.kind is SymptomKind.STRAGGLER:
        found = diagnose_slowdown(window, symptom, settings)
    else:
        found = _diagnose_standing(window, symptom, settings)
    return replace(found, symptom=symptom, clocks=node_clocks(window))


def _diagnose_asked(window: Window, symptom: Symptom, settings: Settings) -> Diagnosis:
    """What the rules of hangs or of slowdowns say, whichever have something to explain."""
    taken = taken_as(window, symptom, settings)
    if taken.kind is SymptomKind.STRAGGLER:
        found = diagnose_slowdown(window, taken, settings)
        if found.findings:
            return found
        taken = replace(taken, kind=SymptomKind.SILENCE)
    found = excused(window, _diagnose_standing(window, taken, settings), settings)
    if found.findings:
        return found
    return replace(
        found,
        missing=(*found.missing, NOTHING_TO_EXPLAIN),
        alternatives=(*found.alternatives, *unlike_replicas(window, settings)),
    )


def _diagnose_standing(window: Window, symptom: Symptom, settings: Settings) -> Diagnosis:
    state = state_of(window, settings)
    asking = Asking(state, symptom, settings)
    findings = ranked([finding for rule in RULES for finding in asking.ask(rule)])
    findings, abstained = judged(findings, absent(window))
    findings, unmeasured = with_least_sent(findings, state)
    findings = with_failed_completions(findings, state.ranks, tuple(window.nodes["name"].tolist()))
    downgraded, findings = downgrade(window, state.ranks, findings)
    shown, missing = best_of(
        findings, settings.findings_max, (*asking.failed, *abstained, *unmeasured, *_missing(state))
    )
    paths = paths_to(state, shown[0] if shown else None)
    victims, path = victims_and_path(paths, settings.path_edges_max)
    return Diagnosis(
        symptom=symptom, findings=shown, victims=victims, path=path, communicators=_communicators(state, path),
        missing=missing, downgraded=downgraded, thresholds=settings.thresholds(),
        analysed_ns=window.end_ns, alternatives=of_hang(paths, shown, settings),
    )  # fmt: skip


def _communicators(state: Progress, path: tuple[WaitEdge, ...]) -> dict[str, str]:
    """Number → name of every communicator that blocks somebody or lies on the path."""
    comms = np.unique(state.fronts.comm[state.fronts.is_front & (state.fronts.comm >= 0)])
    ids = {*state.members.comm_ids[comms].tolist(), *(edge.comm_id for edge in path if edge.comm_id)}
    return communicator_names(state.window, ids)


def _missing(state: Progress) -> tuple[str, ...]:
    """What was not seen, in sentences."""
    members, found = state.members, list(unseen(state.window, state.ranks))
    if n := n_cut(state):
        found.append(f"{NOT_LOOKED_AT}{n}.")
    unsaid = int((state.known.flow["transport"] == UNKNOWN).sum())
    if unsaid:
        found.append(transport_sentence(state, unsaid))
    partly = np.flatnonzero(members.n_ranks > np.diff(members.first))
    for comm in partly[:COMMUNICATORS_TOLD]:
        known, n = int(np.diff(members.first)[comm]), int(members.n_ranks[comm])
        found.append(f"Communicator {int(members.comm_ids[comm]):#x}: {n - known} of {n} members never reported.")
    if len(partly) > COMMUNICATORS_TOLD:
        found.append(f"Of {len(partly) - COMMUNICATORS_TOLD} more communicators some members never reported.")
    return tuple(found)


def transport_sentence(state: Progress, n_flows: int) -> str:
    """That rows do not say which transport they use, and what became of that."""
    kinds = sorted({TRANSPORTS[int(kind)] for kind in state.pairs.transport if kind != UNKNOWN})
    n_unknown = int((state.pairs.transport == UNKNOWN).sum())
    rows = "1 flow row" if n_flows == 1 else f"{n_flows} flow rows"
    said = f"Transport unknown for {rows} (NCCL_NET is not set)"
    if n_unknown == 0:
        return f"{said}: taken as {' and '.join(kinds)}, as they behave."
    flows = "1 flow" if n_unknown == 1 else f"{n_unknown} flows"
    return f"{said}: for {flows} only conclusions valid for IB and sockets are drawn."
