"""Whose queue pairs are, in a process whose NCCL no profiler sees: by when they were connected (docs/verbs.md).

The shim in front of NCCL's API says when communicators were being made and when calls were under way, the one in front of
libibverbs when each queue pair was connected. What was connected while exactly one communicator was being made is that one's;
what was connected during calls of one communicator alone, of those: of a send when all of them go to one peer. Anything
else stays unknown: nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nccl_instrument.flows.association import summed
from nccl_instrument.tables import FUNC_SEND, OP_P2P
from nccl_instrument.verbs.reading import Block
from nccl_instrument.wire import Rows

SENDS_BYTES_MIN: Final = 512
"""Less than so many bytes a work request are no data: a receiver writes credits of 64 bytes."""
CALLS_KEPT: Final = 4_096
CELLS_A_LOOK: Final = 1_000_000
"""Of a process; some 50 ms of the agent's time. Sixteen queue pairs that never pause have half as many a second."""
OWNER_SOUGHT_NS: Final = 10 * 10**9
"""So long after a queue pair was connected its calls have been heard of."""
NO_PEER: Final = -1

PairKey = tuple[int, int, int]
"""Device, number, when it was connected."""
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Owner:
    """comm_id, and the peer's rank for sends; NO_PEER for the connections of collectives."""

    comm_id: int
    peer: int


@dataclass
class Pair:
    """A queue pair that sends. destination: address and lid of the other end, channel: how manieth of its owner's it is.

    held: (epochs, bytes) of blocks; the newest epochs may yet be added to by the next one.
    """

    key: PairKey
    card: bytes
    destination: bytes
    owner: Owner | None = None
    channel: int = 0
    slice_bytes: int = 0
    held: list[tuple[Ints, Ints]] = field(default_factory=list)

    def take(self, until: int) -> tuple[Ints, Ints]:
        """(epochs, bytes) before `until`, rising; they are not held any more."""
        if not self.held:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        epochs, n_bytes = summed(*(np.concatenate(one) for one in zip(*self.held, strict=True)))
        end = int(np.searchsorted(epochs, until))
        self.held = [(epochs[end:], n_bytes[end:])] if end < len(epochs) else []
        return epochs[:end], n_bytes[:end]

    def held_bytes(self) -> int:
        return sum(int(n_bytes.sum()) for _, n_bytes in self.held)


class Pairs:
    """The queue pairs of one process."""

    def __init__(self) -> None:
        self.known: dict[PairKey, Pair] = {}
        self.until_ns = 0
        self._n_unowned_bytes = self._n_refused = 0
        self._calls: list[tuple[int, int, int, int]] = []  # enqueued_ns, launched_ns, comm_id, peer
        self._counts: dict[Owner, int] = {}
        self._lost: dict[int, int] = {}
        self._has_lost = False

    def note_calls(self, ops: Rows) -> None:
        """OP rows that were not seen before."""
        done = ops[ops["launched_ns"] > 0]
        peers = np.where(done["func"] == FUNC_SEND, done["peer"], NO_PEER)
        peers = np.where(
            (done["flags"] & OP_P2P != 0) & (done["func"] != FUNC_SEND), -2, peers
        )  # receives send nothing
        rows = zip(
            *(done[name].tolist() for name in ("enqueued_ns", "launched_ns", "comm_id")), peers.tolist(), strict=True
        )
        self._calls = [*self._calls, *rows][-CALLS_KEPT:]

    def feed(self, blocks: list[Block], comms: Rows) -> None:
        """New blocks of the process. comms: COMM rows of its communicators. Epochs beyond CELLS_A_LOOK are left out, which is a
        loss like any other, and counted.
        """
        room = CELLS_A_LOOK
        for block in blocks:
            self.until_ns = int(block.head["now_ns"]) - int(block.head["lag_ns"])
            device, lost = int(block.head["device"]), int(block.head["lost_bytes"]) + int(block.head["blocks_lost"])
            self._has_lost |= lost > self._lost.get(device, 0)
            self._lost[device] = lost
            rows = {int(row["qpn"]): row for row in block.queue_pairs}
            unit, base = int(block.head["unit_bytes"]), int(block.head["start_ns"]) // int(block.head["epoch_ns"])
            base += int(block.head["first_epoch"])
            at = 0
            for flow in block.flows:
                cells, at = block.cells[at : at + int(flow["n_cells"])], at + int(flow["n_cells"])
                row = rows.get(int(flow["qpn"]))
                if row is None or not _sends(row):
                    continue
                if len(cells) > room:
                    self._n_refused += len(cells)
                    self._has_lost = True
                    continue
                room -= len(cells)
                held = cells["epoch"].astype(np.int64) + base, cells["units"].astype(np.int64) * unit
                self._pair(block, row).held.append(held)
        for pair in list(self.known.values()):
            if pair.owner is None and self.until_ns - pair.key[2] > OWNER_SOUGHT_NS:
                self._n_unowned_bytes += pair.held_bytes()  # nobody's any more
                del self.known[pair.key]
            elif pair.owner is None:
                pair.owner = self._owner(pair.key[2], comms)
                if pair.owner is not None:
                    pair.channel = self._counts[pair.owner] = self._counts.get(pair.owner, -1) + 1

    def forget(self, comm_ids: set[int]) -> None:
        """All but the queue pairs of these communicators, and those whose owner is still sought."""
        self.known = {
            key: pair for key, pair in self.known.items() if pair.owner is None or pair.owner.comm_id in comm_ids
        }
        self._counts = {owner: n for owner, n in self._counts.items() if owner.comm_id in comm_ids}

    def has_lost(self) -> bool:
        """Whether bytes were lost since this was last asked."""
        found, self._has_lost = self._has_lost, False
        return found

    def refused(self) -> int:
        """How many epochs were left out since this was last asked."""
        found, self._n_refused = self._n_refused, 0
        return found

    def unowned_bytes(self) -> int:
        """Of queue pairs of which it stays unknown whose they are, since this was last asked."""
        found, self._n_unowned_bytes = self._n_unowned_bytes, 0
        return found

    def _pair(self, block: Block, row: np.void) -> Pair:
        key = int(block.head["device"]), int(row["qpn"]), int(row["connected_ns"])
        if key not in self.known:
            self.known[key] = Pair(key, bytes(block.head["name"])[:16], row["dgid"].tobytes() + row["dlid"].tobytes())
        found = self.known[key]
        found.slice_bytes = int(row["bytes"]) // max(int(row["work_requests"]), 1)
        return found

    def _owner(self, connected_ns: int, comms: Rows) -> Owner | None:
        made = comms[
            (comms["began_ns"] > 0) & (comms["began_ns"] <= connected_ns) & (comms["joined_ns"] >= connected_ns)
        ]
        if len(made):
            return Owner(int(made["comm_id"][0]), NO_PEER) if len(made) == 1 else None
        during = {
            (comm, peer) for begin, end, comm, peer in self._calls if begin <= connected_ns <= end and peer >= NO_PEER
        }
        return Owner(*next(iter(during))) if len(during) == 1 else None


def _sends(row: np.void) -> bool:
    return int(row["bytes"]) >= SENDS_BYTES_MIN * max(int(row["work_requests"]), 1)
