"""Retention: old traces go a whole stretch at a time, windows that are evidence are copied out first.

Called by a regular task (`keep_house`) and by the console when an incident wants its window kept (`pin_window`).
Roll-ups live longer, compressed where the store can; jobs and incidents are not touched here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from django.utils import timezone
from psycopg import Connection

from ingest.database import connect
from ingest.endings import end_gone_attempts, end_idle_attempts
from ingest.models import Boot, PinnedWindow
from ingest.repeats import Repeats
from ingest.store import TraceStore
from ingest.stores import store_in
from ingest.sums import rollup_age, sum_left_behind

TRACE_DAYS_DEFAULT: Final = 1.0
BOOT_KEPT: Final = timedelta(days=7)
"""Beyond trace retention: how late a resent batch is still recognised."""
RANGES_MAX: Final = 1000
PINNED_MAX_NS: Final = 24 * 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Kept:
    """What one pass did. rows_pinned: copied now that were not before. rollups_dropped: rows, or chunks of a day."""

    created: int
    dropped: int
    rollups_dropped: int
    rows_pinned: int
    attempts_ended: int
    boots_forgotten: int


def keep_house(now: datetime | None = None) -> Kept:
    """One pass: partitions ahead, pinned rows copied, old traces and roll-ups dropped, boots and silent attempts closed."""
    now = now or timezone.now()
    with connect() as connection:
        store = store_in(connection)
        created = store.create_ahead(connection, now)
        rows_pinned = sum(_copy_window(connection, *window) for window in _pinned_windows())
        sum_left_behind(connection, Repeats(), is_thorough=True)
        dropped = _drop_old(store, connection, now - trace_age())
        rollups_dropped = _keep_rollups(store, connection, now)
        _close_gaps(connection)
    ended = end_gone_attempts(int(now.timestamp() * 1e9)) + end_idle_attempts(now)
    return Kept(created, dropped, rollups_dropped, rows_pinned, ended, _forget_boots(now))


def trace_age() -> timedelta:
    """How long traces are kept: DIOGENES_TRACE_DAYS."""
    return timedelta(days=float(os.environ.get("DIOGENES_TRACE_DAYS", TRACE_DAYS_DEFAULT)))


def pin_window(attempt_id: int, start_ns: int, end_ns: int) -> int:
    """Keep the traces of [start_ns, end_ns) for good; how many batches were copied now.

    Batches that arrive later are copied by the next pass. A window longer than a day is cut at its end.
    Raises ValueError when it is empty.
    """
    if end_ns <= start_ns:
        raise ValueError("a pinned window must not be empty")
    end_ns = min(end_ns, start_ns + PINNED_MAX_NS)
    PinnedWindow.objects.get_or_create(attempt_id=attempt_id, start_ns=start_ns, end_ns=end_ns)
    with connect() as connection:
        return _copy_window(connection, attempt_id, start_ns, end_ns)


def unpin_window(attempt_id: int, start_ns: int, end_ns: int) -> None:
    """Let retention take the window; rows that another pinned window needs stay."""
    PinnedWindow.objects.filter(attempt_id=attempt_id, start_ns=start_ns, end_ns=end_ns).delete()
    with connect() as connection:
        connection.execute(
            "DELETE FROM ingest_pinned_batch b WHERE attempt_id = %s AND NOT EXISTS ("
            " SELECT 1 FROM ingest_pinnedwindow w WHERE w.attempt_id = b.attempt_id"
            " AND b.end_ns >= w.start_ns AND b.start_ns < w.end_ns)",
            [attempt_id],
        )


def _keep_rollups(store: TraceStore, connection: Connection[Any], now: datetime) -> int:
    """Drop what is too old, compress what hardly changes any more; how much was dropped."""
    try:
        dropped = store.drop_rollups_before(connection, now - rollup_age())
        store.compress_rollups(connection, now)
    except psycopg.errors.LockNotAvailable:
        return 0  # somebody reads for long: the next pass tries again
    return dropped


def _drop_old(store: TraceStore, connection: Connection[Any], before: datetime) -> int:
    try:
        return store.drop_before(connection, before)
    except psycopg.errors.LockNotAvailable:
        return 0  # somebody reads for long: the next pass tries again


def _pinned_windows() -> list[tuple[int, int, int]]:
    """Windows whose batches may still be on their way: what was pinned long ago has all been copied."""
    since = timezone.now() - 2 * trace_age() - timedelta(days=1)
    return list(PinnedWindow.objects.filter(pinned_at__gte=since).values_list("attempt_id", "start_ns", "end_ns"))


def _copy_window(connection: Connection[Any], attempt_id: int, start_ns: int, end_ns: int) -> int:
    return connection.execute(
        "INSERT INTO ingest_pinned_batch SELECT * FROM ingest_trace_batch"
        " WHERE attempt_id = %s AND end_ns >= %s AND start_ns < %s ON CONFLICT DO NOTHING",
        [attempt_id, start_ns, end_ns],
    ).rowcount


def _forget_boots(now: datetime) -> int:
    return Boot.objects.filter(last_received_at__lt=now - trace_age() - BOOT_KEPT).delete()[0]


def _close_gaps(connection: Connection[Any]) -> None:
    """Bound what a boot remembers: below its newest RANGES_MAX ranges, all numbers count as received."""
    connection.execute(
        "UPDATE ingest_boot b SET received = b.received + int8multirange(int8range(lower(b.received), kept.floor))"
        " FROM (SELECT id, (SELECT lower(r) FROM unnest(received) r ORDER BY r DESC OFFSET %s LIMIT 1) AS floor"
        "       FROM ingest_boot) kept"
        " WHERE kept.id = b.id AND kept.floor > lower(b.received)",
        [RANGES_MAX],
    )
