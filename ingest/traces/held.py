"""Of which times anything is stored of an attempt, and until when each node was heard before a moment. No batch is opened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.db import connection

from ingest.traces.stored import RECEIVED_SLACK

STEPS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Heard:
    """What is stored of one node in a stretch: its newest row, how many batches, and when the newest of them came."""

    node: str
    newest_ns: int
    n_batches: int
    received_at: datetime


def read_heard(attempt_id: int, start_ns: int, end_ns: int) -> list[Heard]:
    """Every node of which a batch that touches [start_ns, end_ns) is stored, by name; newest_ns < end_ns."""
    with connection.cursor() as cursor:
        cursor.execute(_HEARD, _given(attempt_id, start_ns, end_ns))
        return [Heard(str(name), int(newest), int(n), at) for name, newest, n, at in cursor.fetchall()]


def read_held(attempt_id: int, start_ns: int, end_ns: int, step_ns: int) -> list[tuple[int, int]]:
    """Stretches of [start_ns, end_ns) of which some node's batches are stored, seen in steps; by time, apart from each other.

    ValueError for more than STEPS_MAX steps.
    """
    if step_ns <= 0 or (end_ns - start_ns) // step_ns >= STEPS_MAX:
        raise ValueError(f"At most {STEPS_MAX} steps.")
    with connection.cursor() as cursor:
        cursor.execute(_HELD, {**_given(attempt_id, start_ns, end_ns), "step": step_ns})
        steps = [int(row[0]) for row in cursor.fetchall()]
    held: list[tuple[int, int]] = []
    for at_ns in steps:
        if held and held[-1][1] == at_ns:
            held[-1] = held[-1][0], min(at_ns + step_ns, end_ns)
        else:
            held.append((at_ns, min(at_ns + step_ns, end_ns)))
    return held


def _given(attempt_id: int, start_ns: int, end_ns: int) -> dict[str, Any]:
    received_from = datetime.fromtimestamp(max(start_ns, 0) / 1e9, UTC) - RECEIVED_SLACK
    return {"attempt": attempt_id, "start": start_ns, "end": end_ns, "received_from": received_from}


# What is pinned may be stored twice for a while: the newest of both counts, and batches only where they are not copies.
_HEARD: Final = """
SELECT n.name, max(t.newest), max(t.n), max(t.received_at) FROM (
    SELECT node_id, LEAST(max(end_ns), %(end)s - 1) AS newest, count(*) AS n, max(received_at) AS received_at
    FROM ingest_trace_batch
    WHERE attempt_id = %(attempt)s AND end_ns >= %(start)s AND start_ns < %(end)s AND received_at >= %(received_from)s
    GROUP BY node_id
    UNION ALL
    SELECT node_id, LEAST(max(end_ns), %(end)s - 1), count(*), max(received_at)
    FROM ingest_pinned_batch
    WHERE attempt_id = %(attempt)s AND end_ns >= %(start)s AND start_ns < %(end)s
    GROUP BY node_id
) t JOIN ingest_node n ON n.id = t.node_id GROUP BY n.name ORDER BY n.name
"""

_HELD: Final = """
SELECT s FROM generate_series(%(start)s::bigint, %(end)s::bigint - 1, %(step)s::bigint) s WHERE EXISTS (
    SELECT 1 FROM ingest_trace_batch WHERE attempt_id = %(attempt)s AND end_ns >= s AND end_ns < s + %(step)s
    AND received_at >= %(received_from)s
) OR EXISTS (
    SELECT 1 FROM ingest_pinned_batch WHERE attempt_id = %(attempt)s AND end_ns >= s AND end_ns < s + %(step)s
) ORDER BY s
"""
