"""Metrics of the stack: what is there is told, what cannot be read is said to be unreadable and left out."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.operations import stack
from console.operations.stack import MEANING, StackCollector
from console.supervisor.folder import DataFolder
from ingest.door.listening import ROW
from ingest.models import Attempt, Listening, Node, Team

SECOND = 1_000_000_000


def read(collector: StackCollector) -> dict[str, dict[str, float]]:
    """Name → label's value ("" without one) → value."""
    return {
        family.name: {next(iter(sample.labels.values()), ""): sample.value for sample in family.samples}
        for family in collector.collect()
    }


def make_job(team: Team, name: str, behind_s: float = 0.0) -> Attempt:
    now = timezone.now()
    started = now - timedelta(minutes=5)
    attempt = Attempt.objects.create(
        job=team.jobs.create(name=name), number=0, started_at=started, last_received_at=now
    )
    now_ns = int(now.timestamp() * SECOND)
    Node.objects.create(
        attempt=attempt, name="n", received_ns=now_ns, watermark_ns=now_ns - int(behind_s * SECOND), catching_up=True
    )
    return attempt


@pytest.fixture
def lively(transactional_db: None, valkey: object) -> None:
    """Both servers answer."""


def test_every_number_has_a_meaning_and_the_other_way_round(lively: None, team: Team) -> None:
    make_job(team, "llama")
    told = read(StackCollector())
    assert set(told) | {"diogenes_rollup_lag_seconds", "diogenes_restarts"} == set(MEANING)
    assert told["diogenes_nodes"] == {"reporting": 0, "catching_up": 1, "silent": 0, "unheard": 0}
    assert told["diogenes_let_go"] == {"windows": 0, "windows_cut": 0, "dumps": 0, "dumps_refused": 0, "hours": 0}
    assert told["diogenes_looks_overdue"] == {"": 1}
    assert told["diogenes_unreadable"] == {"database": 0, "valkey": 0}


def test_nodes_are_silent_only_while_ingest_listens(lively: None, team: Team) -> None:
    make_job(team, "llama")
    Node.objects.update(received_ns=0)
    assert read(StackCollector())["diogenes_nodes"]["unheard"] == 1
    now = timezone.now()
    Listening.objects.create(pk=ROW, since=now - timedelta(minutes=1), until=now)
    assert read(StackCollector())["diogenes_nodes"] == {"reporting": 0, "catching_up": 0, "silent": 1, "unheard": 0}


def test_only_the_jobs_that_lag_most_are_named(lively: None, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "JOBS_NAMED_MAX", 2)
    for number in range(5):
        make_job(team, f"job-{number}", behind_s=number * 3)
    told = read(StackCollector())
    assert set(told["diogenes_job_lag_seconds"]) == {"job-4", "job-3"}
    assert told["diogenes_job_lag_seconds"]["job-4"] == pytest.approx(12, abs=8)
    assert told["diogenes_jobs_left_out"] == {"": 3}


def test_what_cannot_be_read_is_said_and_left_out(
    settings: Any, monkeypatch: pytest.MonkeyPatch, transactional_db: None, valkey: object
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    told = read(StackCollector())
    assert told["diogenes_unreadable"] == {"database": 0, "valkey": 1}
    assert "diogenes_processes" not in told and "diogenes_nodes" in told
    monkeypatch.setattr(stack, "connect", lambda: 1 / 0)
    assert read(StackCollector())["diogenes_unreadable"]["database"] == 1


def test_what_the_supervisor_started_again_is_told(lively: None, settings: Any, tmp_path: Path) -> None:
    settings.DATA_FOLDER = tmp_path
    noted = {"worker": {"count": 3, "last_at": 1.0}, "postgres": {"count": 1, "last_at": 1.0}}
    DataFolder(tmp_path, tmp_path, lock_fd=-1).note_restarts(noted)
    assert read(StackCollector())["diogenes_restarts"] == {
        "web": 0,
        "ingest": 0,
        "looks": 0,
        "urgent": 0,
        "worker": 3,
        "beat": 0,
        "postgres": 1,
    }


def test_numbers_stand_for_a_few_seconds(lively: None, team: Team) -> None:
    clock = [100.0]
    collector = StackCollector(now=lambda: clock[0])
    assert read(collector)["diogenes_nodes"]["catching_up"] == 0
    make_job(team, "llama")
    assert read(collector)["diogenes_nodes"]["catching_up"] == 0
    clock[0] += 6
    assert read(collector)["diogenes_nodes"]["catching_up"] == 1
