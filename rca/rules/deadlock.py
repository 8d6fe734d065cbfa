"""Ranks that wait for each other in different ops: nobody is slow, the order is wrong.

    rank 0: A begun, B queued        rank 0 waits in A for rank 1
    rank 1: B begun, A queued        rank 1 waits in B for rank 0

Needs every rank of the cycle to have begun one op of the cycle and to hold another one back. Abstains on cycles within
one op: those are rings, and the hang rule finds who sent least.
"""

from __future__ import annotations

import numpy as np

from rca.advice import for_deadlock
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Symptom
from rca.progress import Progress
from rca.settings import Settings
from rca.sinks import Sink, sinks
from rca.words import comm_name, named, rank_subject, score, waiting

RULE = "deadlock"
VERSION = 1


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per deadlocked cycle."""
    return tuple(_explain_cycle(state, sink, settings) for sink in sinks(state) if sink.is_deadlock)


def _explain_cycle(state: Progress, sink: Sink, settings: Settings) -> Finding:
    ranks = state.ranks.names(np.array(sink.ranks))
    fronts, evidence = state.fronts, []
    for i in np.flatnonzero(np.isin(fronts.at, sink.ranks) & (fronts.comm >= 0))[: settings.evidence_max]:
        what = f"{comm_name(state, int(fronts.comm[i]))} op {int(fronts.op[i])}"
        begun = "begun" if fronts.has_begun[i] else "queued"
        evidence.append(Evidence(what, begun, "", "live_op", int(state.ranks.rank[fronts.at[i]])))
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, sink.ranks), component=Component.SOFTWARE,
        kind=FaultKind.DEADLOCK, culprits=ranks, score=score(Grade.MODERATE, len(sink.waiters), state.n_ranks),
        grade=Grade.MODERATE,
        sentence=f"{named(ranks).capitalize()} wait for each other in different ops (deadlock); "
        f"{waiting(len(sink.waiters))}.",
        evidence=tuple(evidence), advice=for_deadlock(state, sink.ranks),
    )  # fmt: skip
