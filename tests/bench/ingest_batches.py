"""Trace batches of 10,000 busy GPUs, made beforehand, and patched as they are sent.

A job of 1,000 ranks is drawn once: per node 8 ranks in 2 communicators, 8 flows each, sampled ten times a second (the
volume the design reckons with), 100 op records and the once-a-second tables. Durations are random, as real ones do not
compress. Ten such jobs differ in name alone, so what is in a batch's header is all that has to be changed per request.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from nccl_instrument.tables import FUNCS, IB, OP_HAS_FLOWS, empty_rows
from nccl_instrument.wire import Rows, TraceBatch, encode_batch

SECOND: Final = 10**9
RANKS: Final = 8
COMMS: Final = 2
FLOWS: Final = 8
TICKS: Final = 10
OPS: Final = 100
COMM_SECONDS: Final = 30
MONO_NS: Final = 10**6 * SECOND
_HEAD_BYTES: Final = 60
_CRC_AT: Final = 12
_PATCHED: Final = struct.Struct("<16sQqq")  # boot id, number, wall, monotonic: bytes 16 to 56
_FUNC: Final = FUNCS.index("AllReduce")
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
        "op": op_rows(draw, node, second, mono_ns),
        "live_op": live_rows(node, second, mono_ns),
        "flow": flow_rows(draw, node, n_nodes, second, mono_ns),
        "progress": progress_rows(node, second, mono_ns),
        "process": process_rows(draw, node, mono_ns),
        "nic": nic_rows(draw, mono_ns),
    }
    if (second + node) % COMM_SECONDS == 0 or second == 0:
        tables["comm"] = comm_rows(node, n_nodes)
    name, job = node_name(node).decode(), job_name(0).decode()
    return TraceBatch(job, name, bytes(16), second, 10**18, mono_ns, tables)


def members(rows: Rows, node: int, repeat: int) -> None:
    """Fill comm_id and comm_rank: every rank is in the job's communicator and in that of its place on the node."""
    local, comm = (index.ravel() for index in np.indices((RANKS, COMMS)))
    local, comm = np.repeat(local, repeat), np.repeat(comm, repeat)
    rows["comm_id"] = np.where(comm == 0, 0x700D_0000_0000_0001, 0x1AFE_0000_0000_0000 + local)
    rows["comm_rank"] = np.where(comm == 0, node * RANKS + local, node)


def comm_rows(node: int, n_nodes: int) -> Rows:
    rows = empty_rows("comm", RANKS * COMMS)
    members(rows, node, 1)
    local, comm = (index.ravel() for index in np.indices((RANKS, COMMS)))
    rows["n_ranks"], rows["n_nodes"] = np.where(comm == 0, n_nodes * RANKS, n_nodes), n_nodes
    rows["pid"], rows["process_started"], rows["joined_ns"] = 1000 + local, 777, MONO_NS - SECOND
    rows["global_rank"], rows["world_size"], rows["local_rank"] = node * RANKS + local, n_nodes * RANKS, local
    rows["transport"], rows["abi"], rows["counters_seen"], rows["library_version"] = IB, 5, 1, 22803
    rows["name"], rows["ip"] = np.where(comm == 0, b"world", b"dp"), b"10.1.%d.%d" % divmod(node, 256)
    return rows


def op_rows(draw: np.random.Generator, node: int, second: int, mono_ns: int) -> Rows:
    """OPS records, the members' ops in turn, in the order in which the agent sends them."""
    rows = empty_rows("op", OPS)
    each = -(-OPS // (RANKS * COMMS))
    whole = empty_rows("op", RANKS * COMMS * each)
    members(whole, node, each)
    rows[:] = whole[:OPS]
    place = np.arange(OPS) % each
    at = mono_ns - SECOND + place * (SECOND // each) + draw.integers(0, 10**6, OPS)
    rows["op"], rows["seq"] = second * each + 1 + place, second * each + place
    rows["func"], rows["dtype"], rows["algo"], rows["proto"], rows["channels"] = _FUNC, 10, 2, 3, FLOWS // 2
    rows["flags"], rows["n_flows"], rows["count"], rows["bytes"] = OP_HAS_FLOWS, FLOWS, 2**22, 2**23
    rows["enqueued_ns"], rows["started_ns"] = at, at + draw.integers(10**5, 10**6, OPS)
    rows["first_transfer_ns"] = rows["started_ns"] + draw.integers(10**4, 10**5, OPS)
    rows["last_transfer_ns"] = at + draw.integers(4 * 10**7, 5 * 10**7, OPS)
    rows["done_ns"] = rows["last_transfer_ns"] + draw.integers(10**3, 10**5, OPS)
    for name in ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
        rows[name] = draw.integers(0, 10**8, OPS) // _STEP_NS * _STEP_NS
    return rows


def live_rows(node: int, second: int, mono_ns: int) -> Rows:
    rows = empty_rows("live_op", RANKS * COMMS)
    members(rows, node, 1)
    rows["op"], rows["func"], rows["bytes"], rows["flags"] = second * 7 + 8, _FUNC, 2**23, OP_HAS_FLOWS
    rows["enqueued_ns"] = mono_ns - 10**7
    rows["started_ns"], rows["tick_ns"] = mono_ns - 9 * 10**6, mono_ns
    return rows


def flow_rows(draw: np.random.Generator, node: int, n_nodes: int, second: int, mono_ns: int) -> Rows:
    """FLOWS flows of each member's op, every tick; member by member, in each in the order of time."""
    n_rows = RANKS * COMMS * TICKS * FLOWS
    rows = empty_rows("flow", n_rows)
    members(rows, node, TICKS * FLOWS)
    tick, flow = (np.tile(index.ravel(), RANKS * COMMS) for index in np.indices((TICKS, FLOWS)))
    rows["tick_ns"] = mono_ns - SECOND + (tick + 1) * SECOND // TICKS
    rows["op"], rows["func"], rows["transport"] = second * 7 + 1 + tick * 7 // TICKS, _FUNC, IB
    rows["channel"], rows["direction"] = flow // 2, flow % 2
    rows["peer"] = (rows["comm_rank"] + 1 - 2 * (flow % 2)) % n_nodes
    rows["total_chunks"] = 64
    together = np.repeat(draw.integers(0, 8, n_rows // FLOWS), FLOWS)  # the flows of an op move in step, nearly
    done = np.minimum(together + (draw.random(n_rows) < 0.2) + tick * 6, 60).astype(np.uint32)
    rows["counters"] = done[:, None] + np.array([4, 3, 1, 0], np.uint32)
    rows["bytes"] = done.astype(np.uint64) * 65536
    for name in ("stuck_ns", "gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
        rows[name] = draw.integers(0, 10**6, n_rows) // _STEP_NS * _STEP_NS
    rows["nic"] = rows["comm_rank"] % RANKS
    return rows


def progress_rows(node: int, second: int, mono_ns: int) -> Rows:
    rows = empty_rows("progress", RANKS * COMMS)
    members(rows, node, 1)
    rows["tick_ns"], rows["n_enqueued"], rows["n_done"] = mono_ns, second * 7 + 8, second * 7 + 7
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
