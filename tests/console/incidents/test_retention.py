"""Evidence is copied soon after a look pinned it, kept for a month after its incident, and upkeep never runs twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.utils import timezone

from console.incidents import lifecycle
from console.incidents.models import Incident
from console.incidents.retention import UPKEEP_LOCK, copy_evidence, evidence_age, let_go_of_evidence
from ingest.models import Attempt, PinnedWindow
from ingest.traces.database import connect
from tests.console.incidents.making import START_NS, make_incident
from tests.console.incidents.stalling import StallingJob
from tests.console.incidents.test_watch import job, quick, stall
from tests.ingest.conftest import ingest, no_traces

__all__ = ["ingest", "job", "no_traces", "quick"]  # fixtures


def n_pinned() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ingest_pinned_batch")
        return int(cursor.fetchone()[0])


def n_left(start_ns: int) -> int:
    return PinnedWindow.objects.filter(start_ns=start_ns).count()


async def test_a_look_pins_its_evidence_and_another_task_copies_it(job: StallingJob) -> None:
    incident = await stall(job)
    assert incident.certainty == "diagnosed"
    assert await PinnedWindow.objects.acount() == 1
    assert await sync_to_async(n_pinned)() == 0
    n_copied = await sync_to_async(copy_evidence)()
    assert n_copied == await sync_to_async(n_pinned)() > 0
    assert await sync_to_async(copy_evidence)() == 0


async def test_while_other_upkeep_runs_nothing_is_copied(job: StallingJob) -> None:
    await stall(job)

    def copy_meanwhile() -> int:
        with connect() as other:
            other.execute("SELECT pg_advisory_lock(%s)", [UPKEEP_LOCK])
            n_copied = copy_evidence()
            # A server ends a closed session, and frees what it held, when it gets to it.
            other.execute("SELECT pg_advisory_unlock(%s)", [UPKEEP_LOCK])
            return n_copied

    assert await sync_to_async(copy_meanwhile)() == 0
    assert await sync_to_async(copy_evidence)() > 0


@pytest.mark.parametrize(("resolved", "age_days", "kept"), [(False, 400, True), (True, 29, True), (True, 31, False)])
def test_evidence_is_let_go_a_month_after_its_incident_was_resolved(
    attempt: Attempt, resolved: bool, age_days: int, kept: bool
) -> None:
    then = timezone.now() - timedelta(days=age_days)
    incident = make_incident(attempt)
    PinnedWindow.objects.create(attempt=attempt, start_ns=START_NS, end_ns=START_NS + 1)
    PinnedWindow.objects.update(pinned_at=then)
    if resolved:
        lifecycle.move(incident.pk, "resolve", lifecycle.DETECTOR, note="job ended")
        Incident.objects.update(resolved_at=then)
    assert let_go_of_evidence(timezone.now()) == (0 if kept else 1)
    assert n_left(START_NS) == kept


def test_how_long_evidence_is_kept_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert evidence_age() == timedelta(days=30)
    monkeypatch.setenv("DIOGENES_EVIDENCE_DAYS", "1.5")
    assert evidence_age() == timedelta(hours=36)
