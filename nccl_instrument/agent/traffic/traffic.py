"""What each op of one process moved over each flow, made on the node from its chunks (Pulse §5): rows of `traffic`.

Whole iterations only, once all their ops are over: then all their chunks have been through and are known. The bytes by epoch
are cut into ops by volume and silence, as they would be if a network card had counted them. They stay here for a while, the
newest iterations of each process, for whoever asks for them (dumps of kind `epochs`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from nccl_instrument.agent.plain import stack
from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.traffic.iterations import Iteration, Iterations
from nccl_instrument.agent.traffic.sampling import Cost, Sampling
from nccl_instrument.agent.traffic.transfers import Key, Sent, Transfers, laid_out
from nccl_instrument.flows.association import MOVED, PeerStream, active_counts
from nccl_instrument.flows.segmentation import DELTA_NS
from nccl_instrument.tables import SEND, TRAFFIC_INCOMPLETE, TRAFFIC_SOURCES, empty_rows
from nccl_instrument.wire import Rows

PLUGIN: Final = TRAFFIC_SOURCES.index("plugin")
SILENT_NS: Final = 1_000_000_000
"""An op that moves nothing for so long is told of, unfinished."""
READ_BACK_NS: Final = 10_000_000_000
"""Between two readings of a whole ring: pauses of a second may come in every iteration."""
RAW_BYTES_MAX: Final = 4 * 2**20
"""Of the epochs kept of one process."""
_MOVED: Final = MOVED.names or ()


@dataclass(frozen=True, slots=True)
class Raw:
    """An iteration's epochs: what was sent over each flow, and when the iteration was. every: one in so many was measured."""

    iteration: Iteration
    sent: Sent
    every: int
    nic: bytes

    @property
    def n_bytes(self) -> int:
        return int(self.sent.cells.nbytes + self.sent.rows.nbytes) + 64 * len(self.sent.keys)


