"""A job of any number of ranks that hangs, as its agents tell it: little in each batch, so that 12,500 nodes can be sent.

Laid out as ingest_batches.py does. After HEALTHY laps one rank never enters its next data-parallel op: the other members
wait in it, their nodes' ranks wait for them in a tensor-parallel one, and the other pipeline stages in theirs. A lap is one
batch of every node, all cut at the same moment: sending them may take longer than the time between two, and each says how old it
is, so late is neither silent nor a wrong clock. The culprit's group has flows on every channel and for every tick,
as many as 256,000 segments of lanes need; all others have two.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nccl_instrument.tables import FUNCS, IB, OP_HAS_FLOWS, PROCESS_GONE, empty_rows
from nccl_instrument.wire import Rows, TraceBatch, encode_batch
from tests.bench.ingest_batches import MONO_NS, RANKS, SECOND, Members, comm_rows, members, n_stages

HEALTHY: Final = 2
CHUNKS: Final = 64
CHANNELS: Final = 24
TICK_NS: Final = SECOND // 10
LOCAL: Final = 3  # of the culprit
NAME: Final = "console-bench"
ALLREDUCE: Final = FUNCS.index("AllReduce")


@dataclass
class HangingJob:
    """`n_ranks` ranks, eight to a node, of which one hangs. `lap`: how many batches each node has sent."""

    n_ranks: int
    lap: int = 0
    clock_ns: int = 0
    gone: set[int] = field(default_factory=set)
    began_ns: int = field(default_factory=time.time_ns)
    last_ns: dict[int, int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    stalled_ns: int = 0
    """Monotonic time of the job's last progress; 0 while it is well. clock_ns: how long the job has run."""

    @property
    def n_nodes(self) -> int:
        return self.n_ranks // RANKS

    @property
    def culprit(self) -> int:
        stages = n_stages(self.n_nodes)
        return (self.n_nodes // stages * (stages // 2) + 1) * RANKS + LOCAL

    def waiting(self) -> list[int]:
        """Members of the group that the culprit keeps waiting."""
        size = self.n_nodes // n_stages(self.n_nodes)
        first = self.culprit // RANKS // size * size
        ranks = [node * RANKS + LOCAL for node in range(first, first + size)]
        return [rank for rank in ranks if rank != self.culprit]

    def lap_of_all(self) -> Iterator[tuple[int, bytes]]:
        """(node, encoded batch) of every node."""
        if self.lap == HEALTHY:
            self.stalled_ns = self.mono_ns()
        for node in range(self.n_nodes):
            yield node, self.batch(node)
        self.lap += 1

    def mono_ns(self) -> int:
        return MONO_NS + self.clock_ns

    def batch(self, node: int) -> bytes:
        """What the node tells now."""
        mono_ns, number = self.mono_ns(), self.sent.get(node, 0)
        since_ns = self.last_ns.get(node, mono_ns - SECOND)
        self.last_ns[node], self.sent[node] = mono_ns, number + 1
        tables = {"live_op": self._live(node, mono_ns), "progress": self._progress(node, mono_ns)}
        tables["process"] = self._process(node, mono_ns)
        tables["flow"] = self._flow(node, since_ns, mono_ns)
        tables["op"] = self._op(node, since_ns)
        if number == 0:
            tables["comm"] = comm_rows(node, self.n_nodes)
        boot_id = b"console" + node.to_bytes(9, "little")
        name = f"node-{node:05d}"
        return encode_batch(TraceBatch(NAME, name, boot_id, number, self.began_ns + self.clock_ns, mono_ns, tables))

    def _stage(self, node: int) -> int:
        return node // (self.n_nodes // n_stages(self.n_nodes))

    def _is_stuck(self, node: int) -> bool:
        return bool(self.stalled_ns)

    def _is_in_group(self, node: int, of: Members) -> np.ndarray:
        """Members of the communicator that the culprit keeps waiting."""
        return (of.which == "dp") & (of.local == LOCAL) & self._is_stage_stuck(node)

    def _is_stage_stuck(self, node: int) -> bool:
        return self._is_stuck(node) and self._stage(node) == self._stage(self.culprit // RANKS)

    def _is_culprit(self, node: int, of: Members) -> np.ndarray:
        return self._is_in_group(node, of) & (node * RANKS + of.local == self.culprit)

    def _ops(self, node: int, mono_ns: int) -> int:
        """How many ops every communicator of the node has done: one a second."""
        return ((self.stalled_ns if self._is_stuck(node) else mono_ns) - MONO_NS) // SECOND + 1

    def _op(self, node: int, since_ns: int) -> Rows:
        until_ns = self.last_ns[node]
        first, last = self._ops(node, since_ns), self._ops(node, until_ns)
        n = last - first
        of = members(node, self.n_nodes, repeat=max(n, 1))
        rows = empty_rows("op", len(of.local))
        rows["comm_id"], rows["comm_rank"] = of.comm_id, of.comm_rank
        number = first + np.arange(len(rows)) % max(n, 1) + 1
        at = np.minimum(MONO_NS + (number - 1) * SECOND, until_ns - SECOND // 10)
        rows["op"], rows["seq"], rows["func"], rows["bytes"], rows["count"] = number, number, ALLREDUCE, 2**23, 2**22
        rows["enqueued_ns"], rows["started_ns"], rows["done_ns"] = at, at + 10**5, at + 5 * 10**7
        rows["first_transfer_ns"], rows["last_transfer_ns"] = at + 2 * 10**5, at + 5 * 10**7 - 10**5
        rows["flags"], rows["n_flows"], rows["peer"], rows["channels"] = OP_HAS_FLOWS, 2, -1, 1
        return rows if n > 0 else rows[:0]

    def _live(self, node: int, mono_ns: int) -> Rows:
        of = members(node, self.n_nodes)
        rows = empty_rows("live_op", len(of.local))
        rows["comm_id"], rows["comm_rank"] = of.comm_id, of.comm_rank
        rows["op"], rows["func"], rows["bytes"] = self._ops(node, mono_ns) + 1, ALLREDUCE, 2**23
        rows["flags"], rows["n_flows"], rows["tick_ns"] = OP_HAS_FLOWS, 2, mono_ns
        rows["enqueued_ns"] = (self.stalled_ns if self._is_stuck(node) else mono_ns) - 10**7
        rows["started_ns"] = rows["enqueued_ns"] + 10**6
        return rows[self._entered(node, of)]

    def _entered(self, node: int, of: Members) -> np.ndarray:
        """Members that have entered an op which has not ended."""
        if not self._is_stuck(node):
            return np.ones(len(of.local), np.bool_)
        if not self._is_stage_stuck(node):
            return of.which == "pp"
        waits_in_tp = (of.which == "tp") & (of.local != LOCAL)
        return (self._is_in_group(node, of) & ~self._is_culprit(node, of)) | waits_in_tp

    def _progress(self, node: int, mono_ns: int) -> Rows:
        of = members(node, self.n_nodes)
        rows = empty_rows("progress", len(of.local))
        rows["comm_id"], rows["comm_rank"] = of.comm_id, of.comm_rank
        rows["tick_ns"], rows["n_done"] = mono_ns, self._ops(node, mono_ns)
        rows["n_enqueued"] = rows["n_done"] + self._entered(node, of)
        seen_ns = self.stalled_ns if self._is_stuck(node) else mono_ns
        rows["last_enqueued_ns"], rows["last_done_ns"] = seen_ns - 10**7, seen_ns - 2 * 10**7
        return rows

    def _process(self, node: int, mono_ns: int) -> Rows:
        rows = empty_rows("process", RANKS)
        rank = node * RANKS + np.arange(RANKS)
        rows["tick_ns"], rows["pid"], rows["global_rank"] = mono_ns, 1000 + np.arange(RANKS), rank
        rows["state"], rows["alive"], rows["n_threads"], rows["last_callback_ns"] = ord("S"), 1, 100, mono_ns
        is_gone = np.isin(rank, list(self.gone))
        rows["state"][is_gone], rows["alive"][is_gone] = PROCESS_GONE, 0
        return rows

    def _flow(self, node: int, since_ns: int, mono_ns: int) -> Rows:
        """Of the waiting group every tick on every channel; of others the last tick of one channel."""
        of = members(node, self.n_nodes, ("dp",))
        waits = self._is_in_group(node, of) & ~self._is_culprit(node, of)
        others = ~self._is_in_group(node, of) & (not self._is_stuck(node))
        n_ticks = max(int((mono_ns - since_ns) // TICK_NS), 1) if self.stalled_ns else 1
        parts = [self._flows(of, waits, CHANNELS, n_ticks, mono_ns), self._flows(of, others, 1, 1, mono_ns)]
        return np.concatenate(parts)

    def _flows(self, of: Members, chosen: np.ndarray, n_channels: int, n_ticks: int, mono_ns: int) -> Rows:
        at = np.flatnonzero(chosen)
        member, tick, flow = (index.ravel() for index in np.indices((len(at), n_ticks, 2 * n_channels)))
        member = at[member]
        rows = empty_rows("flow", len(member))
        rows["comm_id"], rows["comm_rank"] = of.comm_id[member], of.comm_rank[member]
        rows["tick_ns"] = mono_ns - (n_ticks - 1 - tick) * TICK_NS
        rows["func"], rows["transport"], rows["total_chunks"] = ALLREDUCE, IB, CHUNKS
        rows["channel"], rows["direction"] = flow // 2, flow % 2
        rows["peer"] = (of.comm_rank[member] + 1 - 2 * (flow % 2)) % of.n_ranks[member]
        done = (8 + flow % 5).astype(np.uint32)
        rows["counters"] = np.stack([done + 6, done, done, done], axis=1)
        stuck_from = self.stalled_ns or mono_ns
        rows["op"] = (stuck_from - MONO_NS) // SECOND + 2
        rows["stuck_ns"] = np.maximum(rows["tick_ns"].astype(np.int64) - stuck_from, 0)
        rows["nic"] = of.local[member]
        return rows
