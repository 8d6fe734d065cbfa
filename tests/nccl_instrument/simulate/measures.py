"""What a job looks like from its batches: step times, how long ops take, what is waited for, where flows stand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nccl_instrument.tables import FUNCS
from nccl_instrument.wire import Rows, TraceBatch

MS = 1e6


def table(batches: Iterable[TraceBatch], name: str) -> Rows:
    """All rows of one table."""
    return np.concatenate([batch.rows(name) for batch in batches])


def kinds_of(batches: Iterable[TraceBatch]) -> dict[int, str]:
    """Communicator id → its kind, from its name."""
    return {int(row["comm_id"]): row["name"].decode().split("_")[0] for row in table(batches, "comm")}


def finished(batches: Iterable[TraceBatch], kinds: dict[int, str], kind: str, func: str) -> Rows:
    """Completion records with a known end, of one kind of op."""
    ops = table(batches, "op")
    of_kind = np.isin(ops["comm_id"], [comm_id for comm_id, its_kind in kinds.items() if its_kind == kind])
    return ops[of_kind & (ops["func"] == FUNCS.index(func)) & (ops["done_ns"] > 0)]


def step_ms(batches: Iterable[TraceBatch], kinds: dict[int, str]) -> float:
    """Median time between two world AllReduces of one rank."""
    ops = finished(batches, kinds, "world", "AllReduce")
    mine = ops[ops["comm_rank"] == ops["comm_rank"][0]]
    return float(np.median(np.diff(np.sort(mine["done_ns"])))) / MS


def median_ms(ops: Rows, later: str, earlier: str) -> float:
    """Median of a difference of two columns."""
    return float(np.median(ops[later].astype(np.int64) - ops[earlier].astype(np.int64))) / MS


def stages(flows: Rows) -> set[tuple[int, ...]]:
    """Where flows that have begun stand, as (posted, …) with every counter relative to the next: 0 or more in between."""
    begun = flows[flows["counters"][:, 0] > 0]
    gaps = -np.diff(begun["counters"].astype(np.int64), axis=1)
    return {tuple(row) for row in (gaps > 0).astype(int).tolist()}
