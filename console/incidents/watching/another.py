"""Whether a trouble is another one than that of an incident that is over: then it is no return of it, and has its own incident.

Who is to blame tells it where the symptom does not: a NIC of node 0 that fails is no return of a process that was stopped on
node 3. So what comes back soon is diagnosed before it is decided; a slowdown that cannot be told yet waits for it.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from console.incidents.models import ConditionState, Incident
from console.incidents.watching.revise import Sight, is_early
from ingest.models import Attempt
from ingest.window import Window
from rca.findings import Diagnosis, Grade, Symptom, SymptomKind


def is_another_kind(incident: Incident, symptom: Symptom) -> bool:
    """Whether this is no return of what the incident was about: it stood still, went on, and is slow now; or the reverse."""
    if incident.condition != ConditionState.CLEAR or SymptomKind.EXTERNAL in (incident.symptom, symptom.kind):
        return False
    return (incident.symptom == SymptomKind.STRAGGLER) != (symptom.kind is SymptomKind.STRAGGLER)


def newest_of(attempt: Attempt, symptom: Symptom) -> Incident | None:
    """The attempt's newest incident of the same symptom."""
    return Incident.objects.filter(attempt=attempt, symptom=symptom.kind).order_by("-id").first()


def is_lately_resolved(incident: Incident) -> bool:
    """Whether it would be opened again if its trouble came back now."""
    lately = timezone.now() - timedelta(seconds=settings.REGRESSED_SECONDS)
    return incident.resolved_at is not None and incident.resolved_at >= lately


def may_come_back(incident: Incident) -> bool:
    """Whether somebody was blamed for it, and it is over, but not for long."""
    is_over = incident.condition == ConditionState.CLEAR
    return is_over and bool(incident.culprits) and (incident.resolved_at is None or is_lately_resolved(incident))


def is_untold(sight: Sight) -> bool:
    """Whether it is too early to tell who is to blame."""
    return is_early(sight.diagnosis, sight.symptom.at_ns, sight.window.end_ns)


def names_another(incident: Incident, sight: Sight) -> bool:
    """Whether somebody else is named, and for sure: ranks of other nodes, where nodes are known."""
    best = _best(sight.diagnosis)
    if not best or not incident.culprits:
        return False
    nodes = _nodes(sight.window, best)
    if nodes and incident.culprit_nodes and incident.nodes_known:
        return not nodes & set(incident.culprit_nodes)
    return not best & set(incident.culprits)


def _best(diagnosis: Diagnosis) -> set[int]:
    """Who is blamed first, unless weakly."""
    first = diagnosis.findings[0] if diagnosis.findings else None
    return set(first.culprits) if first is not None and first.grade is not Grade.WEAK else set()


def _nodes(window: Window, ranks: set[int]) -> set[str]:
    """Names of the nodes of these ranks; none where one is not known."""
    places = {int(row["rank"]): int(row["node"]) for row in window.ranks if int(row["rank"]) in ranks}
    if places.keys() != ranks or min(places.values()) < 0:
        return set()
    return {str(window.nodes["name"][node]) for node in places.values()}
