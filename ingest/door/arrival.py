"""From the bytes of a request to what the committer stores: decode, drop impossible rows, keep the sections.

A stored row holds one bytea per table group, so that a hang look never reads completions and a straggler look never
reads flows. Each group is a trace batch of that section alone, its bytes as they came: the wire format's version rules,
checksum and decoder then hold for what is on disk too, and nothing is compressed twice. Only a group that had impossible
rows is packed anew. Pure: no database, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from ingest.door.impossible import impossible_rows, is_in_order
from nccl_instrument.planes import PlaneTable
from nccl_instrument.tables import GROUPS, LOSSES, ROW_TIME
from nccl_instrument.wire import BATCH_BYTES_MAX, BadBatch, Rows, TraceBatch, encode_batch, open_batch

MONO_NS_MAX: Final = 2**58  # nine years of uptime
WALL_NS_MAX: Final = 2**62
NUMBER_MAX: Final = 2**62
ROWS_ANY_MAX: Final = 500_000
ROWS_OF_MAX: Final = {"comm": 50_000, "process": 10_000, "loss": 10_000, "schema": 10_000}
"""Tables that are gone through row by row, which must not take seconds."""

Columns = Rows | PlaneTable
"""A table of which single columns are asked for by name; they may be narrower than their type."""


class HasColumns(Protocol):
    """Rows in whatever form: a column by name."""

    def __getitem__(self, name: str, /) -> npt.NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch that may be stored. batch: without its impossible rows; columns: the same, for who needs few columns.

    groups: GROUPS name → bytes, None when empty.
    start_mono_ns, end_mono_ns: first and last point in time its rows speak of, on the node's monotonic clock.
    """

    team_id: int
    batch: TraceBatch
    columns: Mapping[str, Columns]
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
    planes = packed.inflate()
    if sum(len(columns) for columns in planes.values()) > ROWS_ANY_MAX:
        raise BadBatch(f"too many rows: at most {ROWS_ANY_MAX} in a batch")
    for table, n_max in ROWS_OF_MAX.items():
        if table in planes and len(planes[table]) > n_max:
            raise BadBatch(f"too many {table} rows: {len(planes[table])}, at most {n_max} in a batch")
    mono_ns = packed.head.mono_ns
    doubtful = [table for table, columns in planes.items() if not is_in_order(table, columns, mono_ns)]
    bad = {table: impossible_rows(table, planes[table], mono_ns) for table in doubtful}
    bad = {table: is_bad for table, is_bad in bad.items() if is_bad.any()}
    kept: dict[str, Columns] = {**planes, **{table: planes[table].rows()[~is_bad] for table, is_bad in bad.items()}}
    batch = packed.with_tables(_Tables(kept))
    groups = {
        group: packed.alone(group) if bad.keys().isdisjoint(held) else _packed_anew(batch, held)
        for group, held in GROUPS.items()
    }
    n_dropped = sum(int(is_bad.sum()) for is_bad in bad.values())
    return Arrival(team_id, batch, kept, received_ns, age_ns, n_dropped, groups, *_span(kept, batch.mono_ns))


class _Tables(Mapping[str, Rows]):
    """What was kept, made into rows where somebody asks for them."""

    def __init__(self, kept: Mapping[str, Columns]) -> None:
        self._kept = kept

    def __getitem__(self, table: str) -> Rows:
        kept = self._kept[table]
        return kept.rows() if isinstance(kept, PlaneTable) else kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def completed_ns(ops: HasColumns) -> npt.NDArray[np.int64]:
    """(n,) when each op of an `op` table was over: its end, or the last thing known of an op whose end is not."""
    last: npt.NDArray[np.int64] = ops["done_ns"].astype(np.int64)
    for name in ("last_transfer_ns", "first_transfer_ns", "started_ns", "enqueued_ns"):
        is_open = last == 0
        if not is_open.any():
            break
        last = np.where(is_open, ops[name], last)
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


def _span(kept: Mapping[str, Columns], mono_ns: int) -> tuple[int, int]:
    """Ticks and completions of the batch, from first to last; its anchor where it has neither."""
    points = [kept[table][name] for table, name in ROW_TIME.items() if table in kept]
    if "op" in kept:
        points.append(completed_ns(kept["op"]))
    known = np.concatenate(points) if points else np.zeros(0, np.int64)
    known = known[known > 0]
    if not len(known):
        return mono_ns, mono_ns
    return min(int(known.min()), mono_ns), max(int(known.max()), mono_ns)


def _packed_anew(batch: TraceBatch, held: tuple[str, ...]) -> bytes | None:
    """The group without the rows that were dropped; None when nothing is left."""
    rows = {table: batch.tables[table] for table in held if len(batch.rows(table))}
    packed = encode_batch(replace(batch, tables=rows)) if rows else None
    if packed is not None and len(packed) > BATCH_BYTES_MAX:  # it was compressed better: nobody could read it again
        raise BadBatch("too large without its impossible rows")
    return packed
