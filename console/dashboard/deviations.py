"""Which settings behind looks and incidents are not the shipped ones, so that a measurement can say what it measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings

from console.incidents.watching.thresholds import overridden
from ingest.models import Job
from rca.settings import DEFAULT, Settings

SHIPPED: Final[dict[str, Any]] = {
    "WATCH_HEARD_SECONDS": 1.0,
    "WATCH_ALL_SECONDS": 10.0,
    "LOOK_WINDOW_SECONDS": 15.0,
    "CLEAN_LOOKS_TO_CLEAR": 3,
    "CLEAN_LOOK_SECONDS": 3.0,
    "REGRESSED_SECONDS": 1800,
    "RESOLVE_AFTER_CLEAR_SECONDS": 600.0,
    "REVISIONS_MAX": 100,
}
"""Name in console/settings.py → value as shipped; a test keeps the two alike."""


def settings_overridden(team_ids: Sequence[int] = ()) -> list[str]:
    """`name=value` of every trigger's threshold and every setting of looks that differs from what is shipped, and
    `job: name=value` of what was changed for one of these teams' jobs."""
    thresholds, shipped = DEFAULT.thresholds(), Settings().thresholds()
    changed = {name: value for name, value in thresholds.items() if value != shipped[name]}
    changed |= {name: getattr(settings, name) for name, value in SHIPPED.items() if getattr(settings, name) != value}
    of_jobs = overridden(Job.objects.filter(team__in=team_ids)) if team_ids else []
    return [*(f"{name}={value:g}" for name, value in sorted(changed.items())), *of_jobs]
