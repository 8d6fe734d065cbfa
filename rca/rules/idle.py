"""A job in which nothing is in flight: the network has nothing to say, and says so.

    every rank:  op ─ op ─ op ─┤ ······ between two ops, for far longer than usual ······

What ranks do between two ops, the network does not see: a data loader, a checkpoint, a lock, or nothing wrong at all. So
nobody is named, except whose process is gone or stopped; stacks tell the rest. Abstains for every other symptom, and when
somebody waits in an op after all, which the hang rule explains. docs/rules/idle.md
"""

from __future__ import annotations

import numpy as np

from rca import advice
from rca.findings import Component, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind
from rca.hang.progress import Progress
from rca.hang.sinks import sinks
from rca.settings import Settings
from rca.triggers.unstarted import NEVER_BEGAN
from rca.words import capitalised, named, process_evidence, rank_subject, score

RULE = "idle"
VERSION = 2


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """One finding: the ranks whose process is gone or stopped, else nobody."""
    if symptom.kind is not SymptomKind.IDLE or sinks(state) or not state.n_ranks:
        return ()
    for is_so, words, told in (
        (state.ranks.is_gone, "has ended", advice.for_gone),
        (state.ranks.is_stopped, "is stopped (state T)", advice.for_stopped),
    ):
        places = tuple(np.flatnonzero(is_so).tolist())
        if places and len(places) < state.n_ranks:
            return (_of_process(state, places, words, told(state, places), settings),)
    return (_nobody(state, NEVER_BEGAN in symptom.numbers),)


def _of_process(state: Progress, places: tuple[int, ...], words: str, told: str, settings: Settings) -> Finding:
    ranks = state.ranks.names(np.array(places))
    evidence = [fact for at in places for fact in process_evidence(state, at)]
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, places, "process"), component=Component.PROCESS,
        kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=ranks, score=score(Grade.MODERATE, 0, state.n_ranks),
        grade=Grade.MODERATE,
        sentence=f"{capitalised(named(ranks))}: the process {words}, and no op is in flight anywhere.",
        evidence=tuple(evidence[: settings.evidence_max]), advice=told,
    )  # fmt: skip


def _nobody(state: Progress, has_never_begun: bool) -> Finding:
    ranks = state.ranks.names(np.arange(state.n_ranks))
    where = "before their first op" if has_never_begun else "between two ops"
    last = np.argsort(state.ranks.last_callback_ns, kind="stable")[:2].tolist()
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("job", state.window.job, ranks), component=Component.UNKNOWN,
        kind=FaultKind.UNKNOWN, culprits=(), score=0.3, grade=Grade.WEAK,
        sentence=f"All {len(ranks)} ranks are {where}, where the network sees nothing; stacks tell what they do.",
        evidence=tuple(fact for at in last for fact in process_evidence(state, at)), advice=advice.for_idle(state, last),
    )  # fmt: skip
