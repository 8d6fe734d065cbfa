"""Both workers as they are shipped, in processes of their own: a look is taken while nothing else comes to an end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from django.db import connection
from django.utils import timezone

from console.celery import app
from console.evidence.models import EvidenceBundle
from console.incidents.models import Incident, State
from console.supervisor.children import Recipe
from console.supervisor.processes import ROOT, looks_recipe, worker_recipe
from console.supervisor.servers import database_url
from ingest.models import Attempt, Job, Team
from ingest.traces.database import connect
from tests.console.incidents.making import make_incident
from tests.servers import TestServers

WAIT_SECONDS = 90.0
QUEUES = ("watch", "celery")
BLOCKED = {"console.incidents.tasks.apply_retention": "ingest_pinned_batch",
           "console.evidence.tasks.tidy_evidence": EvidenceBundle._meta.db_table}  # fmt: skip
"""Tasks of the other worker, and a table that each of them waits for while somebody holds it."""


class Workers:
    """Workers on the tests' servers, as processes."""

    def __init__(self, url: str) -> None:
        self.url, self.processes = url, list[subprocess.Popen[bytes]]()

    def start(self, recipe: Recipe) -> None:
        self.processes.append(subprocess.Popen(recipe.argv, cwd=ROOT, env={**os.environ, "DATABASE_URL": self.url}))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + WAIT_SECONDS
        while not is_so():
            assert [process.poll() for process in self.processes] == [None] * len(self.processes)
            assert time.monotonic() < give_up_at
            time.sleep(0.1)

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def workers(transactional_db: None, postgres: TestServers, valkey: TestServers) -> Iterator[Workers]:
    """What earlier tests left in the queues is not for them."""
    purge()
    made = Workers(database_url(postgres.folder, connection.settings_dict["NAME"]))
    yield made
    made.stop()
    purge()


def purge() -> None:
    with app.connection_for_write() as broker:
        for queue in QUEUES:
            broker.default_channel.queue_purge(queue)


def waiting() -> set[str]:
    """The tables that some session waits for."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relation::regclass::text FROM pg_locks WHERE NOT granted AND relation IS NOT NULL")
        return {str(row[0]) for row in cursor.fetchall()}


def test_a_look_is_taken_while_both_processes_of_the_other_worker_are_busy(workers: Workers) -> None:
    now = timezone.now()
    job = Job.objects.create(team=Team.objects.create(name="research"), name="llama")
    attempt = Attempt.objects.create(
        job=job, number=1, state="ended", started_at=now, ended_at=now, last_received_at=now
    )
    incident = make_incident(attempt)
    workers.start(worker_recipe())
    with connect() as other, other.transaction():
        for task, table in BLOCKED.items():
            other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            app.send_task(task)
        workers.wait_until(lambda: waiting() >= set(BLOCKED.values()))
        app.send_task("console.incidents.tasks.watch_all_jobs")
        workers.start(looks_recipe())
        workers.wait_until(lambda: Incident.objects.get(pk=incident.pk).state == State.RESOLVED)
        assert waiting() >= set(BLOCKED.values())


def test_each_worker_takes_what_is_its_own_and_answers_by_its_name(workers: Workers) -> None:
    workers.start(looks_recipe())
    workers.start(worker_recipe())
    found: dict[str, set[str]] = {}

    def both_answer() -> bool:
        told = app.control.inspect(timeout=2).active_queues() or {}
        found.update({name.partition("@")[0]: {queue["name"] for queue in queues} for name, queues in told.items()})
        return len(found) == 2

    workers.wait_until(both_answer)
    assert found == {"looks": {"watch"}, "celery": {"celery"}}
    for name in found:
        (answer,) = app.control.ping(pattern=f"{name}@*", matcher="glob", timeout=10, limit=1)
        assert next(iter(answer)).startswith(f"{name}@")
