"""Builders of everything tests feed in: trace batches of a job of R ranks on K nodes, with clocks and processes.

A `FakeJob` is a job as its agents would see it; `batch` cuts one node-second of it. Everything is fixed by its
arguments (no randomness), so two calls make equal batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from nccl_instrument import tables
from nccl_instrument.tables import FUNCS, IB, empty_rows
from nccl_instrument.wire import Rows, TraceBatch

SECOND = 1_000_000_000
WALL_NS = 1_790_000_000 * SECOND
MONO_NS = 5_000 * SECOND
FUNC_ALLREDUCE = FUNCS.index("AllReduce")


@dataclass(frozen=True)
class Group:
    """A communicator of a job: its id, its global ranks in comm_rank order, its name."""

    comm_id: int
    ranks: tuple[int, ...]
    name: str = ""


@dataclass(frozen=True)
class FakeJob:
    """`ranks` processes spread evenly over `nodes` machines.

    groups: communicators; by default one of everybody and one per node. restart: the launcher's restart count, -1
    undeclared. declared: whether the launcher says ranks and world size. start: distinguishes processes of restarts.
    """

    name: str = "llama"
    ranks: int = 8
    nodes: int = 4
    restart: int = -1
    declared: bool = True
    start: int = 1
    groups: tuple[Group, ...] = ()
    coordinates: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # rank → tp, pp, dp

    def communicators(self) -> tuple[Group, ...]:
        world = Group(0xF000_0000_0000_0001 + self.start, tuple(range(self.ranks)), "world")
        local = [Group(0x100 + self.start * 64 + k, self.ranks_of(k), f"node{k}") for k in range(self.nodes)]
        return self.groups or (world, *local)

    def ranks_of(self, node: int) -> tuple[int, ...]:
        per_node = self.ranks // self.nodes
        return tuple(range(node * per_node, (node + 1) * per_node))

    def pid(self, rank: int) -> int:
        return 1000 * self.start + rank

    def restarted(self, **changes: object) -> FakeJob:
        """The same job after its processes were started again."""
        return replace(self, start=self.start + 1, **changes)  # type: ignore[arg-type]

    def batch(self, node: int = 0, number: int = 0, **changes: object) -> TraceBatch:
        """Second `number` of node `node`, cut at the end of it. `changes` replace fields of the TraceBatch."""
        mono = MONO_NS + (number + 1) * SECOND
        made = {
            "comm": comm_rows(self, node),
            "op": op_rows(self, node, number, mono),
            "live_op": live_op_rows(self, node, number, mono),
            "flow": flow_rows(self, node, number, mono),
            "progress": progress_rows(self, node, number, mono),
            "process": process_rows(self, node, mono),
            "nic": nic_rows(mono, number),
        }
        wall = WALL_NS + (number + 1) * SECOND
        batch = TraceBatch(self.name, f"node-{node}", boot_id(node), number, wall, mono, made)
        return replace(batch, **changes)  # type: ignore[arg-type]


def make_batch(job: str = "llama", node: int = 0, number: int = 0, **changes: object) -> TraceBatch:
    """One batch of a default job."""
    return FakeJob(name=job).batch(node, number, **changes)


def at_wall(batch: TraceBatch, wall_ns: int) -> TraceBatch:
    """The batch as if cut at wall_ns by the node's wall clock."""
    return replace(batch, wall_ns=wall_ns)


def with_rows(batch: TraceBatch, **rows: Rows) -> TraceBatch:
    """The batch with other tables; None would not do: give an empty array to remove one."""
    return replace(batch, tables={**batch.tables, **rows})


