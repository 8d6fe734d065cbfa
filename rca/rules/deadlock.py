"""Ranks that wait for each other in different ops: nobody is slow, the order is wrong.

    rank 0: A begun, B queued        rank 0 waits in A for rank 1
    rank 1: B begun, A queued        rank 1 waits in B for rank 0

Needs every rank of the cycle to have begun one op of the cycle and to hold another one back; or, where one of the two ops
is inside a node and invisible, ranks that enqueued the two in opposite orders (rca/orders.py). Abstains on cycles within
one op: those are rings, and the hang rule finds who sent least.
"""

from __future__ import annotations

import numpy as np

from rca.advice import for_deadlock
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Symptom
from rca.orders import Crossing
from rca.progress import Progress
from rca.settings import Settings
from rca.sinks import Sink, sinks
from rca.words import comm_name, named, rank_subject, score, waiting

RULE = "deadlock"
VERSION = 2


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per deadlocked cycle."""
    return tuple(_explain_cycle(state, sink, settings) for sink in sinks(state) if sink.is_deadlock)


def _explain_cycle(state: Progress, sink: Sink, settings: Settings) -> Finding:
    ranks = state.ranks.names(np.array(sink.ranks))
    fronts, evidence = state.fronts, _order_evidence(state, sink.crossing)
    for i in np.flatnonzero(np.isin(fronts.at, sink.ranks) & (fronts.comm >= 0))[: settings.evidence_max]:
        what = f"{comm_name(state, int(fronts.comm[i]))} op {int(fronts.op[i])}"
        begun = "begun" if fronts.has_begun[i] else "queued"
        evidence.append(Evidence(what, begun, "", "live_op", int(state.ranks.rank[fronts.at[i]])))
    order = f": {_orders(state, sink.crossing)}" if sink.crossing else ""
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, sink.ranks), component=Component.SOFTWARE,
        kind=FaultKind.DEADLOCK, culprits=ranks, score=score(Grade.MODERATE, len(sink.waiters), state.n_ranks),
        grade=Grade.MODERATE,
        sentence=f"{named(ranks).capitalize()} wait for each other in different ops (deadlock{order}); "
        f"{waiting(len(sink.waiters))}.",
        evidence=tuple(evidence[: settings.evidence_max]), advice=for_deadlock(state, sink.ranks),
    )  # fmt: skip


def _orders(state: Progress, crossing: Crossing) -> str:
    inside, over = (f"{comm_name(state, comm)} op {op}" for comm, op in (crossing.inside, crossing.over))
    first, others = (named(state.ranks.names(np.array(at))) for at in (crossing.over_first, crossing.inside_first))
    return f"{first} enqueued {over} before {inside}, {others} after it"


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
