"""Reading incidents for pages and scripts: those of now, one incident, its timeline and diagnoses. Lists: listing.py.

Every query is bounded, and starts from the caller's teams: what belongs to another team is simply not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.utils import timezone

from console.incidents.live import IncidentRow, TimelineRow
from console.incidents.models import DiagnosisRevision, Incident, State
from console.incidents.rows import incident_row, iso, timeline_row
from rca.findings import diagnosis_from_json, to_json

TIMELINE_MAX: Final = 500
REVISIONS_SHOWN_MAX: Final = 100
NOW_MAX: Final = 200
ATTACHED_SHOWN_MAX: Final = 50
RECENT_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A diagnosis of an incident, without its body."""

    id: int
    at: str
    verdict: str
    culprits: list[int]
    grade: str


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """What somebody found out afterwards; see models.Review."""

    at: str
    actor: str
    alarm: str
    verdict: str
    cause: str
    component: str
    culprits: list[int]
    node: str


def visible_incidents(team_ids: Sequence[int]) -> QuerySet[Incident]:
    return Incident.objects.filter(team__in=team_ids).select_related("job", "attempt")


def find_incident(number: int, team_ids: Sequence[int]) -> Incident:
    """Incident.DoesNotExist when there is none, or when it is another team's."""
    return visible_incidents(team_ids).get(pk=number)


def read_current(team_ids: Sequence[int]) -> list[IncidentRow]:
    """What is not resolved, and what was resolved lately; newest first."""
    recently = timezone.now() - timedelta(seconds=RECENT_SECONDS)
    current = ~Q(state=State.RESOLVED) | Q(resolved_at__gte=recently)
    return [incident_row(found) for found in visible_incidents(team_ids).filter(current).order_by("-id")[:NOW_MAX]]


def read_timeline(incident: Incident, before: int | None = None) -> tuple[list[TimelineRow], int]:
    """The newest entries, or the newest before the entry of this id, oldest of them first; and how many are older still."""
    entries = incident.timeline.all() if before is None else incident.timeline.filter(pk__lt=before)
    newest = list(entries.order_by("-id")[:TIMELINE_MAX])
    older = incident.timeline.filter(pk__lt=newest[-1].pk).count() if len(newest) == TIMELINE_MAX else 0
    return [timeline_row(entry) for entry in reversed(newest)], older


def read_revisions(incident: Incident) -> list[RevisionRow]:
    """The diagnoses so far, newest first, without their bodies."""
    columns = incident.revisions.order_by("-number").values_list("number", "at", "verdict", "culprits", "grade")
    return [
        RevisionRow(number, iso(at) or "", verdict, culprits, grade)
        for number, at, verdict, culprits, grade in columns[:REVISIONS_SHOWN_MAX]
    ]


def read_attached(incident: Incident) -> list[Incident]:
    """The incidents that follow from this one, newest first."""
    if not incident.n_attached:
        return []
    return list(incident.attached.select_related("job", "attempt").order_by("-id")[:ATTACHED_SHOWN_MAX])


def read_review(incident: Incident) -> ReviewRow | None:
    """The newest review."""
    found = incident.reviews.order_by("-id").first() if incident.review else None
    if found is None:
        return None
    return ReviewRow(
        iso(found.at) or "", found.actor, found.alarm, found.verdict, found.cause, found.component, found.culprits,
        found.node,
    )  # fmt: skip


def newest_revision(incident: Incident) -> DiagnosisRevision | None:
    return incident.revisions.order_by("-number").first()


def diagnosis_for_browser(body: Any) -> Any:
    """A stored diagnosis with every field of today's; one of an older version has the later ones empty."""
    return _browser_safe(to_json(diagnosis_from_json(body)))


def _browser_safe(body: Any) -> Any:
    """Communicator ids have 64 bits, which JavaScript's numbers cannot hold, so they are text."""
    if isinstance(body, dict):
        return {key: str(value) if key == "comm_id" else _browser_safe(value) for key, value in body.items()}
    return [_browser_safe(one) for one in body] if isinstance(body, list) else body
