"""Rows that are well-formed but cannot be true: codes out of range, counters out of order, times that have not come.

They are dropped and counted, and the rest of their batch is kept: one torn row of shared memory must not cost a second
of a node. Nearly every table of nearly every batch is in order, and that is seen by a look at the largest values of its
bytes (`is_in_order`); only a table that is not shown to be in order is gone through row by row. Pure numpy.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.planes import PlaneTable, layout
from nccl_instrument.tables import (
    ALGOS,
    DIRECTIONS,
    DTYPE,
    DTYPES,
    ENDINGS,
    FUNCS,
    LOSSES,
    NO_OP,
    PORT_STATES,
    PROTOS,
    ROADS,
    SOURCES,
    STAGE_KINDS,
    TIME_COLUMNS,
    TRAFFIC_SOURCES,
    TRANSPORTS,
)
from nccl_instrument.wire import Rows

FUTURE_NS_MAX: Final = 60_000_000_000
OP_BYTES_MAX: Final = 2**50
RANKS_MAX: Final = 2**20

_OP_CODES: Final = {
    "func": FUNCS, "dtype": DTYPES, "algo": ALGOS, "proto": PROTOS, "slowest_direction": DIRECTIONS,
}  # fmt: skip
_CODES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "comm": {"transport": TRANSPORTS},
    "op": _OP_CODES,
    "live_op": _OP_CODES,
    "flow": {"func": FUNCS, "direction": DIRECTIONS, "transport": TRANSPORTS},
    "nic": {"port_state": PORT_STATES},
    "loss": {"kind": LOSSES},
    "status": {"source": SOURCES, "ending": ENDINGS},
    "schema": {"kind": STAGE_KINDS},
    "recorder": {"road": ROADS},
    "traffic": {"direction": DIRECTIONS, "source": TRAFFIC_SOURCES},
}
_BY_RANK: Final = ("stage", "side", "recorder")
"""Tables whose rows say themselves of which rank they are; nobody else knows the numbers."""
_NOT_NEGATIVE: Final = {
    "comm": ("comm_rank",), "op": ("comm_rank",), "live_op": ("comm_rank",), "progress": ("comm_rank",),
    "flow": ("comm_rank", "stuck_ns"), "stage": ("step", "durations_ns"), "side": ("step",), "recorder": ("steps",),
    "traffic": ("comm_rank", "channel", "actual_ns", "n_bytes", "epoch_ns", "slice_bytes"),
}  # fmt: skip


def is_in_order(table: str, columns: PlaneTable, mono_ns: int) -> bool:
    """Whether it is plain that `table` of a batch cut at mono_ns has no impossible row; False says nothing."""
    look = _look(table)
    if look is None:
        return False
    peaks = columns.peaks()
    if any(peaks[at] > most for at, most in look.most):
        return False
    latest = mono_ns + FUTURE_NS_MAX
    if table in _BY_RANK and not _are_ranks(columns["global_rank"]):
        return False
    if table == "flow":
        ticks, counters = columns["tick_ns"], [columns.number("counters", k) for k in range(4)]
        in_order = all(not (below > above).any() for above, below in pairwise((columns["total_chunks"], *counters)))
        return in_order and ticks.min() >= 0 and ticks.max() <= latest
    if not _are_past(columns, peaks, look, latest):
        return False
    if table == "traffic":
        return not _is_no_traffic(columns).any()
    if any(peaks[at] for at in look.ends):
        done = columns["done_ns"]
        return not ((done < columns["enqueued_ns"]) & (done != 0)).any()
    return True


def _are_ranks(rank: npt.NDArray[np.int64]) -> bool:
    return int(rank.min()) >= -1 and int(rank.max()) < RANKS_MAX


def _are_past(columns: PlaneTable, peaks: bytes, look: _Look, latest: int) -> bool:
    """No time of any row is later. No number of a column is larger than the one made of its largest bytes."""
    if columns.sent.is_by_rows and all(
        int.from_bytes(peaks[at : at + 8], "little") <= latest
        for start, stop in look.times
        for at in range(start, stop, 8)
    ):
        return True
    return all(columns.largest(start, stop) <= latest for start, stop in look.times)


@dataclass(frozen=True, slots=True)
class _Look:
    """What to look at. most: byte of a row and the most it may be; times: bytes of neighbouring columns of times.

    ends: bytes that say when an op was over; none, in tables without ops.
    """

    most: tuple[tuple[int, int], ...]
    times: tuple[tuple[int, int], ...]
    ends: range


@functools.cache
def _look(table: str) -> _Look | None:
    """None for comm, which comes seldom and says most."""
    if table == "comm":
        return None
    columns = layout(table, DTYPE[table].itemsize).columns
    most = dict[int, int]()
    for name, codes in _CODES.get(table, {}).items():
        most |= dict.fromkeys(range(columns[name].start + 1, columns[name].stop), 0)
        most[columns[name].start] = len(codes) - 1
    for name in _NOT_NEGATIVE.get(table, ()):
        place = columns[name]
        most |= dict.fromkeys(range(place.start + place.size - 1, place.stop, place.size), 127)
    if table in ("op", "live_op"):
        most |= {columns["bytes"].stop - 1: 0, columns["bytes"].stop - 2: (OP_BYTES_MAX >> 48) - 1}
    times: list[tuple[int, int]] = []
    for start, stop in sorted((columns[name].start, columns[name].stop) for name in TIME_COLUMNS[table]):
        times[-1:] = [(times[-1][0], stop)] if times and times[-1][1] == start else [*times[-1:], (start, stop)]
    ends = range(columns["done_ns"].start, columns["done_ns"].stop) if "done_ns" in columns else range(0)
    return _Look(tuple(most.items()), tuple(times), ends)


def impossible_rows(table: str, rows: Rows | PlaneTable, mono_ns: int) -> npt.NDArray[np.bool_]:
    """(n,) mask of rows that cannot be true in a batch cut at mono_ns. Columns may be narrower than their type."""
    bad = np.zeros(len(rows), np.bool_)
    for name, codes in _CODES.get(table, {}).items():
        bad |= rows[name] >= len(codes)
    for name in (*_NOT_NEGATIVE.get(table, ()), *TIME_COLUMNS[table]):
        if rows[name].dtype.kind == "i":
            is_negative = rows[name] < 0
            bad |= is_negative if is_negative.ndim == 1 else is_negative.any(axis=1)
    for name in TIME_COLUMNS[table]:
        bad |= rows[name] > mono_ns + FUTURE_NS_MAX
    if table == "comm":
        known = rows["n_ranks"] > 0  # interface v3 does not tell the size
        bad |= (rows["n_ranks"] < -1) | (known & (rows["comm_rank"] >= rows["n_ranks"]))
        bad |= (rows["n_ranks"] > RANKS_MAX) | (rows["global_rank"] >= RANKS_MAX) | (rows["world_size"] > RANKS_MAX)
    if table in _BY_RANK:
        bad |= (rows["global_rank"] < -1) | (rows["global_rank"] >= RANKS_MAX)
    if table == "flow":
        counters = rows["counters"]
        for before, after in ((0, 1), (1, 2), (2, 3)):
            bad |= counters[:, after] > counters[:, before]
        bad |= counters[:, 0] > rows["total_chunks"]
    if table in ("op", "live_op"):
        bad |= (rows["done_ns"] != 0) & (rows["done_ns"] < rows["enqueued_ns"])
        bad |= rows["bytes"] > OP_BYTES_MAX
    return bad | _is_no_traffic(rows) if table == "traffic" else bad


def _is_no_traffic(rows: Rows | PlaneTable) -> npt.NDArray[np.bool_]:
    """(n,) mask of what cannot have been moved: longer than from its first to its last epoch, or more than an op has."""
    span = rows["end_ns"].astype(np.int64) - rows["start_ns"].astype(np.int64)
    is_bad: npt.NDArray[np.bool_] = (span < 0) | (rows["actual_ns"] > span) | (rows["n_bytes"] > OP_BYTES_MAX)
    return is_bad | (rows["op"].astype(np.int64) < NO_OP)
