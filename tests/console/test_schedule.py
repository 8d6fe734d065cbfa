"""The schedule names tasks that exist, looks have their own queue, and the light beat can be switched off."""

from __future__ import annotations

from typing import Any

import kombu.utils.functional
import pytest
from kombu.exceptions import OperationalError

from console.celery import ROUTES, _schedule, app
from console.incidents import tasks
from ingest.door.marks import mark_heard, take_heard


def test_every_scheduled_task_exists_and_expires_within_its_period() -> None:
    app.loader.import_default_modules()
    for entry in app.conf.beat_schedule.values():
        assert entry["task"] in app.tasks
        assert entry["options"]["expires"] <= max(entry["schedule"].total_seconds(), 1.0)


LONG_SECONDS = 120
"""A limit beyond which nothing may be in a queue that looks or pages wait in."""


def tasks_by_queue() -> dict[str, set[str]]:
    app.loader.import_default_modules()
    ours = sorted(name for name in app.tasks if name.startswith("console."))
    found: dict[str, set[str]] = {}
    for name in ours:
        found.setdefault(app.amqp.router.route({}, name)["queue"].name, set()).add(name.rpartition(".")[2])
    return found


def test_looks_and_what_people_wait_for_have_queues_of_their_own_and_dumps_are_in_neither() -> None:
    found = tasks_by_queue()
    assert found["watch"] == {"watch_job", "watch_heard_jobs", "watch_all_jobs"}
    assert found["urgent"] == {
        "send_due", "relay_outbox", "tend_incidents", "draw_grids", "answer_why_not", "ping_dead_man",
    }  # fmt: skip
    assert set(found) == {"watch", "urgent", "celery"}
    assert {"watch_dumps", "watch_stages", "draw_pictures", "apply_retention", "build_evidence"} <= found["celery"]


def test_every_route_is_that_of_a_task_and_what_may_take_two_minutes_is_in_no_way() -> None:
    app.loader.import_default_modules()
    assert [name for name in ROUTES if name not in app.tasks] == []
    assert [name for name in ROUTES if (app.tasks[name].soft_time_limit or 0) > LONG_SECONDS] == []


def test_without_the_light_beat_the_regular_one_stays(settings: Any) -> None:
    settings.WATCH_HEARD_SECONDS = 0
    assert "watch heard jobs" not in _schedule()
    assert _schedule()["watch all jobs"]["schedule"].total_seconds() == 10


def test_jobs_just_heard_from_are_looked_at_once(valkey: object, monkeypatch: pytest.MonkeyPatch) -> None:
    take_heard()
    looked_at: list[int] = []
    monkeypatch.setattr(tasks.watch_job, "delay", looked_at.append)
    mark_heard([7, 9, 7])
    tasks.watch_heard_jobs()
    tasks.watch_heard_jobs()
    assert sorted(looked_at) == [7, 9]


def test_a_broker_that_was_away_for_long_is_asked_for_every_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kombu.utils.functional, "sleep", lambda seconds: None)
    pauses: list[float] = []
    with app.connection_for_read(url="redis+socket:///nowhere/valkey.sock") as away, pytest.raises(OperationalError):
        away.ensure_connection(lambda error, pause: pauses.append(pause), 20)
    assert len(pauses) == 20
    assert max(pauses) == 2
