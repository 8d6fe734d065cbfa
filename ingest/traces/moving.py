"""Moving traces and roll-ups from one store to the other while ingest writes and readers read.

The new table is filled beside the old one, a slice of time in each transaction. Then, under a lock, the last rows follow
and the two change names; only that stops writers, for a fraction of a second. What reached the old table late is copied
after, when nobody writes to it any more; every row is looked for in the new table, and the old one is dropped.

The tables themselves are the only state: a slice copies what the other side lacks, so a move that was interrupted goes
on from wherever it was, and doing a step twice does nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
from psycopg import Connection, sql

from ingest.traces.hypertables import is_hypertable
from ingest.traces.partitions import PARTITION, PARTITIONS_AHEAD
from ingest.traces.store import ROLLUP_TABLE, TRACE_TABLE, TraceStore
from ingest.traces.stores import HYPERTABLES, NATIVE

LOCK_TIMEOUT_MS: Final = 2_000
SWITCH_TRIES: Final = 60
VERIFY_TRIES: Final = 3
SETTLED_SECONDS: Final = 60
"""A row is committed at most so long after the time it bears; later ones are found when the old table is compared."""
FEW_ROWS: Final = 1_000
ROUNDS_MAX: Final = 20

Report = Callable[["Progress"], None]


class MoveFailed(Exception):
    """The move cannot go on; nothing is lost, and it can be started again."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A table to move. time_ns: SQL of a row's time in ns. key: what names a row. grows: the column that is never lower
    in a newer version of a row, empty where rows do not change."""

    table: str
    slice_ns: int
    time: str
    time_ns: str
    bound: str
    key: tuple[str, ...]
    grows: str = ""

    @property
    def new(self) -> str:
        return f"{self.table}_new"

    @property
    def old(self) -> str:
        return f"{self.table}_old"


TRACES: Final = Subject(
    TRACE_TABLE,
    300 * 10**9,
    "received_at",
    "floor(extract(epoch FROM received_at) * 1000000)::bigint * 1000",
    "to_timestamp({} / 1000000000.0)",
    ("received_at", "boot_pk", "number"),
)
ROLLUPS: Final = Subject(
    ROLLUP_TABLE,
    3_600 * 10**9,
    "bucket_ns",
    "bucket_ns",
    "{}",
    ("bucket_ns", "attempt_id", "comm_id", "func", "part"),
    grows="n_ops",
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one table is. step: copying, comparing. row_bytes: mean size on disk."""

    table: str
    step: str
    rows: int
    rows_total: int
    row_bytes: float


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of one table. locked_seconds: how long writers and readers waited."""

    table: str
    rows: int
    locked_seconds: float


def move(connection: Connection[Any], store: TraceStore, report: Report) -> list[Moved]:
    """Move everything into `store`; tables that are there already are left alone. Raises MoveFailed."""
    if connection.execute("SELECT pg_try_advisory_lock(hashtext('ingest.traces.moving'))").fetchone() != (True,):
        raise MoveFailed("another move is running")
    connection.execute(
        "SET enable_nestloop = off"
    )  # nothing is known of a new table, and a slice may have 400,000 rows
    try:
        return [_move_one(connection, store, subject, report) for subject in needed(connection, store)]
    finally:
        if not connection.closed:
            connection.execute("RESET enable_nestloop")
            connection.execute("SELECT pg_advisory_unlock(hashtext('ingest.traces.moving'))")


def needed(connection: Connection[Any], store: TraceStore) -> list[Subject]:
    """The tables that are not in `store`, or whose move there is not finished."""
    wants = store is HYPERTABLES
    return [
        subject
        for subject in (ROLLUPS, TRACES)
        if is_hypertable(connection, subject.table) != wants or _exists(connection, subject.old)
    ]


def _move_one(connection: Connection[Any], store: TraceStore, subject: Subject, report: Report) -> Moved:
    n_rows = 0
    if _exists(connection, subject.old):  # a move was interrupted after its switch, perhaps one in the other direction
        n_rows = _finish(connection, _store_of(connection, subject), subject, report)
    if is_hypertable(connection, subject.table) == (store is HYPERTABLES):
        return Moved(subject.table, n_rows, 0.0)
    return _carry(connection, store, subject, report)


def _carry(connection: Connection[Any], store: TraceStore, subject: Subject, report: Report) -> Moved:
    _make_new(connection, store, subject)
    since_ns = _copy_all(connection, store, subject, report)
    since_ns = _catch_up(connection, store, subject, since_ns)
    locked = _switch(connection, subject, since_ns)
    return Moved(subject.table, _finish(connection, store, subject, report), locked)


def _store_of(connection: Connection[Any], subject: Subject) -> TraceStore:
    return HYPERTABLES if is_hypertable(connection, subject.table) else NATIVE


def _finish(connection: Connection[Any], store: TraceStore, subject: Subject, report: Report) -> int:
    n_rows = _compare(connection, store, subject, report)
    _drop_old(connection, subject)
    return n_rows


def _make_new(connection: Connection[Any], store: TraceStore, subject: Subject) -> None:
    """The new table with the old one's indexes and constraints, under names that say whose they are."""
    with connection.transaction():
        if not _exists(connection, subject.new):
            make = store.make_traces if subject is TRACES else store.make_rollups
            make(connection, subject.new)
            for oid, _, definition in _constraints(connection, subject.table):
                _alter(connection, subject.new, f"ADD CONSTRAINT {_twin(oid)} {definition}")
            for oid, _, definition in _indexes(connection, subject.table):
                connection.execute(re.sub(_INDEX_HEAD, rf"CREATE INDEX {_twin(oid)} ON {subject.new} ", definition))


