"""What is forgotten, and when: traces by ingest's own rule, evidence, looks, relayed outbox rows, used links.

Incidents, timelines and diagnoses are kept. The traces around an incident are kept while it is open and for a month
after it was resolved; what is let go is logged and counted. All this takes long and may wait, so only one of it runs at a time:
dumps and stages have the other process of the worker.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from django.db import connection
from django.db.models import Exists, OuterRef
from django.utils import timezone

from console.accounts.models import SigninLink
from console.incidents.models import Incident, Look, OutboxRow
from ingest.models import PinnedWindow
from ingest.traces.retention import copy_pinned, keep_house, unpin_window

LOOKS_KEPT: Final = timedelta(days=2)
OUTBOX_KEPT: Final = timedelta(days=2)
EVIDENCE_DAYS_DEFAULT: Final = 30.0
COPIED_SOON: Final = timedelta(minutes=15)
"""Of windows pinned so lately more traces arrive; what comes later still is copied by the hourly pass."""
UPKEEP_LOCK: Final = 0x44474F48  # key of an advisory lock
AGAIN_SECONDS: Final = 30
"""So much later it is asked for again, when something else that takes long is done."""

log = logging.getLogger(__name__)


def apply_retention() -> None:
    """One pass over everything that has an age."""
    with alone() as is_mine:
        if not is_mine:
            return
        now = timezone.now()
        let_go_of_evidence(now)
        keep_house()
        Look.objects.filter(taken_at__lt=now - LOOKS_KEPT).delete()
        OutboxRow.objects.filter(relayed_at__lt=now - OUTBOX_KEPT).delete()
        SigninLink.objects.filter(expires_at__lt=now).delete()


def copy_evidence() -> int:
    """Copy the traces of windows pinned lately out of retention's way; how many batches."""
    with alone() as is_mine:
        return copy_pinned(timezone.now() - COPIED_SOON) if is_mine else 0


def let_go_of_evidence(now: datetime) -> int:
    """Unpin the windows of attempts whose incidents were all resolved longer ago than evidence is kept; how many."""
    long_ago = now - evidence_age()
    needing = Incident.objects.filter(attempt=OuterRef("attempt")).exclude(resolved_at__lt=long_ago)
    let_go = PinnedWindow.objects.filter(~Exists(needing), pinned_at__lt=long_ago)
    windows = list(let_go.select_related("attempt__job"))
    for window in windows:
        unpin_window(window.attempt_id, window.start_ns, window.end_ns)
        log.info("evidence let go: %s, %d to %d ns", window.attempt, window.start_ns, window.end_ns)
    return len(windows)


def evidence_age() -> timedelta:
    """How long an incident's traces are kept after it was resolved: DIOGENES_EVIDENCE_DAYS."""
    return timedelta(days=float(os.environ.get("DIOGENES_EVIDENCE_DAYS", EVIDENCE_DAYS_DEFAULT)))


@contextmanager
def alone() -> Iterator[bool]:
    """Whether nothing else that takes long is done meanwhile: a process of the worker is left to dumps and stages."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [UPKEEP_LOCK])
        is_mine = bool(cursor.fetchone()[0])
        try:
            yield is_mine
        finally:
            if is_mine:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [UPKEEP_LOCK])
