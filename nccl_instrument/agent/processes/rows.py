"""Turns the segment's rows into the trace tables' rows: pure functions over arrays, no I/O, no clock.

Columns with the same name are copied; the functions below add what the segment cannot know (the tick, how long a flow
has stood still, which NIC it uses) and leave out rows that cannot be attributed to a communicator yet. Rows are ordered
so that neighbours are alike, which is what the batch's compression lives on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.plain import pick, stack
from nccl_instrument.agent.processes.proc import ProcessState
from nccl_instrument.agent.processes.segment_layout import COMM, FLOW, OP
from nccl_instrument.tables import DTYPE, empty_rows
from nccl_instrument.wire import Rows

COMM_FINALIZED: Final = 1
DURATION_STEP_NS: Final = 1024  # a power of two
_NO_OPS: Final = np.zeros(0, OP)
_NO_COMMS: Final = np.zeros(0, COMM)
_WAITS: Final = ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns")
_RECEIVE_WAITS: Final = tuple(f"receive_{name}" for name in _WAITS)
_SPECIAL: Final = {"n_flows", "n_refused", "flags", "nic"}  # narrower on the wire, or ours to fill


def _shared(table: str, raw: np.dtype[Any]) -> tuple[str, ...]:
    return tuple(name for name in DTYPE[table].names or () if name in (raw.names or ()) and name not in _SPECIAL)


_COPIED: Final = {
    "comm": _shared("comm", COMM),
    "op": _shared("op", OP),
    "live_op": _shared("live_op", OP),
    "flow": _shared("flow", FLOW),
    "progress": _shared("progress", COMM),
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


@dataclass(frozen=True, slots=True)
class Taken:
    """What was read of one process since the last cut, as the segment has it.

    flows: (tick_ns, (n,) FLOW rows) per sweep. ops: completion records. process: state, alive, last callback. traffic: rows of
    that table, made already.
    """

    owner: Owner
    flows: list[tuple[int, Rows]]
    ops: Rows
    live_ops: Rows
    comms: Rows
    are_comms_new: bool
    process: tuple[ProcessState, bool, int]
    traffic: Rows = field(default_factory=partial(empty_rows, "traffic"))


def tables_of(taken: Sequence[Taken], tick_ns: int, all_comms: bool) -> dict[str, Rows]:
    """The trace tables of all processes of a job together: numpy's price is per call, not per row."""
    tables = {
        "op": _op_rows("op", stack([one.ops for one in taken] or [_NO_OPS])),
        "live_op": _op_rows("live_op", stack([one.live_ops for one in taken] or [_NO_OPS])),
        "flow": _flow_rows(taken),
        "progress": _progress_rows(stack([one.comms for one in taken] or [_NO_COMMS]), tick_ns),
        "process": np.array([_process_row(one, tick_ns) for one in taken], DTYPE["process"]),
        "comm": stack([_comm_rows(one) for one in taken if all_comms or one.are_comms_new] or [empty_rows("comm")]),
        "traffic": stack([one.traffic for one in taken] or [empty_rows("traffic")]),
    }
    tables["live_op"]["tick_ns"] = tick_ns
    return tables


def _comm_rows(taken: Taken) -> Rows:
    raw, owner = _attributed(taken.comms), taken.owner
    rows = _copied("comm", raw)
    for name in ("global_rank", "world_size", "local_rank", "restart_count"):
        rows[name] = owner.identity[name]
    for name in ("tp", "pp", "dp", "ep"):
        coordinate = int(owner.identity[name])
        rows[name] = coordinate if 0 <= coordinate < 2**15 else -1
    rows["n_ranks"] = raw["n_ranks"]  # 0, unknown, with interface v3
    rows["n_nodes"] = np.where(raw["n_nodes"] > 0, raw["n_nodes"], -1)
    rows["counters_seen"] = raw["network_seen"]
    rows["flags"] = np.where(raw["finalized_ns"] > 0, COMM_FINALIZED, 0)
    rows["pid"], rows["process_started"] = owner.pid, owner.started
    rows["library_version"], rows["ip"] = owner.library_version, owner.ip.encode()
    rows["nic"], rows["gid"] = single_nic(owner.identity).encode(), str(owner.identity["gid"]).encode()
    return rows


