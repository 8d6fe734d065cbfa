"""Turns the segment's rows into the trace tables' rows: pure functions over arrays, no I/O, no clock.

Columns with the same name are copied; the functions below add what the segment cannot know (the tick, how long a flow
has stood still, which NIC it uses) and leave out rows that cannot be attributed to a communicator yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent import segment
from nccl_instrument.agent.processes import ProcessState
from nccl_instrument.tables import DTYPE, empty_rows
from nccl_instrument.wire import Rows

COMM_FINALIZED: Final = 1
_SPECIAL: Final = {"n_flows", "flags", "nic"}  # narrower on the wire, or ours to fill


def _shared(table: str, raw: np.dtype[Any]) -> tuple[str, ...]:
    return tuple(name for name in DTYPE[table].names or () if name in (raw.names or ()) and name not in _SPECIAL)


_COPIED: Final = {
    "comm": _shared("comm", segment.COMM),
    "op": _shared("op", segment.OP),
    "live_op": _shared("live_op", segment.OP),
    "flow": _shared("flow", segment.FLOW),
    "progress": _shared("progress", segment.COMM),
}


@dataclass(frozen=True, slots=True)
class Owner:
    """What is the same in all rows of one process: who it is, where it runs."""

    pid: int
    started: int
    library_version: int
    ip: str
    nic_index: int
    identity: dict[str, int | str]


def comm_rows(raw: Rows, owner: Owner) -> Rows:
    """`comm` rows of segment.COMM rows."""
    raw = _attributed(raw)
    rows = _copied("comm", raw)
    for name in ("global_rank", "world_size", "local_rank", "restart_count", "tp", "pp", "dp", "ep"):
        rows[name] = owner.identity[name]
    rows["n_ranks"] = np.maximum(raw["n_ranks"], raw["comm_rank"] + 1)  # interface v3 does not tell: a lower bound
    rows["n_nodes"] = np.where(raw["n_nodes"] > 0, raw["n_nodes"], -1)
    rows["counters_seen"] = raw["network_seen"]
    rows["flags"] = np.where(raw["finalized_ns"] > 0, COMM_FINALIZED, 0)
    rows["pid"], rows["process_started"] = owner.pid, owner.started
    rows["library_version"], rows["ip"] = owner.library_version, owner.ip.encode()
    rows["nic"], rows["gid"] = single_nic(owner.identity).encode(), str(owner.identity["gid"]).encode()
    return rows


def progress_rows(raw: Rows, tick_ns: int) -> Rows:
    """`progress` rows of segment.COMM rows whose communicator still exists."""
    rows = _copied("progress", _attributed(raw[raw["finalized_ns"] == 0]))
    rows["tick_ns"] = tick_ns
    return rows


def op_rows(raw: Rows) -> Rows:
    """`op` rows of segment.OP completion records."""
    return _op_rows("op", _attributed(raw))


def live_op_rows(raw: Rows, tick_ns: int) -> Rows:
    """`live_op` rows of segment.OP rows in progress."""
    rows = _op_rows("live_op", _attributed(raw))
    rows["tick_ns"] = tick_ns
    return rows


def flow_rows(raw: Rows, tick_ns: npt.NDArray[np.int64], nic_index: int) -> Rows:
    """`flow` rows of (n,) segment.FLOW rows, each seen at its `tick_ns`; flow by flow, which compresses best."""
    order = np.lexsort((tick_ns, raw["op"], raw["peer"], raw["channel"], raw["direction"], raw["comm_id"]))
    order = order[raw["comm_id"][order] != 0]
    raw, tick_ns = raw[order], tick_ns[order]
    rows = _copied("flow", raw)
    rows["tick_ns"], rows["nic"] = tick_ns, nic_index
    rows["flags"] = raw["flags"] & 0xFF
    moved_ns = np.where(raw["last_progress_ns"] > 0, raw["last_progress_ns"], raw["queued_ns"])
    rows["stuck_ns"] = np.where(moved_ns > 0, np.maximum(tick_ns - moved_ns, 0), 0)
    return rows


def process_row(owner: Owner, state: ProcessState, is_alive: bool, last_callback_ns: int, tick_ns: int) -> Rows:
    """(1,) row of the `process` table."""
    row = empty_rows("process", 1)
    row["tick_ns"], row["pid"], row["global_rank"] = tick_ns, owner.pid, owner.identity["global_rank"]
    row["alive"], row["last_callback_ns"] = is_alive, last_callback_ns
    for name in ("state", "n_threads", "cpu_ns", "io_bytes"):
        row[name] = getattr(state, name)
    return row


def stack(parts: Sequence[Rows]) -> Rows:
    """np.concatenate for rows of one dtype, as plain bytes: numpy compares structured dtypes field by field each time."""
    if len(parts) == 1:
        return parts[0]
    dtype = parts[0].dtype
    return np.concatenate([part.view(f"V{dtype.itemsize}") for part in parts]).view(dtype)


def single_nic(identity: dict[str, int | str]) -> str:
    """The NIC the process was told to use, '' when it was told several or none."""
    nic = str(identity["nic"])
    return "" if "," in nic else nic


def _op_rows(table: str, raw: Rows) -> Rows:
    rows = _copied(table, raw)
    rows["flags"] = raw["flags"]
    rows["n_flows"] = np.minimum(raw["n_flows"], 0xFFFF)
    return rows


def _copied(table: str, raw: Rows) -> Rows:
    rows = empty_rows(table, len(raw))
    for name in _COPIED[table]:
        rows[name] = raw[name]
    return rows


def _attributed(raw: Rows) -> Rows:
    """Rows whose communicator is known: interface v3 learns its id with the first op."""
    return raw[raw["comm_id"] != 0]
