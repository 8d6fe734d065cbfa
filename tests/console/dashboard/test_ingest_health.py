"""Ingest's health on the Now page: what is known is told with its kind, what nobody can say is unknown."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.dashboard.ingest_health import read_ingest_row, read_ingest_total
from console.dashboard.jobs import read_job_row, read_node_rows
from console.operations import alive
from console.operations.alive import note_alive, note_of
from ingest.door.listening import ROW
from ingest.health import IngestHealth
from ingest.models import Attempt, Listening, Node, Rank, Team
from ingest.traces.space import UNKNOWN
from nccl_instrument.tables import DATA_LOSSES, LOSSES

WORDS = Path(__file__).parents[3] / "frontend" / "src" / "state" / "words.ts"


@pytest.fixture(autouse=True)
def empty_valkey(valkey: object, db: None) -> None:
    alive.valkey().delete(alive.KEY)


def listen(since_s: float = 600.0, until_s: float = 0.0) -> None:
    """Ingest has listened without a gap between so many seconds ago and so many."""
    now = timezone.now()
    since, until = now - timedelta(seconds=since_s), now - timedelta(seconds=until_s)
    Listening.objects.update_or_create(pk=ROW, defaults={"since": since, "until": until})


@pytest.fixture
def node(attempt: Attempt) -> Node:
    listen()
    return Node.objects.create(attempt=attempt, name="n1", batches=10)


def test_every_kind_of_loss_that_leaves_holes_is_told(team: Team, node: Node) -> None:
    Node.objects.filter(pk=node.pk).update(losses=dict.fromkeys(LOSSES, 2))
    Node.objects.create(attempt=node.attempt, name="n2", losses={"ring_records": 5})
    losses = read_ingest_row(team).losses
    assert set(losses) == set(DATA_LOSSES)
    assert next(iter(losses.items())) == ("ring_records", 7)


def test_the_page_has_words_for_every_kind_of_loss() -> None:
    table = WORDS.read_text().split("export const LOSS")[1].split("};")[0]
    assert set(re.findall(r"^  (\w+):", table, re.M)) == set(LOSSES) - {"unknown"}


def test_processes_are_counted_from_the_roll_and_refusals_added_up(team: Team) -> None:
    for pid, refused in ((1, {"401": 3}), (2, {"401": 1, "429": 2})):
        note_alive(replace(note_of("127.0.0.1:1", False, refused), process="ingest", pid=pid))
    note_alive(replace(note_of("127.0.0.1:1", False, {"500": 1}), process="web", pid=3))
    row = read_ingest_row(team)
    assert row.processes == 2
    assert row.requests_refused == {"401": 4, "429": 2, "500": 1}


def test_with_valkey_away_processes_and_rate_are_unknown(team: Team, node: Node, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    row = read_ingest_row(team)
    assert (row.processes, row.nodes_silent) == (None, 1)
    assert row.counted_since is None


def test_a_node_is_silent_only_while_ingest_would_hear_it(
    team: Team, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts() -> tuple[int, int, str]:
        row = read_ingest_row(team)
        return row.nodes_silent, row.nodes_unheard, read_node_rows([team.pk])[0].state

    assert counts() == (1, 0, "silent")
    listen(until_s=4)
    assert counts() == (0, 1, "unheard"), "ingest is away"
    assert read_job_row(node.attempt.job).state == "unknown"
    listen(since_s=5)
    assert counts() == (0, 1, "unheard"), "ingest is only just back: the node had no time to return"
    listen(until_s=4)
    short = replace(UNKNOWN, is_short=True)
    for module in ("jobs", "ingest_health"):
        monkeypatch.setattr(f"console.dashboard.{module}.read_health", lambda: IngestHealth([], short))
    assert counts() == (0, 1, "refused")
    listen()
    assert read_job_row(node.attempt.job).state == "silent"


def test_a_killed_process_is_gone_with_its_next_two_notes(team: Team) -> None:
    living = replace(note_of("127.0.0.1:1", False, {}), process="ingest", pid=1, since=1_763_748_492.0)
    note_alive(living)
    note_alive(replace(living, pid=2, since=living.since - 60, at=time.time() - 7))
    row = read_ingest_row(team)
    assert row.processes == 1
    assert row.counted_since == "2025-11-21T18:08:12.000Z"


def test_ranks_of_a_node_that_does_not_report_are_not_counted_as_reporting(node: Node) -> None:
    heard = Node.objects.create(attempt=node.attempt, name="n2", received_ns=time.time_ns(), watermark_ns=1)
    for rank, on in enumerate((node, node, heard)):
        Rank.objects.create(attempt=node.attempt, node=on, rank=rank, pid=rank, process_started=1)
    row = read_job_row(node.attempt.job)
    assert (row.n_ranks, row.nodes_reporting, row.n_nodes) == (1, 1, 2)


def test_a_rate_is_unknown_until_there_are_two_samples(team: Team, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("console.dashboard.ingest_health.time.time", lambda: clock[0])
    assert read_ingest_row(team).batches_per_s is None
    clock[0] += 4
    Node.objects.filter(pk=node.pk).update(batches=30)
    assert read_ingest_row(team).batches_per_s == 5.0


def test_batches_of_a_displaced_attempt_are_told_on_both_pages(team: Team, attempt: Attempt) -> None:
    now = timezone.now()
    Attempt.objects.filter(pk=attempt.pk).update(state="ended", ended_at=now)
    Node.objects.create(attempt=attempt, name="n1", batches_after_end=7)
    assert read_ingest_row(team).strays == 0, "nothing displaced it"
    newer = Attempt.objects.create(
        job=attempt.job, number=1, started_at=now - timedelta(seconds=1), last_received_at=now
    )
    Node.objects.create(attempt=newer, name="n1")
    assert read_ingest_row(team).strays == 7
    assert [row.strays for row in read_node_rows([team.pk])] == [7]


def test_several_teams_are_added_up(team: Team) -> None:
    Team.objects.filter(pk=team.pk).update(batches_refused=4)
    other = Team.objects.create(name="serving", batches_refused=3)
    total = read_ingest_total([team.pk, other.pk])
    assert total is not None and total.batches_refused == 7
    assert read_ingest_total([]) is None
