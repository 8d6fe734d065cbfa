"""OpRollup: finished ops summed in memory by attempt, communicator, kind and 10 s, written out once a second.

A sum is written whole, under a random `part` of its own, so that writing it again after a lost answer changes nothing;
readers add the parts up. What has not been written when the process dies is lost: at most the last second. A batch is
added only after its commit and only when it was new, so a resent one never counts twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from psycopg import AsyncConnection

from ingest.arrival import completed_ns
from nccl_instrument.wire import Rows

BUCKET_NS: Final = 10_000_000_000
KEPT_NS: Final = 120_000_000_000
"""Sums this much older than the newest are written and forgotten; ops that come later still start a new part."""
SUMS_MAX: Final = 50_000
DURATION_NS_MAX: Final = 86_400_000_000_000
BINS_PER_OCTAVE: Final = 16
N_BINS: Final = 48 * BINS_PER_OCTAVE
QUANTILES: Final = (0.5, 0.9, 0.99)

Key = tuple[int, int, int, int]
"""(attempt id, comm_id as stored, func, bucket start in ns)"""


@dataclass(slots=True)
class Sum:
    """One OpRollup in the making. bins: durations by sixteenths of an octave, so a quantile is right within 4.5 %."""

    part: int = field(default_factory=lambda: secrets.randbits(62))
    n_ops: int = 0
    n_timed: int = 0
    bytes: int = 0
    duration_sum_ns: int = 0
    duration_max_ns: int = 0
    bins: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(N_BINS, np.int64))


class Rollups:
    """The sums of one ingest process."""

    def __init__(self) -> None:
        self._sums: dict[Key, Sum] = {}
        self._changed: set[Key] = set()
        self._newest_ns = 0
        self.ops_not_summed = 0

    def add(self, attempt_id: int, ops: Rows, shift_ns: int) -> None:
        """Count the rows of an `op` table whose times become unix ns by adding shift_ns."""
        if len(ops) == 0:
            return
        comm_ids, funcs, n_bytes = ops["comm_id"].view(np.int64), ops["func"], ops["bytes"]
        buckets = (completed_ns(ops) + shift_ns) // BUCKET_NS * BUCKET_NS
        durations = _durations_ns(ops)
        order = np.lexsort((buckets, funcs, comm_ids))
        columns = (comm_ids[order], funcs[order], buckets[order])
        starts = np.flatnonzero(np.concatenate([[True], np.any([np.diff(c) != 0 for c in columns], axis=0)]))
        for same in np.split(order, starts[1:]):
            key = (attempt_id, int(comm_ids[same[0]]), int(funcs[same[0]]), int(buckets[same[0]]))
            self._add_one(key, n_bytes[same], durations[same])

    def changed(self) -> list[tuple[Key, Sum]]:
        """The sums that are not written yet."""
        return [(key, self._sums[key]) for key in self._changed]

    def written(self, keys: Iterable[Key]) -> None:
        """These are safe in the database; forget the ones nobody will add to."""
        self._changed.difference_update(keys)
        old = [key for key in self._sums if key[3] < self._newest_ns - KEPT_NS and key not in self._changed]
        for key in old:
            del self._sums[key]

    def _add_one(self, key: Key, n_bytes: npt.NDArray[Any], durations: npt.NDArray[np.int64]) -> None:
        if key not in self._sums and len(self._sums) >= SUMS_MAX:
            self.ops_not_summed += len(n_bytes)
            return
        found = self._sums.setdefault(key, Sum())
        timed = durations[durations > 0]
        found.n_ops += len(n_bytes)
        found.n_timed += len(timed)
        found.bytes += int(n_bytes.sum())
        if len(timed):
            found.duration_sum_ns += int(timed.sum())
            found.duration_max_ns = max(found.duration_max_ns, int(timed.max()))
            found.bins += np.bincount(_bin_of(timed), minlength=N_BINS)
        self._changed.add(key)
        self._newest_ns = max(self._newest_ns, key[3])


async def write_rollups(connection: AsyncConnection[Any], sums: Sequence[tuple[Key, Sum]]) -> None:
    """Write each sum whole, replacing what was written of its part before."""
    async with connection.transaction(), connection.pipeline():
        for key, found in sums:
            quantiles = quantiles_ns(found)
            counts = (found.n_ops, found.n_timed, found.bytes, found.duration_sum_ns)
            await connection.execute(_WRITE, (*key, found.part, *counts, *quantiles, found.duration_max_ns))


def quantiles_ns(found: Sum) -> tuple[int, ...]:
    """p50, p90 and p99 of the durations; zeros when none is known."""
    if not found.n_timed:
        return (0, 0, 0)
    cumulative = np.cumsum(found.bins)
    bins = np.searchsorted(cumulative, np.ceil(np.array(QUANTILES) * found.n_timed))
    middles = 2.0 ** ((bins + 0.5) / BINS_PER_OCTAVE)
    return tuple(min(int(middle), found.duration_max_ns) for middle in middles)


def _durations_ns(ops: Rows) -> npt.NDArray[np.int64]:
    """(n,) from the start of an op (its enqueueing where nothing later is known) to its end; 0 unknown."""
    start = np.where(ops["started_ns"] > 0, ops["started_ns"], ops["enqueued_ns"])
    known = (ops["done_ns"] > 0) & (start > 0)
    return np.where(known, np.clip(ops["done_ns"] - start, 1, DURATION_NS_MAX), 0)


def _bin_of(durations: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.minimum((np.log2(durations) * BINS_PER_OCTAVE).astype(np.int64), N_BINS - 1)


_WRITE = """
INSERT INTO ingest_oprollup (attempt_id, comm_id, func, bucket_ns, part, n_ops, n_timed, bytes, duration_sum_ns,
    duration_p50_ns, duration_p90_ns, duration_p99_ns, duration_max_ns)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (attempt_id, bucket_ns, comm_id, func, part) DO UPDATE SET
    n_ops = excluded.n_ops, n_timed = excluded.n_timed, bytes = excluded.bytes,
    duration_sum_ns = excluded.duration_sum_ns, duration_p50_ns = excluded.duration_p50_ns,
    duration_p90_ns = excluded.duration_p90_ns, duration_p99_ns = excluded.duration_p99_ns,
    duration_max_ns = excluded.duration_max_ns
"""
