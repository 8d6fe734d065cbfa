"""Stages and the collective layer as one diagnosis: each settles what the other cannot (StageFrontier §6.6).

stages name a rank and a stage        the same rank before its ops: the stage says what it was doing there
all ranks alike by their stages       who enters the ops last is the one they wait for
the rules of ops see inside an op     a NIC, a proxy or a copy: stages only say that backward got longer
they disagree                         both are shown, and that they disagree
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ingest.window import Window
from rca.findings import Diagnosis, Evidence, Finding, Grade
from rca.frontier.moved import Verdict
from rca.frontier.told import Told
from rca.rules import late_start, stage_delay
from rca.settings import Settings

STAGES: Final = "Stages"


def with_stages(diagnosis: Diagnosis, told: Sequence[Told], window: Window, settings: Settings) -> Diagnosis:
    """`diagnosis` with what the windows of stages say; unchanged where none tells anything of this time."""
    if not told:
        return diagnosis
    found = [finding for one in told for finding in stage_delay.explain(one, window, settings)]
    found.sort(key=lambda finding: (not finding.culprits, -finding.score))
    if not found:
        return replace(diagnosis, agreement=(*diagnosis.agreement, _silent(told)))
    best = found[0]
    findings, stance = _joined(diagnosis.findings, best)
    findings = (*findings, *found[1:])[: settings.findings_max]
    victims = diagnosis.victims or _victims(findings, told, window)
    return replace(
        diagnosis, findings=findings, victims=tuple(one for one in victims if one not in findings[0].culprits),
        agreement=(*diagnosis.agreement, f"{STAGES}{stance}: {best.sentence}"),
    )  # fmt: skip


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


def _victims(findings: tuple[Finding, ...], told: Sequence[Told], window: Window) -> tuple[int, ...]:
    """Everybody else, where all ranks are one group; of one role of several it is not known who waits."""
    if not findings[0].culprits or any(one.role for one in told):
        return ()
    return tuple(window.ranks["rank"].tolist())


def _silent(told: Sequence[Told]) -> str:
    """Why stages name nobody, and what to look at next."""
    slow = [one for one in told if one.verdict is Verdict.UNLOCALISED]
    if slow:
        newest = max(slow, key=lambda one: one.end_ns)
        longer = f"the step takes {newest.step_s * 1e3:.0f} ms, usually {newest.usual_s * 1e3:.0f} ms"
        return f"{STAGES}: {longer}, and no stage may be called the cause. {newest.next_look}"
    return f"{STAGES}: the step time has not moved against the job's normal."
