"""From the bytes of a request to what the committer stores: decode, drop impossible rows, keep the sections.

A stored row holds one bytea per table group, so that a hang look never reads completions and a straggler look never
reads flows. Each group is a trace batch of that section alone, its bytes as they came: the wire format's version rules,
checksum and decoder then hold for what is on disk too, and nothing is compressed twice. Only a group that had impossible
rows is packed anew. Pure: no database, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ingest.impossible import impossible_rows
from nccl_instrument.tables import GROUPS, LOSSES
from nccl_instrument.wire import BadBatch, PackedBatch, Rows, TraceBatch, encode_batch, open_batch

MONO_NS_MAX: Final = 2**58  # nine years of uptime
WALL_NS_MAX: Final = 2**62
NUMBER_MAX: Final = 2**62
ROWS_ANY_MAX: Final = 500_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch that may be stored. batch: without its impossible rows. groups: GROUPS name → bytes, None when empty.

    start_mono_ns, end_mono_ns: first and last point in time its rows speak of, on the node's monotonic clock.
    """

    team_id: int
    batch: TraceBatch
    received_ns: int
    age_ns: int | None
    n_dropped: int
    groups: dict[str, bytes | None]
    start_mono_ns: int
    end_mono_ns: int


def receive_batch(team_id: int, body: bytes, received_ns: int, age_ns: int | None = None) -> Arrival:
    """Decode and check `body`. Raises BadBatch when its structure is broken; impossible rows are dropped, counted."""
    packed = open_batch(body)
    _check_anchors(packed.head)
    batch = packed.unpack()
    _check_n_rows(batch)
    kept = {name: _possible(name, rows, batch.mono_ns) for name, rows in batch.tables.items()}
    n_dropped = sum(len(rows) - len(kept[name]) for name, rows in batch.tables.items())
    clean = replace(batch, tables=kept) if n_dropped else batch
    start, end = _span(clean)
    groups = {group: _kept_bytes(packed, batch, clean, group) for group in GROUPS}
    return Arrival(team_id, clean, received_ns, age_ns, n_dropped, groups, start, end)


def completed_ns(ops: Rows) -> npt.NDArray[np.int64]:
    """(n,) when each op of an `op` table was over: its end, or the last thing known of an op whose end is not."""
    last: npt.NDArray[np.int64] = ops["done_ns"].astype(np.int64)
    for name in ("last_transfer_ns", "first_transfer_ns", "started_ns", "enqueued_ns"):
        last = np.where(last == 0, ops[name], last)
    return last


def losses_of(batch: TraceBatch) -> dict[str, int]:
    """Kind → rows or batches the agent counted as lost since its previous batch."""
    totals: dict[str, int] = {}
    for kind, count in zip(batch.rows("loss")["kind"].tolist(), batch.rows("loss")["count"].tolist(), strict=True):
        totals[LOSSES[kind]] = min(totals.get(LOSSES[kind], 0) + count, 2**53)
    return totals


def _check_anchors(head: TraceBatch) -> None:
    if not 0 <= head.mono_ns < MONO_NS_MAX or not 0 <= head.wall_ns < WALL_NS_MAX:
        raise BadBatch("clock anchors cannot be true")
    if head.number > NUMBER_MAX:
        raise BadBatch(f"batch number {head.number} is beyond {NUMBER_MAX}")


def _check_n_rows(batch: TraceBatch) -> None:
    n_rows = sum(len(rows) for rows in batch.tables.values())
    if n_rows > ROWS_ANY_MAX:
        raise BadBatch(f"too many rows: {n_rows}, at most {ROWS_ANY_MAX} in a batch")


def _possible(table: str, rows: Rows, mono_ns: int) -> Rows:
    bad = impossible_rows(table, rows, mono_ns)
    return rows[~bad] if bad.any() else rows


def _span(batch: TraceBatch) -> tuple[int, int]:
    """Ticks and completions of the batch, from first to last; its anchor where it has neither."""
    points = [rows["tick_ns"] for rows in batch.tables.values() if "tick_ns" in (rows.dtype.names or ())]
    points.append(completed_ns(batch.rows("op")))
    known = np.concatenate(points)
    known = known[known > 0]
    first = int(known.min()) if len(known) else batch.mono_ns
    last = int(known.max()) if len(known) else batch.mono_ns
    return min(first, batch.mono_ns), max(last, batch.mono_ns)


def _kept_bytes(packed: PackedBatch, came: TraceBatch, clean: TraceBatch, group: str) -> bytes | None:
    """The group as it came, or packed anew when rows of it were dropped; None when nothing is left."""
    held = {table: clean.tables[table] for table in GROUPS[group] if table in clean.tables}
    if all(rows is came.tables[table] for table, rows in held.items()):
        return packed.alone(group)
    return encode_batch(replace(clean, tables=held)) if any(len(rows) for rows in held.values()) else None
