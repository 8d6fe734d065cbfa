"""What rows of jobs are made of, in one question for all: newest attempts, the nodes and ranks of those, looks, incidents, ops.

A row is made after every look at a job. Asked one by one, through models, that took as long as the rest of the look.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from django.db import connection

from console.incidents.models import LOOK_FAILED, ConditionState, Incident, JobNormal, Look, State
from console.stages.models import StagePacket
from ingest.models import Attempt, Node, Rank
from ingest.read import ops_counted_sql
from rca.findings import SymptomKind


@dataclass(frozen=True, slots=True)
class JobKnown:
    """Of a job's newest attempt. n_nodes, n_reporting, n_catching_up, newest_ns: of its nodes, newest_ns their newest data
    time. n_ranks: known ones; where some nodes of one that goes on do not report, those on the others. is_slow: an
    incident of slowness goes on; is_hung: one of anything else but idleness; is_reported: one that people reported, of which
    looks see something: what it is, the newest look says. look_kind, look_seen_ns, looked_at: of the newest look, None without
    any; seen_at: of the newest that did not fail. n_ops: op records in the roll-ups asked for. intervals:
    of the ops of the watched ranks, as JobNormal keeps them.
    """

    job_id: int
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
    is_hung: bool
    is_slow: bool
    is_reported: bool
    look_kind: str | None
    look_seen_ns: int | None
    looked_at: datetime | None
    seen_at: datetime | None
    n_ops: int
    intervals: dict[str, Any]
    has_steps: bool


def read_known(
    job_ids: Sequence[int], reporting_since_ns: int, ops_ns: tuple[int, int], steps_since_ns: int
) -> dict[int, JobKnown]:
    """By job; those without attempts are left out. ops_ns: roll-ups that begin in [start, end).

    steps_since_ns: windows of stages since.
    """
    given: dict[str, Any] = {
        "jobs": list(job_ids), "reporting": reporting_since_ns, "ops_from": ops_ns[0], "ops_to": ops_ns[1],
        "steps": steps_since_ns, "failed": LOOK_FAILED, "resolved": State.RESOLVED.value,
        "clear": ConditionState.CLEAR.value, "idle": SymptomKind.IDLE.value,
        "slow": SymptomKind.STRAGGLER.value, "reported": SymptomKind.EXTERNAL.value, "ended": Attempt.State.ENDED.value,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(_SELECT, given)
        return {known.job_id: known for known in map(_known, cursor.fetchall())}


def _known(row: tuple[Any, ...]) -> JobKnown:
    found = dict(zip((field.name for field in fields(JobKnown)), row, strict=True))
    return JobKnown(**{**found, "intervals": json.loads(found["intervals"] or "{}")})


def _table(model: Any) -> str:
    return str(model._meta.db_table)


_SELECT: Final = f"""
SELECT a.job_id, a.id, a.number, a.state, a.world_size, a.started_at,
    n.n, n.n_reporting, n.n_catching_up, n.newest_ns,
    CASE WHEN a.state = %(ended)s OR n.n_reporting = n.n
        THEN (SELECT count(DISTINCT rank) FROM {_table(Rank)} WHERE attempt_id = a.id AND rank >= 0 AND NOT replaced)
        ELSE (SELECT count(DISTINCT r.rank) FROM {_table(Rank)} r JOIN {_table(Node)} AS its ON its.id = r.node_id
            WHERE r.attempt_id = a.id AND r.rank >= 0 AND NOT r.replaced AND its.received_ns > %(reporting)s) END,
    i.open_id, i.is_hung, i.is_slow, i.is_reported, l.kind, l.seen_ns, l.taken_at,
    CASE WHEN l.kind <> %(failed)s THEN l.taken_at ELSE (
        SELECT taken_at FROM {_table(Look)} WHERE attempt_id = a.id AND kind <> %(failed)s ORDER BY id DESC LIMIT 1) END,
    ({ops_counted_sql("a.id")}),
    (SELECT (body -> 'intervals')::text FROM {_table(JobNormal)} WHERE attempt_id = a.id),
    EXISTS (SELECT 1 FROM {_table(StagePacket)} WHERE attempt_id = a.id AND end_ns >= %(steps)s)
FROM unnest(%(jobs)s::bigint[]) AS j (id)
CROSS JOIN LATERAL (SELECT * FROM {_table(Attempt)} WHERE job_id = j.id ORDER BY number DESC LIMIT 1) a
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(*) FILTER (WHERE received_ns > %(reporting)s) AS n_reporting,
        count(*) FILTER (WHERE catching_up) AS n_catching_up, coalesce(max(watermark_ns), 0) AS newest_ns
    FROM {_table(Node)} WHERE attempt_id = a.id) n
CROSS JOIN LATERAL (
    SELECT min(id) FILTER (WHERE state <> %(resolved)s) AS open_id,
        coalesce(bool_or(condition <> %(clear)s AND symptom NOT IN (%(idle)s, %(slow)s, %(reported)s)), false) AS is_hung,
        coalesce(bool_or(condition <> %(clear)s AND symptom = %(slow)s), false) AS is_slow,
        coalesce(bool_or(condition <> %(clear)s AND symptom = %(reported)s), false) AS is_reported
    FROM {_table(Incident)} WHERE attempt_id = a.id AND NOT (state = %(resolved)s AND condition = %(clear)s)) i
LEFT JOIN LATERAL (
    SELECT kind, seen_ns, taken_at FROM {_table(Look)} WHERE attempt_id = a.id ORDER BY id DESC LIMIT 1) l ON true
"""
