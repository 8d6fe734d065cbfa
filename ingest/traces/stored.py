"""Stored batches: the only SELECT on the trace tables. What becomes of them is said in cutting.py.

A look does not need every batch: a reading says, per table group, from when on they are read, in the job's time or counted
back from the newest that each node has told.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from django.db import connection

from ingest.traces.cutting import Group
from ingest.traces.uncollected import uncollected
from nccl_instrument.wire import BadBatch, checked_batch

log = logging.getLogger(__name__)

RECEIVED_SLACK: Final = timedelta(minutes=2)
"""Rows may be stamped this much later than they were received: tolerated clocks, ticks ahead of the anchor."""
AT_ONCE: Final = 256
"""Rows fetched at a time: the database sends the next while these are checked."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of an attempt: batches that touch [start_ns, end_ns), of these nodes (None: of all).

    since_ns: group → batches that ended before are left out. rest_ns: group → batches are left out that ended so much
    earlier than the newest told of their own node: what is in progress when a node falls silent is read, and no more.
    """

    attempt_id: int
    start_ns: int
    end_ns: int
    groups: Sequence[str]
    node_ids: Sequence[int] | None = None
    since_ns: Mapping[str, int] = field(default_factory=dict)
    rest_ns: Mapping[str, int] = field(default_factory=dict)


@uncollected()
def read_groups(reading: Reading) -> tuple[dict[str, list[Group]], Counter[int]]:
    """What is stored, by group, and node id → groups of it whose sum is wrong. Pinned batches are included once."""
    found: dict[str, list[Group]] = {group: [] for group in reading.groups}
    unreadable = Counter[int]()
    if not reading.groups or (reading.node_ids is not None and not reading.node_ids):
        return found, unreadable
    connection.ensure_connection()
    cursor = psycopg.Cursor(connection.connection)  # binary results: Django's cursor would send bytea as hex text
    for node_id, shift_ns, batch_end_ns, *packed in cursor.stream(*_select(reading), binary=True, size=AT_ONCE):
        for group, raw in zip(reading.groups, packed, strict=True):
            try:
                if raw is not None:
                    found[group].append(Group(node_id, shift_ns, batch_end_ns, checked_batch(raw)))
            except BadBatch:  # damaged, or of a version that is no longer read: the rest is still worth a look
                unreadable[node_id] += 1
    if unreadable:
        log.warning(
            "%d stored table groups of attempt %d cannot be read and are left out",
            unreadable.total(), reading.attempt_id,
        )  # fmt: skip
    return found, unreadable


def _select(reading: Reading) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters."""
    received_from = datetime.fromtimestamp(max(reading.start_ns, 0) / 1e9, UTC) - RECEIVED_SLACK
    given: dict[str, Any] = {
        "attempt": reading.attempt_id, "start": reading.start_ns, "end": reading.end_ns, "received_from": received_from,
    }  # fmt: skip
    columns, of_nodes, nodes = [], "", ""
    for group in reading.groups:
        column = f"t.{group}"
        if group in reading.since_ns:
            given[f"since_{group}"] = reading.since_ns[group]
            column = f"CASE WHEN t.end_ns >= %(since_{group})s THEN {column} END"
        elif group in reading.rest_ns:
            given[f"rest_{group}"] = reading.rest_ns[group]
            column = f"CASE WHEN t.end_ns >= LEAST(n.watermark_ns, %(end)s) - %(rest_{group})s THEN {column} END"
            nodes = "JOIN ingest_node n ON n.id = t.node_id"
        columns.append(column)
    if reading.node_ids is not None:
        given["nodes"], of_nodes = list(reading.node_ids), "AND t.node_id = ANY(%(nodes)s)"
    return _SELECT.format(columns=", ".join(columns), of_nodes=of_nodes, nodes=nodes), given


_SELECT: Final = """
SELECT t.node_id, t.shift_ns, t.end_ns, {columns} FROM ingest_trace_batch t {nodes}
WHERE t.attempt_id = %(attempt)s AND t.end_ns >= %(start)s AND t.start_ns < %(end)s
    AND t.received_at >= %(received_from)s {of_nodes}
UNION ALL
SELECT t.node_id, t.shift_ns, t.end_ns, {columns} FROM ingest_pinned_batch t {nodes}
WHERE t.attempt_id = %(attempt)s AND t.end_ns >= %(start)s AND t.start_ns < %(end)s {of_nodes} AND NOT EXISTS (
    SELECT 1 FROM ingest_trace_batch k WHERE k.attempt_id = t.attempt_id AND k.end_ns = t.end_ns
    AND k.boot_pk = t.boot_pk AND k.number = t.number AND k.received_at = t.received_at
)
"""
