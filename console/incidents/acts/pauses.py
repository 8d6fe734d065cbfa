"""Declared pauses: somebody says that nothing is expected of a job for a while, so that an idle job wakes nobody.

A pause belongs to the attempt it was declared for and ends by itself. It excuses idleness alone: a hang, a silent node
and a slowdown are told all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from console.incidents.lifecycle import Actor, BadAct, checked_note
from console.incidents.models import DeclaredPause
from console.incidents.rows import iso
from ingest.models import Attempt, Job

MINUTES_MAX: Final = 7 * 24 * 60


@dataclass(frozen=True, slots=True)
class PauseRow:
    """A declared pause in force. attempt: its number."""

    id: int
    attempt: int
    reason: str
    declared_at: str
    declared_by: str
    until: str


def declare_pause(job: Job, actor: Actor, reason: str, minutes: int) -> PauseRow:
    """Nothing is expected of the job's newest attempt for so long; replaces a pause in force. Raises BadAct."""
    reason = checked_note(reason, needed=True)
    if not 1 <= minutes <= MINUTES_MAX:
        raise BadAct(f"A pause lasts 1 to {MINUTES_MAX} minutes, not {minutes}.")
    attempt = Attempt.objects.filter(job=job).order_by("-number").first()
    if attempt is None or attempt.state != Attempt.State.RUNNING:
        raise BadAct("This job does not run, so it cannot be paused.")
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=attempt.pk)
        now = timezone.now()
        _end(attempt, actor)
        made = DeclaredPause.objects.create(
            attempt=attempt, reason=reason, declared_at=now, declared_by=actor.name,
            until_at=now + timedelta(minutes=minutes),
        )  # fmt: skip
    return _row(made)


def end_pause(job: Job, actor: Actor) -> None:
    """End the pause of the job's newest attempt, if there is one."""
    attempt = Attempt.objects.filter(job=job).order_by("-number").first()
    if attempt is not None:
        _end(attempt, actor)


def read_pause(attempt: Attempt | None) -> PauseRow | None:
    """The pause in force."""
    in_force = DeclaredPause.objects.filter(attempt=attempt, ended_at=None, until_at__gt=timezone.now())
    found = in_force.select_related("attempt").first() if attempt is not None else None
    return _row(found) if found else None


def pause_sentence(attempt: Attempt) -> str:
    """Why nothing is expected of the attempt now; '' without a pause."""
    found = read_pause(attempt)
    return (
        f"Paused by {found.declared_by} until {found.until[:16].replace('T', ' ')} UTC: {found.reason}" if found else ""
    )


def _end(attempt: Attempt, actor: Actor) -> None:
    DeclaredPause.objects.filter(attempt=attempt, ended_at=None).update(ended_at=timezone.now(), ended_by=actor.name)


def _row(pause: DeclaredPause) -> PauseRow:
    return PauseRow(
        pause.pk, pause.attempt.number, pause.reason, iso(pause.declared_at) or "", pause.declared_by,
        iso(pause.until_at) or "",
    )  # fmt: skip