def _progress_rows(raw: Rows, tick_ns: int) -> Rows:
    """One row per communicator that still exists."""
    rows = _copied("progress", _attributed(pick(raw, raw["finalized_ns"] == 0)))
    rows["tick_ns"] = tick_ns
    return rows


def _op_rows(table: str, raw: Rows) -> Rows:
    """Communicator by communicator, in each in the order of time."""
    raw = _attributed(raw)
    raw = pick(raw, np.lexsort((raw["enqueued_ns"], raw["comm_rank"], raw["comm_id"])))
    rows = _copied(table, raw)
    rows["flags"] = raw["flags"]
    rows["n_flows"] = np.minimum(raw["n_flows"], 0xFFFF)
    rows["n_refused"] = np.minimum(raw["n_refused"], 0xFFFFFFFF)
    _coarsen(rows, (*_WAITS, *_RECEIVE_WAITS))
    return rows


def _flow_rows(taken: Sequence[Taken]) -> Rows:
    """Process by process and communicator by communicator, in each in the order of time."""
    sweeps = [(at, tick_ns, flows) for at, one in enumerate(taken) for tick_ns, flows in one.flows]
    if not sweeps:
        return empty_rows("flow")
    lengths = [len(flows) for _, _, flows in sweeps]
    raw = stack([flows for _, _, flows in sweeps])
    owner = np.repeat([at for at, _, _ in sweeps], lengths)
    order = np.argsort(owner << 16 | raw["comm"], kind="stable")
    order = order[raw["comm_id"][order] != 0]
    raw, tick_ns = pick(raw, order), np.repeat([tick_ns for _, tick_ns, _ in sweeps], lengths)[order]
    rows = _copied("flow", raw)
    rows["tick_ns"], rows["flags"] = tick_ns, raw["flags"] & 0xFF
    rows["nic"] = np.array([one.owner.nic_index for one in taken])[owner[order]]
    rows["stuck_ns"] = _stuck_ns(raw, tick_ns)
    _coarsen(rows, ("stuck_ns", *_WAITS))
    return rows


def _coarsen(rows: Rows, durations: tuple[str, ...]) -> None:
    """Nobody needs these to the nanosecond, and their lowest bits are noise that no compression takes away."""
    for name in durations:
        rows[name] &= -DURATION_STEP_NS if rows[name].dtype.kind == "i" else 2**64 - DURATION_STEP_NS


def _stuck_ns(raw: Rows, tick_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How long each flow had not moved at its tick; since it was queued when it never has."""
    moved_ns = np.where(raw["last_progress_ns"] > 0, raw["last_progress_ns"], raw["queued_ns"])
    return np.where(moved_ns > 0, np.maximum(tick_ns - moved_ns, 0), 0)


def _process_row(taken: Taken, tick_ns: int) -> tuple[int, ...]:
    """In the order of the table's columns."""
    state, is_alive, last_callback_ns = taken.process
    rank = int(taken.owner.identity["global_rank"])
    who = (tick_ns, taken.owner.pid, rank, state.state, int(is_alive))
    return (*who, state.n_threads, state.cpu_ns, last_callback_ns, state.io_bytes)


def single_nic(identity: dict[str, int | str]) -> str:
    """The NIC the process was told to use, '' when it was told several or none."""
    nic = str(identity["nic"])
    return "" if "," in nic else nic


def _copied(table: str, raw: Rows) -> Rows:
    rows = empty_rows(table, len(raw))
    for name in _COPIED[table]:
        rows[name] = raw[name]
    return rows


def _attributed(raw: Rows) -> Rows:
    """Rows whose communicator is known: interface v3 learns its id with the first op."""
    is_known = raw["comm_id"] != 0
    return raw if is_known.all() else pick(raw, is_known)
