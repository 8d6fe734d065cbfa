"""The worker as it is shipped, in a process of its own: looks are taken while upkeep does not come to an end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from django.db import connection
from django.utils import timezone

from console.celery import app
from console.incidents.models import Incident, State
from console.supervisor.processes import ROOT, worker_recipe
from console.supervisor.servers import database_url
from ingest.models import Attempt, Job, Team
from ingest.traces.database import connect
from tests.console.incidents.making import make_incident
from tests.servers import TestServers

WAIT_SECONDS = 90.0


@pytest.fixture
def worker(transactional_db: None, postgres: TestServers, valkey: TestServers) -> Iterator[None]:
    url = database_url(postgres.folder, connection.settings_dict["NAME"])
    process = subprocess.Popen(worker_recipe().argv, cwd=ROOT, env={**os.environ, "DATABASE_URL": url})
    yield
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_waiting() -> bool:
    """Whether some session waits for a lock on the table of pinned batches."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'ingest_pinned_batch'::regclass")
        return cursor.fetchone() is not None


def wait_until_waiting() -> None:
    give_up_at = time.monotonic() + WAIT_SECONDS
    while not is_waiting() and time.monotonic() < give_up_at:
        time.sleep(0.2)
    assert is_waiting()


def test_a_look_is_taken_while_retention_waits_for_a_lock(worker: None) -> None:
    now = timezone.now()
    job = Job.objects.create(team=Team.objects.create(name="research"), name="llama")
    attempt = Attempt.objects.create(
        job=job, number=1, state="ended", started_at=now, ended_at=now, last_received_at=now
    )
    incident = make_incident(attempt)
    with connect() as other, other.transaction():
        other.execute("LOCK TABLE ingest_pinned_batch IN ACCESS EXCLUSIVE MODE")
        app.send_task("console.incidents.tasks.apply_retention")
        wait_until_waiting()
        app.send_task("console.incidents.tasks.copy_evidence")  # other upkeep does not take the place of looks
        app.send_task("console.incidents.tasks.watch_all_jobs")
        give_up_at = time.monotonic() + WAIT_SECONDS
        while Incident.objects.get(pk=incident.pk).state != State.RESOLVED and time.monotonic() < give_up_at:
            time.sleep(0.2)
        assert is_waiting()
    assert Incident.objects.get(pk=incident.pk).state == State.RESOLVED
