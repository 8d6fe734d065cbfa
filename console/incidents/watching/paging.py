"""For which incidents people are woken, and what nodes are asked for first.

A hang, a silence, a slowdown that somebody can be named for: at once. An idle job may be about to go on, and only stacks
tell what it waits for: it asks for those first, and pages when it is still idle after they had time to come.
"""

from __future__ import annotations

from typing import Any, Final

from console.incidents import lifecycle
from console.incidents.models import Incident
from rca.findings import Symptom, SymptomKind
from rca.settings import SECOND_NS, Settings

STACKS: Final = "stacks"


def paging(symptom: Symptom) -> dict[str, Any]:
    """The columns of an incident that has just seen this symptom."""
    is_idle = symptom.kind is SymptomKind.IDLE
    return {"pages": not is_idle, "dumps_wanted": [STACKS] if is_idle else []}


def page_if_due(incident: Incident, symptom: Symptom, seen_ns: int, thresholds: Settings) -> None:
    """Page for what was kept back, once it is sure: it lasts, or something that pages at once is seen too."""
    waited_ns = seen_ns - incident.triggered_ns
    if incident.pages or (symptom.kind is SymptomKind.IDLE and waited_ns < thresholds.idle_stacks_ns):
        return
    why = symptom.sentence
    if symptom.kind is SymptomKind.IDLE:
        why = f"{why} Nothing explains it: no file traffic, no declared pause, and its processes live."
        if thresholds.idle_stacks_ns:
            why += f" Stacks were asked for {waited_ns / SECOND_NS:.0f} s ago."
    lifecycle.observe(incident, "pages", {"pages": True}, note=why)
