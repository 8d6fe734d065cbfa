"""What a job is on the Now page: by its nodes, looks, incidents and ops, and where its ops are not traced."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime

from django.utils import timezone

from console.dashboard.jobs import read_job_row, read_job_rows
from console.incidents import lifecycle
from console.incidents.models import LOOK_FAILED, ConditionState, Incident, JobNormal, Look
from console.incidents.rows import iso
from console.stages.models import StagePacket
from console.stages.store import store_packet
from ingest.models import Attempt, Job, Node, OpRollup, Rank
from tests.console.incidents.making import make_incident

SECOND = 10**9


def window_ended(attempt: Attempt, ago_s: int) -> None:
    end_ns = time.time_ns() - ago_s * SECOND
    packet = StagePacket(
        attempt=attempt, ended_at=datetime.fromtimestamp(end_ns / 1e9, UTC), start_ns=end_ns - 60 * SECOND, end_ns=end_ns,
        first_step=0, last_step=119, n_ranks=4, verdict="usual", step_s=0.5, lasting_s=0.5, error_s=0.01, body={},
    )  # fmt: skip
    store_packet(packet)


def test_a_job_whose_steps_come_in_runs_though_no_op_of_it_is_traced(attempt: Attempt) -> None:
    now_ns = time.time_ns()
    Node.objects.create(attempt=attempt, name="node0", watermark_ns=now_ns, received_ns=now_ns)
    assert read_job_row(attempt.job).state == "idle"
    window_ended(attempt, 600)
    assert read_job_row(attempt.job).state == "idle", "that was long ago"
    window_ended(attempt, 30)
    assert read_job_row(attempt.job).state == "running"


def heard(attempt: Attempt, name: str = "node0", ago_s: int = 0) -> Node:
    now_ns = time.time_ns() - ago_s * SECOND
    return Node.objects.create(attempt=attempt, name=name, watermark_ns=now_ns, received_ns=now_ns)


def looked(attempt: Attempt, kind: str = "") -> Look:
    return Look.objects.create(
        attempt=attempt, taken_at=timezone.now(), seen_ns=time.time_ns() + SECOND, kind=kind, saw=""
    )


def test_a_job_that_nobody_sent_for_is_unknown(attempt: Attempt) -> None:
    attempt.delete()
    row = read_job_row(attempt.job)
    assert (row.state, row.attempt, row.n_nodes, row.incident) == ("unknown", 0, 0, None)


def test_everything_a_row_is_made_of_is_asked_in_one_question(
    attempt: Attempt, django_assert_num_queries: Callable[[int], AbstractContextManager[None]]
) -> None:
    heard(attempt)
    job = Job.objects.select_related("team").get(pk=attempt.job_id)
    with django_assert_num_queries(1):
        row = read_job_row(job)
    assert (row.n_nodes, row.nodes_reporting, row.world_size) == (1, 1, 8)


def test_the_rows_of_any_number_of_jobs_are_asked_in_one_question(
    attempt: Attempt, django_assert_max_num_queries: Callable[[int], AbstractContextManager[None]]
) -> None:
    heard(attempt, ago_s=60)
    team, now = attempt.job.team, timezone.now()
    for n in range(12):
        job = Job.objects.create(team=team, name=f"job-{n}")
        if n < 10:
            other = Attempt.objects.create(job=job, number=n, world_size=n, started_at=now, last_received_at=now)
            heard(other), heard(other, "node1", ago_s=60)
    with django_assert_max_num_queries(3):  # the jobs, what they are made of, and whether ingest hears anybody
        rows = read_job_rows([team.pk])
    assert [(row.name, row.attempt, row.world_size, row.n_nodes, row.nodes_reporting) for row in rows[:4]] == [
        ("job-11", 0, 0, 0, 0), ("job-10", 0, 0, 0, 0), ("job-9", 9, 9, 2, 1), ("job-8", 8, 8, 2, 1),
    ]  # fmt: skip
    assert len(rows) == 13 and read_job_rows([]) == []


def test_a_look_that_failed_says_nothing_and_the_one_before_is_shown(attempt: Attempt) -> None:
    heard(attempt)
    fine, _ = looked(attempt), looked(attempt, LOOK_FAILED)
    row = read_job_row(attempt.job)
    assert (row.state, row.looked_at) == ("unknown", iso(fine.taken_at))


def test_a_condition_that_fires_is_stuck_though_people_have_resolved_it(attempt: Attempt) -> None:
    heard(attempt)
    looked(attempt)
    first = make_incident(attempt)
    assert (read_job_row(attempt.job).state, read_job_row(attempt.job).incident) == ("stuck", first.pk)
    lifecycle.move(first.pk, "resolve", lifecycle.DETECTOR, note="seen to")
    assert (read_job_row(attempt.job).state, read_job_row(attempt.job).incident) == ("stuck", None)
    Incident.objects.filter(pk=first.pk).update(condition=ConditionState.CLEAR)
    assert read_job_row(attempt.job).state == "idle"


def test_a_job_that_is_only_slow_is_not_stuck_and_its_ops_are_counted(attempt: Attempt) -> None:
    heard(attempt)
    looked(attempt)
    slow = make_incident(attempt, symptom="straggler")
    assert read_job_row(attempt.job).state == "slow", "though no op has ended for a while: nobody may call it well"
    counted(attempt, time.time_ns() // (10 * SECOND) * 10 * SECOND, 70)
    row = read_job_row(attempt.job)
    assert (row.state, row.incident) == ("slow", slow.pk) and row.ops_per_s
    lifecycle.move(slow.pk, "resolve", lifecycle.DETECTOR, note="known")
    assert read_job_row(attempt.job).state == "slow", "people resolved it, and it goes on"
    looked(attempt, "failure")
    assert read_job_row(attempt.job).state == "stuck", "the newest look saw it hang"
    looked(attempt)
    Incident.objects.filter(pk=slow.pk).update(condition=ConditionState.CLEAR)
    assert read_job_row(attempt.job).state == "running"


def test_what_people_report_says_nothing_of_a_jobs_state_and_what_looks_see_does(attempt: Attempt) -> None:
    heard(attempt)
    looked(attempt)
    counted(attempt, time.time_ns() // (10 * SECOND) * 10 * SECOND, 70)
    make_incident(attempt, symptom="external")
    row = read_job_row(attempt.job)
    assert row.state == "running" and row.ops_per_s
    looked(attempt, "straggler")
    row = read_job_row(attempt.job)
    assert row.state == "slow" and row.ops_per_s
    for kind in ("failure", "silence"):
        looked(attempt, kind)
        assert read_job_row(attempt.job).state == "stuck"
    looked(attempt, "straggler")
    Incident.objects.update(condition=ConditionState.CLEAR)
    assert read_job_row(attempt.job).state == "running", "the look saw no slowdown that is worth an incident"


def counted(attempt: Attempt, bucket_ns: int, n_ops: int) -> None:
    OpRollup.objects.create(
        attempt=attempt, comm_id=1, func=5, bucket_ns=bucket_ns, part=1, n_ops=n_ops, n_timed=0, bytes=0,
        duration_sum_ns=0, duration_max_ns=0,
    )  # fmt: skip


def test_ranks_are_those_of_the_nodes_that_report_and_ops_those_of_the_last_seconds(attempt: Attempt) -> None:
    nodes = [heard(attempt), heard(attempt, "node1", ago_s=60)]
    for rank in range(4):
        Rank.objects.create(attempt=attempt, node=nodes[rank % 2], pid=rank, process_started=1, rank=rank)
    bucket = time.time_ns() // (10 * SECOND) * 10 * SECOND
    for at, n_ops in ((bucket, 70), (bucket - 600 * SECOND, 1000)):
        counted(attempt, at, n_ops)
    JobNormal.objects.create(attempt=attempt, body={"intervals": {"all": {"100": 9}}}, updated_at=timezone.now())
    row = read_job_row(attempt.job)
    assert (row.n_ranks, row.n_nodes, row.nodes_reporting, row.state) == (2, 2, 1, "running")
    assert row.ops_per_s is not None and 0 < row.ops_per_s <= 7.0
    assert row.op_interval_ms is not None and row.op_interval_ms > 0
    Node.objects.filter(pk=nodes[1].pk).update(received_ns=time.time_ns())
    assert read_job_row(attempt.job).n_ranks == 4
