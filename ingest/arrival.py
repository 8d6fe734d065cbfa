"""From the bytes of a request to what the committer stores: decode, drop impossible rows, re-pack by how it is read.

A stored row holds one bytea per table group, so that a hang look never reads completions and a straggler look never
reads flows. Each group is itself an encoded trace batch: the wire format's version rules, checksum and decoder then
hold for what is on disk too, and there is one format to document. Pure: no database, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import LOSSES, TIME_COLUMNS
from nccl_instrument.wire import BadBatch, Rows, TraceBatch, decode_batch, encode_batch, impossible_rows

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "ops": ("comm", "op"),
    "live": ("live_op", "progress", "process", "nic", "loss"),
    "flow": ("flow",),
}
"""Column of the trace table → tables it holds."""

MONO_NS_MAX: Final = 2**58  # nine years of uptime
WALL_NS_MAX: Final = 2**62
FUTURE_NS_MAX: Final = 60_000_000_000
OP_BYTES_MAX: Final = 2**50
RANKS_MAX: Final = 2**20
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
    batch = decode_batch(body)
    _check_head(batch)
    kept = {name: _possible(name, rows, batch.mono_ns) for name, rows in batch.tables.items()}
    n_dropped = sum(len(rows) - len(kept[name]) for name, rows in batch.tables.items())
    clean = replace(batch, tables=kept)
    start, end = _span(clean)
    groups = {group: _pack(clean, tables) for group, tables in GROUPS.items()}
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


def _check_head(batch: TraceBatch) -> None:
    if not 0 <= batch.mono_ns < MONO_NS_MAX or not 0 <= batch.wall_ns < WALL_NS_MAX:
        raise BadBatch("clock anchors cannot be true")
    if batch.number > NUMBER_MAX:
        raise BadBatch(f"batch number {batch.number} is beyond {NUMBER_MAX}")
    n_rows = sum(len(rows) for rows in batch.tables.values())
    if n_rows > ROWS_ANY_MAX:
        raise BadBatch(f"too many rows: {n_rows}, at most {ROWS_ANY_MAX} in a batch")


def _possible(table: str, rows: Rows, mono_ns: int) -> Rows:
    bad = _is_impossible(table, rows, mono_ns)
    return rows[~bad] if bad.any() else rows


def _is_impossible(table: str, rows: Rows, mono_ns: int) -> npt.NDArray[np.bool_]:
    bad = impossible_rows(table, rows)
    for column in TIME_COLUMNS[table]:
        bad |= (rows[column] < 0) | (rows[column] > mono_ns + FUTURE_NS_MAX)
    if table in ("op", "live_op"):
        bad |= rows["bytes"] > OP_BYTES_MAX
    if table == "comm":
        bad |= (rows["n_ranks"] > RANKS_MAX) | (rows["global_rank"] >= RANKS_MAX) | (rows["world_size"] > RANKS_MAX)
    return bad


def _span(batch: TraceBatch) -> tuple[int, int]:
    """Ticks and completions of the batch, from first to last; its anchor where it has neither."""
    points = [rows["tick_ns"] for rows in batch.tables.values() if "tick_ns" in (rows.dtype.names or ())]
    points.append(completed_ns(batch.rows("op")))
    known = np.concatenate(points)
    known = known[known > 0]
    first = int(known.min()) if len(known) else batch.mono_ns
    last = int(known.max()) if len(known) else batch.mono_ns
    return min(first, batch.mono_ns), max(last, batch.mono_ns)


def _pack(batch: TraceBatch, tables: tuple[str, ...]) -> bytes | None:
    held = {name: batch.tables[name] for name in tables if len(batch.rows(name))}
    return encode_batch(replace(batch, tables=held)) if held else None
