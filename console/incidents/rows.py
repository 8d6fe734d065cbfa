"""Models as the rows of live.py: the same values in snapshots and in live messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from django.utils import timezone

from console.incidents.live import Certainty, ConditionState, IncidentRow, IncidentState, Severity, TimelineRow
from console.incidents.models import Incident, State, TimelineEntry

CULPRITS_SHOWN_MAX = 16
NODES_SHOWN_MAX = 16


def iso(at: datetime | None) -> str | None:
    """ISO 8601 in UTC with milliseconds."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_from_ns(at_ns: int) -> str | None:
    """The same for unix nanoseconds; 0 is unknown."""
    if not at_ns:
        return None
    return iso(datetime.fromtimestamp(at_ns / 1e9, UTC))


def incident_row(incident: Incident) -> IncidentRow:
    """An incident as lists and headers show it; `job` and `attempt` should be selected with it."""
    return IncidentRow(
        number=incident.pk,
        version=incident.version,
        job_id=incident.job_id,
        job=incident.job.name,
        attempt=incident.attempt.number,
        symptom=incident.symptom,
        state=cast(IncidentState, incident.state),
        condition=cast(ConditionState, incident.condition),
        certainty=cast(Certainty, incident.certainty),
        headline=incident.headline,
        component=incident.component,
        fault_kind=incident.fault_kind,
        grade=incident.grade,
        culprits=tuple(incident.culprits[:CULPRITS_SHOWN_MAX]),
        n_culprits=incident.n_culprits,
        suspects=tuple(incident.suspects[:CULPRITS_SHOWN_MAX]),
        n_suspects=incident.n_suspects,
        n_victims=incident.n_victims,
        opened_at=iso(incident.opened_at) or "",
        first_symptom_at=iso_from_ns(incident.first_symptom_ns) or "",
        triggered_at=iso_from_ns(incident.triggered_ns) or "",
        root_caused_at=iso(incident.root_caused_at),
        acknowledged_at=iso(incident.acknowledged_at),
        acknowledged_by=incident.acknowledged_by,
        resolved_at=iso(incident.resolved_at),
        resolution=incident.resolution,
        regressed=incident.regressed,
        recurrence_of=incident.recurrence_of_id,
        updated_at=iso(incident.updated_at) or "",
        acknowledged_until=iso(incident.acknowledged_until),
        severity=cast(Severity, incident.severity),
        assignee=incident.assignee,
        nodes=tuple(incident.culprit_nodes[:NODES_SHOWN_MAX]),
        silence=incident.silence_id,
        silenced_until=iso(incident.silenced_until),
        attached_to=incident.attached_to_id,
        n_attached=incident.n_attached,
        review=incident.review,
    )


def timeline_row(entry: TimelineEntry) -> TimelineRow:
    return TimelineRow(
        id=entry.pk,
        incident=entry.incident_id,
        at=iso(entry.at) or "",
        actor=entry.actor,
        actor_kind=entry.actor_kind,
        verb=entry.verb,
        before=entry.before,
        after=entry.after,
        note=entry.note,
    )


def is_quiet(incident: Incident) -> bool:
    """Whether nobody is to be woken for it now: it is silenced, or follows from an unresolved incident that is told of
    already."""
    if incident.silenced_until is not None and incident.silenced_until > timezone.now():
        return True
    return incident.attached_to is not None and incident.attached_to.state != State.RESOLVED
