"""An incident's evidence for the page: the windows its grid and lanes are drawn from.

The traces around an incident are pinned, so the same pictures can be drawn when retention has dropped the rest. Only
the seconds and tables a picture needs are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.utils import timezone

from console.incidents import grid, lanes
from console.incidents.models import ConditionState, Incident
from console.incidents.read import newest_revision
from console.incidents.rows import iso, iso_from_ns
from ingest.models import Attempt, Job
from ingest.read import latest_data_ns, read_window
from rca.findings import Diagnosis, diagnosis_from_json

SECOND: Final = 1_000_000_000
GRID_NS: Final = 5 * SECOND
LANES_BEFORE_NS: Final = 10 * SECOND
LANES_NS: Final = 60 * SECOND
LANES_NS_MAX: Final = 120 * SECOND
VICTIMS_SHOWN: Final = 8


def newest_diagnosis(incident: Incident) -> Diagnosis | None:
    revision = newest_revision(incident)
    return diagnosis_from_json(revision.body) if revision else None


def incident_grid(incident: Incident) -> grid.Grid:
    """The grid while the incident fires: now; afterwards: at the end of its pinned window."""
    is_firing = incident.condition != ConditionState.CLEAR
    end_ns = latest_data_ns(incident.attempt_id) + 1 if is_firing else incident.window_end_ns
    window = read_window(incident.attempt_id, end_ns - GRID_NS, end_ns, grid.TABLES)
    at = iso(timezone.now()) if is_firing else iso_from_ns(end_ns)
    return grid.make_grid(window, newest_diagnosis(incident), at or "")


def job_grid(job: Job) -> grid.Grid:
    """The grid of the job's newest attempt now. Attempt.DoesNotExist when nothing was ever heard of it."""
    attempt = Attempt.objects.filter(job=job).latest("number")
    incident = Incident.objects.filter(attempt=attempt).exclude(condition=ConditionState.CLEAR).last()
    end_ns = latest_data_ns(attempt.pk) + 1
    window = read_window(attempt.pk, end_ns - GRID_NS, end_ns, grid.TABLES)
    return grid.make_grid(window, newest_diagnosis(incident) if incident else None, iso(timezone.now()) or "")


def incident_lanes(
    incident: Incident, from_ns: int | None = None, to_ns: int | None = None, ranks: Sequence[int] = ()
) -> lanes.Lanes:
    """Flow lanes of `ranks`, else of the culprits and the first victims, around the first symptom unless said."""
    start_ns = from_ns if from_ns is not None else incident.first_symptom_ns - LANES_BEFORE_NS
    newest = min(latest_data_ns(incident.attempt_id) + 1, start_ns + LANES_NS)
    end_ns = min(to_ns, start_ns + LANES_NS_MAX) if to_ns is not None else newest
    window = read_window(incident.attempt_id, start_ns, max(end_ns, start_ns + 1), lanes.TABLES)
    chosen = ranks or _interesting(newest_diagnosis(incident), window.ranks["rank"].tolist())
    return lanes.make_lanes(window, chosen, incident.first_symptom_ns, incident.triggered_ns)


def _interesting(diagnosis: Diagnosis | None, known: list[int]) -> list[int]:
    """Culprits, then those who wait for them first, then other victims; without a diagnosis the first ranks."""
    if diagnosis is None:
        return known[:VICTIMS_SHOWN]
    culprits = list(diagnosis.culprits)
    near = [edge.waiter for edge in diagnosis.path if edge.waits_for in culprits]
    return list(dict.fromkeys([*culprits, *near, *diagnosis.victims]))[: len(culprits) + VICTIMS_SHOWN]
