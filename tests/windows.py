"""`make_window`: the window of a job that stands still because of a fault, as ingest would cut it.

Every window is the resting state of the small mechanism of tests/rca/mechanism.py, so a test reads like a scenario:
make_window(nic_down=3), make_window(frozen=5, transport="Socket"), make_window() for a healthy job in mid-step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Rows, Window
from nccl_instrument.tables import (
    ALGOS,
    FUNCS,
    IB,
    OP_HAS_FLOWS,
    OP_NO_NETWORK,
    OP_P2P,
    PORT_STATES,
    PROCESS_GONE,
    RECEIVE,
    SEND,
    SOCKET,
    TRANSPORTS,
    empty_rows,
)  # fmt: skip
from tests.rca.mechanism import Flow, Job, Op

SECOND = 10**9
MS = 10**6
START = 1_790_000_000 * SECOND  # unix ns of round 0
LOCAL_OPS_KEPT = 8
DTYPE_FLOAT32 = 8
FLOAT_BYTES = 4


def make_window(
    ranks: int = 8, *, tp: int = 2, pp: int = 2, dp: int = 0, ranks_per_node: int = 2, nics_per_node: int = 0,
    transport: str = "IB", seed: int = 0, at_ms: int = 500, stalled_s: float = 12.0,
    nic_down: int | None = None, frozen: int | None = None, killed: int | None = None, stuck_before: int | None = None,
    proxy_asleep: int | None = None, gpu_hung: int | None = None, paused: bool = False,
    ports_known: bool = True, nics_known: bool = True, coordinates: bool = True,
    transport_known: bool = True,
    silent: Iterable[int] = (), catching_up: Iterable[int] = (),
    lost_batches: Iterable[int] = (), without_nodes: Iterable[int] = (), io_bytes_per_s: dict[int, int] | None = None,
) -> Window:  # fmt: skip
    """A job of `ranks` ranks, tp × pp × dp, with a fault at `at_ms` and `stalled_s` seconds after it came to rest.

    The numbers given to faults are global ranks; silent, catching_up, lost_batches and without_nodes are node numbers.
    Without a fault the window ends in mid-step and nothing stands still.
    """
    faults = (nic_down, frozen, killed, stuck_before, proxy_asleep, gpu_hung)
    nics = nics_per_node or ranks_per_node
    job = _resting((tp, pp, dp or ranks // (tp * pp), ranks_per_node), nics, transport, seed, at_ms, faults, paused)
    assert job.n_ranks == ranks, "tp × pp × dp must be the number of ranks"
    is_faulty = paused or any(fault is not None for fault in faults)
    cut = _Cut(job, transport, stalled_s if is_faulty else 0.0, nics, transport_known)
    cut.letters = dict.fromkeys(_set(frozen), "T")
    cut.killed, cut.ports_known, cut.coordinates = _set(killed), ports_known, coordinates
    cut.nics_known = nics_known
    cut.io_rates, cut.lossy_nodes = io_bytes_per_s or {}, set(lost_batches)
    return cut.window(set(silent), set(catching_up), set(without_nodes))


@lru_cache(maxsize=256)
def _resting(
    layout: tuple[int, int, int, int],
    nics: int,
    transport: str,
    seed: int,
    at_ms: int,
    faults: tuple[int | None, ...],
    paused: bool,
) -> Job:
    """The job at rest; kept, since many tests ask the same scenario for other things, and cutting changes nothing in it."""
    nic_down, frozen, killed, stuck_before, proxy_asleep, gpu_hung = faults
    job = Job(*layout, transport == "IB", seed)
    job.run(at_ms)
    job.halted = _set(frozen) | _set(killed)
    job.proxy_asleep, job.gpu_hung, job.stuck_before = _set(proxy_asleep), _set(gpu_hung), _set(stuck_before)
    job.nic_down, job.paused = _nic_users(job, nic_down, nics), paused
    if paused or any(fault is not None for fault in faults):
        assert job.run_until_still(), "the job did not come to rest"
    return job


def cut_window(job: Job, *, stalled_s: float = 12.0) -> Window:
    """The window of a job that a test has set up and stepped itself."""
    cut = _Cut(job, "IB", stalled_s, job.ranks_per_node)
    cut.letters, cut.killed, cut.ports_known, cut.coordinates = {}, set(), True, True
    cut.io_rates, cut.lossy_nodes = {}, set()
    return cut.window(set(), set(), set())


def _set(rank: int | None) -> set[int]:
    return set() if rank is None else {rank}


def _nic_users(job: Job, rank: int | None, nics_per_node: int) -> set[int]:
    if rank is None:
        return set()
    return {
        r
        for r in range(job.n_ranks)
        if job.node(r) == job.node(rank) and _nic_of(job, r, nics_per_node) == _nic_of(job, rank, nics_per_node)
    }


def _nic_of(job: Job, rank: int, nics_per_node: int) -> int:
    return rank % job.ranks_per_node * nics_per_node // job.ranks_per_node


class _Cut:
    """Turns a resting job into the rows of a window."""

    letters: dict[int, str]
    killed: set[int]
    ports_known: bool
    coordinates: bool
    nics_known: bool = True
    io_rates: dict[int, int]
    lossy_nodes: set[int]

    def __init__(
        self, job: Job, transport: str, stalled_s: float, nics_per_node: int, transport_known: bool = True
    ) -> None:
        self.job, self.transport, self.nics_per_node = job, transport, nics_per_node
        self.code = IB if transport == "IB" else SOCKET
        if not transport_known:
            self.code = TRANSPORTS.index("Unknown")
        self.end_ns = START + job.now * MS + int(stalled_s * SECOND)
        self.n_nodes = job.n_ranks // job.ranks_per_node

    def at(self, round_: int) -> int:
        return START + round_ * MS

    def window(self, silent: set[int], catching_up: set[int], without: set[int]) -> Window:
        tables: dict[str, list[dict[str, Any]]] = {name: [] for name in WINDOW_DTYPE}
        for rank in range(self.job.n_ranks):
            if self.job.node(rank) not in silent | without:
                self._add_rank(tables, rank)
        for node in set(range(self.n_nodes)) - silent - without:
            self._add_nics(tables, node)
            if node in self.lossy_nodes:
                tables["loss"].append({"kind": 1, "count": 3, "rank": -1, "node": node})
        return Window(
            job="job", attempt=1, start_ns=self.end_ns - 20 * SECOND, end_ns=self.end_ns + 1,
            now_ns=self.end_ns + SECOND // 2, world_size=self.job.n_ranks,
            nodes=self._nodes(silent, catching_up), ranks=self._ranks(without), members=self._members(without),
            tables={name: _rows(name, rows) for name, rows in tables.items()},
        )  # fmt: skip

    def _nodes(self, silent: set[int], catching_up: set[int]) -> Rows:
        rows = np.zeros(self.n_nodes, NODE)
        for node in range(self.n_nodes):
            late = 15 * SECOND if node in silent | catching_up else 0
            rows[node]["name"] = f"node{node}"
            rows[node]["watermark_ns"] = self.end_ns - late
            rows[node]["received_ns"], rows[node]["first_ns"] = self.end_ns, START
            rows[node]["catching_up"], rows[node]["n_ranks"] = node in catching_up, self.job.ranks_per_node
        return rows

    def _ranks(self, without: set[int]) -> Rows:
        tp = max((len(c.members) for c in self.job.all_comms() if c.name.startswith("tp")), default=1)
        dp = max((len(c.members) for c in self.job.all_comms() if c.name.startswith("dp")), default=1)
        rows = np.zeros(self.job.n_ranks, RANK)
        for rank in range(self.job.n_ranks):
            place = (rank % tp, rank // (tp * dp), rank // tp % dp) if self.coordinates else (-1, -1, -1)
            row = rows[rank]
            row["rank"], row["node"], row["pid"], row["local_rank"] = (
                rank,
                self.job.node(rank),
                1000 + rank,
                rank % self.job.ranks_per_node,
            )
            row["tp"], row["pp"], row["dp"], row["ep"] = *place, -1
            row["transport"] = self.code
            row["nic"] = f"nic{_nic_of(self.job, rank, self.nics_per_node)}" if self.nics_known else ""
        return rows[[self.job.node(rank) not in without for rank in range(self.job.n_ranks)]]

    def _members(self, without: set[int]) -> Rows:
        found = [
            (comm.comm_id, i, rank, len(comm.members), len({self.job.node(r) for r in comm.members}), comm.name)
            for comm in self.job.all_comms()
            for i, rank in enumerate(comm.members)
            if self.job.node(rank) not in without
        ]
        return np.array(found, MEMBER)

    def _add_rank(self, tables: dict[str, list[dict[str, Any]]], rank: int) -> None:
        place = {"rank": rank, "node": self.job.node(rank)}
        ticks = [self.end_ns - SECOND, self.end_ns]
        for op in self.job.live[rank]:
            tables["live_op"] += [{**self._op(op, rank), **place, "tick_ns": tick} for tick in ticks]
        finished = [op for at, op in self.job.finished if at == rank]
        local = [op for op in finished if not op.flows]
        for op in local[-LOCAL_OPS_KEPT:]:  # the plugin cannot know that these are over
            tables["live_op"] += [{**self._op(op, rank), **place, "tick_ns": tick} for tick in ticks]
        for op in [*local[:-LOCAL_OPS_KEPT], *(op for op in finished if op.flows)]:
            flags = {"flags": OP_NO_NETWORK} if not op.flows else {"done_ns": self.at(op.done)}
            tables["op"].append({**self._op(op, rank), **flags, **place})
        for tick in (self.end_ns - SECOND // 10, self.end_ns):
            for op in self.job.live[rank]:
                tables["flow"] += [
                    self._flow(op, flow, side, tick) | place for flow, side in op.flows if not flow.is_over(side)
                ]
        for tick in ticks:
            tables["progress"] += [
                self._progress(comm, rank, tick) | place for comm in self.job.all_comms() if rank in comm.members
            ]
            tables["process"].append(self._process(rank, tick) | place)

    def _op(self, op: Op, rank: int) -> dict[str, Any]:
        return {
            "comm_id": op.comm.comm_id, "comm_rank": op.comm.members.index(rank), "op": op.number,
            "func": FUNCS.index(op.func), "dtype": DTYPE_FLOAT32, "algo": 0 if op.is_p2p else ALGOS.index("RING"),
            "flags": (OP_P2P if op.is_p2p else 0) | (OP_HAS_FLOWS if op.flows else 0),
            "n_flows": len(op.flows), "peer": op.peer if op.is_p2p else 0, "count": 1024, "bytes": 1024 * FLOAT_BYTES,
            "enqueued_ns": self.at(op.enqueued),
        }  # fmt: skip

    def _flow(self, op: Op, flow: Flow, side: int, tick: int) -> dict[str, Any]:
        me, peer = (flow.target, flow.source) if side else (flow.source, flow.target)
        return {
            "tick_ns": tick, "comm_id": op.comm.comm_id, "comm_rank": op.comm.members.index(me), "op": op.number,
            "func": FUNCS.index(op.func), "channel": flow.channel, "direction": RECEIVE if side else SEND,
            "transport": self.code, "flags": OP_P2P if op.is_p2p else 0, "peer": op.comm.members.index(peer),
            "total_chunks": flow.total, "counters": tuple(flow.taken if side else flow.sent),
            "stuck_ns": max(0, tick - self.at(flow.moved[side])), "nic": 0,
        }  # fmt: skip

    def _progress(self, comm: Any, rank: int, tick: int) -> dict[str, Any]:
        return {
            "tick_ns": tick, "comm_id": comm.comm_id, "comm_rank": comm.members.index(rank),
            "n_enqueued": comm.entered.get(rank, 0), "n_done": comm.done.get(rank, 0),
            "n_p2p_enqueued": comm.p2p_entered.get(rank, 0), "n_p2p_done": comm.p2p_done.get(rank, 0),
            "last_enqueued_ns": self.at(comm.last_enqueued[rank]) if rank in comm.last_enqueued else 0,
            "last_done_ns": self.at(comm.last_done[rank]) if rank in comm.last_done else 0,
        }  # fmt: skip

    def _process(self, rank: int, tick: int) -> dict[str, Any]:
        is_gone = rank in self.killed
        io = self.io_rates.get(rank, 0) * (tick - START) // SECOND
        return {
            "tick_ns": tick, "pid": 1000 + rank, "global_rank": rank, "alive": not is_gone, "io_bytes": io,
            "state": PROCESS_GONE if is_gone else ord(self.letters.get(rank, "S")), "n_threads": 6,
            "last_callback_ns": self.at(self.job.changed),
        }  # fmt: skip

    def _add_nics(self, tables: dict[str, list[dict[str, Any]]], node: int) -> None:
        for index in range(self.nics_per_node):
            users = [
                r
                for r in range(self.job.n_ranks)
                if self.job.node(r) == node and _nic_of(self.job, r, self.nics_per_node) == index
            ]
            now = "down" if set(users) & self.job.nic_down else "up"
            states = ((self.end_ns - 15 * SECOND, "up"), (self.end_ns - SECOND, now), (self.end_ns, now))
            tables["nic"] += [
                {
                    "tick_ns": tick, "index": index, "name": f"nic{index}".encode(), "rank": -1, "node": node,
                    "port_state": PORT_STATES.index(state if self.ports_known else "unknown"), "speed_mbps": 200,
                }
                for tick, state in states
            ]  # fmt: skip


def _rows(table: str, found: list[dict[str, Any]]) -> Rows:
    rows = np.zeros(len(found), WINDOW_DTYPE[table])
    blank = empty_rows(table, 1)[0]
    for name in blank.dtype.names or ():
        rows[name] = blank[name]
    for row, fields in zip(rows, found, strict=True):
        for name, value in fields.items():
            row[name] = value
    return rows


def lagging(window: Window, *seconds: tuple[int, float]) -> Window:
    """The window in which nodes were last heard so long ago."""
    nodes = window.nodes.copy()
    for node, lag_s in seconds:
        nodes["watermark_ns"][node] = window.now_ns - int(lag_s * 10**9)
    return replace(window, nodes=nodes)
