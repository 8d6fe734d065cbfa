"""Trace batches of 10,000 busy GPUs, made beforehand, and patched as they are sent.

A job is laid out as Megatron does: tensor parallel inside the node, data and pipeline parallel between nodes, so each rank
is in three communicators of which two have flows, 8 each, sampled ten times a second (the volume the design reckons
with). A job of 1,000 ranks has 365 communicators and 605 sums of ops (communicator and kind) every ten seconds, one of
10,000 ranks 2,330 and 3,410. Durations are random, as real ones do not compress. Ten such jobs differ in name alone, so
what is in a batch's header is all that has to be changed per request.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import FUNCS, IB, OP_HAS_FLOWS, OP_NO_NETWORK, OP_P2P, empty_rows
from nccl_instrument.wire import Rows, TraceBatch, encode_batch

SECOND: Final = 10**9
RANKS: Final = 8
COMMS: Final = ("tp", "pp", "dp")
NETWORKED: Final = COMMS[1:]
STAGES: Final = (10, 8, 5, 4, 2, 1)
FLOWS: Final = 8
TICKS: Final = 10
EACH: Final = 4  # ops of each rank and communicator in a second
OPS: Final = RANKS * len(COMMS) * EACH
COMM_SECONDS: Final = 30
MONO_NS: Final = 10**6 * SECOND
_HEAD_BYTES: Final = 60
_CRC_AT: Final = 12
_PATCHED: Final = struct.Struct("<16sQqq")  # boot id, number, wall, monotonic: bytes 16 to 56
_KINDS: Final = {"dp": ("AllGather", "ReduceScatter"), "pp": ("Send", "Recv"), "tp": ("AllReduce", "AllReduce")}
_SORTED: Final = np.array(sorted(_KINDS))
_FUNCS: Final = np.array([[FUNCS.index(func) for func in _KINDS[str(which)]] for which in _SORTED])
_STEP_NS: Final = 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """One second of one node of a job: the header's first bytes, and everything behind the names."""

    start: bytes
    sections: bytes


def prepare(n_nodes: int, n_seconds: int, step_ns: int) -> list[list[Prepared]]:
    """[second][node] of one job. step_ns: from one batch of a node to the next."""
    return [[prepare_one(node, n_nodes, second, step_ns) for node in range(n_nodes)] for second in range(n_seconds)]


def prepare_one(node: int, n_nodes: int, second: int, step_ns: int) -> Prepared:
    encoded = encode_batch(node_second(node, n_nodes, second, step_ns))
    n_names = sum(struct.unpack_from("<HH", encoded, 56))
    return Prepared(encoded[:_HEAD_BYTES], encoded[_HEAD_BYTES + n_names :])


def job_name(job: int) -> bytes:
    return b"bench-%03d" % job


def node_name(node: int) -> bytes:
    return b"node-%05d" % node


def patch(prepared: Prepared, job: int, node: int, number: int, clocks: tuple[int, int]) -> tuple[bytes, bytes]:
    """Header with names, and sections, of batch `number` of a node's boot. clocks: wall and monotonic ns."""
    names = job_name(job) + node_name(node)
    boot_id = b"bench" + job.to_bytes(4, "little") + node.to_bytes(7, "little")
    behind_crc = _PATCHED.pack(boot_id, number, *clocks) + prepared.start[56:] + names
    crc = zlib.crc32(prepared.sections, zlib.crc32(behind_crc))
    return prepared.start[:_CRC_AT] + struct.pack("<I", crc) + behind_crc, prepared.sections


def node_second(node: int, n_nodes: int, second: int, step_ns: int) -> TraceBatch:
    """What node `node` of the job says of `second`; comm rows in its first batch and every COMM_SECONDS."""
    draw = np.random.default_rng((node, second))
    mono_ns = MONO_NS + (second + 1) * step_ns
    tables = {
        "op": op_rows(draw, node, n_nodes, second, mono_ns),
        "live_op": live_rows(node, n_nodes, second, mono_ns),
        "flow": flow_rows(draw, node, n_nodes, second, mono_ns),
        "progress": progress_rows(node, n_nodes, second, mono_ns),
        "process": process_rows(draw, node, mono_ns),
        "nic": nic_rows(draw, mono_ns),
    }
    if (second + node) % COMM_SECONDS == 0 or second == 0:
        tables["comm"] = comm_rows(node, n_nodes)
    name, job = node_name(node).decode(), job_name(0).decode()
    return TraceBatch(job, name, bytes(16), second, 10**18, mono_ns, tables)


