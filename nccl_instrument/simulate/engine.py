"""The engine (src/, in C) as a Python object: tables in, time passes, rows out.

The dtypes mirror the structs of src/sim.h; a library whose structs have other sizes is refused. Rows come out as the
engine keeps them: ranks and group numbers, nanoseconds since the job's start. rows.py turns them into trace tables.
"""

from __future__ import annotations

import ctypes
import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.processes.segment_layout import TRANSFER

HERE: Final = Path(__file__).resolve().parent
LIBRARY: Final = HERE / "build" / "libdgsim.so"
FAN: Final = 3
N_STREAMS: Final = 4
N_COMM_SLOTS: Final = 6
CALLS_AT_ONCE: Final = 20_000_000  # so that Ctrl-C is heard within seconds

Rows = npt.NDArray[np.void]


class EngineError(RuntimeError):
    """The engine cannot be built or loaded; the message is one sentence."""


def _struct(*fields: tuple[Any, ...]) -> np.dtype[np.void]:
    return np.dtype(list(fields), align=True)


def _all(kind: str, names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, kind) for name in names.split())


SETTINGS: Final = _struct(
    ("seed", "u8"),
    *_all(
        "i8", "copy_bytes_per_s node_bytes_per_s latency_ns node_latency_ns host_call_ns flush_ns poll_ns step_gap_ns"
    ),
    *_all("f8", "jitter moe_spread overlap_compute overlap_copy"),
    *_all("i4", "n_ranks n_nics n_groups n_members n_links n_lanes n_classes n_tasks n_specs n_actions ahead is_ib"),
    *_all("i4", "slot_bytes slices warmup_steps gpu_dies_with_process credits_queue"),
    ("warmup_factor", "f8"), ("slices_max", "i8"), ("slices_every", "i4"),
)  # fmt: skip
RANK: Final = _struct(
    *_all("i4", "node nic class"), ("groups", "i4", (N_COMM_SLOTS,)), ("places", "i4", (N_COMM_SLOTS,))
)
GROUP: Final = _struct(*_all("i4", "first_member n_ranks n_nodes n_channels is_tree is_barrier stream n_neighbours"))
MEMBER: Final = _struct(*_all("i4", "rank group place first_ring first_up first_down first_p2p"))
LINK: Final = _struct(*_all("i4", "group channel from to from_rank to_rank from_lane to_lane is_network"))
LANE: Final = _struct(("rank", "i4"), ("in", "i4", (FAN,)), ("out", "i4", (FAN,)))
CLASS: Final = _struct(
    *_all("i4", "first_task n_tasks"), ("first_in_stream", "i4", (N_STREAMS,)), ("swapped", "i4", (2,)),
    ("before_update", "i4", (N_STREAMS,)),
)  # fmt: skip
TASK: Final = _struct(*_all("i4", "kind stream other position first_op n_ops stage"), ("ns", "i8"))
SPEC: Final = _struct(*_all("i4", "func slot neighbour layer is_combine root shape"), ("bytes", "i8"))
ACTION: Final = _struct(("at_ns", "i8"), *_all("i4", "what target"), *_all("f8", "amount second"))
OP: Final = _struct(
    *_all("i4", "rank group place func"), *_all("i8", "number seq"),
    *_all("i4", "flags n_flows peer slowest_peer slowest_channel slowest_direction algo channels"),
    *_all("i8", "bytes count enqueued_ns started_ns first_transfer_ns last_transfer_ns done_ns"),
    *_all("i8", "gpu_wait_ns peer_wait_ns net_wait_ns receive_gpu_wait_ns receive_peer_wait_ns receive_net_wait_ns"),
    *_all("i8", "n_refused first_ready_ns fastest_done_ns ordinal"), ("iteration", "i4"),
)  # fmt: skip
FLOW: Final = _struct(
    *_all("i4", "rank group place func"), ("number", "i8"), *_all("i4", "channel direction flags peer"),
    ("total", "u4"), ("counters", "u4", (4,)), *_all("i8", "bytes stuck_ns gpu_wait_ns peer_wait_ns net_wait_ns"),
)  # fmt: skip
PROGRESS: Final = _struct(
    *_all("i4", "rank group place is_networked"),
    *_all("i8", "n_enqueued n_done n_p2p_enqueued n_p2p_done last_enqueued_ns last_done_ns"),
    *_all("i8", "kernels_begun kernels_open last_kernel_ns"),
)
PROCESS: Final = _struct(*_all("i4", "rank is_frozen is_killed iteration"), *_all("i8", "last_callback_ns io_bytes"))
STEP: Final = _struct(*_all("i4", "rank step"), ("ended_ns", "i8"), ("stage_ns", "i8", (5,)))
SLICE: Final = _struct(
    *_all("i4", "rank group place peer channel func"), *_all("i8", "number sent_ns left_ns acked_ns"),
    *_all("u4", "bytes step"), ("iteration", "i4"),
)  # fmt: skip
_SIZED: Final = (
    SETTINGS, RANK, GROUP, MEMBER, LINK, LANE, CLASS, TASK, SPEC, ACTION, OP, FLOW, PROGRESS, PROCESS, STEP, SLICE,
    TRANSFER,
)  # fmt: skip

