"""Roll-ups: finished ops summed in memory by attempt, communicator, kind and 10 s. Pure numpy, no database.

A second of 10,000 GPUs is 125,000 op rows in 1,250 batches, so batches are summed many at a time: one sort by key, then
sums over runs. A sum is a slot in columns that are written out whole, under a random `part` of its
own, so that writing it again changes nothing; readers add the parts up. Durations are kept as counts per sixteenth of
an octave: parts add up exactly, and a quantile is right within 4.5 %.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.door.arrival import completed_ns
from nccl_instrument.tables import FUNCS, OP_REOPENED
from nccl_instrument.wire import Rows

BUCKET_NS: Final = 10_000_000_000
KEPT_SECONDS: Final = 20.0
"""Sums nobody added to for so long are forgotten once written; ops that come later still start a new part.

Counted by our own clock: by the ops' times, one node ahead of the others would end everybody else's sums.
"""
SUMS_MAX: Final = 50_000
DURATION_NS_MAX: Final = 86_400_000_000_000
BINS_PER_OCTAVE: Final = 16
N_BINS: Final = 48 * BINS_PER_OCTAVE
TOTAL_MAX: Final = 2**62  # sums stop here: what a hostile agent claims must not overflow a column
BIN: Final = np.dtype([("bin", "<u2"), ("n", "<u4")])
"""How the bins of a sum are stored: those that are not empty, ascending."""
ROWS_AT_ONCE: Final = 60_000

_CARRIED_ONCE: Final = ("Broadcast", "Reduce", "SendRecv", "Send", "Recv")

COUNTS: Final = ("n_ops", "n_timed", "bytes", "bytes_timed", "duration_sum_ns", "duration_max_ns")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OpBatch:
    """The `op` rows of a stored batch; adding shift_ns makes their times unix ns."""

    attempt_id: int
    node_id: int
    boot_pk: int
    shift_ns: int
    ops: Rows


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums to write. keys: (n, 4) attempt id, comm_id as stored, func, bucket start in ns; counts: (n, 6), see COUNTS.

    bins: BIN entries of all sums end to end, n_bins: (n,) how many are whose.
    """

    keys: Ints
    parts: Ints
    counts: Ints
    n_bins: Ints
    bins: npt.NDArray[np.void]


