"""The columns of every trace table, and the codes used in them.

This is the one place that says what a record holds: wire.py packs these dtypes, the agent fills them, ingest reads
them back, and docs/wire-format.md is tested against them. A new column goes at the END of its table (older readers skip
what they do not know, older writers are filled with the column's `unknown`), and raises wire.MINOR.

All times are CLOCK_MONOTONIC nanoseconds of the node that wrote them; 0 means unknown. The batch carries the clock
anchors that turn them into wall time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FUNCS: Final = (
    "Unknown", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv",
    "AlltoAll", "Gather", "Scatter", "PutSignal", "Signal", "WaitSignal",
)  # fmt: skip
DTYPES: Final = (
    "Unknown", "Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64", "Float16", "Float32", "Float64",
    "Bfloat16", "Float8e4m3", "Float8e5m2",
)  # fmt: skip
ALGOS: Final = ("Unknown", "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOS: Final = ("Unknown", "LL", "LL128", "SIMPLE")
TRANSPORTS: Final = ("Unknown", "IB", "Socket", "none")
DIRECTIONS: Final = ("send", "receive")
PORT_STATES: Final = ("unknown", "up", "down")
SOURCES: Final = ("unknown", "steps", "recorder")
ENDINGS: Final = ("unknown", "by itself", "by an exception")
STAGE_KINDS: Final = ("ordered", "side channel")
ROADS: Final = ("unknown", "agent", "gather")
TRAFFIC_SOURCES: Final = ("unknown", "plugin", "verbs", "capture")

FUNC_SEND: Final = FUNCS.index("Send")
FUNC_RECV: Final = FUNCS.index("Recv")
SOURCE_STEPS: Final = SOURCES.index("steps")
SOURCE_RECORDER: Final = SOURCES.index("recorder")
IB: Final = TRANSPORTS.index("IB")
SOCKET: Final = TRANSPORTS.index("Socket")
SEND: Final = 0
RECEIVE: Final = 1

# Positions inside a flow's `counters`, in the order a chunk passes them (Mycroft Table 4 numbers the sender's last three).
POSTED: Final = 0
GPU_READY: Final = 1
RDMA_TRANSMITTED: Final = 2
RDMA_DONE: Final = 3
RECEIVED: Final = 1
FLUSHED: Final = 2
CONSUMED: Final = 3

OP_NO_NETWORK: Final = 1  # ran inside the node: no flow was seen, so `done_ns` stays unknown
OP_GRAPH: Final = 2
OP_STOPS_LOST: Final = 4
OP_FOREIGN: Final = 8  # executed by another process on the node (PXN)
OP_HAS_FLOWS: Final = 16
OP_P2P: Final = 32
OP_REOPENED: Final = 64  # a flow came after the op was thought complete: this record replaces the earlier one
OP_API: Final = 128  # seen as a call of NCCL's API alone: when it ended nobody saw

COUNTERS_SEEN: Final = 1  # bits of `counters_seen`: some flow made progress, so a counter of 0 means "no transfer"
LACKS_GPU_READY: Final = 2  # what this library cannot count: rules that need it abstain instead of reading 0
LACKS_TRANSMITTED: Final = 4
LACKS_DONE: Final = 8

STAGES_A_ROW: Final = 8  # a step of more stages takes several rows, told apart by `part`
WAIT_UNSURE: Final = 1  # bits of `stage.flags`: whether a wait for data belongs to this step is not known
NESTED_REFUSED: Final = 2  # an ordered stage was opened inside another and left out
OUT_OF_ORDER: Final = 4
GATHER_FAILED: Final = 8  # sent by the rank itself, because the gather of its window failed or came late
GATHERED: Final = 16  # brought by a gather: the process that sent it is not the one that it speaks of

PREFETCHES: Final = 1  # bits of `recorder.flags`: batches are fetched ahead
EVENT_SCOPE_LIMITED: Final = 2  # device work on streams that the events do not cover
SYNCHRONOUS: Final = 4  # every backward of the step ends in a reduction over all ranks, as the program says
NOT_READY: Final = -1  # `side.value_ns` that was asked for and did not come in time

TRAFFIC_FINISHED: Final = 1  # bits of `traffic.flags`: the op's volume was reached, and silence or another op followed
TRAFFIC_CUT: Final = 2  # no gap beside it: cut from its neighbour by volume alone
TRAFFIC_INCOMPLETE: Final = 4  # something of its iteration was lost: no verdict may rest on it
TRAFFIC_P2P: Final = 8  # of sends and receives, which are numbered apart from collectives
NO_OP: Final = -1  # `traffic.op` where no op could be told

PROCESS_GONE: Final = ord("X")  # /proc has no such process; other states are the letters of /proc/<pid>/stat

LOSSES: Final = (
    "unknown", "spool_batches", "ring_records", "torn_rows", "rows_over_limit", "bad_handles", "table_full",
    "unknown_calls", "refused_batches", "segments_unreadable", "clock_steps", "late_sweeps",
    "unnamed_processes", "unfinished_ops", "dumps_lost", "stage_records", "unowned_bytes",
)  # fmt: skip
DATA_LOSSES: Final = (
    "spool_batches", "ring_records", "rows_over_limit", "table_full", "refused_batches", "segments_unreadable",
)  # fmt: skip
"""Losses after which a window may lack rows; the other kinds are oddities that were counted and got over."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a trace table.

    `kind` is a little-endian numpy type; `width` > 1 makes it a fixed array per row; `delta` marks columns that grow
    from row to row, which are sent as differences; `unknown` fills the column when an older writer did not have it.
    """

    name: str
    kind: str
    width: int = 1
    delta: bool = False
    unknown: int | bytes = 0


def _comm() -> tuple[Column, ...]:
    numbers = ("n_ranks", "n_nodes", "pid", "global_rank", "world_size", "local_rank", "restart_count")
    coordinates = ("tp", "pp", "dp", "ep")
    codes = ("transport", "counters_seen", "abi", "flags")
    texts = (("name", 32), ("ip", 40), ("gpu_bus_id", 20), ("gpu_uuid", 44), ("nic", 16), ("gid", 40),
             ("cluster", 32), ("rack", 32))  # fmt: skip
    return (
        Column("comm_id", "<u8"),
        Column("comm_rank", "<i4"),
        *(Column(name, "<i4", unknown=-1) for name in numbers),
        *(Column(name, "<i2", unknown=-1) for name in coordinates),
        *(Column(name, "u1") for name in codes),
        Column("library_version", "<u4"),
        Column("joined_ns", "<i8"),
        Column("process_started", "<i8"),
        *(Column(name, f"S{size}", unknown=b"") for name, size in texts),
    )


def _op() -> tuple[Column, ...]:
    codes = ("func", "dtype", "algo", "proto", "channels", "slowest_channel", "slowest_direction")
    times = ("enqueued_ns", "started_ns", "first_transfer_ns", "last_transfer_ns", "done_ns")
    return (
        Column("comm_id", "<u8"),
        Column("comm_rank", "<i4"),
        Column("op", "<u8", delta=True),
        Column("seq", "<i8", delta=True, unknown=-1),
        *(Column(name, "u1") for name in codes),
        Column("flags", "<u2"),
        Column("n_flows", "<u2"),
        Column("peer", "<i4", unknown=-1),
        Column("slowest_peer", "<i4", unknown=-1),
        Column("count", "<u8"),
        Column("bytes", "<u8"),
        *(Column(name, "<i8", delta=True) for name in times),
        *(Column(name, "<u8") for name in ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns")),
        *(Column(name, "<u8") for name in ("receive_gpu_wait_ns", "receive_peer_wait_ns", "receive_net_wait_ns")),
        Column("n_refused", "<u4"),
        *(Column(name, "<i8", delta=True) for name in ("first_ready_ns", "fastest_done_ns")),
    )


def _flow() -> tuple[Column, ...]:
    return (
        Column("tick_ns", "<i8", delta=True),
        Column("comm_id", "<u8"),
        Column("comm_rank", "<i4"),
        Column("op", "<u8", delta=True),
        *(Column(name, "u1") for name in ("func", "channel", "direction", "transport", "flags")),
        Column("peer", "<i4", unknown=-1),
        Column("total_chunks", "<u4"),
        Column("counters", "<u4", width=4),
        Column("bytes", "<u8"),
        Column("stuck_ns", "<i8"),
        *(Column(name, "<u8") for name in ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns")),
        Column("qpn", "<u4"),
        Column("nic", "<i2", unknown=-1),
    )


def _progress() -> tuple[Column, ...]:
    counts = ("n_enqueued", "n_done", "n_p2p_enqueued", "n_p2p_done")
    return (
        Column("tick_ns", "<i8", delta=True),
        Column("comm_id", "<u8"),
        Column("comm_rank", "<i4"),
        *(Column(name, "<u8") for name in counts),
        *(Column(name, "<i8") for name in ("last_enqueued_ns", "last_done_ns")),
        # What the GPU itself says, where NCCL was asked to report kernels.
        Column("kernels_begun", "<u8"),
        Column("last_kernel_ns", "<i8"),
        Column("kernels_open", "<u4"),
    )


def _process() -> tuple[Column, ...]:
    return (
        Column("tick_ns", "<i8", delta=True),
        Column("pid", "<i4"),
        Column("global_rank", "<i4", unknown=-1),
        Column("state", "u1"),
        Column("alive", "u1"),
        Column("n_threads", "<u2"),
        Column("cpu_ns", "<u8"),
        Column("last_callback_ns", "<i8"),
        Column("io_bytes", "<u8"),  # read and written so far: a rank that saves a checkpoint is late, not stuck
    )


def _nic() -> tuple[Column, ...]:
    counters = ("rx_bytes", "tx_bytes", "errors", "drops", "retransmits")
    return (
        Column("tick_ns", "<i8", delta=True),
        Column("index", "<i2"),
        Column("name", "S16", unknown=b""),
        Column("port_state", "u1"),
        Column("speed_mbps", "<u4"),
        *(Column(name, "<u8") for name in counters),
        # Failed work requests, as the shim in front of libibverbs saw them.
        Column("completion_errors", "<u8", unknown=2**64 - 1),
        Column("completion_status", "u1"),  # of the last one, as ibv_wc_status numbers them; 0 none
        Column("xmit_wait", "<u8", unknown=2**64 - 1),
    )


def _loss() -> tuple[Column, ...]:
    return (Column("kind", "<u2"), Column("pid", "<i4", unknown=-1), Column("count", "<u8"))


def _status() -> tuple[Column, ...]:
    return (
        Column("tick_ns", "<i8", delta=True),
        Column("pid", "<i4"),
        Column("global_rank", "<i4", unknown=-1),
        Column("source", "u1"),
        Column("group", "S32", unknown=b""),
        *(Column(name, "<i8", unknown=-1) for name in ("n_enqueued", "n_started", "n_done")),
        Column("written_ns", "<i8", delta=True),
        Column("changed_ns", "<i8", delta=True),
        Column("ending", "u1"),
    )


def _schema() -> tuple[Column, ...]:
    return (
        Column("tick_ns", "<i8", delta=True),
        Column("schema", "<u8"),
        Column("order_hash", "<u8"),
        *(Column(name, "u1") for name in ("version", "kind", "position", "n_stages")),
        Column("micro_steps", "<u2", unknown=1),
        Column("micro", "<i2", unknown=-1),
        *(Column(name, "S48", unknown=b"") for name in ("name", "parent")),
    )


def _recorder() -> tuple[Column, ...]:
    refused = ("broken", "nested", "unknown", "outside", "out_of_order", "bad_waits", "dropped")
    counts = (*refused, "events_asked", "events_lost", "gathers", "gathers_failed")
    return (
        Column("tick_ns", "<i8", delta=True),
        *(Column(name, "<i4", unknown=-1) for name in ("pid", "global_rank", "world_size")),
        Column("schema", "<u8"),
        Column("road", "u1"),
        Column("flags", "u1"),
        Column("event_permille", "<u2"),
        Column("role", "S32", unknown=b""),
        Column("steps", "<i8"),
        *(Column(name, "<u4") for name in counts),
    )


def _stage() -> tuple[Column, ...]:
    return (
        Column("ended_ns", "<i8", delta=True),
        *(Column(name, "<i4", unknown=-1) for name in ("pid", "global_rank")),
        Column("schema", "<u8"),
        Column("step", "<i8", delta=True),
        *(Column(name, "u1") for name in ("part", "flags")),
        Column("repeats", "<u2"),
        Column("overlap_ns", "<u8"),
        Column("durations_ns", "<i8", width=STAGES_A_ROW),
    )


def _side() -> tuple[Column, ...]:
    return (
        Column("ended_ns", "<i8", delta=True),
        *(Column(name, "<i4", unknown=-1) for name in ("pid", "global_rank")),
        Column("schema", "<u8"),
        Column("step", "<i8", delta=True),
        Column("channel", "u1"),
        Column("value_ns", "<i8", unknown=NOT_READY),
    )


def _traffic() -> tuple[Column, ...]:
    return (
        Column("comm_id", "<u8"),
        Column("comm_rank", "<i4"),
        Column("op", "<i8", delta=True, unknown=NO_OP),
        Column("channel", "<i2"),
        Column("peer", "<i4", unknown=-1),
        Column("direction", "u1"),
        Column("queue_pair", "<u4"),
        Column("nic", "S16", unknown=b""),
        *(Column(name, "<i8", delta=True) for name in ("start_ns", "end_ns")),
        *(Column(name, "<i8") for name in ("actual_ns", "n_bytes")),
        *(Column(name, "<i4") for name in ("epoch_ns", "slice_bytes")),
        *(Column(name, "u1") for name in ("source", "flags")),
        Column("share_ns", "<i8", unknown=-1),
    )


TABLES: Final[dict[str, tuple[Column, ...]]] = {
    "comm": _comm(),
    "op": _op(),
    "live_op": (*_op(), Column("tick_ns", "<i8", delta=True)),
    "flow": _flow(),
    "progress": _progress(),
    "process": _process(),
    "nic": _nic(),
    "loss": _loss(),
    "status": _status(),
    "schema": _schema(),
    "recorder": _recorder(),
    "stage": _stage(),
    "side": _side(),
    "traffic": _traffic(),
}


GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "ops": ("comm", "op"),
    "live": ("live_op", "progress", "process", "nic", "loss", "status"),
    "flow": ("flow",),
    "stage": ("schema", "recorder", "stage", "side"),
    "traffic": ("traffic",),
}
"""Tables that are packed, kept and read together: a section of a trace batch, and a column where batches are stored."""


def row_dtype(columns: tuple[Column, ...]) -> np.dtype[np.void]:
    """The packed numpy dtype of one row of `columns`."""
    return np.dtype([(c.name, c.kind) if c.width == 1 else (c.name, c.kind, (c.width,)) for c in columns])


DTYPE: Final[dict[str, np.dtype[np.void]]] = {name: row_dtype(columns) for name, columns in TABLES.items()}

_OP_TIMES: Final = (
    "enqueued_ns", "started_ns", "first_ready_ns", "first_transfer_ns", "fastest_done_ns", "last_transfer_ns", "done_ns",
)  # fmt: skip

# Columns that hold a point in time (as against a duration): these are shifted from the node's clock to wall time.
TIME_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "comm": ("joined_ns",),
    "op": _OP_TIMES,
    "live_op": (*_OP_TIMES, "tick_ns"),
    "flow": ("tick_ns",),
    "progress": ("tick_ns", "last_enqueued_ns", "last_done_ns", "last_kernel_ns"),
    "process": ("tick_ns", "last_callback_ns"),
    "nic": ("tick_ns",),
    "loss": (),
    "status": ("tick_ns", "written_ns", "changed_ns"),
    "schema": ("tick_ns",),
    "recorder": ("tick_ns",),
    "stage": ("ended_ns",),
    "side": ("ended_ns",),
    "traffic": ("start_ns", "end_ns"),
}

ROW_TIME: Final[dict[str, str]] = {
    **{name: "tick_ns" for name, columns in TABLES.items() if any(c.name == "tick_ns" for c in columns)},
    "stage": "ended_ns",
    "side": "ended_ns",
    "traffic": "end_ns",
}
"""The point in time a row belongs to; an op belongs to its completion, a loss to its batch."""


def empty_rows(table: str, n_rows: int = 0) -> npt.NDArray[np.void]:
    """(n_rows,) rows of `table` with every column at its `unknown` value."""
    rows = np.zeros(n_rows, DTYPE[table])
    for column in TABLES[table]:
        if column.unknown:
            rows[column.name] = column.unknown
    return rows
