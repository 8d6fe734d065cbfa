"""Diagnoses that somebody asked for: of an incident once more, or of a job that was only reported; and those that an
incident still waits for when it is over.

Made from the pinned traces by today's rules and today's thresholds of the job. Another answer is a new revision; the same
answer is said too, since whoever asked waits for one. A report names no trigger's symptom: its evidence lies around the
time it names, and if that says nothing, in the newest traces.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from statistics import median
from typing import Final

from django.conf import settings
from django.utils import timezone

from console.dumps.reading import fused
from console.dumps.wanted import ask_for
from console.incidents import lifecycle
from console.incidents.acts.asking import BEFORE_NS
from console.incidents.models import ConditionState, DiagnosisRevision, Incident
from console.incidents.watching.graver import BEGAN_ANEW
from console.incidents.watching.kept import keep_evidence, load_normal
from console.incidents.watching.revise import (
    SECOND,
    answer,
    evidence_span,
    evidence_start_ns,
    is_stored,
    read_and_diagnose,
    store,
)
from console.incidents.watching.thresholds import settings_of
from console.stages.joining import staged
from ingest.read import latest_data_ns
from ingest.traces.retention import pin_window
from ingest.window import Window
from rca.findings import Diagnosis, Symptom, SymptomKind, diagnosis_from_json
from rca.narrowed import is_part

GIVEN_UP_AFTER: Final = timedelta(minutes=5)
REPORT_AFTER_NS: Final = 60 * SECOND  # of the time after the reported beginning
NEWEST_NS: Final = 60 * SECOND

log = logging.getLogger(__name__)


def attempts_asked_for() -> list[int]:
    """Attempts with an incident that waits for a diagnosis, ended ones too."""
    waiting = Incident.objects.filter(asked_at__isnull=False)
    return list(waiting.order_by("attempt").values_list("attempt_id", flat=True).distinct())


def ask_if_never_diagnosed(incident: Incident) -> None:
    """A slowdown that is over before its first diagnosis was sure enough to be shown (watching/revise.py: is_early) is
    diagnosed from all it left."""
    never = Incident.objects.filter(pk=incident.pk, symptom=SymptomKind.STRAGGLER, revisions=None, asked_at=None)
    never.update(asked_at=timezone.now())


def diagnose_asked(attempt_id: int) -> None:
    """Answer everybody who waits for a diagnosis of this attempt's incidents."""
    for incident in Incident.objects.filter(attempt=attempt_id, asked_at__isnull=False).select_related("attempt__job"):
        asked_at = incident.asked_at
        try:
            if asked_at is not None and timezone.now() - asked_at > GIVEN_UP_AFTER:
                lifecycle.observe(incident, "diagnosis failed", {}, note="It was tried for too long.")
            else:
                _answer_one(incident)
        except Exception as error:
            log.exception("a diagnosis that was asked for failed", extra={"incident": incident.pk})
            lifecycle.observe(incident, "diagnosis failed", {}, note=f"{type(error).__name__}: {error}"[:1000])
        Incident.objects.filter(pk=incident.pk, asked_at=asked_at).update(asked_at=None)


def _answer_one(incident: Incident) -> None:
    keep_evidence(incident)
    if incident.symptom == SymptomKind.EXTERNAL:
        ask_for(incident)
    newest = incident.revisions.order_by("-number").first()
    reported = _reported(incident)
    window, diagnosis = _diagnose(incident, reported or symptom_of(incident, newest))
    Incident.objects.filter(pk=incident.pk).update(analysed_at=timezone.now())
    if not is_stored(window):
        return lifecycle.observe(incident, "confirmed", {}, note="The traces of that time are no longer stored.")
    if diagnosis.symptom.kind is SymptomKind.EXTERNAL:
        pin_window(incident.attempt_id, window.start_ns, window.end_ns)
    if reported and newest is not None and not diagnosis.findings:
        note = f"What was reported names nobody; revision {newest.number} stands."
        return lifecycle.observe(incident, "confirmed", {}, note=note)
    number = newest.number + 1 if newest else 1
    before = diagnosis_from_json(newest.body) if newest is not None else None
    if newest is not None and before is not None and answer(diagnosis) == answer(before):
        of_all = " from all nodes" if is_part(before) and not is_part(diagnosis) else ""
        same = "the same answer as" if diagnosis.findings else "nobody stands out, as in"
        note = f"Diagnosed again{of_all}: {same} revision {newest.number}."
        return lifecycle.observe(incident, "confirmed", {}, note=note)
    if number > settings.REVISIONS_MAX:
        note = f"Another answer, but {settings.REVISIONS_MAX} revisions are kept already: {diagnosis.verdict}"
        return lifecycle.observe(incident, "confirmed", {}, note=note)
    store(incident, diagnosis, number, window, newest)


def symptom_of(incident: Incident, newest: DiagnosisRevision | None) -> Symptom:
    """The symptom that was diagnosed last; before any diagnosis the one with which its trouble began."""
    if newest is not None:
        return diagnosis_from_json(newest.body).symptom
    began = incident.timeline.filter(verb__in=("opened", *BEGAN_ANEW)).order_by("-id").first()
    note, comm_id = began.note if began else incident.headline, int(incident.comm_id or "0", 16)
    symptom = _symptom(incident, SymptomKind(incident.symptom), incident.first_symptom_ns, note)
    return replace(symptom, seen_ns=incident.triggered_ns, comm_id=comm_id)


def _reported(incident: Incident) -> Symptom | None:
    """What somebody reports now of an incident whose own trouble is over: that is another, which began just now."""
    asked = incident.timeline.filter(verb__in=("reported", "asked again")).order_by("-id").first()
    if asked is None or asked.verb != "reported" or incident.condition != ConditionState.CLEAR:
        return None
    return _symptom(incident, SymptomKind.EXTERNAL, latest_data_ns(incident.attempt_id) - BEFORE_NS, asked.note)


def _symptom(incident: Incident, kind: SymptomKind, at_ns: int, sentence: str) -> Symptom:
    usual = load_normal(incident.attempt_id).pace.usual_ns
    return Symptom(
        kind=kind, job=incident.attempt.job.name, attempt=incident.attempt.number, at_ns=at_ns,
        seen_ns=latest_data_ns(incident.attempt_id), comm_id=0, ranks=(), sentence=sentence,
        numbers={"iteration_usual_s": median(usual) / SECOND} if usual else {},
    )  # fmt: skip


def _diagnose(incident: Incident, symptom: Symptom) -> tuple[Window, Diagnosis]:
    thresholds = settings_of(incident.job_id)
    for span in _spans(incident, symptom):
        window, traced = read_and_diagnose(
            incident.attempt_id, span, symptom, thresholds, now_ns=span[1], everything=True
        )
        found = staged(incident.attempt_id, traced, window, thresholds)
        diagnosis = fused(incident, found, thresholds)
        if diagnosis.findings:
            break
    return window, diagnosis


def _spans(incident: Incident, symptom: Symptom) -> list[tuple[int, int]]:
    """What is read: the evidence; of a report, the time around what it names and then the newest, if that is another."""
    if symptom.kind is not SymptomKind.EXTERNAL:
        return [evidence_span(incident, symptom)]
    newest_ns = latest_data_ns(incident.attempt_id) + 1
    after_ns = min(newest_ns, symptom.at_ns + REPORT_AFTER_NS)
    around = (evidence_start_ns(symptom, after_ns), after_ns)
    return [around] if around[1] == newest_ns else [around, (newest_ns - NEWEST_NS, newest_ns)]
