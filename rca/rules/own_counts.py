"""A job without traces that stands still: whose process does not run any more, by the system and by its own counts.

    rank 0 … entered 41, finished 40, written just now          rank 2 … written 9 s ago: its Python does not run
                                                                rank 3 … state T: stopped

What ranks wait for, counts do not say: that is for stacks and recordings. But a process that is gone, stopped, or has not written
its counts for a while although the others have, is seen directly. Abstains for every symptom that was seen by traces, when it
holds for every rank, and when it holds for none. docs/rules/failure.md
"""

from __future__ import annotations

import numpy as np

from rca import advice
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Symptom
from rca.hang.progress import Progress
from rca.keys import Mask
from rca.settings import SECOND_NS, Settings
from rca.triggers.no_progress import is_by_status, standings
from rca.words import capitalised, named, process_evidence, rank_subject, score

RULE = "own_counts"
VERSION = 1
MUTE_NS = 3 * SECOND_NS  # counts are written once a second


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """One finding: the ranks whose process is gone or stopped, else those that write nothing any more."""
    if not is_by_status(symptom) or not state.n_ranks:
        return ()
    for is_so, words, grade in (
        (state.ranks.is_gone, "has ended", Grade.STRONG),
        (state.ranks.is_stopped, "is stopped (state T)", Grade.STRONG),
        (_is_mute(state), "lives, but its Python does not run: it writes no counts", Grade.MODERATE),
    ):
        places = tuple(np.flatnonzero(is_so).tolist())
        if places and len(places) < state.n_ranks:
            return (_finding(state, places, words, grade, settings),)
    return ()


def _is_mute(state: Progress) -> Mask:
    """(n_ranks,) those that have written no counts for a while before their node last told of them."""
    found, told = np.zeros(state.n_ranks, bool), standings(state.window, state.ranks.rank)
    mute = [one.rank for one in told if one.told_ns - one.written_ns >= MUTE_NS]
    found[state.ranks.position(np.array(mute, np.int64))] = True
    return found


def _finding(state: Progress, places: tuple[int, ...], words: str, grade: Grade, settings: Settings) -> Finding:
    ranks = state.ranks.names(np.array(places))
    evidence = [fact for at in places for fact in process_evidence(state, at)]
    by_rank = {one.rank: one for one in standings(state.window, np.array(ranks, np.int64))}
    evidence += [
        Evidence("counts last changed", round(one.stalled_ns / SECOND_NS, 1), "s ago", "status", one.rank)
        for one in by_rank.values()
    ]
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, places, "process"), component=Component.PROCESS,
        kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=ranks, score=score(grade, 0, state.n_ranks), grade=grade,
        sentence=f"{capitalised(named(ranks))}: the process {words}.", evidence=tuple(evidence[: settings.evidence_max]),
        advice=advice.for_stopped(state, places),
    )  # fmt: skip
