"""The trace store: where batches lie, behind one interface, and the only code that writes them (with retention.py).

A batch is written by the same statement whichever store is active. What differs, how stretches of time are made and
dropped, is the business of the two that answer to `TraceStore`: partitions.py and hypertables.py.

That a resent batch changes nothing is decided by the boot's row, not by a key on the trace table: a unique index cannot
span partitions, and a key per batch would be 108 million rows a day at 10,000 GPUs. The boot keeps the set of numbers
it has received as a multirange, one range as long as none is missing. One statement adds the number if it is absent,
and only then stores the rows and raises the node's counters; the row's lock makes concurrent duplicates wait for it.

Where too many numbers were missing for too long, `floor` says from where on the set is complete: below it nobody knows
any more what was stored, and nothing is acknowledged.

What a process remembers of a boot, node or attempt may have been deleted since. Nothing is acknowledged then: the
statement says that it found no node, or the boot does not know the number, and the transaction is undone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection
from psycopg.types.json import Jsonb

DRAINING_NS: Final = 3_000_000_000
"""A node is catching up until so long after its last late batch: fresh ones arrive in between."""
ENDING_NS: Final = 10_000_000_000
"""Processes that live so long beyond the end of their attempt are not just slow to die."""

TRACE_TABLE: Final = "ingest_trace_batch"
ROLLUP_TABLE: Final = "ingest_oprollup"

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One row of the trace table and what it changes beside it. Times: unix ns on our clock; losses: kind → count.

    is_alive: one of its processes lives.
    """

    attempt_id: int
    node_id: int
    boot_pk: int
    number: int
    received_ns: int
    cut_ns: int
    start_ns: int
    end_ns: int
    shift_ns: int
    offset_ns: int
    wrong_clock: bool
    catching_up: bool
    is_alive: bool
    sync_ns: int
    newest_mono_ns: int
    pace: int
    n_dropped: int
    losses: dict[str, int]
    ops: bytes | None
    live: bytes | None
    flow: bytes | None
    stage: bytes | None
    traffic: bytes | None


class BerthGone(Exception):
    """A batch was to be stored for a boot or node that is no longer there; the transaction was undone."""


class TraceStore(Protocol):
    """What every store can do. `name` is shown on the Now page."""

    name: str

    def create_ahead(self, connection: Connection[Any], now: datetime) -> int:
        """Make room for what arrives from `now` on; how many stretches were made."""
        ...

    def drop_before(self, connection: Connection[Any], before: datetime, needed: Collection[datetime] = ()) -> int:
        """Drop whole stretches that ended before `before`, but those of the times `needed`; how many were dropped."""
        ...

    def drop_rollups_before(self, connection: Connection[Any], before: datetime) -> int:
        """Drop roll-ups of before `before`; how many rows, or stretches of them."""
        ...

    def compress_rollups(self, connection: Connection[Any], now: datetime) -> int:
        """Compress roll-ups that hardly change any more; how many stretches were looked at."""
        ...

    def make_traces(self, connection: Connection[Any], table: str) -> None:
        """Make a trace table of this store named `table`, empty, without indexes."""
        ...

    def make_room(self, connection: Connection[Any], table: str, times: Sequence[datetime]) -> int:
        """Make room in a trace table for what was received at these times; how many stretches were made."""
        ...

    def make_rollups(self, connection: Connection[Any], table: str) -> None:
        """Make a table for roll-ups of this store named `table`, empty, with no index but its primary key."""
        ...


