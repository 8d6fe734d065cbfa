"""What a job looks like from its batches: step times, how long ops take, what is waited for, where flows stand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

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


Floats = npt.NDArray[np.float64]

SPANS = {  # what of an op is compared: from one moment of it to another
    "until its first transfer": ("first_transfer_ns", "enqueued_ns"),
    "first to last transfer": ("last_transfer_ns", "first_transfer_ns"),
    "last transfer to end": ("done_ns", "last_transfer_ns"),
    "whole": ("done_ns", "enqueued_ns"),
}


def spans_ms(ops: Rows, of: str) -> Floats:
    """How long each op took, in the part of it that SPANS names."""
    later, earlier = (ops[name].astype(np.int64) for name in SPANS[of])
    found: Floats = (later - earlier) / MS
    return found


def gaps_ms(ops: Rows) -> Floats:
    """Between the launches of ops that follow each other at one rank of one communicator."""
    order = np.lexsort((ops["enqueued_ns"], ops["comm_rank"], ops["comm_id"]))
    rows = ops[order]
    same = (rows["comm_id"][1:] == rows["comm_id"][:-1]) & (rows["comm_rank"][1:] == rows["comm_rank"][:-1])
    found: Floats = np.diff(rows["enqueued_ns"].astype(np.int64))[same] / MS
    return found


def counted(flows: Rows) -> dict[str, Floats]:
    """What the ticks saw of flows: how far they were, what was on its way, how long they had rested."""
    counters, total = flows["counters"].astype(np.int64), flows["total_chunks"].astype(np.int64)
    return {
        "share done": counters[:, 3] / np.maximum(total, 1),
        "chunks posted and not done": (counters[:, 0] - counters[:, 3]).astype(np.float64),
        "at rest, ms": flows["stuck_ns"] / MS,
    }


def apart(one: Floats, other: Floats, share: float = 0.0, slack: float = 0.0) -> float:
    """Share of one sample that the other has nowhere near: the Kolmogorov-Smirnov distance, but for a shift that is allowed.

    A value counts as near when it differs by at most `share` of itself or by `slack`; 0: all are near, 1: none is.
    """
    return max(_beyond(one, other, share, slack), _beyond(other, one, share, slack), 0.0)


def _beyond(one: Floats, other: Floats, share: float, slack: float) -> float:
    """By how much more of `one` than of `other` lies below some value, though what is near it counts for `other`."""
    at = np.sort(one)
    near = np.maximum(share * np.abs(at), slack)
    mine = np.searchsorted(at, at, side="right") / len(at)
    theirs = np.searchsorted(np.sort(other), at + near, side="right") / len(other)
    return float((mine - theirs).max())
