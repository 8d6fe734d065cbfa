"""The dead-man ping: called while looks are taken, not when they are overdue or nobody takes them; answers are counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.celery import _schedule, app
from console.incidents.models import Look
from console.operations.alive import Note, note_alive, note_of, take_off
from console.operations.dead_man import ping
from ingest.models import Attempt, Job, Node, Team
from tests.console.tickets.places import place
from tests.servers import TestServers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def looks(valkey: TestServers) -> Iterator[Note]:
    """A worker that takes looks says that it lives."""
    note = replace(note_of("127.0.0.1:1", False, {}), process="looks", tick_age=1.0)
    assert note_alive(note)
    yield note
    take_off(note)


@pytest.fixture
def attempt() -> Attempt:
    """A job that has run for a minute and whose node reports."""
    began = timezone.now() - timedelta(minutes=1)
    job = Job.objects.create(team=Team.objects.create(name="t"), name="llama")
    made = Attempt.objects.create(job=job, number=0, world_size=1, started_at=began, last_received_at=timezone.now())
    Node.objects.create(attempt=made, name="n", received_ns=time.time_ns())
    return made


def look(attempt: Attempt, seconds_ago: float) -> None:
    Look.objects.create(attempt=attempt, taken_at=timezone.now() - timedelta(seconds=seconds_ago), seen_ns=1)


def test_it_is_called_while_jobs_are_looked_at(attempt: Attempt, settings: Any) -> None:
    look(attempt, 5)
    with place(lambda asked: (200, {}, {})) as monitor:
        settings.DEAD_MAN_URL = monitor.url
        assert ping() == "called"
        assert len(monitor.asked) == 1


def test_it_stays_away_when_a_running_job_is_not_looked_at(attempt: Attempt, settings: Any) -> None:
    look(attempt, 45)
    with place(lambda asked: (200, {}, {})) as monitor:
        settings.DEAD_MAN_URL = monitor.url
        assert ping() == "overdue"
        assert monitor.asked == []


def test_it_stays_away_when_nobody_takes_looks_though_no_job_is_overdue(db: None, settings: Any, looks: Note) -> None:
    with place(lambda asked: (200, {}, {})) as monitor:
        settings.DEAD_MAN_URL = monitor.url
        assert note_alive(replace(looks, tick_age=60.0))
        assert ping() == "no_looks"
        take_off(looks)
        assert ping() == "no_looks" and monitor.asked == []
        assert note_alive(looks) and ping() == "called"


def test_without_a_job_it_is_called(db: None, settings: Any) -> None:
    with place(lambda asked: (404, {}, {})) as monitor:
        settings.DEAD_MAN_URL = monitor.url
        assert ping() == "refused"
    assert ping() == "unreachable"


def test_it_is_scheduled_only_where_it_is_set(settings: Any) -> None:
    assert ping() == "off" and "dead man" not in _schedule()
    settings.DEAD_MAN_URL = "https://monitor.example/abc"
    app.loader.import_default_modules()
    assert _schedule()["dead man"]["task"] in app.tasks
