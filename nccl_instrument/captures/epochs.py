"""Packets reduced to bytes per queue pair and epoch, as the measurement core does on a network card, but from a capture.

A flow is (source, destination, destination queue pair): a packet does not name its sender's. Memory is a row per flow;
finished epochs are handed on as they come. What has no room is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.captures.files import Ints
from nccl_instrument.captures.packets import CNP, IS_NUMBERED, READ_REQUEST, Packets

EPOCH_NS: Final = 32_000
GAP_NS: Final = 1_000_000
FLOWS_MAX: Final = 65_536
CELLS_MAX: Final = 100_000_000

CELL: Final = np.dtype([("flow", "<u4"), ("packets", "<u4"), ("epoch", "<i8"), ("bytes", "<i8")])
FLOW: Final = np.dtype(
    [
        ("ends", "<u8", 4), ("qpn", "<u4"), ("packets", "<i8"), ("bytes", "<i8"), ("cnps", "<i8"), ("marked", "<i8"),
        ("first_epoch", "<i8"), ("last_epoch", "<i8"), ("epochs", "<i8"), ("peak_bytes", "<i8"), ("gaps", "<i8"),
        ("gap_epochs", "<i8"), ("longest_gap_epochs", "<i8"), ("skipped", "<i8"), ("repeated", "<i8"), ("disordered", "<i8"),
        ("psn", "<i8"), ("is_after_read", "?"), ("open", CELL),
    ]
)  # fmt: skip
"""epochs: those with bytes. gaps, gap_epochs: silences of GAP_NS or more. skipped, repeated: packet numbers that were left out,
and that came again. disordered: steps back in time. psn, is_after_read, open: what the next packets go on from.
"""

Cells = npt.NDArray[np.void]
PSNS: Final = 1 << 24


@dataclass(slots=True)
class Reducer:
    """take: what to do with finished cells; those of one flow come in the capture's order, and an epoch comes twice when
    the capture went back in time.
    """

    take: Callable[[Cells], None]
    epoch_ns: int = EPOCH_NS
    gap_ns: int = GAP_NS
    flows_max: int = FLOWS_MAX
    cells_max: int = CELLS_MAX
    counts: Counter[str] = field(default_factory=Counter)
    _rows: npt.NDArray[np.void] = field(default_factory=lambda: np.zeros(64, FLOW))
    _places: dict[bytes, int] = field(default_factory=dict)

    @property
    def flows(self) -> npt.NDArray[np.void]:
        """A row per flow, in the order in which they were first seen."""
        return self._rows[: len(self._places)]

    def add(self, packets: Packets) -> None:
        """Count these packets."""
        if not len(packets.ns):
            return
        flow = self._flow_of(packets)
        kept = np.flatnonzero(flow >= 0)
        self.counts["packets_of_refused_flows"] += len(flow) - len(kept)
        self.counts["bytes_of_refused_flows"] += int(packets.n_bytes[flow < 0].sum())
        order = kept[np.argsort(flow[kept], kind="stable")]
        flow = flow[order]
        self._total(flow, packets, order)
        self._number(flow, packets.opcode[order], packets.psn[order])
        with_bytes = packets.n_bytes[order] > 0
        flow, order = flow[with_bytes], order[with_bytes]
        self._close(flow, packets.ns[order] // self.epoch_ns, packets.n_bytes[order])

    def finish(self) -> None:
        """Hand on the epochs that were still open."""
        cells = self.flows["open"]
        self._hand_on(cells[cells["packets"] > 0])
        self._rows["open"]["packets"] = 0

    def _flow_of(self, packets: Packets) -> Ints:
        """(n,) each packet's flow; -1 where there is no room for it."""
        keys = np.column_stack([packets.ends, packets.qpn.astype(np.uint64)])
        # Sorting by one word is ten times faster than by five; words that two flows share are told apart below.
        words = (keys * np.array([3, 5, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)).sum(1)
        _, first, inverse = np.unique(words, return_index=True, return_inverse=True)
        if (keys != keys[first][inverse]).any():
            _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        found = np.empty(len(first), np.int64)
        for which in np.argsort(first).tolist():
            found[which] = self._place(keys[first[which]])
        return found[inverse.ravel()]

    def _place(self, key: npt.NDArray[np.uint64]) -> int:
        name = key.tobytes()
        at = self._places.get(name)
        if at is None:
            at = len(self._places)
            if at >= self.flows_max:
                return -1
            if at == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros(at, FLOW)])
            self._places[name] = at
            self._rows[at]["ends"], self._rows[at]["qpn"], self._rows[at]["psn"] = key[:4], key[4], -1
        return at

    def _total(self, flow: Ints, packets: Packets, order: Ints) -> None:
        rows, n = self._rows, len(self._rows)
        rows["packets"] += np.bincount(flow, minlength=n)
        rows["cnps"] += np.bincount(flow[packets.opcode[order] == CNP], minlength=n)
        rows["marked"] += np.bincount(flow[packets.is_marked[order]], minlength=n)

    def _number(self, flow: Ints, opcode: Ints, psn: Ints) -> None:
        """Packet numbers left out and repeated. A read takes as many numbers as its answer has packets, which the request
        does not say: the step after it counts for nothing.
        """
        kept = IS_NUMBERED[opcode]
        if not kept.any():
            return
        flow, psn, is_read = flow[kept], psn[kept], opcode[kept] & 31 == READ_REQUEST
        starts = np.flatnonzero(np.diff(flow, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(flow)], strict=True):
            row = self._rows[flow[start]]
            before = int(row["psn"]) if row["psn"] >= 0 else int(psn[start]) - 1
            signed = (np.diff(psn[start:end], prepend=before % PSNS) + PSNS // 2) % PSNS - PSNS // 2
            number = before + np.cumsum(signed)
            highest = np.maximum.accumulate(np.concatenate([[before], number]))
            steps = number - highest[:-1]
            is_after_read = np.concatenate([[row["is_after_read"]], is_read[start : end - 1]])
            row["skipped"] += int(np.maximum(steps - 1, 0)[~is_after_read].sum())
            row["repeated"] += int(np.count_nonzero(steps <= 0))
            row["psn"], row["is_after_read"] = highest[-1] % PSNS, is_read[end - 1]

    def _close(self, flow: Ints, epoch: Ints, n_bytes: Ints) -> None:
        """Make cells of packets with bytes, ordered by flow; each flow's newest stays open."""
        if not len(flow):
            return
        involved = np.unique(flow)
        opened = self._rows["open"][involved]
        opened = opened[opened["packets"] > 0]
        cells = _cells(
            np.concatenate([opened["flow"].astype(np.int64), flow]), np.concatenate([opened["epoch"], epoch]),
            np.concatenate([opened["bytes"], n_bytes]), np.concatenate([opened["packets"], np.ones(len(flow), np.int64)]),
        )  # fmt: skip
        is_last = np.append(cells["flow"][1:] != cells["flow"][:-1], True)
        self._rows["open"][cells["flow"][is_last]] = cells[is_last]
        self._describe(cells, opened, is_last)
        self._hand_on(cells[~is_last])

    def _describe(self, cells: Cells, opened: Cells, is_last: npt.NDArray[np.bool_]) -> None:
        """What the flows' rows say of these cells; opened: those among them that were counted before."""
        rows, n = self._rows, len(self._rows)
        flow, epoch = cells["flow"].astype(np.int64), cells["epoch"]
        is_first, is_new, last = np.roll(is_last, 1), rows["epochs"] == 0, rows["last_epoch"].copy()
        rows["bytes"] += _sums(flow, cells["bytes"], n) - _sums(opened["flow"], opened["bytes"], n)
        rows["epochs"] += np.bincount(flow, minlength=n) - np.bincount(opened["flow"], minlength=n)
        np.maximum.at(rows["peak_bytes"], flow, cells["bytes"])
        at = flow[is_first]
        went_back = ~is_new[at] & (epoch[is_first] < last[at])
        rows["disordered"][at] += went_back
        rows["first_epoch"][at] = np.where(
            is_new[at], epoch[is_first], np.minimum(rows["first_epoch"][at], epoch[is_first])
        )
        silent = np.diff(epoch, prepend=epoch[:1]) - 1
        silent[is_first | (~is_new[flow] & (epoch <= last[flow]))] = 0  # those were counted when they came
        is_gap = silent * self.epoch_ns >= self.gap_ns
        rows["gaps"] += np.bincount(flow[is_gap], minlength=n)
        rows["gap_epochs"] += _sums(flow[is_gap], silent[is_gap], n)
        np.maximum.at(rows["longest_gap_epochs"], flow[is_gap], silent[is_gap])
        rows["last_epoch"][flow[is_last]] = np.maximum(rows["last_epoch"][flow[is_last]], epoch[is_last])

    def _hand_on(self, cells: Cells) -> None:
        room = self.cells_max - self.counts["epochs"]
        self.counts["epochs"] += min(len(cells), room)
        self.counts["epochs_refused"] += max(len(cells) - room, 0)
        if len(cells) and room:
            self.take(cells[:room])


def _cells(flow: Ints, epoch: Ints, n_bytes: Ints, packets: Ints) -> Cells:
    """Packets as cells, by flow and epoch."""
    order = np.lexsort((epoch, flow))
    flow, epoch = flow[order], epoch[order]
    starts = np.flatnonzero((np.diff(flow, prepend=-1) != 0) | (np.diff(epoch, prepend=-1) != 0))
    found = np.zeros(len(starts), CELL)
    found["flow"], found["epoch"] = flow[starts], epoch[starts]
    found["bytes"] = np.add.reduceat(n_bytes[order], starts)
    found["packets"] = np.add.reduceat(packets[order], starts)
    return found


def _sums(flow: Ints, values: Ints, n: int) -> Ints:
    found = np.zeros(n, np.int64)
    np.add.at(found, flow, values)
    return found
