"""Stages and the collective layer as one diagnosis: each settles what the other cannot (StageFrontier §6.6).

stages name a rank and a stage        the same rank before its ops: the stage says what it was doing there
all ranks alike by their stages       who enters the ops last is the one they wait for
the rules of ops see inside an op     a NIC, a proxy or a copy: stages only say that backward got longer
they disagree                         both are shown, and that they disagree
several roles name somebody           who is late in the earliest stage: the others may have waited for it
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ingest.window import Window
from nccl_instrument.stage_schema import BACKWARD
from rca.findings import Diagnosis, Evidence, Finding, Grade, SymptomKind, WaitEdge
from rca.frontier.moved import Verdict
from rca.frontier.told import Told
from rca.holes import best_of
from rca.rules import late_start, stage_delay
from rca.settings import Settings
from rca.slow.reached import reached
from rca.why_not import of_other_best

STAGES: Final = "Stages"
_PIPELINE: Final = re.compile(r"\bpp (\d+)")


def with_stages(diagnosis: Diagnosis, told: Sequence[Told], window: Window, settings: Settings) -> Diagnosis:
    """`diagnosis` with what the windows of stages say; unchanged where none tells anything of this time."""
    if not told:
        return diagnosis
    found = _origin_first([(one, finding) for one in told for finding in stage_delay.explain(one, window, settings)])
    if not found:
        return replace(diagnosis, agreement=(*diagnosis.agreement, _silent(told, diagnosis.symptom.at_ns)))
    best = found[0]
    findings, stance = _joined(diagnosis.findings, best)
    findings, missing = best_of((*findings, *found[1:]), settings.findings_max, diagnosis.missing)
    victims, path = _waiting(diagnosis, findings, told, window, settings)
    return replace(
        diagnosis, findings=findings, victims=victims, path=path, missing=missing,
        alternatives=of_other_best(diagnosis, findings[0], STAGES.lower()),
        agreement=(*diagnosis.agreement, f"{STAGES}{stance}: {best.sentence}"),
    )  # fmt: skip


def _origin_first(found: list[tuple[Told, Finding]]) -> list[Finding]:
    """Best first. Roles of one step wait for each other, so of several that name a rank the one that is late first is the
    culprit; whoever is late in a later stage, or further along the pipeline, may only have waited for it."""
    naming = sorted((pair for pair in found if pair[1].culprits), key=lambda pair: (*_when(pair[0]), -pair[1].score))
    rest = sorted((pair[1] for pair in found if not pair[1].culprits), key=lambda finding: -finding.score)
    if not naming:
        return rest
    (first, best), *later = naming
    return [best, *(_after(finding, first) for one, finding in later if one.role != first.role), *rest]


def _when(told: Told) -> tuple[int, int]:
    """Place of the stage in the step, and of the role along the pipeline: backward goes through it the other way."""
    place = _PIPELINE.search(told.role)
    along = int(place.group(1)) if place else 0
    return told.place, -along if told.stage == BACKWARD else along


def _after(finding: Finding, first: Told) -> Finding:
    """A finding of a role that may have waited for another one: it blames nobody."""
    before = Evidence(f"rank {first.rank} is late before, in {first.stage}", first.role, "", "stage", first.rank)
    return replace(finding, culprits=(), grade=Grade.WEAK, score=0.4, evidence=(*finding.evidence, before))


def _joined(collective: tuple[Finding, ...], stage: Finding) -> tuple[tuple[Finding, ...], str]:
    """The findings, best first, and how stages stand to the rest."""
    leading = collective[0] if collective else None
    if leading is None or not (leading.culprits or leading.tied):
        return (stage, *collective), ""
    ranks = {rank for one in leading.tied for rank in one.ranks} or set(leading.culprits)
    if not stage.culprits:
        return (*collective, stage), ", agrees" if leading.rule == late_start.RULE else ""
    if not set(stage.culprits) & ranks:
        return (*collective, stage), ", disagrees"
    if leading.rule == late_start.RULE:
        # Both say that the rank is late before it enters an op; only stages say what it was doing.
        return (_backed(stage, leading, "collective layer"), *collective), ", same culprit"
    return (_backed(leading, stage, "stages"), *collective[1:], stage), ", same culprit"


def _backed(best: Finding, other: Finding, source: str) -> Finding:
    """With the evidence of the other, which makes it surer."""
    evidence = (*best.evidence, *other.evidence, Evidence(f"{source} agrees", other.sentence, "", source))
    return replace(best, evidence=evidence, grade=Grade.STRONG, score=max(best.score, other.score, 0.9))


def _waiting(
    diagnosis: Diagnosis, findings: tuple[Finding, ...], told: Sequence[Told], window: Window, settings: Settings
) -> tuple[tuple[int, ...], tuple[WaitEdge, ...]]:
    """Who only waits for whoever may have started it now, and how."""
    suspects = findings[0].suspects
    if suspects == diagnosis.suspects and diagnosis.victims:
        return diagnosis.victims, diagnosis.path
    if diagnosis.symptom.kind is SymptomKind.STRAGGLER and diagnosis.path:
        return reached(window.members, suspects, settings.path_edges_max)
    victims = {*diagnosis.victims, *diagnosis.suspects} if diagnosis.victims else {*_victims(findings, told, window)}
    return tuple(sorted(victims - suspects)), tuple(one for one in diagnosis.path if one.waiter not in suspects)


def _victims(findings: tuple[Finding, ...], told: Sequence[Told], window: Window) -> tuple[int, ...]:
    """Everybody else, where all ranks are one group; of one role of several it is not known who waits."""
    if not findings[0].culprits or any(one.role for one in told):
        return ()
    return tuple(window.ranks["rank"].tolist())


def _silent(told: Sequence[Told], onset_ns: int) -> str:
    """Why stages name nobody, and what to look at next. onset_ns: since when the job is slow."""
    slow = [one for one in told if one.verdict is Verdict.UNLOCALISED]
    if slow:
        newest = max(slow, key=lambda one: one.end_ns)
        longer = f"the step takes {newest.step_s * 1e3:.0f} ms, usually {newest.usual_s * 1e3:.0f} ms"
        return f"{STAGES}: {longer}, and no stage may be called the cause. {newest.next_look}"
    if not any(one.end_ns - onset_ns > onset_ns - one.start_ns for one in told):
        return f"{STAGES}: every window of steps that is complete lies mostly before this slowdown, so they do not tell of it."
    return f"{STAGES}: the step time has not moved against the job's normal."
