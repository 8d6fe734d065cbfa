"""Turns the engine's rows into the trace tables' rows, for many nodes at once: no loop over ranks or rows.

What the real plugin and agent do to a row is done here too: the node's own clock, durations in steps of 1,024 ns,
unknowns left unknown, neighbours alike. `Roster` holds what never changes: who the ranks and communicators are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.simulate.clocks import Clocks
from nccl_instrument.simulate.engine import OP
from nccl_instrument.simulate.layout import KINDS, Layout
from nccl_instrument.simulate.physics import Physics
from nccl_instrument.tables import (
    DTYPE,
    DTYPES,
    IB,
    PORT_STATES,
    PROCESS_GONE,
    PROTOS,
    SOCKET,
    TIME_COLUMNS,
    TRANSPORTS,
    empty_rows,
)

STEP_NS: Final = 1024
PID: Final = 4000
LIBRARY_VERSION: Final = 22_809
ABI: Final = 5
CPU_SHARE: Final = 0.25
N_THREADS: Final = 14
WAITED_BEFORE: Final = np.uint64(10**6)  # ticks of port_xmit_wait when the job began
WAIT_TICKS_MAX: Final = 2**32 - 1  # there it stops, and an agent tells it no longer
_WAITS: Final = ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns")
_OF_KERNELS: Final = ("kernels_begun", "kernels_open", "last_kernel_ns")
_OP_DURATIONS: Final = (*_WAITS, *(f"receive_{name}" for name in _WAITS))
_OP_COPIED: Final = tuple(name for name in DTYPE["op"].names or () if name in (OP.names or ()))
Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]


class Roster:
    """Names, numbers and places of a job's ranks and communicators."""

    def __init__(self, layout: Layout, physics: Physics, job: str, seed: int, is_ib: bool, clocks: Clocks) -> None:
        self.layout, self.physics, self.clocks = layout, physics, clocks
        self.transport = IB if is_ib else SOCKET
        self.comm_ids = layout.comm_ids(job, seed)
        self.node_of = layout.node_of.astype(np.int64)
        self.pid_of = PID + layout.local_of
        self._comms = self._comm_rows()

    def _comm_rows(self) -> Rows:
        """(members,) rows of the comm table, by global rank; columns that depend on the time are left empty."""
        layout, parts, first = self.layout, [], 0
        for kind in KINDS:
            ranks = layout.groups.get(kind)
            if ranks is None:
                continue
            n, size = ranks.shape
            rows = empty_rows("comm", ranks.size)
            group = np.repeat(first + np.arange(n), size)
            nodes = np.sort(layout.node_of[ranks], axis=1)
            n_nodes = np.repeat(1 + (np.diff(nodes, axis=1) > 0).sum(axis=1), size)
            rows["comm_id"], rows["global_rank"] = self.comm_ids[group], ranks.ravel()
            rows["comm_rank"], rows["n_ranks"], rows["n_nodes"] = np.tile(np.arange(size), n), size, n_nodes
            rows["name"] = np.array([name.encode() for name in layout.names], "S32")[group]
            rows["transport"] = np.where(n_nodes == 1, TRANSPORTS.index("none"), self.transport)
            first += n
            parts.append((rows, group))
        rows = np.concatenate([rows for rows, _ in parts])
        self._describe(rows)
        order = np.argsort(rows["global_rank"], kind="stable")
        self._member_keys = _key(rows["global_rank"][order], np.concatenate([group for _, group in parts])[order])
        return rows[order]

    def members_at(self, ranks: Ints, groups: Ints) -> Ints:
        """Positions of these memberships among all of the job's."""
        return np.searchsorted(self._member_keys, _key(ranks, groups))

    def _describe(self, rows: Rows) -> None:
        layout, rank = self.layout, rows["global_rank"]
        rows["pid"], rows["world_size"] = self.pid_of[rank], layout.n_ranks
        rows["local_rank"], rows["restart_count"] = layout.local_of[rank], 0
        for axis, places in layout.places.items():
            rows[axis] = places[rank] if axis != "ep" or layout.ep > 1 else -1
        rows["abi"], rows["library_version"], rows["process_started"] = ABI, LIBRARY_VERSION, 100_000 + rank
        node, local = layout.node_of, layout.local_of
        rows["ip"] = _texts([f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(layout.n_nodes)], 40)[node[rank]]
        buses = _texts([f"0000:{0x10 + 8 * i & 0xFF:02x}:{i // 30:02x}.0" for i in range(layout.ranks_per_node)], 20)
        rows["gpu_bus_id"] = buses[local[rank]]
        uuids = [f"GPU-00000000-0000-0000-{n:04x}-{r:012x}" for r, n in enumerate(node.tolist())]
        rows["gpu_uuid"] = _texts(uuids, 44)[rank]
        rows["nic"] = _texts([f"nic{i}" for i in range(layout.n_nics_per_node)], 16)[layout.nic_index_of[rank]]

    def comm_rows(self, ranks: npt.NDArray[np.int32], networked: npt.NDArray[np.bool_]) -> Rows:
        """Rows of the comm table of these ranks. networked: (all members,) whether a flow was ever seen, by rank."""
        is_wanted = np.zeros(self.layout.n_ranks, bool)
        is_wanted[ranks] = True
        mine = is_wanted[self._comms["global_rank"]]
        rows = self._comms[mine].copy()
        rows["counters_seen"] = networked[mine]
        rows["joined_ns"] = self.clocks.mono_ns(self.node_of[rows["global_rank"]], np.ones(len(rows), np.int64))
        return rows

    @property
    def n_members(self) -> int:
        return len(self._comms)


