"""What a look must know of its attempt beside its traces, in one question.

Most of it is nearly always "no": no pause, no wanted pace, no threshold of its own, no stages, no incident. Asked one by
one, through models, that took longer than the look itself; whoever is told "yes" reads the rest where it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.db import connection
from django.utils import timezone

from console.incidents.models import LOOK_FAILED, DeclaredPause, Incident, Look, SettingChange, WantedPace
from console.stages.models import StagePacket
from ingest.models import Attempt


@dataclass(frozen=True, slots=True)
class Beside:
    """seen_ns: end of the newest look, 0 when there is none or it failed. wanted: number of the newest declaration of a
    wanted pace, 0 for none. has_overrides: of the job's thresholds, now or once. has_incidents: of the job, ever."""

    seen_ns: int
    wanted: int
    has_overrides: bool
    is_paused: bool
    has_stages: bool
    has_incidents: bool


def read_beside(attempt: Attempt) -> Beside:
    """As it is now."""
    with connection.cursor() as cursor:
        given: dict[str, Any] = {
            "attempt": attempt.pk,
            "job": attempt.job_id,
            "now": timezone.now(),
            "failed": LOOK_FAILED,
        }
        cursor.execute(_SELECT, given)
        seen_ns, wanted, *known = cursor.fetchone()
    return Beside(seen_ns or 0, wanted or 0, *known)


def _table(model: Any) -> str:
    return str(model._meta.db_table)


_SELECT: Final = f"""
SELECT
    (SELECT CASE WHEN kind = %(failed)s THEN 0 ELSE seen_ns END FROM {_table(Look)}
     WHERE attempt_id = %(attempt)s ORDER BY id DESC LIMIT 1),
    (SELECT max(id) FROM {_table(WantedPace)} WHERE attempt_id = %(attempt)s),
    EXISTS (SELECT 1 FROM {_table(SettingChange)} WHERE job_id = %(job)s),
    EXISTS (SELECT 1 FROM {_table(DeclaredPause)}
            WHERE attempt_id = %(attempt)s AND ended_at IS NULL AND until_at > %(now)s),
    EXISTS (SELECT 1 FROM {_table(StagePacket)} WHERE attempt_id = %(attempt)s),
    EXISTS (SELECT 1 FROM {_table(Incident)} WHERE job_id = %(job)s)
"""
