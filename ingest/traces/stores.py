"""Which trace store this installation has: the catalogue says, by what kind of table the trace table is.

Nothing is configured. Migrations choose hypertables where TimescaleDB is to be had, `manage.py move_traces` moves from
one store to the other while everything runs, so a long-lived process must ask again before it acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django.db import connection as django_connection
from psycopg import Connection

from ingest.traces.hypertables import Hypertables
from ingest.traces.partitions import NativePartitions
from ingest.traces.store import ROLLUP_TABLE, TRACE_TABLE, TraceStore

HYPERTABLES: Final = Hypertables()
NATIVE: Final = NativePartitions()
_PARTITIONED: Final = "SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass(%s)"


def active_store() -> TraceStore:
    """The store of this installation, asked of Django's connection."""
    with django_connection.cursor() as cursor:
        cursor.execute(_PARTITIONED, [TRACE_TABLE])
        return _store_of(cursor.fetchone())


def store_in(connection: Connection[Any]) -> TraceStore:
    """The store of the database behind this connection."""
    return _store_of(connection.execute(_PARTITIONED, [TRACE_TABLE]).fetchone())


def is_empty(connection: Connection[Any]) -> bool:
    """Whether nothing was ever stored, or nothing is left."""
    tables = (TRACE_TABLE, ROLLUP_TABLE)
    return not any(connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in tables)


def _store_of(row: Sequence[Any] | None) -> TraceStore:
    return HYPERTABLES if row is not None and not row[0] else NATIVE


class FollowedStore:
    """Makes room in whichever store there is at that moment. `name`: what it was then, empty before."""

    name = ""

    def create_ahead(self, connection: Connection[Any], now: datetime) -> int:
        store = store_in(connection)
        self.name = store.name
        return store.create_ahead(connection, now)
