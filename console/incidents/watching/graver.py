"""Whether a further symptom is a graver trouble than the one an incident is about: then the incident is about that.

A hang that begins under an old slowdown, or while an agent is lost, is another fault than these, and who is on call needs its
culprit. What follows from a hang, as slow iterations or processes that give up, is no news. Graver is strictly graver, so
that an incident gets worse a few times at most, however often symptoms come and go.
"""

from __future__ import annotations

from typing import Final

from console.incidents.models import Incident
from console.incidents.severity import worse
from rca.findings import Symptom, SymptomKind

GOT_WORSE: Final = "got worse"
BEGAN_ANEW: Final = ("fired again", GOT_WORSE)
"""Verbs of the timeline with which what an incident is about began, if not with its opening."""
_GRAVITY: Final = {
    SymptomKind.IDLE: 0,  # may be nothing
    SymptomKind.EXTERNAL: 1,
    SymptomKind.STRAGGLER: 1,
    SymptomKind.SILENCE: 1,  # of an agent costs the job nothing; a node that died with its ranks leaves a hang
    SymptomKind.FAILURE: 2,
}


def is_graver_kind(kind: SymptomKind, than: SymptomKind) -> bool:
    return _GRAVITY[kind] > _GRAVITY[than]


def is_graver(incident: Incident, symptom: Symptom) -> bool:
    """Whether the incident gets worse by this symptom. A report stays a report: its severity tells what it was seen to be."""
    if incident.symptom == SymptomKind.EXTERNAL:
        return bool(worse(incident, symptom.kind))
    return is_graver_kind(symptom.kind, SymptomKind(incident.symptom))


def is_outgrown(incident: Incident, symptom: Symptom) -> bool:
    """Whether this is the lesser trouble that was there before the incident got worse, and still is."""
    gravest = SymptomKind(incident.symptom)
    gravest = SymptomKind.FAILURE if gravest is SymptomKind.EXTERNAL else gravest
    if symptom.at_ns >= incident.first_symptom_ns or not is_graver_kind(gravest, symptom.kind):
        return False
    began = incident.timeline.filter(verb__in=BEGAN_ANEW).order_by("-id").first()
    return began is not None and began.verb == GOT_WORSE
