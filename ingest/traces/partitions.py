"""The trace store on plain PostgreSQL: range partitions by time of receipt, made ahead of time and dropped whole.

Roll-ups are a plain table there: they are few beside traces, and old ones are deleted row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from psycopg import Connection, sql

from ingest.traces.store import ROLLUP_TABLE, TRACE_TABLE

PARTITION: Final = timedelta(hours=1)
PARTITIONS_AHEAD: Final = 24
LOCK_TIMEOUT_MS: Final = 2_000
ROLLUPS_PER_DELETE: Final = 10_000


class NativePartitions:
    """Range partitions by time of receipt, an hour each; old ones are dropped whole, which costs no vacuum."""

    name = "native partitions"

    def create_ahead(self, connection: Connection[Any], now: datetime) -> int:
        return self.make_room(connection, TRACE_TABLE, [now + i * PARTITION for i in range(PARTITIONS_AHEAD + 1)])

    def drop_before(self, connection: Connection[Any], before: datetime, needed: Collection[datetime] = ()) -> int:
        old = [name for name in self.partitions(connection) if partition_start(name) + PARTITION <= before]
        hours = {at.replace(minute=0, second=0, microsecond=0) for at in needed}
        old = [name for name in old if partition_start(name) not in hours]
        for name in old:
            # Waiting longer for the lock would make every batch wait behind us: better try again at the next pass.
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        return len(old)

    def drop_rollups_before(self, connection: Connection[Any], before: datetime) -> int:
        dropped = 0
        while n := connection.execute(_DELETE_ROLLUPS, [int(before.timestamp()) * 10**9]).rowcount:
            dropped += n
        return dropped

    def compress_rollups(self, connection: Connection[Any], now: datetime) -> int:
        return 0

    def make_traces(self, connection: Connection[Any], table: str) -> None:
        make = "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY RANGE (received_at)"
        connection.execute(sql.SQL(make).format(sql.Identifier(table), sql.Identifier(TRACE_TABLE)))

    def make_room(self, connection: Connection[Any], table: str, times: Sequence[datetime]) -> int:
        wanted = sorted({at.astimezone(UTC).replace(minute=0, second=0, microsecond=0) for at in times})
        existing = set(self.partitions(connection, table))
        missing = [start for start in wanted if _partition_name(start) not in existing]
        for start in missing:
            _create_partition(connection, table, start)
        return len(missing)

    def make_rollups(self, connection: Connection[Any], table: str) -> None:
        make = "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING IDENTITY, PRIMARY KEY (id))"
        connection.execute(sql.SQL(make).format(sql.Identifier(table), sql.Identifier(ROLLUP_TABLE)))

    def partitions(self, connection: Connection[Any], table: str = TRACE_TABLE) -> list[str]:
        """Names of the partitions, oldest first."""
        rows = connection.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = %s::regclass ORDER BY c.relname",
            [table],
        ).fetchall()
        return [str(row[0]) for row in rows]


def partition_start(name: str) -> datetime:
    """When the partition of that name begins."""
    return datetime.strptime(name.rsplit("_", 1)[1], "%Y%m%d%H").replace(tzinfo=UTC)


def _partition_name(start: datetime) -> str:
    return f"{TRACE_TABLE}_{start.astimezone(UTC):%Y%m%d%H}"


def _create_partition(connection: Connection[Any], table: str, start: datetime) -> None:
    """Make the table first and attach it then: attaching does not stop running inserts, PARTITION OF would."""
    parent, name = sql.Identifier(table), sql.Identifier(_partition_name(start))
    bounds = (sql.Literal(start.isoformat()), sql.Literal((start + PARTITION).isoformat()))
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('ingest_trace_batch'))")
        if connection.execute("SELECT to_regclass(%s)", [_partition_name(start)]).fetchone() != (None,):
            return
        make = sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING CONSTRAINTS)")
        connection.execute(make.format(name, parent))
        attach = sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})")
        connection.execute(attach.format(parent, name, *bounds))


# By attempt, so that the index of roll-ups is used, which begins with it.
_DELETE_ROLLUPS: Final = f"""
DELETE FROM {ROLLUP_TABLE} WHERE ctid = ANY(ARRAY(
    SELECT r.ctid FROM ingest_attempt a JOIN {ROLLUP_TABLE} r ON r.attempt_id = a.id WHERE r.bucket_ns < %s
    LIMIT {ROLLUPS_PER_DELETE}
))
"""
