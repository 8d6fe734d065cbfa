"""An incident's evidence for the page: the windows its grid and lanes are drawn from.

The traces around an incident are pinned, so the same pictures can be drawn when retention has dropped the rest. Only
the seconds and tables a picture needs are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from django.utils import timezone

from console.incidents import grid, lanes
from console.incidents.models import ConditionState, Incident
from console.incidents.read import newest_revision
from console.incidents.rows import iso, iso_from_ns
from ingest.models import Attempt, Job, Rank
from ingest.read import latest_data_ns, read_window
from rca.findings import Diagnosis, diagnosis_from_json

SECOND: Final = 1_000_000_000
GRID_NS: Final = 5 * SECOND
LANES_BEFORE_NS: Final = 10 * SECOND
LANES_NS: Final = 60 * SECOND  # lanes.TICKS_MAX at ten ticks a second
RANKS_MAX: Final = 64
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
    """Flow lanes of `ranks`, else of the culprits and the first victims, around the first symptom unless said.

    Only the nodes of these ranks are read, and no longer a time than lanes can show.
    """
    start_ns = from_ns if from_ns is not None else incident.first_symptom_ns - LANES_BEFORE_NS
    newest = latest_data_ns(incident.attempt_id) + 1 if to_ns is None else to_ns
    end_ns = max(min(newest, start_ns + LANES_NS), start_ns + 1)
    chosen = list(ranks) or _interesting(newest_diagnosis(incident), incident.attempt_id)
    shown = chosen[:RANKS_MAX]
    window = read_window(incident.attempt_id, start_ns, end_ns, lanes.TABLES, ranks=shown)
    drawn = lanes.make_lanes(window, shown, incident.first_symptom_ns, incident.triggered_ns)
    return dataclasses.replace(drawn, omitted=drawn.omitted + len(chosen) - len(shown))


def _interesting(diagnosis: Diagnosis | None, attempt_id: int) -> list[int]:
    """Culprits, then those who wait for them first, then other victims; without a diagnosis the first ranks."""
    if diagnosis is None:
        known = Rank.objects.filter(attempt=attempt_id, rank__gte=0, replaced=False).order_by("rank")
        return list(known.values_list("rank", flat=True).distinct()[:VICTIMS_SHOWN])
    culprits = list(diagnosis.culprits)
    near = [edge.waiter for edge in diagnosis.path if edge.waits_for in culprits]
    return list(dict.fromkeys([*culprits, *near, *diagnosis.victims]))[: len(culprits) + VICTIMS_SHOWN]