def _key(ranks: Ints, groups: Ints) -> Ints:
    return ranks.astype(np.int64) << 32 | groups.astype(np.int64)


def _texts(found: list[str], size: int) -> npt.NDArray[np.bytes_]:
    return np.array([text.encode() for text in found], f"S{size}")


def _to_node_clocks(roster: Roster, table: str, rows: Rows, ranks: Ints) -> None:
    nodes = roster.node_of[ranks]
    for name in TIME_COLUMNS[table]:
        rows[name] = roster.clocks.mono_ns(nodes, rows[name].astype(np.int64))


def _coarsen(rows: Rows, names: tuple[str, ...]) -> None:
    for name in names:
        rows[name] -= rows[name] % rows[name].dtype.type(STEP_NS)


def joined(parts: list[Rows]) -> Rows:
    """One after the other, of one dtype; moved as bytes, since numpy copies rows field by field, five times as slowly."""
    dtype = parts[0].dtype
    return np.concatenate([part.view((np.void, dtype.itemsize)) for part in parts]).view(dtype)


def op_rows(roster: Roster, table: str, raw: Rows, tick_ns: int = 0) -> tuple[Rows, Ints]:
    """Rows of `op` or `live_op`, and the rank of each; communicator by communicator, in each in the order of time."""
    raw = raw.take(np.lexsort((raw["enqueued_ns"], raw["group"], raw["rank"])))
    rows, ranks = empty_rows(table, len(raw)), raw["rank"].astype(np.int64)
    rows["comm_id"], rows["comm_rank"], rows["op"] = roster.comm_ids[raw["group"]], raw["place"], raw["number"]
    for name in _OP_COPIED:
        rows[name] = raw[name]
    rows["dtype"], rows["proto"] = DTYPES.index("Float32"), np.where(raw["algo"] > 0, PROTOS.index("SIMPLE"), 0)
    if table == "live_op":
        rows["tick_ns"] = tick_ns
    _to_node_clocks(roster, table, rows, ranks)
    _coarsen(rows, _OP_DURATIONS)
    return rows, ranks