class Traffic:
    """Of one process. `sweep` often, `rows` at each cut with what the cut found."""

    def __init__(self, ring: OpRing, pid: int, nic: str, sampling: Sampling) -> None:
        self.transfers, self.raw = Transfers(ring, sampling.epoch_ns), deque[Raw]()
        self._iterations = Iterations()
        self._pid, self._nic, self._sampling = pid, nic.encode()[:16], sampling
        self._n_lost = self._n_ops_lost = 0
        self.n_too_large = 0  # measured iterations with more epochs than may be kept: they have no rows
        self._told_ns = 0  # the standstill that was told of: when its last chunk was through
        self._quiet_ns, self._read_back_ns = 0, -READ_BACK_NS  # cuts: chunks came last, the ring was last read back

    def sweep(self) -> None:
        self.transfers.relieve()

    def rows(self, ops: Rows, live: Rows, sizes: dict[int, int], now_ns: int) -> Rows:
        """(n,) rows of `traffic` of the iterations that are over since the last call, and of ops that stand still in one.

        ops: OP rows of those that ended since; live: of those under way; sizes: communicator → its ranks.
        """
        self._iterations.add(ops, live, sizes)
        self._note_losses(now_ns)
        over = self._iterations.over(live, now_ns)
        first = over[0].number if over else self._iterations.next
        if first is None or not self._sampling.is_any_measured(first, max(self._iterations.newest, first) + 1):
            return self._standing_unread(live, now_ns)
        self.transfers.read()
        if self._note_losses(now_ns):
            over = [replace(one, is_whole=False) for one in over]
        begins_ns = over[0].begins_ns if over else self._iterations.open_since_ns()
        sent = self.transfers.since(begins_ns)
        found = [self._measured(one, sent) for one in over if self._sampling.is_measured(one.number)]
        self._forget(now_ns)
        found.append(self._standing(sent, live, now_ns))
        return stack(found)

    def lose_ops(self, count: int) -> None:
        """So many OP records were lost since the last call of `rows`: nobody knows which iteration they were of."""
        self._n_ops_lost += count

    def map_anew(self, ring_from: Callable[[int | None], OpRing | None]) -> None:
        """Read on from another mapping of the same segment."""
        ring = ring_from(self.transfers.ring.position)
        if ring is not None:
            self.transfers.ring = ring

    def close(self) -> None:
        self._sampling.forget(self._pid)

    def _note_losses(self, now_ns: int) -> bool:
        """Whether anything was lost since this was last asked."""
        lost = self.transfers.n_lost + self._iterations.n_dropped + self._n_ops_lost
        if lost <= self._n_lost:
            return False
        self._n_lost = lost
        self._iterations.lose(now_ns)
        return True

    def _forget(self, now_ns: int) -> None:
        """Chunks of the iterations that are over."""
        self.transfers.since(self._iterations.open_since_ns() or now_ns)

    def _measured(self, iteration: Iteration, transfers: Rows) -> Rows:
        sent = laid_out(transfers, iteration, self.transfers.epoch_ns)
        rows = self._cut(sent)
        if not (iteration.is_whole and sent.is_whole):
            rows["flags"] |= TRAFFIC_INCOMPLETE
        self.n_too_large += sent.n_refused > 0
        n_cells = len(sent.cells) + sent.n_refused
        cost = Cost(len(rows), n_cells, int(sent.rows["n_chunks"].sum()), iteration.ends_ns - iteration.begins_ns)
        self._keep(Raw(replace(iteration, ops=iteration.ops[:0]), sent.slim(), self._sampling.every, self._nic))
        self._sampling.told(self._pid, cost)
        return rows

    def _keep(self, raw: Raw) -> None:
        self.raw.append(raw)
        while len(self.raw) > 1 and sum(one.n_bytes for one in self.raw) > RAW_BYTES_MAX:
            self.raw.popleft()

    def _standing_unread(self, live: Rows, now_ns: int) -> Rows:
        """The same of an iteration that is not measured: nothing has come for a while, so the ring still holds what came last."""
        if self.transfers.ring.n_waiting:
            self._quiet_ns = now_ns
        self.transfers.skip()
        if (
            now_ns - self._quiet_ns < SILENT_NS
            or self._quiet_ns <= max(self._read_back_ns, 0)
            or now_ns - self._read_back_ns < READ_BACK_NS
            or not np.count_nonzero(live["n_flows_begun"])
        ):
            return empty_rows("traffic")
        self._read_back_ns = now_ns
        self.transfers.read_back()
        found = self._standing(self.transfers.since(self._iterations.open_since_ns()), live, now_ns)
        self.transfers.skip()
        return found

    def _standing(self, transfers: Rows, live: Rows, now_ns: int) -> Rows:
        """Of ops that moved something and then nothing for a while: what they moved, once, without the flag of the finished."""
        number = self._iterations.next
        newest_ns = int(transfers["done_ns"].max()) if len(transfers) else now_ns
        if number is None or now_ns - newest_ns < SILENT_NS or newest_ns == self._told_ns:
            return empty_rows("traffic")
        self._told_ns = newest_ns
        here = Iteration(number, self._iterations.open_since_ns(), now_ns, live, is_whole=True)
        sent = laid_out(transfers, here, self.transfers.epoch_ns)
        rows = self._cut(sent, is_open=True)
        rows["flags"] |= 0 if sent.is_whole else TRAFFIC_INCOMPLETE
        return rows

    def _cut(self, sent: Sent, *, is_open: bool = False) -> Rows:
        """Rows of all flows, cut into ops. is_open: the last op of each peer is not over."""
        bounds = np.searchsorted(sent.cells["flow"], np.arange(len(sent.keys) + 1))
        # Copied once, so that a flow's lie side by side: they are read again and again.
        every, n_bytes = (sent.cells[name].astype(np.int64) for name in ("epoch", "n_bytes"))
        epochs = [every[low:high] for low, high in pairwise(bounds)]
        sizes = [n_bytes[low:high] for low, high in pairwise(bounds)]
        active = _active(sent.keys, epochs)
        found = [empty_rows("traffic")]
        for flows in _by_peer(sent.keys):
            stream = PeerStream(sent.epoch_ns)
            ops, volumes = sent.volumes(flows)
            if is_open:
                volumes[-1] *= 2  # whatever it is to move, there is more to come
            is_p2p = np.full(len(ops), bool(sent.keys[flows[0]][3]))
            stream.expect(ops, volumes.astype(np.float64), is_p2p)
            for flow in flows:
                stream.feed(sent.keys[flow][4], epochs[flow], sizes[flow], active[flow])
            last = max((int(epochs[flow][-1]) for flow in flows if len(epochs[flow])), default=0)
            moved = stream.poll((last + 2) * sent.epoch_ns + DELTA_NS)
            found.append(self._named(stream.open() if is_open else moved, sent, flows))
        return stack(found)

    def _named(self, moved: Rows, sent: Sent, flows: list[int]) -> Rows:
        rows = empty_rows("traffic", len(moved))
        for name in _MOVED:
            rows[name] = moved[name]
        comm_id, comm_rank, peer, _, _ = sent.keys[flows[0]]
        rows["comm_id"], rows["comm_rank"], rows["peer"], rows["direction"] = comm_id, comm_rank, peer, SEND
        rows["nic"], rows["epoch_ns"], rows["source"] = self._nic, sent.epoch_ns, PLUGIN
        for flow in flows:
            mine, chunks = rows["channel"] == sent.keys[flow][4], sent.of(flow)
            rows["queue_pair"][mine], rows["slice_bytes"][mine] = (
                chunks["qpn"].max(),
                min(chunks["largest"].max(), 2**31 - 1),
            )
        return rows


def _by_peer(keys: list[Key]) -> Iterator[list[int]]:
    """The flows to each peer, sends apart from collectives; they lie side by side."""
    flows: list[int] = []
    for at, key in enumerate(keys):
        if flows and keys[flows[-1]][:4] != key[:4]:
            yield flows
            flows = []
        flows.append(at)
    if flows:
        yield flows


def _active(keys: list[Key], epochs: list[np.ndarray]) -> list[np.ndarray]:
    """Of each flow's epochs, in how many flows of its communicator bytes moved then."""
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(keys)
    members: dict[tuple[int, int], list[int]] = {}
    for at, key in enumerate(keys):
        members.setdefault(key[:2], []).append(at)
    for flows in members.values():
        for flow, counts in zip(flows, active_counts([epochs[flow] for flow in flows]), strict=True):
            found[flow] = counts
    return found
