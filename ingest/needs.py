"""What a process needs to do its work, asked for by doing a little of it: is the database there, is it ours, is there room?

Each question opens a connection of its own, as a request would have to if the pool had lost its own, and gives up after
a few seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from django.db.migrations.loader import MigrationLoader
from psycopg import Connection

from ingest.traces.database import connect
from ingest.traces.partitions import PARTITION, partition_start
from ingest.traces.space import data_folders, measure, size_words

STATEMENT_MS: Final = 2_000


class Missing(Exception):
    """What is needed is not there; the message says what and what to do."""


@dataclass(frozen=True, slots=True)
class Need:
    """ask: says what it found, raises when that is not enough. is_must: without it the process is no use at all."""

    name: str
    ask: Callable[[], str]
    is_must: bool = True


def ask_database() -> str:
    """The server's version."""
    with _connection() as connection:
        (version,) = connection.execute("SHOW server_version").fetchone() or ("",)
    return f"PostgreSQL {version}"


def ask_migrations() -> str:
    """Whether the schema is the one this code was written for."""
    with _connection() as connection:
        if connection.execute("SELECT to_regclass('django_migrations')").fetchone() == (None,):
            raise Missing("the database is empty: run `manage.py migrate`")
        applied = {tuple(row) for row in connection.execute("SELECT app, name FROM django_migrations").fetchall()}
    missing = sorted(_migrations() - applied)
    if missing:
        names = ", ".join(f"{app} {name}" for app, name in missing[:3])
        raise Missing(f"{len(missing)} migrations are not applied ({names}): run `manage.py migrate`")
    return f"{len(_migrations())} applied"


def ask_room() -> str:
    """Whether a batch that arrives now has a partition to go to."""
    now = datetime.now(UTC)
    with _connection() as connection:
        ahead = partitions_ahead(connection, now)
    if ahead is None:
        return "chunks are made when they are needed"
    if ahead < 0:
        raise Missing("there is no partition for this hour: ingest makes it when it starts; see its log for why not")
    return f"{ahead} hours ahead"


def partitions_ahead(connection: Connection[Any], now: datetime) -> int | None:
    """Partitions that begin after `now`; -1 when there is none for `now` itself; None: the store makes its own room."""
    kind = connection.execute("SELECT relkind FROM pg_class WHERE oid = to_regclass('ingest_trace_batch')").fetchone()
    if kind is None or kind[0] not in ("p", b"p"):
        return None
    rows = connection.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'ingest_trace_batch'::regclass"
    ).fetchall()
    starts = [partition_start(str(row[0])) for row in rows]
    has_now = any(start <= now < start + PARTITION for start in starts)
    return sum(start > now for start in starts) if has_now else -1


def ask_disk() -> str:
    """Whether traces may still be stored."""
    space = measure(data_folders())
    if space.is_short:
        raise Missing(space.says)
    return "not to be seen from here" if space.free_bytes is None else f"{size_words(space.free_bytes)} free"


NEEDS: Final = (
    Need("database", ask_database),
    Need("migrations", ask_migrations),
    Need("room", ask_room),
    Need("disk", ask_disk, is_must=False),  # another process would have to refuse as well
)
"""Of a process that receives batches."""


def _connection() -> Connection[Any]:
    connection = connect()
    connection.execute(f"SET statement_timeout = {STATEMENT_MS}")
    return connection


@cache
def _migrations() -> frozenset[tuple[str, str]]:
    loader = MigrationLoader(None)
    return frozenset(loader.disk_migrations)
