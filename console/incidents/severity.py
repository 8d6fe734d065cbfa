"""How bad an incident is, by the worst symptom it has shown: low, medium, high.

A job that stands still or is not heard of is worse than a slow one; an idle one may be nothing. It only ever rises while
the same trouble lasts.
"""

from __future__ import annotations

from typing import Any, Final

from console.incidents.models import Incident, Severity
from rca.findings import SymptomKind

OF_SYMPTOM: Final = {
    SymptomKind.FAILURE: Severity.HIGH,
    SymptomKind.SILENCE: Severity.HIGH,
    SymptomKind.STRAGGLER: Severity.MEDIUM,
    SymptomKind.EXTERNAL: Severity.MEDIUM,
    SymptomKind.IDLE: Severity.LOW,
}
ORDER: Final = (Severity.LOW, Severity.MEDIUM, Severity.HIGH)


def severity_of(symptom: str) -> Severity:
    """How bad a symptom is; one nobody knows is not called harmless."""
    return {kind.value: found for kind, found in OF_SYMPTOM.items()}.get(symptom, Severity.HIGH)


def rank_of(severity: str) -> int:
    return ORDER.index(Severity(severity))


def worse(incident: Incident, symptom: str) -> dict[str, Any]:
    """The column to write when a further symptom is worse than what was seen so far; {} when it is not."""
    further = severity_of(symptom)
    return {"severity": further} if rank_of(further) > rank_of(incident.severity) else {}
