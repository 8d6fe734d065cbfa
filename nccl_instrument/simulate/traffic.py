"""What the simulated NICs saw, as an agent would tell it: transfers → bytes per epoch → ops → rows of `traffic`.

The same code as on a node cuts them (nccl_instrument/flows); what is simulated is the transfers alone. Each node's times are
its own clock's. Only steps that are sampled are measured, on all ranks at once, and only what was sent, as Pulse does. A
transfer that waits in a NIC is in no record yet: what may still change is kept back until it has left.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.flows.association import MOVED, PeerStream
from nccl_instrument.flows.epochs import CELL, added, begun_ns, cells_of
from nccl_instrument.flows.expected import OpShape, moved_to
from nccl_instrument.simulate.rows import Roster
from nccl_instrument.tables import ALGOS, FUNC_RECV, FUNC_SEND, FUNCS, TRAFFIC_INCOMPLETE, TRAFFIC_SOURCES, empty_rows

SILENT_NS: Final = 1_000_000_000  # an op that moves nothing for so long is told of, unfinished
KEPT_CELLS_MAX: Final = 4_000_000  # of all nodes: what may be asked for afterwards, oldest out first
PLUGIN: Final = TRAFFIC_SOURCES.index("plugin")
Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]
Peer = tuple[int, int, int]  # rank, group, the other one's place in it

KEY: Final = np.dtype([(name, "<i4") for name in ("rank", "group", "place", "peer", "channel")])
"""A flow, as the engine numbers things."""
RAW: Final = np.dtype([*KEY.descr, ("epoch", "<i8"), ("bytes", "<i8")])


@dataclass
class _Stream:
    """The ops to one peer. told: the op whose standstill was told, so that it is told once."""

    cut: PeerStream
    newest_ns: int = 0
    told: tuple[int, int] = (-1, -1)


@dataclass
class Traffic:
    """Of all nodes; `rows` is called for a phase's ranks at each of its cuts. every: each so manieth step is measured."""

    roster: Roster
    links: Rows
    every: int
    epoch_ns: int
    _flows: dict[tuple[int, ...], int] = field(default_factory=dict)
    _keys: list[tuple[int, ...]] = field(default_factory=list)
    _done_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _held: dict[int, Rows] = field(default_factory=dict)  # by phase
    _streams: dict[Peer, _Stream] = field(default_factory=dict)
    _peers: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)  # of a member: peer → channels
    _newest: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    _slice_bytes: dict[Peer, int] = field(default_factory=dict)
    _kept: deque[Rows] = field(default_factory=deque)
    _n_kept: int = 0

    def __post_init__(self) -> None:
        network = self.links[self.links["is_network"] != 0]
        for rank, group, peer in zip(*(network[name].tolist() for name in ("from_rank", "group", "to")), strict=True):
            here = self._peers.setdefault((rank, group), {})
            here[peer] = here.get(peer, 0) + 1

    def rows(
        self, phase: int, slices: Rows, ops: Rows, since_ns: Ints, ranks: npt.NDArray[np.int32], n_lost: int = 0
    ) -> tuple[Rows, Ints]:
        """Rows of `traffic`, and the rank of each. slices, ops: SLICE and OP rows of these ranks, ops those that
        are over since the last call and those under way; since_ns: (len(ranks),) until when all transfers of each rank
        are known; n_lost: transfers that found no room so far: from the first on no verdict may rest on what is told.
        """
        until_ns = self._node_ns(ranks, since_ns)
        fed = self._feed(phase, slices, dict(zip(ranks.tolist(), until_ns.tolist(), strict=True)))
        self._expect(ops)
        found, of = [], []
        for peer, stream in self._streams.items():
            if peer[0] not in fed:
                continue
            moved = self._poll(stream, fed[peer[0]])
            found.append(self._named(moved, peer))
            of.append(np.full(len(moved), peer[0], np.int64))
        if not found:
            return empty_rows("traffic"), np.zeros(0, np.int64)
        rows, rank = np.concatenate(found), np.concatenate(of)
        rows["flags"] |= np.uint8(TRAFFIC_INCOMPLETE if n_lost else 0)
        order = np.argsort(rank, kind="stable")
        return rows[order], rank[order]

    def raw(self) -> Rows:
        """(n,) RAW: epochs of the newest steps, of all ranks; the epochs are numbered by each node's own clock."""
        return np.concatenate(self._kept) if self._kept else np.zeros(0, RAW)

    def _node_ns(self, ranks: npt.NDArray[np.int32] | Ints, job_ns: Ints) -> Ints:
        return self.roster.clocks.mono_ns(self.roster.node_of[ranks], job_ns)

    # ---- bytes ----

    def _feed(self, phase: int, slices: Rows, until_ns: dict[int, int]) -> dict[int, int]:
        """Hands on the epochs that are complete; rank → the time before which they all are."""
        held = self._held.get(phase, np.zeros(0, CELL))
        cells = np.concatenate([held, self._cells(slices)])
        cells = added(cells["flow"], cells["epoch"], cells["bytes"])
        limit = np.array([until_ns[self._keys[flow][0]] // self.epoch_ns for flow in cells["flow"].tolist()], np.int64)
        is_whole = cells["epoch"] < limit if len(cells) else np.zeros(0, bool)
        self._held[phase], cells = cells[~is_whole], cells[is_whole]
        bounds = [*np.flatnonzero(np.diff(cells["flow"], prepend=-1)).tolist(), len(cells)]
        active = self._active(cells)
        for begin, end in pairwise(bounds):
            self._take(cells[begin:end], active[begin:end])
        self._keep(cells)
        return until_ns

    def _cells(self, slices: Rows) -> Rows:
        if not len(slices):
            return np.zeros(0, CELL)
        flows = self._numbered(slices)
        order = np.argsort(flows, kind="stable")
        slices, flows = slices[order], flows[order]
        posted, done = (self._node_ns(slices["rank"], slices[name]) for name in ("sent_ns", "left_ns"))
        begins = begun_ns(flows, posted, done, self._done_ns[flows])
        self._done_ns[flows] = done  # the last of each flow stays
        return cells_of(flows, begins, done, slices["bytes"].astype(np.int64), self.epoch_ns)

    def _numbered(self, slices: Rows) -> Ints:
        keys = np.column_stack([slices[name] for name in KEY.names or ()])
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        numbers = np.array([self._number(tuple(key)) for key in unique.tolist()], np.int64)
        if len(self._done_ns) < len(self._keys):
            self._done_ns = np.append(self._done_ns, np.zeros(len(self._keys) - len(self._done_ns), np.int64))
        largest = np.zeros(len(unique), np.int64)
        np.maximum.at(largest, inverse.ravel(), slices["bytes"].astype(np.int64))
        for (rank, group, _, peer, _), size in zip(unique.tolist(), largest.tolist(), strict=True):
            self._slice_bytes[rank, group, peer] = max(self._slice_bytes.get((rank, group, peer), 0), size)
        return numbers[inverse.ravel()]

    def _number(self, key: tuple[int, ...]) -> int:
        if key not in self._flows:
            self._flows[key] = len(self._keys)
            self._keys.append(key)
        return self._flows[key]

    def _active(self, cells: Rows) -> Ints:
        """(n,) how many flows of the same communicator and rank have bytes in the epoch of each cell."""
        member = np.array([key[:2] for key in self._keys], np.int64).reshape(-1, 2)[cells["flow"]]
        order = np.lexsort((cells["epoch"], member[:, 1], member[:, 0]))
        key = np.column_stack([member, cells["epoch"]])[order]
        starts = np.r_[True, (np.diff(key, axis=0) != 0).any(axis=1)] if len(key) else np.zeros(0, bool)
        found = np.zeros(len(cells), np.int64)
        sizes = np.diff(np.append(np.flatnonzero(starts), len(key)))
        found[order] = np.repeat(sizes, sizes)
        return found

    def _take(self, cells: Rows, active: Ints) -> None:
        rank, group, _, peer, channel = self._keys[int(cells["flow"][0])]
        stream = self._stream(rank, group, peer)
        stream.cut.feed(channel, cells["epoch"], cells["bytes"], active)
        stream.newest_ns = max(stream.newest_ns, (int(cells["epoch"][-1]) + 1) * self.epoch_ns)

    def _keep(self, cells: Rows) -> None:
        if not len(cells):
            return
        raw = np.zeros(len(cells), RAW)
        keys = np.array(self._keys, np.int32)[cells["flow"]]
        for at, name in enumerate(KEY.names or ()):
            raw[name] = keys[:, at]
        raw["epoch"], raw["bytes"] = cells["epoch"], cells["bytes"]
        self._kept.append(raw)
        self._n_kept += len(raw)
        while self._n_kept > KEPT_CELLS_MAX:
            self._n_kept -= len(self._kept.popleft())

    # ---- ops ----

    def _stream(self, rank: int, group: int, peer: int) -> _Stream:
        key = rank, group, peer
        if key not in self._streams:
            self._streams[key] = _Stream(PeerStream(self.epoch_ns))
        return self._streams[key]

    def _expect(self, ops: Rows) -> None:
        """Tell each flow which ops go over it, each once, in the order in which they were enqueued."""
        ops = ops[(ops["iteration"] % self.every == 0) & (ops["func"] != FUNC_RECV)]
        for op in ops[np.lexsort((ops["number"], ops["enqueued_ns"]))]:
            is_p2p = int(op["func"]) == FUNC_SEND
            key = int(op["rank"]), int(op["group"]), int(is_p2p), int(op["peer"]) if is_p2p else -1
            if op["number"] > self._newest.get(key, 0):
                self._newest[key] = int(op["number"])
                self._expect_one(op, is_p2p)

    def _expect_one(self, op: np.void, is_p2p: bool) -> None:
        rank, group, peer = int(op["rank"]), int(op["group"]), int(op["peer"])
        n_ranks = len(self.roster.layout.members_of(group))
        shape = OpShape(
            FUNCS[op["func"]], int(op["bytes"]), n_ranks, ALGOS[op["algo"]], "SIMPLE", peer if is_p2p else -1,
            int(op["place"]), peer,
        )  # fmt: skip
        for other, volume in moved_to(shape, self._peers.get((rank, group), {}), int(op["channels"])).items():
            stream, number = self._stream(rank, group, other), np.array([op["number"]], np.int64)
            stream.cut.expect(number, np.array([volume]), np.array([is_p2p]))

    # ---- rows ----

    def _poll(self, stream: _Stream, now_ns: int) -> Rows:
        moved = stream.cut.poll(now_ns)
        if now_ns - stream.newest_ns < SILENT_NS:
            return moved
        standing = stream.cut.open()
        if not len(standing) or stream.told == (int(standing["op"][0]), int(standing["n_bytes"].sum())):
            return moved
        stream.told = int(standing["op"][0]), int(standing["n_bytes"].sum())
        return np.concatenate([moved, standing])

    def _named(self, moved: Rows, peer: Peer) -> Rows:
        rows = empty_rows("traffic", len(moved))
        for name in set(MOVED.names or ()) & set(rows.dtype.names or ()):
            rows[name] = moved[name]
        rank, group, other = peer
        place = int(np.flatnonzero(self.roster.layout.members_of(group) == rank)[0])
        rows["comm_id"], rows["comm_rank"], rows["peer"] = self.roster.comm_ids[group], place, other
        rows["nic"] = f"nic{self.roster.layout.nic_index_of[rank]}".encode()
        rows["epoch_ns"], rows["slice_bytes"], rows["source"] = self.epoch_ns, self._slice_bytes.get(peer, 0), PLUGIN
        return rows