def _copy_all(connection: Connection[Any], store: TraceStore, subject: Subject, report: Report) -> int:
    """Copy every slice there is; the time in ns from which rows may have come since."""
    since_ns = time.time_ns()
    slices = _slices(connection, subject, subject.table)
    _make_room(connection, store, subject, subject.new, slices)
    done, total, row_bytes = 0, sum(slices.values()), _row_bytes(connection, subject.table, sum(slices.values()))
    report(Progress(subject.table, "copying", 0, total, row_bytes))
    for start_ns, n_rows in slices.items():
        _copy(connection, subject, subject.table, subject.new, start_ns, start_ns + subject.slice_ns)
        done += n_rows
        report(Progress(subject.table, "copying", done, total, row_bytes))
    return since_ns


def _catch_up(connection: Connection[Any], store: TraceStore, subject: Subject, since_ns: int) -> int:
    """Copy what came meanwhile until little comes while we copy; the time from which the rest is."""
    for _ in range(ROUNDS_MAX):
        next_ns = time.time_ns()
        _make_room(connection, store, subject, subject.new, ())
        if _copy(connection, subject, subject.table, subject.new, _settled(since_ns), None) < FEW_ROWS:
            return next_ns
        since_ns = next_ns
    return since_ns


def _switch(connection: Connection[Any], subject: Subject, since_ns: int) -> float:
    """Copy the last rows and let the tables change names, under a lock; how long it was held, in s."""
    for _ in range(SWITCH_TRIES):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                connection.execute(f"LOCK TABLE {subject.table} IN ACCESS EXCLUSIVE MODE")
                began = time.monotonic()
                _copy(connection, subject, subject.table, subject.new, _settled(since_ns), None)
                _exchange_names(connection, subject)
            return time.monotonic() - began
        except psycopg.errors.LockNotAvailable:
            time.sleep(1.0)  # everybody who came after us had to wait too: let them through
    raise MoveFailed(f"{subject.table} was in use for {SWITCH_TRIES} tries of {LOCK_TIMEOUT_MS // 1000} s")


def _exchange_names(connection: Connection[Any], subject: Subject) -> None:
    indexes, constraints = _indexes(connection, subject.table), _constraints(connection, subject.table)
    _alter(connection, subject.table, f"RENAME TO {subject.old}")
    _alter(connection, subject.new, f"RENAME TO {subject.table}")
    for oid, name, _ in indexes:
        connection.execute(sql.SQL("ALTER INDEX {} RENAME TO {}").format(sql.Identifier(name), _old_name(oid)))
        connection.execute(
            sql.SQL("ALTER INDEX {} RENAME TO {}").format(sql.Identifier(_twin(oid)), sql.Identifier(name))
        )
    rename = sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}")
    for oid, name, _ in constraints:
        old, new = sql.Identifier(subject.old), sql.Identifier(subject.table)
        connection.execute(rename.format(old, sql.Identifier(name), _old_name(oid)))
        connection.execute(rename.format(new, sql.Identifier(_twin(oid)), sql.Identifier(name)))
    if subject is ROLLUPS:
        connection.execute(_CONTINUE_IDS)


def _compare(connection: Connection[Any], store: TraceStore, subject: Subject, report: Report) -> int:
    """Copy what the new table lacks until it lacks nothing; the rows there were in the old one. Raises MoveFailed."""
    for _ in range(VERIFY_TRIES):
        slices = _slices(connection, subject, subject.old)
        _make_room(connection, store, subject, subject.table, slices)
        total, row_bytes = sum(slices.values()), _row_bytes(connection, subject.old, sum(slices.values()))
        done = copied = 0
        report(Progress(subject.table, "comparing", 0, total, row_bytes))
        for start_ns, n_rows in slices.items():
            copied += _copy(connection, subject, subject.old, subject.table, start_ns, start_ns + subject.slice_ns)
            done += n_rows
            report(Progress(subject.table, "comparing", done, total, row_bytes))
        if not copied:
            return total
    raise MoveFailed(f"rows of {subject.table} do not stay where they are put; the old table is kept as {subject.old}")