def flow_rows(roster: Roster, sweeps: list[tuple[int, Rows]]) -> tuple[Rows, Ints]:
    """Rows of `flow` for all sweeps (tick, FLOW rows) of a second, and the rank of each."""
    raw = joined([rows for _, rows in sweeps])
    ticks = np.repeat([tick for tick, _ in sweeps], [len(rows) for _, rows in sweeps])
    order = np.argsort(raw["rank"].astype(np.int64) << 32 | raw["group"], kind="stable")
    raw, ticks = raw.take(order), ticks[order]
    rows, ranks = empty_rows("flow", len(raw)), raw["rank"].astype(np.int64)
    rows["comm_id"], rows["comm_rank"], rows["op"] = roster.comm_ids[raw["group"]], raw["place"], raw["number"]
    rows["tick_ns"], rows["total_chunks"], rows["transport"] = ticks, raw["total"], roster.transport
    for name in ("func", "channel", "direction", "flags", "peer", "counters", "bytes", "stuck_ns", *_WAITS):
        rows[name] = raw[name]
    rows["nic"] = roster.layout.nic_index_of[ranks]
    _to_node_clocks(roster, "flow", rows, ranks)
    _coarsen(rows, ("stuck_ns", *_WAITS))
    return rows, ranks


def progress_rows(roster: Roster, raw: Rows, tick_ns: int) -> tuple[Rows, Ints]:
    """Rows of `progress` and the rank of each."""
    rows, ranks = empty_rows("progress", len(raw)), raw["rank"].astype(np.int64)
    rows["comm_id"], rows["comm_rank"], rows["tick_ns"] = roster.comm_ids[raw["group"]], raw["place"], tick_ns
    for name in ("n_enqueued", "n_done", "n_p2p_enqueued", "n_p2p_done", "last_enqueued_ns", "last_done_ns"):
        rows[name] = raw[name]
    for name in _OF_KERNELS if roster.physics.kernels else ():
        rows[name] = raw[name]
    _to_node_clocks(roster, "progress", rows, ranks)
    return rows, ranks


def process_rows(roster: Roster, raw: Rows, tick_ns: int) -> tuple[Rows, Ints]:
    """Rows of `process` and the rank of each."""
    rows, ranks = empty_rows("process", len(raw)), raw["rank"].astype(np.int64)
    is_killed = raw["is_killed"] != 0
    rows["tick_ns"], rows["pid"], rows["global_rank"] = tick_ns, roster.pid_of[ranks], ranks
    rows["state"] = np.where(is_killed, PROCESS_GONE, np.where(raw["is_frozen"] != 0, ord("T"), ord("S")))
    rows["alive"], rows["n_threads"] = ~is_killed, np.where(is_killed, 0, N_THREADS)
    rows["cpu_ns"] = np.where(is_killed, 0, raw["last_callback_ns"] * CPU_SHARE)
    rows["io_bytes"] = np.where(is_killed, 0, raw["io_bytes"])
    rows["last_callback_ns"] = raw["last_callback_ns"]
    _to_node_clocks(roster, "process", rows, ranks)
    return rows, ranks


def nic_rows(
    roster: Roster, nodes: Ints, counted: npt.NDArray[np.uint64], is_down: npt.NDArray[Any], tick_ns: int
) -> Rows:
    """(nodes × NICs,) rows of `nic`, node by node. counted: (all NICs, 3) bytes received and sent, ns that the port waited."""
    per_node = roster.layout.n_nics_per_node
    nics = (nodes[:, None] * per_node + np.arange(per_node)).ravel()
    rows = empty_rows("nic", len(nics))
    rows["tick_ns"] = roster.clocks.mono_ns(nics // per_node, np.full(len(nics), tick_ns))
    rows["index"] = nics % per_node
    rows["name"] = _texts([f"nic{i}" for i in range(per_node)], 16)[nics % per_node]
    rows["port_state"] = np.where(is_down[nics], PORT_STATES.index("down"), PORT_STATES.index("up"))
    rows["speed_mbps"] = int(roster.physics.link_mbit)
    rows["rx_bytes"], rows["tx_bytes"] = counted[nics, 0], counted[nics, 1]
    if roster.transport == IB and roster.physics.wait_tick_ns > 0:  # network interfaces do not tell
        now_and_then = roster.physics.wait_share * counted[nics, 1] * 1e9 / roster.physics.link_bytes_per_s
        ticks = WAITED_BEFORE + ((counted[nics, 2] + now_and_then) / roster.physics.wait_tick_ns).astype(np.uint64)
        rows["xmit_wait"] = np.where(ticks < WAIT_TICKS_MAX, ticks, rows["xmit_wait"])
    return rows
