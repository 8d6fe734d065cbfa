"""A wanted change of pace: somebody says that the job was changed on purpose, so that what is slower now is its normal.

Each look takes in the newest declaration once (rca/triggers/anew.py). An open slowdown then becomes clear by itself, since
nothing is slower than usual any more; who began the change is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from console.incidents.lifecycle import Actor, BadAct, TooMany, checked_note
from console.incidents.models import Incident, State, WantedPace
from console.incidents.rows import iso, iso_from_ns
from console.operations.metrics import ASKED_TOO_OFTEN
from ingest.door.marks import mark_heard
from ingest.models import Attempt, Job
from ingest.read import latest_data_ns
from rca.findings import SymptomKind
from rca.triggers.anew import anew
from rca.triggers.normal import Normal

LATELY_NS: Final = 60 * 1_000_000_000  # where no incident says since when
DECLARED_MAX: Final = 10
DECLARED_WITHIN: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class WantedPaceRow:
    """The newest declaration of an attempt. attempt: its number; since: from when on its pace is the normal one."""

    attempt: int
    reason: str
    since: str
    declared_at: str
    declared_by: str


def declare_wanted(job: Job, actor: Actor, reason: str) -> WantedPaceRow:
    """The newest attempt's pace is wanted as it is, from its open slowdown's first symptom on. Raises BadAct, TooMany."""
    reason = checked_note(reason, needed=True)
    attempt = Attempt.objects.filter(job=job).order_by("-number").first()
    if attempt is None or attempt.state != Attempt.State.RUNNING or not (newest_ns := latest_data_ns(attempt.pk)):
        raise BadAct("This job does not run, so it has no pace.")
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=attempt.pk)
        lately = WantedPace.objects.filter(attempt=attempt, declared_at__gte=timezone.now() - DECLARED_WITHIN)
        if lately.count() >= DECLARED_MAX:
            ASKED_TOO_OFTEN.inc()
            raise TooMany(f"At most {DECLARED_MAX} times in {DECLARED_WITHIN.seconds // 60} minutes.")
        made = WantedPace.objects.create(
            attempt=attempt, since_ns=_since_ns(attempt, newest_ns), reason=reason, declared_at=timezone.now(),
            declared_by=actor.name,
        )  # fmt: skip
        transaction.on_commit(lambda: mark_heard([attempt.pk]))
    return _row(made)


def read_wanted(attempt: Attempt | None) -> WantedPaceRow | None:
    """What was declared last of the attempt."""
    newest = WantedPace.objects.filter(attempt=attempt).select_related("attempt").order_by("-pk").first()
    return _row(newest) if attempt is not None and newest else None


def with_wanted(normal: Normal, attempt_id: int) -> Normal:
    """`normal` after the newest declaration, if it has not taken that in yet."""
    newest = WantedPace.objects.filter(attempt=attempt_id, pk__gt=normal.declaration).order_by("-pk").first()
    return anew(normal, newest.since_ns, newest.pk) if newest else normal


def _since_ns(attempt: Attempt, newest_ns: int) -> int:
    """When the open slowdown began, else a minute ago."""
    slow = Incident.objects.filter(attempt=attempt, symptom=SymptomKind.STRAGGLER.value).exclude(state=State.RESOLVED)
    begun = slow.order_by("-id").values_list("first_symptom_ns", flat=True).first()
    return begun if begun else newest_ns - LATELY_NS


def _row(wanted: WantedPace) -> WantedPaceRow:
    return WantedPaceRow(
        wanted.attempt.number, wanted.reason, iso_from_ns(wanted.since_ns) or "", iso(wanted.declared_at) or "",
        wanted.declared_by,
    )  # fmt: skip


def wanted_since_ns(attempt_id: int) -> int:
    """From when on, data time, the attempt's pace is the wanted one; 0 when nobody said so."""
    newest = WantedPace.objects.filter(attempt=attempt_id).order_by("-pk").values_list("since_ns", flat=True).first()
    return newest or 0
