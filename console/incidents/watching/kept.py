"""What looks leave behind: the look itself, the normal it learned, and the traces around an incident, pinned."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.utils import timezone

from console.incidents.models import LOOK_FAILED, Incident, JobNormal, Look
from ingest.models import Attempt, PinnedWindow
from ingest.traces.retention import pin_window
from rca.triggers.look import Look as Seen
from rca.triggers.normal import Normal, normal_from_json, normal_to_json

SECOND: Final = 1_000_000_000
EVIDENCE_BEFORE_NS: Final = 20 * SECOND
EVIDENCE_AFTER_NS: Final = 100 * SECOND


def keep_evidence(incident: Incident) -> None:
    """Pin what led to the symptom; asked with every look, since whoever opened the incident may have died before it could."""
    start_ns, end_ns = incident.first_symptom_ns - EVIDENCE_BEFORE_NS, incident.first_symptom_ns + EVIDENCE_AFTER_NS
    if not PinnedWindow.objects.filter(attempt=incident.attempt_id, start_ns=start_ns).exists():
        pin_window(incident.attempt_id, start_ns, end_ns)


def load_normal(attempt_id: int) -> Normal:
    """What is usual for the attempt, as far as looks have learned it."""
    found = JobNormal.objects.filter(attempt=attempt_id).first()
    return normal_from_json(found.body) if found else Normal()


def _saw(seen: Seen) -> str:
    """What a look saw, in sentences."""
    if seen.symptoms:
        return " ".join(symptom.sentence for symptom in seen.symptoms)
    on = f"{len(seen.watched)} watched ranks"
    nothing = f"Nothing stands still on {on}. {seen.unjudged}" if seen.unjudged else f"Nothing wrong on {on}."
    return seen.held or seen.excused or seen.noted or nothing


def keep_look(attempt: Attempt, end_ns: int, seen: Seen) -> None:
    """The look and the normal it leaves behind; of the looks only the newest are kept."""
    now, first = timezone.now(), seen.symptoms[0] if seen.symptoms else None
    look = Look.objects.create(
        attempt=attempt, taken_at=now, seen_ns=end_ns, saw=_saw(seen), kind=first.kind.value if first else "",
        thresholds={"delta_s": round(seen.delta_ns / SECOND, 3)},
    )  # fmt: skip
    body = normal_to_json(seen.normal)
    if not JobNormal.objects.filter(attempt=attempt).update(body=body, updated_at=now):  # one statement, nearly always
        JobNormal.objects.update_or_create(attempt=attempt, defaults={"body": body, "updated_at": now})
    _keep_newest(attempt, look)


def _keep_newest(attempt: Attempt, look: Look) -> None:
    """Drop the oldest looks, every now and then."""
    if look.pk % 100 == 0:
        kept = Look.objects.filter(attempt=attempt).order_by("-id")[: settings.LOOKS_KEPT_PER_ATTEMPT]
        oldest = list(kept.values_list("pk", flat=True))[-1]
        Look.objects.filter(attempt=attempt, pk__lt=oldest).delete()


def keep_failure(attempt: Attempt, end_ns: int, error: Exception) -> None:
    """A look that ended in an error."""
    saw = f"The look failed: {type(error).__name__}: {error}"[:1000]
    look = Look.objects.create(attempt=attempt, taken_at=timezone.now(), seen_ns=end_ns, kind=LOOK_FAILED, saw=saw)
    _keep_newest(attempt, look)
