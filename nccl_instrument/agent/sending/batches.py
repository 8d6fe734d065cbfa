"""Cuts the batch of one job: keeps its tables under the limits, adds what was lost, encodes.

What does not fit is dropped from the oldest end, because a hang is read from the newest, and counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from nccl_instrument.agent.sending.jobs import JobStream
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.wire import BATCH_BYTES_MAX, Rows, TraceBatch, encode_batch

# Together under the 64 MiB a batch may inflate to; the server would refuse the whole batch beyond that.
ROWS_MAX: Final = {
    "comm": 20_000,
    "op": 60_000,
    "live_op": 40_000,
    "flow": 150_000,
    "progress": 20_000,
    "status": 20_000,
    "stage": 60_000,
    "side": 20_000,
    "traffic": 40_000,
}
_AGE: Final = {
    "op": "enqueued_ns", "live_op": "enqueued_ns", "flow": "tick_ns", "stage": "ended_ns", "side": "ended_ns",
    "traffic": "end_ns",
}  # fmt: skip


def read_clocks() -> tuple[int, int]:
    """(wall_ns, mono_ns), as of the same moment: the closest of a few readings, should one be interrupted."""
    readings = []
    for _ in range(3):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, wall, (before + after) // 2))
    _, wall, mono = min(readings)
    return wall, mono


@dataclass(frozen=True, slots=True)
class Standpoint:
    """Where a node stands, as whoever runs it says; empty where nobody said."""

    cluster: str = ""
    rack: str = ""


NOWHERE: Final = Standpoint()


def declare(rows: Rows, standpoint: Standpoint) -> None:
    """Write into comm rows where their node stands."""
    rows["cluster"], rows["rack"] = standpoint.cluster.encode(), standpoint.rack.encode()


def cut_batch(stream: JobStream, node: str, tables: dict[str, Rows], losses: Losses, clocks: tuple[int, int]) -> bytes:
    """The encoded batch of `stream`, with the losses told so far; rows over a limit are counted in the same batch."""
    for table, n_max in ROWS_MAX.items():
        _shorten(tables, table, n_max, stream.job, losses)
    number = stream.next_number()
    while True:
        tables["loss"] = losses.take(stream.job)
        encoded = encode_batch(TraceBatch(stream.job, node, stream.boot_id, number, *clocks, tables))
        if len(encoded) <= BATCH_BYTES_MAX:
            return encoded
        for code, pid, count in tables.pop("loss").tolist():
            losses.add_code(stream.job, code, pid, count)
        largest = max(tables, key=lambda table: tables[table].nbytes)
        _shorten(tables, largest, len(tables[largest]) // 2, stream.job, losses)


def _shorten(tables: dict[str, Rows], table: str, n_max: int, job: str, losses: Losses) -> None:
    rows = tables.get(table)
    if rows is None or len(rows) <= n_max:
        return
    losses.add(job, "rows_over_limit", len(rows) - n_max)
    oldest_first = np.argsort(rows[_AGE[table]], kind="stable") if table in _AGE else np.arange(len(rows))
    tables[table] = rows[np.sort(oldest_first[len(rows) - n_max :])]
