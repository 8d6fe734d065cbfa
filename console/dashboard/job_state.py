"""What a job's row is made of, in one question: its newest attempt, the nodes and ranks of that, looks, incidents, ops.

A row is made after every look at a job. Asked one by one, through models, that took as long as the rest of the look.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from django.db import connection

from console.incidents.models import LOOK_FAILED, ConditionState, Incident, JobNormal, Look, State
from console.stages.models import StagePacket
from ingest.models import Attempt, Node, OpRollup, Rank
from rca.findings import SymptomKind


@dataclass(frozen=True, slots=True)
class JobKnown:
    """Of a job's newest attempt. n_nodes, n_reporting, n_catching_up, newest_ns: of its nodes, newest_ns their newest data
    time. look_kind, look_seen_ns, looked_at: of the newest look, None without any; seen_at: of the newest that did not fail.
    n_ops: op records in the roll-ups asked for. intervals: of the ops of the watched ranks, as JobNormal keeps them.
    """

    attempt_id: int
    number: int
    state: str
    world_size: int
    started_at: datetime
    n_nodes: int
    n_reporting: int
    n_catching_up: int
    newest_ns: int
    n_ranks: int
    open_incident: int | None
    is_firing: bool
    look_kind: str | None
    look_seen_ns: int | None
    looked_at: datetime | None
    seen_at: datetime | None
    n_ops: int
    intervals: dict[str, Any]
    has_steps: bool


def read_known(job_id: int, reporting_since_ns: int, ops_ns: tuple[int, int], steps_since_ns: int) -> JobKnown | None:
    """None for a job without attempts. ops_ns: roll-ups that begin in [start, end); steps_since_ns: windows of stages since."""
    given: dict[str, Any] = {
        "job": job_id, "reporting": reporting_since_ns, "from": ops_ns[0], "to": ops_ns[1], "steps": steps_since_ns,
        "failed": LOOK_FAILED, "resolved": State.RESOLVED.value, "clear": ConditionState.CLEAR.value,
        "idle": SymptomKind.IDLE.value,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_SELECT, given)
        row = cursor.fetchone()
    if row is None:
        return None
    found = dict(zip((field.name for field in fields(JobKnown)), row, strict=True))
    return JobKnown(**{**found, "intervals": json.loads(found["intervals"] or "{}")})


def _table(model: Any) -> str:
    return str(model._meta.db_table)


_SELECT: Final = f"""
SELECT a.id, a.number, a.state, a.world_size, a.started_at,
    n.n, n.n_reporting, n.n_catching_up, n.newest_ns,
    (SELECT count(DISTINCT rank) FROM {_table(Rank)} WHERE attempt_id = a.id AND rank >= 0 AND NOT replaced),
    i.open_id, i.is_firing, l.kind, l.seen_ns, l.taken_at,
    CASE WHEN l.kind <> %(failed)s THEN l.taken_at ELSE (
        SELECT taken_at FROM {_table(Look)} WHERE attempt_id = a.id AND kind <> %(failed)s ORDER BY id DESC LIMIT 1) END,
    (SELECT coalesce(sum(n_ops), 0)::bigint FROM {_table(OpRollup)}
     WHERE attempt_id = a.id AND bucket_ns >= %(from)s AND bucket_ns < %(to)s),
    (SELECT (body -> 'intervals')::text FROM {_table(JobNormal)} WHERE attempt_id = a.id),
    EXISTS (SELECT 1 FROM {_table(StagePacket)} WHERE attempt_id = a.id AND end_ns >= %(steps)s)
FROM (SELECT * FROM {_table(Attempt)} WHERE job_id = %(job)s ORDER BY number DESC LIMIT 1) a
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE received_ns > %(reporting)s) AS n_reporting,
        count(*) FILTER (WHERE catching_up) AS n_catching_up, coalesce(max(watermark_ns), 0) AS newest_ns
    FROM {_table(Node)} WHERE attempt_id = a.id) n
CROSS JOIN LATERAL (
    SELECT min(id) FILTER (WHERE state <> %(resolved)s) AS open_id,
        coalesce(bool_or(condition <> %(clear)s AND symptom <> %(idle)s), false) AS is_firing
    FROM {_table(Incident)} WHERE attempt_id = a.id AND NOT (state = %(resolved)s AND condition = %(clear)s)) i
LEFT JOIN LATERAL (
    SELECT kind, seen_ns, taken_at FROM {_table(Look)} WHERE attempt_id = a.id ORDER BY id DESC LIMIT 1) l ON true
"""
