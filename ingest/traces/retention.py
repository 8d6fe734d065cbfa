"""Retention: old traces go a whole stretch at a time; what is evidence is copied first, what is not summed is summed.

Called by a regular task (`keep_house`), also while the disk is full: no step that fails stops another, least of all
dropping. Then what nothing needs goes first, and its room serves to save the rest. `pin_window` marks an incident's
window, `copy_pinned` copies it. Roll-ups live longer; jobs and incidents are not touched here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from django.db import DatabaseError as DjangoDatabaseError
from django.utils import timezone
from psycopg import Connection

from ingest.door.dumps import drop_dumps_before
from ingest.jobs.endings import end_gone_attempts, end_idle_attempts
from ingest.models import Boot, PinnedWindow
from ingest.sums.repeats import Repeats
from ingest.sums.sums import DEAD_SECONDS, rollup_age, sum_left_behind
from ingest.traces.database import connect
from ingest.traces.let_go import note_let_go
from ingest.traces.stores import store_in

TRACE_DAYS_DEFAULT: Final = 1.0
DUMP_DAYS_DEFAULT: Final = 14.0
BOOT_KEPT: Final = timedelta(days=7)
"""Beyond trace retention: how late a resent batch is still recognised."""
RANGES_MAX: Final = 1000
PINNED_MAX_NS: Final = 24 * 3_600_000_000_000
UNSAVED_KEPT: Final = timedelta(days=1)
"""Beyond trace retention: so long traces wait that cannot be copied or summed, for another reason than a full disk."""
FAILED_MAX, FAILED_CHARACTERS_MAX = 20, 200
LOCKED: Final = psycopg.errors.LockNotAvailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """What one pass did. rows_pinned: copied now that were not before. rollups_dropped: rows, or chunks of a day.

    failed: steps that did, to the end, with the reason; lost: stretches dropped for want of room before all was saved of them.
    """

    created: int
    dropped: int
    rollups_dropped: int
    rows_pinned: int
    attempts_ended: int
    boots_forgotten: int
    failed: tuple[str, ...] = ()
    lost: int = 0


def keep_house(now: datetime | None = None) -> Kept:
    """One pass: partitions ahead, pinned rows copied, old traces and roll-ups dropped, boots and silent attempts closed.

    Raises psycopg.Error only when the database cannot be reached.
    """
    now = now or timezone.now()
    with connect() as connection:
        house = _Pass(connection, now)
        house.save()
        house.drop()
        rollups_dropped = house.tried("old roll-ups", house.store.drop_rollups_before, connection, now - rollup_age())
        house.tried("compressing roll-ups", house.store.compress_rollups, connection, now)
        house.tried("gaps of boots", _close_gaps, connection)
        ended = house.tried("attempts that ended", _end_attempts, now)
        house.tried("old dumps", drop_dumps_before, now - dump_age())
        boots_forgotten = house.tried("old boots", _forget_boots, now)
    failed = tuple(house.failed)
    made = (house.created, house.dropped, rollups_dropped, house.rows_pinned)
    return Kept(*made, ended, boots_forgotten, failed, house.lost)


class _Pass:
    """The steps of one pass that make room ahead, save, and drop traces from before `before`."""

    def __init__(self, connection: Connection[Any], now: datetime) -> None:
        self.connection, self.now, self.before = connection, now, now - trace_age()
        self.store = store_in(connection)
        self.failed: list[str] = []
        self.is_full = False
        self.created = self.rows_pinned = self.dropped = self.lost = 0

    def tried(self, step: str, work: Callable[..., int], *arguments: Any) -> int:
        """What the step returns; 0 when it failed, which is said and stops no other."""
        try:
            return work(*arguments)
        except LOCKED:
            return 0  # somebody reads for long: the next pass tries again
        except (psycopg.Error, DjangoDatabaseError) as error:
            self.is_full |= isinstance(error, psycopg.errors.DiskFull)
            if len(self.failed) < FAILED_MAX:
                self.failed.append(f"{step}: {error}"[:FAILED_CHARACTERS_MAX])
            log.error("keeping house, %s: %s", step, error)
            return 0

    def save(self) -> None:
        """All that needs room: stretches ahead, copies of what is pinned, sums of what dead writers left."""
        self.created += self.tried("making room ahead", self.store.create_ahead, self.connection, self.now)
        self.rows_pinned += self.tried("copying pinned windows", self._copy_windows)
        self.tried("summing what was left behind", self._sum_left_behind)

    def drop(self) -> None:
        """What nothing needs first. With a full disk then an hour at a time, while its room does not save the rest."""
        needed: list[datetime] = []
        if not self.tried("what is still needed", self._find_needed, needed) and not self.is_full:
            return  # unknown is not the same as not needed
        self._drop_but(needed)
        while self.is_full:
            self.is_full = False
            self.failed.clear()  # said already, and tried again with what room there is now
            self.save()
            self.tried("what is still needed", self._find_needed, needed)
            if self._drop_but(needed) or not self.is_full:
                continue
            if not needed or not self._lose_but(needed := needed[1:], "the disk is full"):
                break
        waiting = [at for at in needed if at >= self.before - UNSAVED_KEPT]
        if len(waiting) < len(needed):
            self._lose_but(waiting, "nobody could copy or sum them for long")

    def _copy_windows(self) -> int:
        windows = list(PinnedWindow.objects.values_list("attempt_id", "start_ns", "end_ns"))
        copy = (self.tried("copying a pinned window", _copy_window, self.connection, *window) for window in windows)
        return sum(copy)

    def _drop_but(self, needed: Sequence[datetime]) -> int:
        n_dropped = self.tried("old traces", self.store.drop_before, self.connection, self.before, needed)
        self.dropped += n_dropped
        return n_dropped

    def _lose_but(self, needed: Sequence[datetime], why: str) -> int:
        n_lost = self._drop_but(needed)
        self.lost += n_lost
        self.tried("counting what was lost", note_let_go, "hours", n_lost)
        log.error("%d hours of traces were dropped, not all copied and summed: %s", n_lost, why)
        return n_lost

    def _find_needed(self, needed: list[datetime]) -> int:
        """Make `needed` the hours of old traces of which something is neither copied nor summed, oldest first."""
        rows = self.connection.execute(_NEEDED, [DEAD_SECONDS, self.before, self.before]).fetchall()
        needed[:] = [at for (at,) in rows]
        return 1

    def _sum_left_behind(self) -> int:
        done = sum_left_behind(self.connection, Repeats(), is_thorough=True)
        if isinstance(done.error, psycopg.Error):
            raise done.error
        return done.batches


def trace_age() -> timedelta:
    """How long traces are kept: DIOGENES_TRACE_DAYS."""
    return timedelta(days=float(os.environ.get("DIOGENES_TRACE_DAYS", TRACE_DAYS_DEFAULT)))


def dump_age() -> timedelta:
    """How long stacks and Flight Recorder dumps are kept: DIOGENES_DUMP_DAYS."""
    return timedelta(days=float(os.environ.get("DIOGENES_DUMP_DAYS", DUMP_DAYS_DEFAULT)))


def pin_window(attempt_id: int, start_ns: int, end_ns: int) -> None:
    """Keep the traces of [start_ns, end_ns): from now on retention copies them before it drops anything.

    A window longer than a day is cut at its end. Raises ValueError when it is empty.
    """
    if end_ns <= start_ns:
        raise ValueError("a pinned window must not be empty")
    kept_ns = min(end_ns, start_ns + PINNED_MAX_NS)
    _, is_new = PinnedWindow.objects.get_or_create(attempt_id=attempt_id, start_ns=start_ns, end_ns=kept_ns)
    if is_new and kept_ns < end_ns:
        note_let_go("windows_cut", 1)


def copy_pinned(since: datetime) -> int:
    """Copy what is there of the windows pinned since then; how many batches were copied now."""
    windows = PinnedWindow.objects.filter(pinned_at__gte=since).values_list("attempt_id", "start_ns", "end_ns")
    with connect() as connection:
        return sum(_copy_window(connection, *window) for window in windows)


def unpin_window(attempt_id: int, start_ns: int, end_ns: int) -> None:
    """Let retention take the window, counted; rows that another pinned window needs stay."""
    window = PinnedWindow.objects.filter(attempt_id=attempt_id, start_ns=start_ns, end_ns=end_ns)
    note_let_go("windows", window.delete()[0])
    with connect() as connection:
        connection.execute(
            "DELETE FROM ingest_pinned_batch b WHERE attempt_id = %s AND NOT EXISTS ("
            " SELECT 1 FROM ingest_pinnedwindow w WHERE w.attempt_id = b.attempt_id"
            " AND b.end_ns >= w.start_ns AND b.start_ns < w.end_ns)",
            [attempt_id],
        )


def _copy_window(connection: Connection[Any], attempt_id: int, start_ns: int, end_ns: int) -> int:
    return connection.execute(
        "INSERT INTO ingest_pinned_batch SELECT * FROM ingest_trace_batch"
        " WHERE attempt_id = %s AND end_ns >= %s AND start_ns < %s ON CONFLICT DO NOTHING",
        [attempt_id, start_ns, end_ns],
    ).rowcount


def _end_attempts(now: datetime) -> int:
    return end_gone_attempts(int(now.timestamp() * 1e9)) + end_idle_attempts(now)


def _forget_boots(now: datetime) -> int:
    return Boot.objects.filter(last_received_at__lt=now - trace_age() - BOOT_KEPT).delete()[0]


def _close_gaps(connection: Connection[Any]) -> int:
    """Bound what a boot remembers: its newest RANGES_MAX ranges. What was missing below them is given up."""
    return connection.execute(
        "UPDATE ingest_boot b SET received = b.received * int8multirange(int8range(kept.floor, NULL)), floor = kept.floor"
        " FROM (SELECT id, (SELECT lower(r) FROM unnest(received) r ORDER BY r DESC OFFSET %s LIMIT 1) AS floor"
        "       FROM ingest_boot) kept"
        " WHERE kept.id = b.id AND kept.floor > lower(b.received)",
        [RANGES_MAX - 1],
    ).rowcount


_NEEDED: Final = """
WITH dead AS (
    SELECT id, summed, coalesce((SELECT upper(r) FROM unnest(summed) r WHERE lower(r) <= 1), 0) AS first_missing
    FROM ingest_writer WHERE summed_at < now() - make_interval(secs => %s)
)
SELECT DISTINCT date_trunc('hour', t.received_at, 'UTC') FROM ingest_pinnedwindow w JOIN ingest_trace_batch t
ON t.attempt_id = w.attempt_id AND t.end_ns >= w.start_ns AND t.start_ns < w.end_ns
WHERE t.received_at < %s AND NOT EXISTS (
    SELECT FROM ingest_pinned_batch p
    WHERE p.attempt_id = t.attempt_id AND p.boot_pk = t.boot_pk AND p.number = t.number
)
UNION
SELECT DISTINCT date_trunc('hour', t.received_at, 'UTC') FROM dead JOIN ingest_trace_batch t
ON t.writer_id = dead.id AND t.commit_number >= dead.first_missing AND NOT dead.summed @> t.commit_number
WHERE t.received_at < %s
ORDER BY 1
"""
