"""The workers as they are shipped, in processes of their own: looks and pages go on while nothing else comes to an end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from console.celery import app
from console.dumps.models import DumpSummary
from console.incidents.models import Incident, State
from console.supervisor.children import Recipe
from console.supervisor.processes import ROOT, looks_recipe, urgent_recipe, worker_recipe
from console.supervisor.servers import database_url
from console.tickets.models import Delivery
from ingest.models import Attempt, DumpRequest, Job, Team
from ingest.traces.database import connect
from tests.console.incidents.making import make_incident
from tests.console.tickets.places import place
from tests.console.tickets.test_sending import pagerduty
from tests.servers import TestServers

WAIT_SECONDS = 90.0
QUEUES = ("watch", "urgent", "celery")
RECIPES = (looks_recipe, urgent_recipe, worker_recipe)
BLOCKED = {"console.incidents.tasks.apply_retention": "ingest_pinned_batch",
           "console.incidents.tasks.watch_dumps": DumpSummary._meta.db_table}  # fmt: skip
"""Tasks that take long, and a table that each of them waits for while somebody holds it."""


class Workers:
    """Workers on the tests' servers, as processes."""

    def __init__(self, url: str) -> None:
        self.url, self.processes = url, list[subprocess.Popen[bytes]]()

    def start(self, recipe: Recipe, **more: str) -> None:
        environment = {**os.environ, "DATABASE_URL": self.url, **more}
        self.processes.append(subprocess.Popen(recipe.argv, cwd=ROOT, env=environment))

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


def have(task: str, *arguments: int) -> None:
    """Ask for it; it waits for a worker that takes long to start, however late it would be of use."""
    app.send_task(task, arguments, expires=WAIT_SECONDS)


def waiting() -> set[str]:
    """The tables that some session waits for."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relation::regclass::text FROM pg_locks WHERE NOT granted AND relation IS NOT NULL")
        return {str(row[0]) for row in cursor.fetchall()}


def queues_of_workers() -> dict[str, set[str]]:
    told = app.control.inspect(timeout=2).active_queues() or {}
    return {name.partition("@")[0]: {queue["name"] for queue in queues} for name, queues in told.items()}


def is_answering(name: str) -> bool:
    return bool(app.control.ping(pattern=f"{name}@*", matcher="glob", timeout=2, limit=1))


def test_each_worker_answers_for_its_own_queue_and_looks_and_pages_go_on_while_what_takes_long_holds_its_worker(
    workers: Workers, settings: Any
) -> None:
    now = timezone.now()
    job = Job.objects.create(team=Team.objects.create(name="research"), name="llama")
    attempt = Attempt.objects.create(
        job=job, number=1, state="ended", started_at=now, ended_at=now, last_received_at=now
    )
    later = now + timedelta(minutes=5)
    DumpRequest.objects.create(attempt=attempt, kinds=["stacks"], asked_at=now, expires_at=later)
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        Delivery.objects.update(due_at=now)
        for recipe in RECIPES:
            workers.start(recipe(), DIOGENES_TICKETS_HOSTS=here.name)
        with connect() as other, other.transaction():
            for task, table in BLOCKED.items():
                other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                have(task, *([attempt.pk] if task.endswith("watch_dumps") else []))
            workers.wait_until(lambda: waiting() >= set(BLOCKED.values()))
            have("console.tickets.tasks.send_due")
            workers.wait_until(lambda: Delivery.objects.filter(state="sent").exists())
            have("console.incidents.tasks.watch_all_jobs")
            workers.wait_until(lambda: Incident.objects.get(pk=incident.pk).state == State.RESOLVED)
            assert waiting() >= set(BLOCKED.values())
        assert here.asked[0].json["event_action"] == "trigger"
    found: dict[str, set[str]] = {}

    def all_answer() -> bool:
        found.update(queues_of_workers())
        return len(found) == len(RECIPES)

    workers.wait_until(all_answer)
    assert found == {"looks": {"watch"}, "urgent": {"urgent"}, "celery": {"celery"}}
    for name in ("looks", "urgent", "celery"):
        workers.wait_until(partial(is_answering, name))