def _drop_old(connection: Connection[Any], subject: Subject) -> None:
    connection.execute(f"DROP TABLE {subject.old}")
    connection.execute(f"ALTER INDEX IF EXISTS {subject.new}_pkey RENAME TO {subject.table}_pkey")
    connection.execute(f"ALTER SEQUENCE IF EXISTS {subject.new}_id_seq RENAME TO {subject.table}_id_seq")
    connection.execute(f"ANALYZE {subject.table}")


def _copy(
    connection: Connection[Any], subject: Subject, source: str, target: str, start_ns: int, end_ns: int | None
) -> int:
    """Copy what `target` lacks of [start_ns, end_ns), or has an older version of; how many rows."""
    span = f"{{0}}.{subject.time} >= {subject.bound.format(start_ns)}"
    if end_ns is not None:
        span += f" AND {{0}}.{subject.time} < {subject.bound.format(end_ns)}"
    columns = _columns(connection, source)
    same = " AND ".join(f"t.{name} = s.{name}" for name in subject.key)
    newer = conflict = ""
    if subject.grows:
        newer = f"AND t.{subject.grows} >= s.{subject.grows}"
        updates = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in (*subject.key, "id"))
        conflict = f"ON CONFLICT ({', '.join(subject.key)}) DO UPDATE SET {updates}"
        conflict += f" WHERE {target}.{subject.grows} < excluded.{subject.grows}"
    names = ", ".join(columns)
    statement = (
        f"INSERT INTO {target} ({names}) SELECT {names} FROM {source} s WHERE {span.format('s')} AND NOT EXISTS"
        f" (SELECT 1 FROM {target} t WHERE {span.format('t')} AND {same} {newer}) {conflict}"
    )
    return connection.execute(statement).rowcount


def _slices(connection: Connection[Any], subject: Subject, table: str) -> dict[int, int]:
    """Start of a slice in ns → its rows, oldest first; empty slices left out."""
    start = f"{subject.time_ns} / {subject.slice_ns} * {subject.slice_ns}"
    return dict(connection.execute(f"SELECT {start}, count(*) FROM {table} GROUP BY 1 ORDER BY 1").fetchall())


def _make_room(
    connection: Connection[Any], store: TraceStore, subject: Subject, table: str, slices: Sequence[int] | dict[int, int]
) -> None:
    if subject is TRACES:
        now = datetime.now(UTC)
        times = [now + i * PARTITION for i in range(PARTITIONS_AHEAD + 1)]
        store.make_room(connection, table, [datetime.fromtimestamp(start / 1e9, UTC) for start in slices] + times)


def _row_bytes(connection: Connection[Any], table: str, n_rows: int) -> float:
    found = connection.execute(
        "SELECT pg_total_relation_size(%(table)s::regclass) + coalesce((SELECT sum(pg_total_relation_size(inhrelid))"
        " FROM pg_inherits WHERE inhparent = %(table)s::regclass), 0)",
        {"table": table},
    ).fetchone()
    return float(found[0]) / n_rows if found and n_rows else 0.0


def _columns(connection: Connection[Any], table: str) -> list[str]:
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table],
    )
    return [str(name) for (name,) in rows.fetchall()]


def _indexes(connection: Connection[Any], table: str) -> list[tuple[int, str, str]]:
    """(oid, name, definition) of the indexes that are not a constraint's."""
    return connection.execute(
        "SELECT i.indexrelid::bigint, c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i"
        " JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %s::regclass"
        " AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid)",
        [table],
    ).fetchall()


def _constraints(connection: Connection[Any], table: str) -> list[tuple[int, str, str]]:
    """(oid, name, definition) of unique and check constraints: the primary key is the store's business."""
    return connection.execute(
        "SELECT oid::bigint, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = %s::regclass AND contype IN ('u', 'c')",
        [table],
    ).fetchall()


def _exists(connection: Connection[Any], table: str) -> bool:
    return connection.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,)


def _alter(connection: Connection[Any], table: str, change: str) -> None:
    connection.execute(f"ALTER TABLE {table} {change}")


def _settled(since_ns: int) -> int:
    return since_ns - SETTLED_SECONDS * 10**9


def _twin(oid: int) -> str:
    return f"ingest_twin_{oid}"


def _old_name(oid: int) -> sql.Identifier:
    return sql.Identifier(f"ingest_old_{oid}")


_INDEX_HEAD: Final = r"^CREATE INDEX \S+ ON (ONLY )?\S+ "
_CONTINUE_IDS: Final = f"""
SELECT setval(pg_get_serial_sequence('{ROLLUP_TABLE}', 'id'), greatest(1, (SELECT max(id) FROM {ROLLUP_TABLE})))
"""