@dataclass(frozen=True, slots=True)
class Members:
    """(n,) one row for each rank of a node and communicator it is in: which of the ranks, comm_id, comm_rank, size."""

    local: npt.NDArray[np.int64]
    which: npt.NDArray[np.str_]
    comm_id: npt.NDArray[np.uint64]
    comm_rank: npt.NDArray[np.int64]
    n_ranks: npt.NDArray[np.int64]

    def func(self, place: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(n,) which kind of op the `place`-th of each member is."""
        found: npt.NDArray[np.int64] = _FUNCS[np.searchsorted(_SORTED, self.which), place % 2]
        return found


def n_stages(n_nodes: int) -> int:
    """Of the pipeline: as deep as the nodes allow without a rest."""
    return next(stages for stages in STAGES if n_nodes % stages == 0)


def members(node: int, n_nodes: int, comms: tuple[str, ...] = COMMS, repeat: int = 1) -> Members:
    """Rank = local + 8 × (data index + data size × stage), as Megatron numbers them: a node is a tensor-parallel group."""
    stages = n_stages(n_nodes)
    stage, data = divmod(node, n_nodes // stages)
    local, comm = (np.repeat(index.ravel(), repeat) for index in np.indices((RANKS, len(comms))))
    which = np.array(comms)[comm]
    number = np.select([which == "tp", which == "pp"], [np.int64(node), data * RANKS + local], stage * RANKS + local)
    comm_rank = np.select([which == "tp", which == "pp"], [local, np.int64(stage)], np.int64(data))
    sizes = {"tp": RANKS, "pp": stages, "dp": n_nodes // stages}
    kind = np.array([COMMS.index(name) for name in comms], np.uint64)[comm] + np.uint64(1)
    comm_id = (kind << np.uint64(32) | number.astype(np.uint64)) * np.uint64(
        0x9E3779B97F4A7C15
    )  # as good as NCCL's hash
    n_ranks = np.array([sizes[name] for name in comms])[comm]
    return Members(local, which, comm_id, comm_rank, n_ranks)


def _rows_of(table: str, of: Members) -> Rows:
    rows = empty_rows(table, len(of.local))
    rows["comm_id"], rows["comm_rank"] = of.comm_id, of.comm_rank
    return rows


def comm_rows(node: int, n_nodes: int) -> Rows:
    of = members(node, n_nodes)
    rows = _rows_of("comm", of)
    rows["n_ranks"], rows["n_nodes"] = of.n_ranks, np.where(of.which == "tp", 1, of.n_ranks)
    rows["pid"], rows["process_started"], rows["joined_ns"] = 1000 + of.local, 777, MONO_NS - SECOND
    rows["global_rank"], rows["world_size"], rows["local_rank"] = node * RANKS + of.local, n_nodes * RANKS, of.local
    rows["transport"], rows["abi"], rows["counters_seen"], rows["library_version"] = IB, 5, 1, 22803
    rows["name"], rows["ip"] = of.which.astype("S"), b"10.1.%d.%d" % divmod(node, 256)
    return rows


def op_rows(draw: np.random.Generator, node: int, n_nodes: int, second: int, mono_ns: int) -> Rows:
    """OPS records, member by member, in the order in which the agent sends them. Of those inside the node no end is known."""
    of = members(node, n_nodes, repeat=EACH)
    rows = _rows_of("op", of)
    place = np.arange(OPS) % EACH
    at = mono_ns - SECOND + place * (SECOND // EACH) + draw.integers(0, 10**6, OPS)
    rows["op"], rows["seq"], rows["func"] = second * EACH + 1 + place, second * EACH + place, of.func(place)
    rows["dtype"], rows["algo"], rows["proto"], rows["channels"] = 10, 2, 3, FLOWS // 2
    rows["count"], rows["bytes"] = 2**22, 2**23
    rows["enqueued_ns"], rows["started_ns"] = at, at + draw.integers(10**5, 10**6, OPS)
    rows["peer"] = np.where(of.which == "pp", (of.comm_rank + 1) % of.n_ranks, -1)
    has_flows = of.which != "tp"
    rows["flags"], rows["n_flows"] = np.where(has_flows, OP_HAS_FLOWS, OP_NO_NETWORK), np.where(has_flows, FLOWS, 0)
    rows["flags"] |= np.where(of.which == "pp", OP_P2P, 0).astype(np.uint16)
    times = {"first_transfer_ns": rows["started_ns"] + draw.integers(10**4, 10**5, OPS)}
    times["last_transfer_ns"] = at + draw.integers(4 * 10**7, 5 * 10**7, OPS)
    times["done_ns"] = times["last_transfer_ns"] + draw.integers(10**3, 10**5, OPS)
    for name, ns in times.items():
        rows[name] = np.where(has_flows, ns, 0)
    for name in ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
        rows[name] = np.where(has_flows, draw.integers(0, 10**8, OPS) // _STEP_NS * _STEP_NS, 0)
    return rows


def live_rows(node: int, n_nodes: int, second: int, mono_ns: int) -> Rows:
    of = members(node, n_nodes)
    rows = _rows_of("live_op", of)
    rows["op"], rows["func"], rows["bytes"] = second * EACH + 8, of.func(0 * of.local), 2**23
    rows["flags"] = np.where(of.which == "tp", 0, OP_HAS_FLOWS)
    rows["enqueued_ns"] = mono_ns - 10**7
    rows["started_ns"], rows["tick_ns"] = mono_ns - 9 * 10**6, mono_ns
    return rows


def flow_rows(draw: np.random.Generator, node: int, n_nodes: int, second: int, mono_ns: int) -> Rows:
    """FLOWS flows of each networked member's op, every tick; member by member, in each in the order of time."""
    of = members(node, n_nodes, NETWORKED, TICKS * FLOWS)
    rows, n_rows = _rows_of("flow", of), len(of.local)
    tick, flow = (np.tile(index.ravel(), RANKS * len(NETWORKED)) for index in np.indices((TICKS, FLOWS)))
    rows["tick_ns"] = mono_ns - SECOND + (tick + 1) * SECOND // TICKS
    rows["op"], rows["func"] = second * EACH + 1 + tick * EACH // TICKS, of.func(tick * EACH // TICKS)
    rows["transport"], rows["channel"], rows["direction"] = IB, flow // 2, flow % 2
    rows["peer"] = (of.comm_rank + 1 - 2 * (flow % 2)) % of.n_ranks
    rows["total_chunks"] = 64
    together = np.repeat(draw.integers(0, 8, n_rows // FLOWS), FLOWS)  # the flows of an op move in step, nearly
    done = np.minimum(together + (draw.random(n_rows) < 0.2) + tick * 6, 60).astype(np.uint32)
    rows["counters"] = done[:, None] + np.array([4, 3, 1, 0], np.uint32)
    rows["bytes"] = done.astype(np.uint64) * 65536
    for name in ("stuck_ns", "gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
        rows[name] = draw.integers(0, 10**6, n_rows) // _STEP_NS * _STEP_NS
    rows["nic"] = of.local
    return rows


def progress_rows(node: int, n_nodes: int, second: int, mono_ns: int) -> Rows:
    rows = _rows_of("progress", members(node, n_nodes))
    rows["tick_ns"], rows["n_enqueued"], rows["n_done"] = mono_ns, second * EACH + 8, second * EACH + 7
    rows["last_enqueued_ns"], rows["last_done_ns"] = mono_ns - 10**7, mono_ns - 2 * 10**7
    return rows


def process_rows(draw: np.random.Generator, node: int, mono_ns: int) -> Rows:
    rows = empty_rows("process", RANKS)
    rows["tick_ns"], rows["pid"], rows["global_rank"] = (
        mono_ns,
        1000 + np.arange(RANKS),
        node * RANKS + np.arange(RANKS),
    )
    rows["state"], rows["alive"], rows["n_threads"] = ord("S"), 1, 100
    rows["last_callback_ns"] = mono_ns - draw.integers(0, 10**6, RANKS)
    rows["cpu_ns"] = (mono_ns - MONO_NS) // 2 + draw.integers(0, 10**6, RANKS)
    return rows


def nic_rows(draw: np.random.Generator, mono_ns: int) -> Rows:
    rows = empty_rows("nic", RANKS)
    rows["tick_ns"], rows["index"] = mono_ns, np.arange(RANKS)
    rows["name"] = [b"mlx5_%d" % k for k in range(RANKS)]
    rows["port_state"], rows["speed_mbps"] = 1, 400_000
    rows["rx_bytes"] = rows["tx_bytes"] = (mono_ns - MONO_NS) * 20 + draw.integers(0, 10**8, RANKS)
    return rows
