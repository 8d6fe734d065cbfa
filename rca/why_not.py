""" "Why not rank 12?": who else could have been blamed, and why each was not.

A name alone asks to be believed. For every rank of the job the evidence also says why it is not the one: it waits
itself, keeps nobody waiting, has inherited its delay, or is slow in too few places. The few that anybody would suspect
come with every diagnosis; any other rank can be asked about later, from the same window.
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window
from rca.findings import Alternative, Diagnosis, Evidence, FaultKind, Finding, Subject, Symptom, SymptomKind
from rca.hang.paths import Paths, paths_to
from rca.hang.progress import state_of
from rca.hang.why_not_hang import cleared as cleared_of_hang
from rca.hang.why_not_hang import hang_alternatives
from rca.ranks import Ranks, known_ranks
from rca.settings import DEFAULT, Settings
from rca.slow.slowdown import Slowdown, compared
from rca.slow.why_not_slow import cleared as cleared_of_slowness
from rca.slow.why_not_slow import shares_of, slow_alternatives
from rca.triggers.external import taken_as
from rca.words import named, subject_words

ALTERNATIVES_MAX = 6
_SETTLED = "The traces cannot tell it from {best}: {source} do."


def why_not(
    window: Window, symptom: Symptom, diagnosis: Diagnosis, rank: int, settings: Settings = DEFAULT
) -> Alternative:
    """Why `rank` was not blamed, or that it was. `window` is the one the diagnosis was made from, or a part of it."""
    ranks = known_ranks(window, settings)
    at = int(ranks.position(np.array([rank], np.int64))[0])
    subject = Subject("rank", named([rank]), (rank,), _node_name(window, ranks, at))
    said = _unknown(window, ranks, rank, at) or _said(diagnosis, rank)
    if said:
        return Alternative(subject, said)
    if symptom.kind is SymptomKind.EXTERNAL:
        symptom = taken_as(window, symptom, settings)
    if symptom.kind is not SymptomKind.STRAGGLER:
        best = diagnosis.findings[0] if diagnosis.findings else None
        state = state_of(window, settings)
        place = int(state.ranks.position(np.array([rank], np.int64))[0])
        return cleared_of_hang(paths_to(state, best), place, settings)
    slowdown, why_none = compared(window, symptom, settings)
    if slowdown is None:
        return Alternative(subject, why_none)
    return cleared_of_slowness(shares_of(slowdown, diagnosis.suspects), rank)


def of_hang(paths: Paths, findings: tuple[Finding, ...], settings: Settings) -> tuple[Alternative, ...]:
    """The few that come with the diagnosis of a hang."""
    return _few(findings, hang_alternatives(paths, findings, settings))


def of_slowdown(slowdown: Slowdown, findings: tuple[Finding, ...]) -> tuple[Alternative, ...]:
    """The few that come with the diagnosis of a slowdown."""
    if not findings:
        return ()
    return _few(findings, slow_alternatives(shares_of(slowdown, findings[0].suspects), findings))


def of_other_best(diagnosis: Diagnosis, best: Finding, source: str) -> tuple[Alternative, ...]:
    """The few that come with `diagnosis` once another source of evidence has found `best`: nobody who may have started it is
    cleared, and a tie that is settled is no tie."""
    before = diagnosis.findings[0] if diagnosis.findings else None
    if before is None or before.suspects == best.suspects:
        return diagnosis.alternatives
    ties = [one for one in before.tied if not best.suspects & set(one.ranks)] if best.culprits else []
    settled = [Alternative(one, _SETTLED.format(best=named(best.culprits), source=source)) for one in ties]
    others = [
        one
        for one in diagnosis.alternatives
        if one.subject not in before.tied and not best.suspects & set(one.subject.ranks)
    ]
    return tuple([*settled, *others][:ALTERNATIVES_MAX])


def _few(findings: tuple[Finding, ...], others: list[Alternative]) -> tuple[Alternative, ...]:
    """Ties first, then other findings, then those that were cleared; nobody twice."""
    if not findings:
        return ()
    ties = [Alternative(tied, _tied(findings[0]), _about(findings[0], tied)) for tied in findings[0].tied]
    weaker = [Alternative(one.subject, _weaker(one), one.evidence[:4]) for one in findings[1:]]
    found = {(one.subject.kind, one.subject.name): one for one in [*others, *weaker, *ties][::-1]}
    return tuple(found.values())[:ALTERNATIVES_MAX]


def _about(finding: Finding, subject: Subject) -> tuple[Evidence, ...]:
    """The first facts of a finding that are about this subject, or about no rank alone."""
    return tuple(fact for fact in finding.evidence if fact.rank is None or fact.rank in subject.ranks)[:4]


def _said(diagnosis: Diagnosis, rank: int) -> str:
    """What the findings themselves say of this rank; '' when nothing."""
    for number, finding in enumerate(diagnosis.findings):
        if rank in finding.culprits:
            return f"It is blamed: {finding.sentence}" if number == 0 else _weaker(finding)
        if rank in finding.suspects:
            return _tied(finding)
    best = diagnosis.findings[0] if diagnosis.findings else None
    if (
        best is not None
        and not best.culprits
        and best.kind is not FaultKind.GROUP_ANOMALY
        and rank in best.subject.ranks
    ):
        return f"What was found is about it, and blames nobody: {best.sentence}"
    return ""


def _tied(finding: Finding) -> str:
    if finding.culprits:
        return f"It may be the one: the evidence does not rule it out beside {subject_words(finding.subject)}."
    return f"It may be the one: the evidence cannot tell {named(sorted(finding.suspects))} apart, so none is blamed."


def _weaker(finding: Finding) -> str:
    return f"It is named too, with {finding.grade} evidence and a score of {finding.score:.2f}: {finding.sentence}"


def _unknown(window: Window, ranks: Ranks, rank: int, at: int) -> str:
    """That nothing can be said of a rank; '' when something can."""
    if window.world_size and not 0 <= rank < window.world_size:
        return f"There is no such rank: the job has {window.world_size}."
    if at < 0:
        return "Nothing in this window mentions it: whether it is to blame is not known."
    if ranks.seen_ns[at] == 0 and not (window.rows("op")["rank"] == rank).any():
        return "It sent nothing in this window: whether it is to blame cannot be told from its own data."
    return ""


def _node_name(window: Window, ranks: Ranks, at: int) -> str:
    node = int(ranks.node[at]) if at >= 0 else -1
    return str(window.nodes["name"][node]) if node >= 0 else ""
