"""Reading incidents for pages and scripts: lists with facets, one incident, its timeline and diagnoses.

Every query is bounded, and starts from the caller's teams: what belongs to another team is simply not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from console.incidents.live import IncidentRow, TimelineRow
from console.incidents.models import DiagnosisRevision, Incident, State
from console.incidents.rows import incident_row, iso, timeline_row
from rca.findings import diagnosis_from_json, to_json

PAGE_SIZE: Final = 50
TIMELINE_MAX: Final = 500
REVISIONS_SHOWN_MAX: Final = 100
NOW_MAX: Final = 200
RECENT_SECONDS: Final = 3600
FACETS: Final[dict[str, str]] = {"state": "state", "symptom": "symptom", "job": "job__name"}


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """One page of a filtered list. facets: name → value → how many, with every other filter applied."""

    total: int
    page: int
    pages: int
    incidents: list[IncidentRow]
    facets: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """A diagnosis of an incident, without its body."""

    id: int
    at: str
    verdict: str
    culprits: list[int]
    grade: str


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


def read_page(team_ids: Sequence[int], filters: Mapping[str, list[str]], text: str, page: int) -> IncidentPage:
    """Incidents that match every filter; `text` is looked for in headlines, job names and numbers."""
    searched = visible_incidents(team_ids).filter(_matching(text))
    found = searched.filter(_filtered(filters))
    total = found.count()
    pages = max(1, -(-total // PAGE_SIZE))
    page = min(max(page, 1), pages)
    shown = found.order_by("-id")[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    facets = {name: _counts(searched.filter(_filtered(filters, but=name)), column) for name, column in FACETS.items()}
    return IncidentPage(total, page, pages, [incident_row(incident) for incident in shown], facets)


def read_timeline(incident: Incident) -> list[TimelineRow]:
    """The newest entries, oldest of them first."""
    newest = list(incident.timeline.order_by("-id")[:TIMELINE_MAX])
    return [timeline_row(entry) for entry in reversed(newest)]


def read_revisions(incident: Incident) -> list[RevisionRow]:
    """The diagnoses so far, newest first, without their bodies."""
    columns = incident.revisions.order_by("-number").values_list("number", "at", "verdict", "culprits", "grade")
    return [
        RevisionRow(number, iso(at) or "", verdict, culprits, grade)
        for number, at, verdict, culprits, grade in columns[:REVISIONS_SHOWN_MAX]
    ]


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


def read_neighbours(incident: Incident, team_ids: Sequence[int]) -> tuple[int | None, int | None]:
    """Numbers of the incidents before and after this one."""
    visible = Incident.objects.filter(team__in=team_ids)
    before = visible.filter(pk__lt=incident.pk).order_by("-id").values_list("id", flat=True).first()
    after = visible.filter(pk__gt=incident.pk).order_by("id").values_list("id", flat=True).first()
    return before, after


def _matching(text: str) -> Q:
    if not text:
        return Q()
    found = Q(headline__icontains=text) | Q(job__name__icontains=text)
    return found | Q(pk=int(text)) if text.isascii() and text.isdigit() and len(text) < 16 else found


def _filtered(filters: Mapping[str, list[str]], but: str = "") -> Q:
    chosen = Q()
    for name, values in filters.items():
        if values and name != but:
            chosen &= Q(**{f"{FACETS[name]}__in": values})
    return chosen


def _counts(found: QuerySet[Incident], column: str) -> dict[str, int]:
    rows: Any = found.values_list(column).annotate(n=Count("id")).order_by("-n")[:100]
    return dict(rows)
