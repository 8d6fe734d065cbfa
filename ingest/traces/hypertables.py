"""The trace store on TimescaleDB: hypertables, an hour of traces to a chunk, a day of roll-ups.

Chunks are made by the insert that needs one and dropped whole, like partitions. Nothing here is left to TimescaleDB's
background workers: keep_house drops and compresses, so what happens is the same on every edition and is tested where
there are no workers. Compressed roll-ups can still be changed; the next pass compresses what was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import Connection, sql

from ingest.traces.database import connect
from ingest.traces.store import ROLLUP_TABLE, TRACE_TABLE

CHUNK: Final = timedelta(hours=1)
ROLLUP_CHUNK_NS: Final = 86_400_000_000_000
COMPRESS_AFTER: Final = timedelta(days=1)
LOCK_TIMEOUT_MS: Final = 2_000


class Hypertables:
    """TimescaleDB's hypertables, dropped and compressed by the chunk."""

    name = "TimescaleDB hypertables"

    def create_ahead(self, connection: Connection[Any], now: datetime) -> int:
        return 0

    def drop_before(self, connection: Connection[Any], before: datetime, needed: Collection[datetime] = ()) -> int:
        old = _chunks(connection, TRACE_TABLE, "range_end", before)
        old = [chunk for chunk in old if not any(chunk.starts <= at < chunk.ends for at in needed)]
        for chunk in old:
            _drop_chunk(connection, TRACE_TABLE, chunk.starts - timedelta(microseconds=1), chunk.ends)
        return len(old)

    def drop_rollups_before(self, connection: Connection[Any], before: datetime) -> int:
        old = _chunks(connection, ROLLUP_TABLE, "range_end_integer", to_ns(before))
        for chunk in old:
            _drop_chunk(connection, ROLLUP_TABLE, chunk.starts - 1, chunk.ends)
        return len(old)

    def compress_rollups(self, connection: Connection[Any], now: datetime) -> int:
        if not _may_compress(connection):
            return 0
        old = _chunks(connection, ROLLUP_TABLE, "range_end_integer", to_ns(now - COMPRESS_AFTER))
        for chunk in old:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                connection.execute("SELECT compress_chunk(%s::regclass, if_not_compressed => true)", [chunk.name])
        return len(old)

    def make_traces(self, connection: Connection[Any], table: str) -> None:
        make = "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING STORAGE)"
        connection.execute(sql.SQL(make).format(sql.Identifier(table), sql.Identifier(TRACE_TABLE)))
        _make_hypertable(connection, table, "received_at", "interval '1 hour'")

    def make_room(self, connection: Connection[Any], table: str, times: Sequence[datetime]) -> int:
        return 0

    def make_rollups(self, connection: Connection[Any], table: str) -> None:
        make = "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING IDENTITY)"
        # No primary key: it would have to hold bucket_ns too, and nobody asks for a roll-up by its id.
        connection.execute(sql.SQL(make).format(sql.Identifier(table), sql.Identifier(ROLLUP_TABLE)))
        _make_hypertable(connection, table, "bucket_ns", f"{ROLLUP_CHUNK_NS}::bigint")


_COMPRESS: Final = """
ALTER TABLE ingest_oprollup SET (timescaledb.compress, timescaledb.compress_segmentby = 'attempt_id, comm_id, func',
    timescaledb.compress_orderby = 'bucket_ns, part')
"""


def to_ns(at: datetime) -> int:
    """Unix nanoseconds of an aware time."""
    return int(at.timestamp() * 1_000_000) * 1000


def why_not() -> str:
    """Make TimescaleDB ready for use in this database; the reason when that cannot be, else empty."""
    with connect() as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'timescaledb'").fetchone():
            return "the server does not have the extension timescaledb"
    try:
        # A connection of its own: a server that does not preload the library ends the session that asks for it.
        with connect() as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS timescaledb")
    except psycopg.Error as error:
        return str(error).splitlines()[0]
    return ""


def _make_hypertable(connection: Connection[Any], table: str, column: str, interval: str) -> None:
    # No default index: traces are found by attempt, and the index of roll-ups begins with it too.
    made = "create_hypertable(%s::regclass, %s::name, chunk_time_interval => {}, create_default_indexes => false)"
    connection.execute("SELECT " + made.format(interval), [table, column])


class _Chunk(NamedTuple):
    name: str
    starts: Any
    ends: Any


def _chunks(connection: Connection[Any], table: str, end: str, before: Any) -> list[_Chunk]:
    """The chunks that end by `before`, oldest first."""
    start = end.replace("end", "start")
    found = connection.execute(
        f"SELECT format('%%I.%%I', chunk_schema, chunk_name), {start}, {end} FROM timescaledb_information.chunks"
        f" WHERE hypertable_schema = current_schema() AND hypertable_name = %s AND {end} <= %s ORDER BY {end}",
        [table, before],
    )
    return [_Chunk(*row) for row in found.fetchall()]


def _drop_chunk(connection: Connection[Any], table: str, after: Any, ends: Any) -> None:
    """Drop what lies between: whatever else is old may be needed."""
    # Waiting longer for the lock would make every batch wait behind us: better try again at the next pass.
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        connection.execute("SELECT drop_chunks(%s::regclass, older_than => %s, newer_than => %s)", [table, ends, after])


def _may_compress(connection: Connection[Any]) -> bool:
    """Switch compression on if it is off; False where the edition of TimescaleDB cannot, as on some clouds."""
    if connection.execute("SELECT current_setting('timescaledb.license', true)").fetchone() != ("timescale",):
        return False
    is_on = connection.execute(
        "SELECT compression_enabled FROM timescaledb_information.hypertables"
        " WHERE hypertable_schema = current_schema() AND hypertable_name = %s",
        [ROLLUP_TABLE],
    ).fetchone()
    if is_on == (False,):
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            connection.execute(_COMPRESS)
    return is_on is not None


def is_hypertable(connection: Connection[Any], table: str) -> bool:
    """Whether the table is one; False where TimescaleDB is not in use."""
    if connection.execute("SELECT to_regclass('timescaledb_information.hypertables')").fetchone() == (None,):
        return False
    found = connection.execute(
        "SELECT 1 FROM timescaledb_information.hypertables"
        " WHERE hypertable_schema = current_schema() AND hypertable_name = %s",
        [table],
    )
    return found.fetchone() is not None