STORE_ONE: Final = """
WITH fresh AS (
    UPDATE ingest_boot SET
        received = received + int8multirange(int8range(%(number)s::bigint, %(number)s::bigint + 1)),
        sync_ns = %(sync_ns)s, newest_mono_ns = greatest(newest_mono_ns, %(newest_mono_ns)s), pace = %(pace)s,
        last_received_at = %(received_at)s
    WHERE id = %(boot_pk)s AND NOT received @> %(number)s::bigint AND %(number)s::bigint >= floor
    RETURNING id
), stored AS (
    INSERT INTO ingest_trace_batch
        (received_at, attempt_id, node_id, boot_pk, number, start_ns, end_ns, shift_ns, ops, live, flow, stage,
        traffic, writer_id, commit_number)
    SELECT %(received_at)s, %(attempt_id)s, %(node_id)s, id, %(number)s, %(start_ns)s, %(end_ns)s, %(shift_ns)s,
        %(ops)s, %(live)s, %(flow)s, %(stage)s, %(traffic)s, %(writer_id)s, %(commit_number)s
    FROM fresh
), seen AS (
    UPDATE ingest_node SET
        watermark_ns = greatest(watermark_ns, %(cut_ns)s),
        received_ns = greatest(received_ns, %(received_ns)s),
        first_ns = CASE WHEN first_ns = 0 THEN %(cut_ns)s ELSE least(first_ns, %(cut_ns)s) END,
        clock_offset_ns = %(offset_ns)s, wrong_clock = %(wrong_clock)s,
        late_received_ns = CASE WHEN %(catching_up)s THEN %(received_ns)s ELSE late_received_ns END,
        catching_up = %(catching_up)s OR %(received_ns)s - late_received_ns < %(draining_ns)s,
        batches = batches + 1,
        batches_after_end = batches_after_end + (
            SELECT count(*) FROM ingest_attempt a WHERE a.id = %(attempt_id)s AND a.state = 'ended' AND %(is_alive)s
            AND extract(epoch FROM a.ended_at) * 1e9 < %(cut_ns)s - %(ending_ns)s
        ),
        rows_dropped = rows_dropped + %(n_dropped)s,
        losses = CASE WHEN %(losses)s::jsonb IS NULL THEN losses ELSE (
            SELECT jsonb_object_agg(kind, n) FROM (
                SELECT key AS kind, sum(value::numeric) AS n
                FROM (
                    SELECT * FROM jsonb_each_text(losses)
                    UNION ALL SELECT * FROM jsonb_each_text(%(losses)s::jsonb)
                ) both_sides
                GROUP BY key
            ) summed
        ) END
    FROM fresh WHERE ingest_node.id = %(node_id)s AND ingest_node.attempt_id = %(attempt_id)s
    RETURNING ingest_node.id
)
SELECT (SELECT count(*) FROM fresh), (SELECT count(*) FROM seen)
"""
_IS_KNOWN: Final = "SELECT received @> %s::bigint FROM ingest_boot WHERE id = %s"


async def store_batches(
    connection: AsyncConnection[Any], batches: Sequence[StoredBatch], writer_id: int, commit_number: int
) -> list[bool | None]:
    """Store all in one transaction; per batch False when it was there before and nothing changed, None when nobody can
    say any more whether it was (Boot.floor): then it is not stored either.

    writer_id, commit_number: who committed what, so that what a process stored and had not summed is found (sums.py).
    Raises BerthGone, and stores none, when one of them has no boot or node any more.
    """
    # Locks are taken in one order everywhere, or two processes that got the same resent batches would deadlock.
    order = sorted(range(len(batches)), key=lambda i: (batches[i].node_id, batches[i].boot_pk))
    rows = [_fields(batches[i], writer_id, commit_number) for i in order]
    try:
        async with connection.pipeline():  # not connection.transaction(), which waits for the answer to BEGIN
            await connection.execute("BEGIN")
            outcomes = await _store(connection, [batches[i] for i in order], rows)
            await connection.execute("COMMIT")
    except BaseException:
        with suppress(psycopg.Error):  # it may have died
            await connection.rollback()
        raise
    return [outcome for _, outcome in sorted(zip(order, outcomes, strict=True))]


async def _store(
    connection: AsyncConnection[Any], batches: Sequence[StoredBatch], rows: list[Fields]
) -> list[bool | None]:
    is_new: list[bool | None] = []
    cursor = connection.cursor(binary=True)
    await cursor.executemany(STORE_ONE, rows, returning=True)
    for batch in batches:
        is_fresh, is_seen = await cursor.fetchone() or (0, 0)
        is_new.append(bool(is_fresh))
        if is_fresh and not is_seen:
            raise BerthGone(f"node {batch.node_id} is gone")
        cursor.nextset()
    return [new or await _is_known(cursor, batch) for batch, new in zip(batches, is_new, strict=True)]


async def _is_known(cursor: AsyncCursor[Any], batch: StoredBatch) -> Literal[False] | None:
    """False when the batch was received before, None when it was given up; asked afterwards, which sees what others
    committed. Raises BerthGone.
    """
    await cursor.execute(_IS_KNOWN, [batch.number, batch.boot_pk])
    row = await cursor.fetchone()
    if row is None:
        raise BerthGone(f"boot {batch.boot_pk} is gone")
    return False if row[0] else None


def _fields(batch: StoredBatch, writer_id: int, commit_number: int) -> Fields:
    fields = {name: getattr(batch, name) for name in StoredBatch.__slots__}
    fields["writer_id"], fields["commit_number"] = writer_id, commit_number
    fields["received_at"] = datetime.fromtimestamp(batch.received_ns / 1e9, UTC)
    fields["draining_ns"], fields["ending_ns"] = DRAINING_NS, ENDING_NS
    fields["losses"] = Jsonb(batch.losses) if batch.losses else None
    return fields
