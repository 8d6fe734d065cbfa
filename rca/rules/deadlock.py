"""Ranks that wait for each other in different ops: nobody is slow, the order is wrong.

    rank 0: A begun, B queued        rank 0 waits in A for rank 1
    rank 1: B begun, A queued        rank 1 waits in B for rank 0

Needs every rank of the cycle to have begun one op of the cycle and to hold another one back; or members of a communicator
that enqueued one of its ops and one of another in opposite orders (rca/hang/orders.py), which is all that shows where one of the
two is inside a node. Then those are named whose order changed, if that tells. Abstains on cycles within one op: those are
rings, and the hang rule finds who sent least.
"""

from __future__ import annotations

import numpy as np

from rca.advice import for_deadlock
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Symptom
from rca.hang.extent import with_extent
from rca.hang.orders import Crossing
from rca.hang.progress import Progress
from rca.hang.sinks import Sink, sinks
from rca.settings import Settings
from rca.words import capitalised, comm_name, named, rank_subject, score, waiting

RULE = "deadlock"
VERSION = 3


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per deadlocked cycle."""
    found = [_explain_cycle(state, sink, settings) for sink in sinks(state) if sink.is_deadlock]
    return with_extent(state, found, settings)


def _explain_cycle(state: Progress, sink: Sink, settings: Settings) -> Finding:
    sides = sink.crossing.ranks if sink.crossing else sink.ranks
    ranks = state.ranks.names(np.array(sink.ranks))
    fronts, evidence = state.fronts, _order_evidence(state, sink.crossing)
    for i in np.flatnonzero(np.isin(fronts.at, sides) & (fronts.comm >= 0))[: settings.evidence_max]:
        what = f"{comm_name(state, int(fronts.comm[i]))} op {int(fronts.op[i])}"
        begun = "begun" if fronts.has_begun[i] else "queued"
        evidence.append(Evidence(what, begun, "", "live_op", int(state.ranks.rank[fronts.at[i]])))
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, sink.ranks), component=Component.SOFTWARE,
        kind=FaultKind.DEADLOCK, culprits=ranks, score=score(Grade.MODERATE, len(sink.waiters), state.n_ranks),
        grade=Grade.MODERATE, sentence=f"{_sentence(state, sides, sink.crossing)}; {waiting(len(sink.waiters))}.",
        evidence=tuple(evidence[: settings.evidence_max]), advice=for_deadlock(state, sink.ranks),
    )  # fmt: skip


def _sentence(state: Progress, sides: tuple[int, ...], crossing: Crossing | None) -> str:
    if crossing is None:
        return f"{capitalised(_named(state, sides))} wait for each other in different ops (deadlock)"
    inside, over = (f"{comm_name(state, comm)} op {op}" for comm, op in (crossing.inside, crossing.over))
    first, others = _named(state, crossing.over_first), _named(state, crossing.inside_first)
    order = f"{first} enqueued {over} before {inside}, {others} after it"
    if crossing.deviating:
        return f"{capitalised(order)}, and only {_named(state, crossing.deviating)} changed its order (deadlock)"
    return f"{capitalised(_named(state, sides))} wait for each other in different ops (deadlock: {order})"


def _named(state: Progress, at: tuple[int, ...]) -> str:
    return named(state.ranks.names(np.array(at)))


def _order_evidence(state: Progress, crossing: Crossing | None) -> list[Evidence]:
    if crossing is None:
        return []
    inside, over = (f"{comm_name(state, comm)} op {op}" for comm, op in (crossing.inside, crossing.over))
    sides = ((crossing.over_first, f"{over}, {inside}"), (crossing.inside_first, f"{inside}, {over}"))
    return [
        Evidence("order of enqueueing", order, "", "live_op", int(state.ranks.rank[at]))
        for ranks, order in sides
        for at in ranks[:4]
    ]
