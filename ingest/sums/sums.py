"""What the database is told of roll-ups: sums, and in the same transaction which commits they contain.

`ingest_writer` has a row per life of an ingest process; every stored batch carries the writer that committed it and the
number of the commit. A commit is summed once its number is in the writer's `summed`. Whoever adds numbers locks the row
and finds out whether another has added one of them: so nothing is summed twice, whoever is thought dead and whatever
became of a transaction whose answer was lost. Batches that no writer's `summed` knows are found by index and summed by
whoever comes first (`sum_left_behind`). A writer is forgotten when it has been dead for a day and nothing of it is left.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import Connection
from psycopg.types.json import Jsonb

from ingest.sums.repeats import Repeats, ops_in
from ingest.sums.rollup import OpBatch, Rollups, Sums

DEAD_SECONDS: Final = 10
"""A writer says once a second that it lives. To think a living one dead costs some work, and no exactness."""
LATELY: Final = "10 minutes"
FORGOTTEN: Final = "1 day"
LEFT_ROWS_MAX: Final = 1000  # more than any commit holds
SUMS_AT_ONCE: Final = 5000
ROLLUP_DAYS_DEFAULT: Final = 30.0


log = logging.getLogger(__name__)


class TakenOver(Exception):
    """Another process has summed commits of this writer, which seemed dead: what it still holds is not to be written."""


def rollup_age() -> timedelta:
    """How long roll-ups are kept: DIOGENES_ROLLUP_DAYS."""
    return timedelta(days=float(os.environ.get("DIOGENES_ROLLUP_DAYS", ROLLUP_DAYS_DEFAULT)))


def write_sums(
    connection: Connection[Any], writer_id: int, sums: Sums, numbers: Iterable[int], health: dict[str, Any]
) -> dict[int, int]:
    """Write the sums of a living writer and that they contain these commits; part → ops of those that are too old to keep.

    Raises TakenOver, psycopg.Error.
    """
    summed = as_multirange(numbers)
    with connection.transaction():
        marked = connection.execute(_MARK_ALIVE, [summed, Jsonb(health), writer_id, summed])
        if not marked.rowcount:
            raise TakenOver
        return _insert(connection, sums)


@dataclass(slots=True)
class LeftBehind:
    """What was summed of dead writers: batches; ops that found no room; ops too old to keep. error: the last, if any."""

    batches: int = 0
    ops_not_summed: int = 0
    ops_too_old: int = 0
    error: Exception | None = None


def sum_left_behind(connection: Connection[Any], repeats: Repeats, *, is_thorough: bool = False) -> LeftBehind:
    """Sum what dead writers committed and did not sum.

    Looks at writers that died lately; is_thorough: at all, however long ago, and forgets those of whom nothing is left.
    One that fails holds up no other. Several processes may do so at once. Raises psycopg.Error when it cannot even ask.
    """
    since = None if is_thorough else LATELY
    done = LeftBehind()
    for (writer_id,) in connection.execute(_DEAD, [DEAD_SECONDS, since, since]).fetchall():
        try:
            while _sum_some(connection, repeats, writer_id, done):
                pass
        except (psycopg.Error, ValueError) as error:  # whatever is stored there: it must not stop retention
            log.error("what writer %d left behind could not be summed: %s", writer_id, error)
            done.error = error
    if is_thorough:
        connection.execute(_FORGET, [FORGOTTEN])
    return done


def as_multirange(numbers: Iterable[int]) -> str:
    """An int8multirange of these numbers, as text."""
    ordered = np.unique(np.fromiter(numbers, np.int64))
    breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
    runs = np.split(ordered, breaks) if len(ordered) else []
    return "{" + ",".join(f"[{run[0]},{run[-1] + 1})" for run in runs) + "}"


def _sum_some(connection: Connection[Any], repeats: Repeats, writer_id: int, done: LeftBehind) -> bool:
    """Sum up to LEFT_ROWS_MAX batches of a writer in one transaction and add them to `done`; whether there were any."""
    with connection.transaction():
        locked = connection.execute(_LOCK_DEAD, [writer_id, DEAD_SECONDS]).fetchone()
        if locked is None:
            return False
        rows = connection.execute(_LEFT, [writer_id, locked[0], writer_id, LEFT_ROWS_MAX], binary=True).fetchall()
        if len(rows) == LEFT_ROWS_MAX:  # the last commit may go on beyond them
            rows = [row for row in rows if row[0] != rows[-1][0]]
        if not rows:
            return False
        rollups = Rollups()
        batches = [OpBatch(row[1], row[2], row[3], row[4], ops_in(row[5])) for row in rows]
        rollups.add(repeats.drop(connection, batches))
        too_old = _insert(connection, rollups.changed())
        connection.execute(_MARK_DEAD, [as_multirange(row[0] for row in rows), writer_id])
    done.batches += len(rows)
    done.ops_not_summed += rollups.ops_not_summed
    done.ops_too_old += sum(too_old.values())
    return True


def _insert(connection: Connection[Any], sums: Sums) -> dict[int, int]:
    """Write the sums, but those that retention would drop at once: a day of hypertables is made for the first row of it.

    Returns part → ops of those that were left out, of attempts that were deleted, too.
    """
    if len(sums.parts):
        connection.execute(_ANY_NUMBER_DECOMPRESSED)
    left_out: dict[int, int] = {}
    age_ns = int(rollup_age().total_seconds()) * 10**9
    ends = np.cumsum(sums.n_bins)
    for first in range(0, len(sums.parts), SUMS_AT_ONCE):
        of = slice(first, first + SUMS_AT_ONCE)
        bins_from = ends[first] - sums.n_bins[first]
        packed = sums.bins[bins_from : ends[of][-1]].tobytes()
        size = sums.bins.dtype.itemsize
        at = (ends[of] - sums.n_bins[of] - bins_from) * size + 1  # SQL counts from one
        columns = [*sums.keys[of].T, sums.parts[of], *sums.counts[of].T, at, sums.n_bins[of] * size]
        written = connection.execute(_INSERT, [packed, *map(_as_array, columns), age_ns])
        if written.rowcount < len(sums.parts[of]):
            keys = map(_as_array, (sums.keys[of, 0], sums.keys[of, 3], sums.parts[of], sums.counts[of, 0]))
            left_out |= dict(connection.execute(_LEFT_OUT, [*keys, age_ns]).fetchall())
    return left_out


def _as_array(column: npt.NDArray[np.int64]) -> str:
    """A bigint[] as text: a list of thousands would be adapted number by number."""
    return "{" + str(column.tolist())[1:-1] + "}"


_MARK_ALIVE: Final = """
UPDATE ingest_writer SET summed = summed + %s::int8multirange, summed_at = now(), health = %s
WHERE id = %s AND NOT summed && %s::int8multirange
"""
_DEAD: Final = """
SELECT id FROM ingest_writer
WHERE summed_at < now() - make_interval(secs => %s) AND (%s::text IS NULL OR summed_at > now() - %s::interval) ORDER BY id
"""
_FORGET: Final = """
DELETE FROM ingest_writer w WHERE summed_at < now() - %s::interval AND NOT EXISTS (
    SELECT FROM ingest_trace_batch t WHERE t.writer_id = w.id AND NOT w.summed @> t.commit_number
    AND t.commit_number >= coalesce((SELECT upper(r) FROM unnest(w.summed) r WHERE lower(r) <= 1), 0)
)
"""
_LOCK_DEAD: Final = """
SELECT coalesce((SELECT upper(r) FROM unnest(summed) r WHERE lower(r) <= 1), 0)
FROM ingest_writer WHERE id = %s AND summed_at < now() - make_interval(secs => %s) FOR UPDATE SKIP LOCKED
"""
"""The first number that may be missing: commits are numbered from one."""
_LEFT: Final = """
SELECT t.commit_number, t.attempt_id, t.node_id, t.boot_pk, t.shift_ns, t.ops
FROM ingest_trace_batch t
WHERE t.writer_id = %s AND t.commit_number >= %s
  AND NOT (SELECT summed FROM ingest_writer w WHERE w.id = %s) @> t.commit_number