def boot_id(node: int, life: int = 0) -> bytes:
    """The id of one life of the agent on a node."""
    return bytes([node % 256, node // 256, life]) + bytes(range(13))


def members_on(job: FakeJob, node: int) -> list[tuple[Group, int, int]]:
    """(communicator, comm_rank, global rank) of every membership on the node."""
    local = set(job.ranks_of(node))
    return [(g, i, rank) for g in job.communicators() for i, rank in enumerate(g.ranks) if rank in local]


def comm_rows(job: FakeJob, node: int) -> Rows:
    """A row per rank of the node and communicator it is in."""
    members = members_on(job, node)
    rows = empty_rows("comm", len(members))
    for row, (group, comm_rank, rank) in zip(rows, members, strict=True):
        row["comm_id"], row["comm_rank"], row["n_ranks"], row["name"] = (
            group.comm_id,
            comm_rank,
            len(group.ranks),
            group.name,
        )
        row["n_nodes"], row["pid"], row["process_started"] = job.nodes, job.pid(rank), 10 * job.start
        row["restart_count"], row["transport"], row["joined_ns"] = job.restart, IB, MONO_NS - SECOND
        row["local_rank"] = rank - job.ranks_of(node)[0]
        row["gpu_bus_id"], row["ip"] = f"0000:{rank:02x}:00.0", f"10.0.0.{node}"
        if job.declared:
            row["global_rank"], row["world_size"] = rank, job.ranks
        if rank in job.coordinates:
            row["tp"], row["pp"], row["dp"] = job.coordinates[rank]
    return rows


def op_rows(job: FakeJob, node: int, number: int, mono: int) -> Rows:
    """Four AllReduces a second per membership, 40 ms each, 1 MiB. Ops are numbered from 1, as the plugin does."""
    members = members_on(job, node)
    rows = empty_rows("op", 4 * len(members))
    at = mono - SECOND + np.repeat(np.arange(4), len(members)) * SECOND // 4
    rows["comm_id"] = np.tile(np.array([group.comm_id for group, _, _ in members], np.uint64), 4)
    rows["comm_rank"] = np.tile([comm_rank for _, comm_rank, _ in members], 4)
    rows["op"] = 4 * number + 1 + np.repeat(np.arange(4), len(members))
    rows["func"], rows["bytes"], rows["count"] = FUNC_ALLREDUCE, 2**20, 2**18
    rows["enqueued_ns"], rows["started_ns"], rows["done_ns"] = at, at + 1_000_000, at + 41_000_000
    rows["flags"], rows["n_flows"], rows["channels"] = tables.OP_HAS_FLOWS, 4, 2
    return rows


def live_op_rows(job: FakeJob, node: int, number: int, mono: int) -> Rows:
    """The op each membership is in at the end of the second."""
    members = members_on(job, node)
    rows = empty_rows("live_op", len(members))
    rows["comm_id"] = [group.comm_id for group, _, _ in members]
    rows["comm_rank"] = [comm_rank for _, comm_rank, _ in members]
    rows["op"], rows["func"], rows["bytes"] = 4 * number + 5, FUNC_ALLREDUCE, 2**20
    rows["enqueued_ns"], rows["tick_ns"] = mono - 5_000_000, mono
    return rows


def flow_rows(job: FakeJob, node: int, number: int, mono: int, ticks: int = 10) -> Rows:
    """Two channels, both directions, of every membership's op in progress, at 10 Hz."""
    members = members_on(job, node)
    shape = (ticks, len(members), 2, 2)
    tick, member, channel, direction = (index.ravel() for index in np.indices(shape))
    rows = empty_rows("flow", len(tick))
    rows["tick_ns"] = mono - SECOND + (tick + 1) * SECOND // 10
    rows["comm_id"] = np.array([group.comm_id for group, _, _ in members], np.uint64)[member]
    comm_rank = np.array([comm_rank for _, comm_rank, _ in members])[member]
    size = np.array([len(group.ranks) for group, _, _ in members])[member]
    rows["comm_rank"], rows["peer"] = comm_rank, (comm_rank + 1 - 2 * direction) % size
    rows["op"], rows["func"], rows["transport"] = 4 * number + 1 + tick * 4 // ticks, FUNC_ALLREDUCE, IB
    rows["channel"], rows["direction"], rows["total_chunks"] = channel, direction, 16
    done = tick * 4 % ticks
    rows["counters"] = np.stack([np.minimum(done + 3 - k, 16) for k in range(4)], axis=1)
    rows["bytes"], rows["stuck_ns"], rows["nic"] = done * 65536, 1_000_000 * tick, channel % 2
    return rows


def progress_rows(job: FakeJob, node: int, number: int, mono: int) -> Rows:
    """How far each membership has come."""
    members = members_on(job, node)
    rows = empty_rows("progress", len(members))
    rows["tick_ns"] = mono
    rows["comm_id"] = [group.comm_id for group, _, _ in members]
    rows["comm_rank"] = [comm_rank for _, comm_rank, _ in members]
    rows["n_enqueued"], rows["n_done"] = 4 * number + 5, 4 * number + 4
    rows["last_enqueued_ns"], rows["last_done_ns"] = mono - 5_000_000, mono - 209_000_000
    return rows


def process_rows(job: FakeJob, node: int, mono: int) -> Rows:
    """Every process of the node, alive and sleeping."""
    local = job.ranks_of(node)
    rows = empty_rows("process", len(local))
    rows["tick_ns"], rows["pid"] = mono, [job.pid(rank) for rank in local]
    rows["global_rank"] = local if job.declared else -1
    rows["state"], rows["alive"], rows["n_threads"], rows["last_callback_ns"] = ord("S"), 1, 12, mono - 1_000_000
    return rows


def nic_rows(mono: int, number: int) -> Rows:
    """Two NICs that are up."""
    rows = empty_rows("nic", 2)
    rows["tick_ns"], rows["index"], rows["name"] = mono, [0, 1], [b"eth0", b"eth1"]
    rows["port_state"], rows["speed_mbps"], rows["rx_bytes"] = 1, 100_000, (number + 1) * 10**8
    return rows


def loss_rows(**counts: int) -> Rows:
    """A loss row per kind, e.g. loss_rows(spool_batches=3)."""
    rows = empty_rows("loss", len(counts))
    rows["kind"] = [tables.LOSSES.index(kind) for kind in counts]
    rows["count"] = list(counts.values())
    return rows
