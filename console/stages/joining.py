"""Stages beside looks and diagnoses: a routed window is a symptom, and every diagnosis hears what stages say."""

from __future__ import annotations

import dataclasses

from console.stages.read import AROUND_NS, stage_symptom, told_around
from ingest.models import Attempt
from ingest.window import Window
from rca.findings import Diagnosis, SymptomKind
from rca.frontier.joined import with_stages
from rca.settings import Settings
from rca.triggers.look import Look


def seen_in_stages(attempt: Attempt, window: Window, seen: Look) -> Look:
    """The look with the symptom of the newest window of stages, where ops show none and nothing excuses the job."""
    if any(not symptom.may_be_habit for symptom in seen.symptoms) or seen.held or seen.excused:
        return seen
    symptom = stage_symptom(attempt, window.end_ns)
    return dataclasses.replace(seen, symptoms=(symptom,)) if symptom is not None else seen


def staged(attempt_id: int, diagnosis: Diagnosis, window: Window, thresholds: Settings) -> Diagnosis:
    """The diagnosis of a slowdown with what the windows of stages of that time say; of a hang it is unchanged, for a step
    that does not end has no stages."""
    if diagnosis.symptom.kind not in (SymptomKind.STRAGGLER, SymptomKind.EXTERNAL) or diagnosis.symptom.may_be_habit:
        return diagnosis
    told = told_around(attempt_id, diagnosis.symptom.at_ns - AROUND_NS // 9, window.end_ns)
    return with_stages(diagnosis, told, window, thresholds)
