"""The trace store on plain PostgreSQL: range partitions by time of receipt, made ahead of time and dropped whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from psycopg import Connection, sql

PARTITION: Final = timedelta(hours=1)
PARTITIONS_AHEAD: Final = 24
LOCK_TIMEOUT_MS: Final = 2_000


class NativePartitions:
    """Range partitions by time of receipt, an hour each; old ones are dropped whole, which costs no vacuum."""

    name = "native partitions"

    def create_ahead(self, connection: Connection[Any], now: datetime) -> int:
        first = now.replace(minute=0, second=0, microsecond=0)
        wanted = [first + i * PARTITION for i in range(PARTITIONS_AHEAD + 1)]
        existing = set(self.partitions(connection))
        missing = [start for start in wanted if _partition_name(start) not in existing]
        for start in missing:
            _create_partition(connection, start)
        return len(missing)

    def drop_before(self, connection: Connection[Any], before: datetime) -> int:
        old = [name for name in self.partitions(connection) if partition_start(name) + PARTITION <= before]
        for name in old:
            # Waiting longer for the lock would make every batch wait behind us: better try again at the next pass.
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        return len(old)

    def partitions(self, connection: Connection[Any]) -> list[str]:
        """Names of the partitions, oldest first."""
        rows = connection.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = 'ingest_trace_batch'::regclass ORDER BY c.relname"
        ).fetchall()
        return [str(row[0]) for row in rows]


def partition_start(name: str) -> datetime:
    """When the partition of that name begins."""
    return datetime.strptime(name.rsplit("_", 1)[1], "%Y%m%d%H").replace(tzinfo=UTC)


def _partition_name(start: datetime) -> str:
    return f"ingest_trace_batch_{start.astimezone(UTC):%Y%m%d%H}"


def _create_partition(connection: Connection[Any], start: datetime) -> None:
    """Make the table first and attach it then: attaching does not stop running inserts, PARTITION OF would."""
    name = sql.Identifier(_partition_name(start))
    bounds = (sql.Literal(start.isoformat()), sql.Literal((start + PARTITION).isoformat()))
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('ingest_trace_batch'))")
        if connection.execute("SELECT to_regclass(%s)", [_partition_name(start)]).fetchone() != (None,):
            return
        connection.execute(
            sql.SQL("CREATE TABLE {} (LIKE ingest_trace_batch INCLUDING DEFAULTS INCLUDING STORAGE)").format(name)
        )
        attach = sql.SQL("ALTER TABLE ingest_trace_batch ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})")
        connection.execute(attach.format(name, *bounds))