ACTIONS: Final = (
    "nic_down", "nic_up", "nic_share", "wire_share", "pcie_share", "hand_over", "wobble", "copy_factor",
    "compute_factor", "background", "proxy_delay", "sleep_every", "sleep_once", "freeze", "thaw", "kill", "gpu_dead",
    "stuck", "unstuck", "hold", "pause", "mismatch", "expert", "host_extra", "overlap", "traffic",
    "data_extra", "dma_factor", "host_over",
)  # fmt: skip
"""What an action can change, in the order of the engine's enum."""


def build_library() -> None:
    """Compiles the engine where it is older than its sources. Raises EngineError."""
    try:
        LIBRARY.parent.mkdir(exist_ok=True)
        with (LIBRARY.parent / "lock").open("w") as lock:  # several simulations may start at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = subprocess.run(["make", "-s", "-C", str(HERE)], capture_output=True, text=True, check=False)
    except OSError as error:
        if LIBRARY.exists():
            return  # installed without a compiler, or where nobody may write
        raise EngineError(f"The simulator's engine cannot be built: {error}.") from error
    if made.returncode:
        last = (made.stderr.strip().splitlines() or ["make failed"])[-1]
        raise EngineError(f"The simulator's engine cannot be built: {last}")


def _load() -> Any:
    build_library()
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise EngineError(f"The simulator's engine cannot be loaded: {error}.") from error
    library.sim_new.restype = ctypes.c_void_p
    for name in ("sim_run", "sim_served", "sim_flows", "sim_live_ops", "sim_progress", "sim_finished", "sim_steps",
                 "sim_slices"):  # fmt: skip
        getattr(library, name).restype = ctypes.c_int64
    sizes = (ctypes.c_int64 * len(_SIZED))()
    library.sim_sizes(sizes)
    if list(sizes) != [dtype.itemsize for dtype in _SIZED]:
        raise EngineError(f"{LIBRARY} was built from other structs: make -C {HERE} clean all.")
    return library