class Rollups:
    """The sums of one life of a writer."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._slots: dict[tuple[int, ...], int] = {}
        self._free: list[int] = []
        self._keys = np.zeros((0, 4), np.int64)
        self._parts = np.zeros(0, np.int64)
        self._counts = np.zeros((0, len(COUNTS)), np.int64)
        self._bins = np.zeros((0, N_BINS), np.uint32)
        self._changed = np.zeros(0, np.bool_)
        self._changed_at = np.zeros(0)
        self.ops_not_summed = 0

    def add(self, batches: Sequence[OpBatch]) -> None:
        """Count every op of these batches; records that replace an earlier one of the same op were counted with it."""
        handful: list[OpBatch] = []
        n_rows = 0
        for batch in batches:
            handful.append(batch)
            n_rows += len(batch.ops)
            if n_rows >= ROWS_AT_ONCE:
                self._add(handful)
                handful, n_rows = [], 0
        if n_rows:
            self._add(handful)

    @property
    def n_changed(self) -> int:
        return int(np.count_nonzero(self._changed))

    def changed(self) -> Sums:
        """The sums that are not written yet."""
        slots = np.flatnonzero(self._changed)
        bins = self._bins[slots]
        row, column = np.nonzero(bins)
        packed = np.zeros(len(row), BIN)
        packed["bin"], packed["n"] = column, bins[row, column]
        n_bins = np.bincount(row, minlength=len(slots)).astype(np.int64)
        return Sums(self._keys[slots], self._parts[slots], self._counts[slots], n_bins, packed)

    def written(self) -> None:
        """What `changed` said last is safe in the database; forget the sums nobody will add to."""
        self._changed[:] = False
        old = np.flatnonzero((self._counts[:, 0] > 0) & (self._changed_at < self._now() - KEPT_SECONDS))
        for key in self._keys[old].tolist():
            self._free.append(self._slots.pop(tuple(key)))
        self._counts[old], self._bins[old] = 0, 0

    def _add(self, batches: Sequence[OpBatch]) -> None:
        as_bytes = [np.ascontiguousarray(batch.ops).view(np.uint8) for batch in batches]
        ops = np.concatenate(as_bytes).view(batches[0].ops.dtype)  # rows as they are would be copied field by field
        n_rows = [len(batch.ops) for batch in batches]
        attempt_ids = np.repeat(np.array([batch.attempt_id for batch in batches], np.int64), n_rows)
        shifts = np.repeat(np.array([batch.shift_ns for batch in batches], np.int64), n_rows)
        first = (ops["flags"] & OP_REOPENED) == 0
        if not first.all():
            ops, attempt_ids, shifts = ops[first], attempt_ids[first], shifts[first]
        if len(ops):
            self._add_runs(ops, attempt_ids, (completed_ns(ops) + shifts) // BUCKET_NS)

    def _add_runs(self, ops: Rows, attempt_ids: Ints, buckets: Ints) -> None:
        comm_ids, funcs = (np.ascontiguousarray(ops[name]).astype(np.int64) for name in ("comm_id", "func"))
        order = np.argsort(_mixed(attempt_ids, comm_ids, funcs, buckets), kind="stable")
        columns = [column[order] for column in (attempt_ids, comm_ids, funcs, buckets)]
        durations, n_bytes = _durations_ns(ops)[order], ops["bytes"].astype(np.int64)[order]
        starts = _starts(columns)
        keys = np.stack([column[starts] for column in columns], axis=1)
        keys[:, 3] *= BUCKET_NS
        n_ops = np.diff(np.append(starts, len(order)))
        slots = np.array([self._slot(tuple(key), n) for key, n in zip(keys.tolist(), n_ops.tolist(), strict=True)])
        timed, known = durations > 0, slots >= 0
        added = [n_ops, *(_sums(column, starts) for column in (timed, n_bytes, n_bytes * timed, durations))]
        self._add_counts(slots[known], np.stack(added, axis=1)[known], np.maximum.reduceat(durations, starts)[known])
        of_row = np.repeat(slots, n_ops)
        counted = timed & (of_row >= 0)
        flat = of_row[counted] * N_BINS + _bin_of(durations[counted])
        np.add.at(self._bins.reshape(-1), flat, np.uint32(1))

    def _add_counts(self, slots: npt.NDArray[np.intp], added: Ints, longest: Ints) -> None:
        """A key whose rows did not come in one run has several: unbuffered, so that each counts."""
        sums = self._counts[:, :-1]
        np.add.at(sums, slots, added)
        touched = np.unique(slots)
        sums[touched] = np.where(sums[touched] < 0, TOTAL_MAX, np.minimum(sums[touched], TOTAL_MAX))
        np.maximum.at(self._counts[:, -1], slots, longest)
        self._changed[touched], self._changed_at[touched] = True, self._now()

    def _slot(self, key: tuple[int, ...], n_ops: int) -> int:
        """Where this key is summed; -1, counted, when there is no room."""
        slot = self._slots.get(key)
        if slot is not None:
            return slot
        if len(self._slots) >= SUMS_MAX:
            self.ops_not_summed += n_ops
            return -1
        if not self._free:
            self._grow()
        slot = self._slots[key] = self._free.pop()
        self._keys[slot], self._parts[slot] = key, secrets.randbits(62)
        return slot

    def _grow(self) -> None:
        old = len(self._parts)
        new = min(max(64, 2 * old), SUMS_MAX)
        for name in ("_keys", "_parts", "_counts", "_bins", "_changed", "_changed_at"):
            column: npt.NDArray[Any] = getattr(self, name)
            wider = np.zeros((new, *column.shape[1:]), column.dtype)
            wider[:old] = column
            setattr(self, name, wider)
        self._free += range(new - 1, old - 1, -1)


def quantiles_ns(bins: npt.NDArray[np.void], quantiles: Sequence[float], longest_ns: int) -> tuple[int, ...]:
    """Quantiles of the durations counted in `bins` (BIN, of any parts); zeros when there are none."""
    counts = np.bincount(bins["bin"], weights=bins["n"], minlength=1)
    if not counts.any():
        return (0,) * len(quantiles)
    found = np.searchsorted(np.cumsum(counts), np.ceil(np.array(quantiles) * counts.sum()))
    middles = 2.0 ** ((found + 0.5) / BINS_PER_OCTAVE)
    return tuple(min(int(middle), longest_ns) for middle in middles)


def bus_share(func: int, n_ranks: int) -> float | None:
    """Bytes a link must carry per byte of the call, as nccl-tests has it; None when kind or size do not tell.

    A call's size is count × size of dtype: what each rank gives (AllGather) or gets (ReduceScatter), not the whole.
    """
    kind = FUNCS[func] if 0 <= func < len(FUNCS) else ""
    if kind in _CARRIED_ONCE:
        return 1.0
    if n_ranks < 1:
        return None
    return {"AllReduce": 2 * (n_ranks - 1) / n_ranks, "AllGather": n_ranks - 1.0, "ReduceScatter": n_ranks - 1.0}.get(
        kind
    )


def _durations_ns(ops: Rows) -> Ints:
    """(n,) from the start of an op (its enqueueing where nothing later is known) to its end; 0 unknown."""
    start = np.where(ops["started_ns"] > 0, ops["started_ns"], ops["enqueued_ns"])
    known = (ops["done_ns"] > 0) & (start > 0)
    return np.where(known, np.clip(ops["done_ns"] - start, 1, DURATION_NS_MAX), 0)


def _bin_of(durations: Ints) -> Ints:
    return np.minimum((np.log2(durations) * BINS_PER_OCTAVE).astype(np.int64), N_BINS - 1)


def _mixed(attempt_ids: Ints, comm_ids: Ints, funcs: Ints, buckets: Ints) -> npt.NDArray[np.uint64]:
    """(n,) one number for each key, to sort by. Two keys that meet cost a few runs more, nothing else."""
    mixed = comm_ids.view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= attempt_ids.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (buckets.view(np.uint64) << np.uint64(8) | funcs.view(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed


def _starts(columns: Sequence[Ints]) -> npt.NDArray[np.intp]:
    """Where the runs of equal rows begin."""
    differs = np.ones(len(columns[0]), np.bool_)
    differs[1:] = False
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _sums(column: npt.NDArray[Any], starts: npt.NDArray[np.intp]) -> Ints:
    """Sums of the runs; one that would not fit is TOTAL_MAX."""
    sums: Ints = np.add.reduceat(column, starts, dtype=np.int64)
    if column.dtype != np.bool_ and int(column.max()) > TOTAL_MAX // len(column):
        sums[np.add.reduceat(column, starts, dtype=np.float64) > TOTAL_MAX] = TOTAL_MAX
    return sums
