"""Every look of the trigger that is still kept, newest first, page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from console.incidents.models import Look
from console.incidents.rows import iso, iso_from_ns
from ingest.models import Attempt

PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Looked:
    """kind: the symptom's, `failed` where the look itself failed, empty where nothing was wrong. seen_at: newest data it had."""

    id: int
    at: str
    seen_at: str | None
    kind: str
    saw: str
    thresholds: dict[str, float]


def read_looks(attempt: Attempt, before: int | None, saw_something: bool) -> tuple[list[Looked], int | None]:
    """A page, and where the next one begins; None at the end."""
    found = Look.objects.filter(attempt=attempt).order_by("-id")
    found = found if before is None else found.filter(pk__lt=before)
    found = found.exclude(kind="") if saw_something else found
    rows = [
        Looked(one.pk, iso(one.taken_at) or "", iso_from_ns(one.seen_ns), one.kind, one.saw, one.thresholds)
        for one in found[: PAGE + 1]
    ]
    return rows[:PAGE], rows[PAGE - 1].id if len(rows) > PAGE else None