def _pointer(rows: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(rows.ctypes.data)


class Engine:
    """A job whose time passes only in `run`. tables: the engine's arrays by name, SETTINGS apart (see job.py)."""

    def __init__(self, settings: Rows, tables: dict[str, npt.NDArray[Any]]) -> None:
        self._library = _load()
        self._kept = {name: np.ascontiguousarray(rows) for name, rows in tables.items()}
        names = ("ranks", "nic_rates", "groups", "members", "links", "lanes", "classes", "tasks", "stream_tasks",
                 "specs", "actions")  # fmt: skip
        self._n_nics = len(self._kept["nic_rates"])
        self._sim = ctypes.c_void_p(
            self._library.sim_new(_pointer(settings), *(_pointer(self._kept[name]) for name in names))
        )
        self._room = {"sim_flows": 4096, "sim_live_ops": 4096, "sim_progress": 4096}
        self._n_ranks = len(self._kept["ranks"])
        self.now_ns = 0

    def close(self) -> None:
        """Give the memory back; the engine cannot be used afterwards."""
        if self._sim:
            self._library.sim_free(self._sim)
            self._sim = ctypes.c_void_p(None)

    def befall(self, actions: Rows) -> None:
        """More of what happens to the job: (n,) ACTION, all of them after `now_ns`."""
        actions = np.ascontiguousarray(actions, ACTION)
        self._library.sim_befall(self._sim, _pointer(actions), ctypes.c_int64(len(actions)))

    def run(self, until_ns: int, tell: Callable[[int], None] = lambda now_ns: None) -> None:
        """Let time pass until `until_ns`; `tell` hears from time to time how far it has come."""
        now_ns = -1
        while now_ns < until_ns:
            now_ns = self._library.sim_run(self._sim, ctypes.c_int64(until_ns), ctypes.c_int64(CALLS_AT_ONCE))
            tell(now_ns)
        self.now_ns = max(self.now_ns, until_ns)

    @property
    def n_served(self) -> int:
        """How many things have happened so far."""
        return int(self._library.sim_served(self._sim))

    def flows(self, ranks: npt.NDArray[np.int32]) -> Rows:
        """(n,) FLOW: every flow in progress on these ranks, now."""
        return self._read("sim_flows", FLOW, ranks)

    def live_ops(self, ranks: npt.NDArray[np.int32]) -> Rows:
        """(n,) OP: every op not yet over on these ranks."""
        return self._read("sim_live_ops", OP, ranks)

    def progress(self, ranks: npt.NDArray[np.int32]) -> Rows:
        """(n,) PROGRESS: every communicator of these ranks."""
        return self._read("sim_progress", PROGRESS, ranks)

    def processes(self, ranks: npt.NDArray[np.int32]) -> Rows:
        """(len(ranks),) PROCESS."""
        rows = np.zeros(len(ranks), PROCESS)
        self._library.sim_processes(self._sim, _pointer(ranks), ctypes.c_int64(len(ranks)), _pointer(rows))
        return rows

    def finished(self) -> Rows:
        """(n,) OP: what has ended since the last call, oldest first."""
        n = self._library.sim_finished(self._sim, None, ctypes.c_int64(0))
        rows = np.empty(n, OP)
        self._library.sim_finished(self._sim, _pointer(rows), ctypes.c_int64(n))
        return rows

    def steps(self) -> Rows:
        """(n,) STEP: what stage recorders wrote since the last call, oldest first."""
        n = self._library.sim_steps(self._sim, None, ctypes.c_int64(0))
        rows = np.empty(n, STEP)
        self._library.sim_steps(self._sim, _pointer(rows), ctypes.c_int64(n))
        return rows

    def slices(self) -> Rows:
        """(n,) SLICE: what left a NIC since the last call, in the order in which it was taken; of steps that are recorded."""
        n = self._library.sim_slices(self._sim, None, ctypes.c_int64(0))
        rows = np.empty(n, SLICE)
        self._library.sim_slices(self._sim, _pointer(rows), ctypes.c_int64(n))
        return rows

    def record_transfers(self, n_rows: int) -> tuple[npt.NDArray[np.uint64], Rows]:
        """(n_ranks,) heads and (n_ranks, n_rows) TRANSFER rings that every rank's plugin writes from now on; to be kept as long
        as time passes. n_rows: a power of two. comm_id is the group's number, times are the job's.
        """
        self._rings = np.zeros(self._n_ranks, np.uint64), np.zeros((self._n_ranks, n_rows), TRANSFER)
        self._library.sim_transfers(
            self._sim, _pointer(self._rings[1]), _pointer(self._rings[0]), ctypes.c_int64(n_rows)
        )
        return self._rings

    def nics(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """(n_nics, 3) bytes received and sent and ns that the port waited, and (n_nics,) whether each is down."""
        counted, is_down = np.zeros((self._n_nics, 3), np.uint64), np.zeros(self._n_nics, np.uint8)
        self._library.sim_nics(self._sim, _pointer(counted), _pointer(is_down))
        return counted, is_down.astype(bool)

    def _read(self, call: str, dtype: np.dtype[np.void], ranks: npt.NDArray[np.int32]) -> Rows:
        assert ranks.dtype == np.int32 and ranks.flags.c_contiguous
        while True:
            rows = np.empty(self._room[call], dtype)
            n = getattr(self._library, call)(
                self._sim, _pointer(ranks), ctypes.c_int64(len(ranks)), _pointer(rows), ctypes.c_int64(len(rows))
            )
            if n <= len(rows):
                return rows[:n].copy() if n < len(rows) // 2 else rows[:n]
            self._room[call] = int(n * 1.2)
