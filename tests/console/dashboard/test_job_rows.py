"""What a job is on the Now page, where its ops are not traced."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from console.dashboard.jobs import read_job_row
from console.stages.models import StagePacket
from console.stages.store import store_packet
from ingest.models import Attempt, Node

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