ORDER BY t.commit_number LIMIT %s
"""
_MARK_DEAD: Final = "UPDATE ingest_writer SET summed = summed + %s::int8multirange WHERE id = %s"
_ANY_NUMBER_DECOMPRESSED: Final = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name = 'timescaledb.max_tuples_decompressed_per_dml_transaction'
"""
"""Late ops change roll-ups that are compressed: a limit on that would make the same write fail for ever."""
_IS_KEPT: Final = """EXISTS (
    SELECT FROM ingest_attempt a WHERE a.id = s.attempt_id
    AND s.bucket_ns >= extract(epoch FROM a.last_received_at) * 1000000000 - %s::bigint
)"""
_LEFT_OUT: Final = f"""
SELECT part, n_ops FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS s(attempt_id, bucket_ns, part, n_ops)
WHERE NOT {_IS_KEPT}
"""
_INSERT: Final = f"""
INSERT INTO ingest_oprollup (attempt_id, comm_id, func, bucket_ns, part, n_ops, n_timed, bytes, bytes_timed,
    duration_sum_ns, duration_max_ns, bins)
SELECT attempt_id, comm_id, func, bucket_ns, part, n_ops, n_timed, bytes, bytes_timed, duration_sum_ns, duration_max_ns,
    substring(packed FROM bins_at::int FOR bins_bytes::int)
FROM (SELECT %s::bytea AS packed) all_bins, unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS s(attempt_id, comm_id, func, bucket_ns, part, n_ops, n_timed, bytes, bytes_timed, duration_sum_ns,
    duration_max_ns, bins_at, bins_bytes)
WHERE {_IS_KEPT}
ON CONFLICT (attempt_id, bucket_ns, comm_id, func, part) DO UPDATE SET
    n_ops = excluded.n_ops, n_timed = excluded.n_timed, bytes = excluded.bytes, bytes_timed = excluded.bytes_timed,
    duration_sum_ns = excluded.duration_sum_ns, duration_max_ns = excluded.duration_max_ns, bins = excluded.bins
"""
