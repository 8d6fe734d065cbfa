"""How attempts end: most jobs simply finish, and their page must say so within a minute, not after an hour of silence.

Agents say of every process whether it lives; the first tick that saw it dead is kept with its row (Rank.gone_ns). When
no process is left, the attempt is over, whether its communicators were closed or all ranks were killed. What nobody
told us is not assumed: while ranks of the declared world are unknown, only silence ends the attempt.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, LiteralString

import numpy as np
from django.db import connection
from django.db.models import Count, Max, Q, QuerySet

from ingest.door.listening import listening_since
from ingest.models import Attempt, Rank
from nccl_instrument.wire import Rows

GONE_NS: Final = 30_000_000_000
"""So long must the last process be gone: a launcher's next processes, or news from a slower agent, may be on the way."""
ATTEMPT_IDLE: Final = timedelta(hours=1)
"""An attempt nobody has sent for is over; a sign of life of the same processes makes it run again."""


def end_if_all_gone(attempt_id: int, now_ns: int | None = None) -> bool:
    """End the attempt when all its processes have been gone for GONE_NS; whether it was ended now."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    if some_process(attempt_id, "gone_ns = 0"):  # nearly always: the quickest question that says so
        return False
    found = Rank.objects.filter(attempt_id=attempt_id, replaced=False).aggregate(
        n=Count("pk"), n_gone=Count("pk", filter=Q(gone_ns__gt=0)), last_gone_ns=Max("gone_ns")
    )
    if not found["n"] or found["n_gone"] < found["n"] or now_ns - found["last_gone_ns"] < GONE_NS:
        return False
    running = Attempt.objects.filter(pk=attempt_id, state=Attempt.State.RUNNING, world_size__lte=found["n"])
    return bool(_end(running, Attempt.EndReason.PROCESSES_GONE, datetime.fromtimestamp(now_ns / 1e9, UTC)))


def some_process(attempt_id: int, condition: LiteralString) -> bool:
    """Whether any process of the attempt that was not replaced is so."""
    with connection.cursor() as cursor:
        known = f"SELECT EXISTS (SELECT 1 FROM ingest_rank WHERE attempt_id = %s AND NOT replaced AND {condition})"
        cursor.execute(known, [attempt_id])
        return bool(cursor.fetchone()[0])


def end_gone_attempts(now_ns: int | None = None) -> int:
    """end_if_all_gone for every running attempt; how many were ended."""
    running = Attempt.objects.filter(state=Attempt.State.RUNNING).values_list("pk", flat=True)
    return sum(end_if_all_gone(attempt_id, now_ns) for attempt_id in list(running))


def end_idle_attempts(now: datetime | None = None) -> int:
    """End running attempts nobody has sent for in ATTEMPT_IDLE, all of which we could have heard them; how many."""
    now = now or datetime.now(UTC)
    since = listening_since(now)
    if since is None or since > now - ATTEMPT_IDLE:
        return 0
    idle = Attempt.objects.filter(state=Attempt.State.RUNNING, last_received_at__lt=now - ATTEMPT_IDLE)
    return _end(idle, Attempt.EndReason.SILENT, now)


def end_for_restart(job_id: int, at: datetime) -> int:
    """End the job's running attempt because other processes began; how many."""
    running = Attempt.objects.filter(job_id=job_id, state=Attempt.State.RUNNING)
    return _end(running, Attempt.EndReason.RESTARTED, at)


def lives_of(process: Rows) -> dict[int, tuple[bool, int]]:
    """pid → whether its newest row of a `process` table says it lives, and the tick of that row."""
    newest = process[np.argsort(process["tick_ns"], kind="stable")]
    columns = (newest[name].tolist() for name in ("pid", "alive", "tick_ns"))
    return {pid: (bool(alive), tick_ns) for pid, alive, tick_ns in zip(*columns, strict=True)}


def gone_changes(gone: dict[int, int], lives: dict[int, tuple[bool, int]], shift_ns: int) -> dict[int, int]:
    """pid → gone_ns for the processes whose life differs from what is remembered; 0 for one that lives after all."""
    changes = {}
    for pid, (is_alive, tick_ns) in lives.items():
        at = tick_ns + shift_ns
        if not is_alive and pid not in gone:
            changes[pid] = at
        elif is_alive and at > gone.get(pid, at):  # a late batch from before it died changes nothing
            changes[pid] = 0
    return changes


def _end(attempts: QuerySet[Attempt], reason: str, at: datetime) -> int:
    return attempts.update(state=Attempt.State.ENDED, ended_at=at, end_reason=reason)
