"""What is forgotten, and when: traces by ingest's own rule, looks, relayed outbox rows, used links.

Incidents, timelines and diagnoses are kept.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.utils import timezone

from console.accounts.models import SigninLink
from console.incidents.models import Look, OutboxRow
from ingest.retention import keep_house

LOOKS_KEPT: Final = timedelta(days=2)
OUTBOX_KEPT: Final = timedelta(days=2)


def apply_retention() -> None:
    """One pass over everything that has an age."""
    keep_house()
    now = timezone.now()
    Look.objects.filter(taken_at__lt=now - LOOKS_KEPT).delete()
    OutboxRow.objects.filter(relayed_at__lt=now - OUTBOX_KEPT).delete()
    SigninLink.objects.filter(expires_at__lt=now).delete()
