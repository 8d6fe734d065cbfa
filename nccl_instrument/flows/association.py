"""What each op moved to one peer: rows of the `traffic` table from bytes per epoch, as they come in.

An op's bytes are known per peer (expected.py), and go over several channels, which need not share them evenly. So the channels
to one peer are added up to find where ops begin and end, and each channel then says what it carried between those bounds.
Ops have to be complete in order: after a loss, what is open is given up and marked, and cutting goes on where the next
whole iteration begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_instrument.flows.segmentation import CELLS_MAX, DELTA_NS, OPS_MAX, Ints, Segment, Segmenter
from nccl_instrument.tables import TRAFFIC_CUT, TRAFFIC_FINISHED, TRAFFIC_INCOMPLETE, TRAFFIC_P2P

RUN_MAX: Final = 256
FOLD_AT: Final = 4
"""Ops without a gap between them that are told together, and the part of the room for epochs after which they are summed."""

DENSE_MOST: Final = 8
"""Places in an array cost a tenth of sorting."""

Rows = npt.NDArray[np.void]
Floats = npt.NDArray[np.float64]

_NUMBERS: Final = ("start_ns", "end_ns", "actual_ns", "n_bytes", "share_ns")
MOVED: Final = np.dtype([("op", "<i8"), ("channel", "<i2"), *((name, "<i8") for name in _NUMBERS), ("flags", "u1")])
"""Columns of `traffic` that follow from the bytes; the others are the flow's own. share_ns: of the time in which any flow of the
communicator moved bytes in this direction, this flow's part, an epoch divided among those that are active in it: over any flows
of a rank it adds up to the time in which at least one of them was active (Pulse §6.2, rank-level actual time).
"""


class _Part(NamedTuple):
    """Epochs of one op on one channel; n_epochs 0 without any. share: in epochs."""

    first: int
    last: int
    n_epochs: int
    n_bytes: int
    share: float


class _Expected(NamedTuple):
    """An op that comes over these flows. flags: TRAFFIC_P2P or 0."""

    op: int
    volume: float
    flags: int


NOTHING: Final = _Part(-1, -1, 0, 0, 0.0)
PART: Final = np.dtype([(name, "<i8") for name in _Part._fields[:-1]] + [("share", "<f8")])


@dataclass(slots=True)
class _Channel:
    """Epochs of one channel that belong to the open op or later ones, and the sum of those that are surely the op's."""

    epochs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    n_bytes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    shares: Floats = field(default_factory=lambda: np.zeros(0))
    head: _Part = NOTHING

    def add(self, epochs: Ints, n_bytes: Ints, shares: Floats) -> None:
        """Later epochs. The arrays may be kept as they are: nobody writes into them."""
        if not len(self.epochs):
            self.epochs, self.n_bytes, self.shares = epochs, n_bytes, shares
            return
        self.epochs = np.concatenate([self.epochs, epochs])
        self.n_bytes = np.concatenate([self.n_bytes, n_bytes])
        self.shares = np.concatenate([self.shares, shares])

    def fold(self, until: int) -> None:
        """Sum the epochs before `until`."""
        end = int(np.searchsorted(self.epochs, until))
        self.head = self._joined(end)
        self.epochs, self.n_bytes, self.shares = self.epochs[end:], self.n_bytes[end:], self.shares[end:]

    def drop(self, until: int) -> None:
        """Forget the epochs before `until`."""
        self.fold(until)
        self.head = NOTHING

    def take_each(self, untils: Ints) -> Rows:
        """(n,) PART: the epochs before each of these, since the one before it; then forgotten."""
        found, ends = np.zeros(len(untils), PART), np.searchsorted(self.epochs, untils)
        begins = np.concatenate([[0], ends[:-1]])
        found["n_epochs"] = ends - begins
        if len(self.epochs):
            has = ends > begins
            found["first"][has], found["last"][has] = self.epochs[begins[has]], self.epochs[ends[has] - 1]
            for name, values in (("n_bytes", self.n_bytes), ("share", self.shares)):
                if len(untils) == 1:
                    found[name] = values[: ends[0]].sum()
                    continue
                total = np.concatenate([[0], np.cumsum(values[: ends[-1]])])
                found[name] = total[ends] - total[begins]
        if self.head.n_epochs:
            head, first = self.head, found[0]
            first["first"], first["last"] = head.first, first["last"] if first["n_epochs"] else head.last
            for name in ("n_epochs", "n_bytes", "share"):
                first[name] += getattr(head, name)
        end, self.head = int(ends[-1]), NOTHING
        self.epochs, self.n_bytes, self.shares = self.epochs[end:], self.n_bytes[end:], self.shares[end:]
        return found

    def whole(self) -> _Part:
        """Everything, without forgetting it."""
        return self._joined(len(self.epochs))

    def divide(self, until: int, volumes: Floats) -> list[_Part]:
        """The epochs before `until`, divided among ops without a gap between them, as their volumes are; then forgotten.

        Channels need not begin an op at the same time, so each is divided by its own bytes; an epoch that holds the end of one
        and the begin of the next counts at both, with the bytes of each.
        """
        end, head = int(np.searchsorted(self.epochs, until)), self.head
        total = head.n_bytes + np.concatenate([[0], np.cumsum(self.n_bytes[:end])])
        bounds = np.rint(total[-1] * np.concatenate([[0.0], np.cumsum(volumes) / volumes.sum()])).astype(np.int64)
        found = [self._between(total, int(low), int(high)) for low, high in pairwise(bounds)]
        self.head = NOTHING
        self.epochs, self.n_bytes, self.shares = self.epochs[end:], self.n_bytes[end:], self.shares[end:]
        return found

    def _between(self, total: Ints, low: int, high: int) -> _Part:
        """What lies between two of the channel's sums. total: the sum before each epoch, and after the last."""
        first = int(np.searchsorted(total, low, side="right")) - 1  # -1: in what was summed
        last = int(np.searchsorted(total, high)) - 1
        if high <= low:
            return NOTHING
        head, begin = (self.head, max(first, 0)) if first < 0 else (NOTHING, first)
        if last < begin:
            return head._replace(n_bytes=high - low)
        inside = np.minimum(total[begin + 1 : last + 2], high) - np.maximum(total[begin : last + 1], low)
        shares = self.shares[begin : last + 1] * inside / np.maximum(self.n_bytes[begin : last + 1], 1)
        start = head.first if head.n_epochs else int(self.epochs[begin])
        n_epochs = head.n_epochs + last + 1 - begin
        return _Part(start, int(self.epochs[last]), n_epochs, high - low, head.share + float(shares.sum()))

    def _joined(self, end: int) -> _Part:
        """The head with the first epochs."""
        head = self.head
        if not end:
            return head
        first = head.first if head.n_epochs else int(self.epochs[0])
        n_bytes, share = head.n_bytes + int(self.n_bytes[:end].sum()), head.share + float(self.shares[:end].sum())
        return _Part(first, int(self.epochs[end - 1]), head.n_epochs + end, n_bytes, share)


class PeerStream:
    """The ops of one communicator's rank to (or from) one peer. epoch_ns: length of an epoch; cells_max: epochs kept;
    ops_max: ops expected and not over. n_refused: epochs and ops for which there was no room; what is told after that is marked.
    """

    def __init__(
        self, epoch_ns: int, delta_ns: int = DELTA_NS, cells_max: int = CELLS_MAX, ops_max: int = OPS_MAX
    ) -> None:
        self.epoch_ns, self.cells_max, self.ops_max = epoch_ns, cells_max, ops_max
        self.n_refused = 0
        self._segmenter = Segmenter(epoch_ns, delta_ns, cells_max, ops_max)
        self._channels: dict[int, _Channel] = {}
        self._fed: list[tuple[int, Ints, Ints, Floats]] = []
        self._ops: deque[_Expected] = deque()
        self._run: list[tuple[Segment, _Expected]] = []
        self._spoiled = False

    def expect(self, ops: Ints, volumes: Floats, is_p2p: npt.NDArray[np.bool_]) -> None:
        """The ops that come next over these flows, in order, (n,) each: number, bytes to this peer, whether a send or receive.

        Those without bytes for this peer are left out. Expect an op no later than the poll that sees its first byte.
        """
        for op, volume, p2p in zip(ops.tolist(), volumes.tolist(), is_p2p.tolist(), strict=True):
            if volume > 0 and len(self._ops) >= self.ops_max:
                self.n_refused += 1
                self._spoiled = True
            elif volume > 0:
                self._ops.append(_Expected(op, volume, TRAFFIC_P2P if p2p else 0))
                self._segmenter.expect([volume])

    def feed(self, channel: int, epochs: Ints, n_bytes: Ints, n_active: Ints | None = None) -> None:
        """Bytes of one channel by epoch number, rising, later than what this channel was fed before.

        n_active: (n,) how many flows of the communicator have bytes in the epoch, in this direction, see `active_counts`. Nobody
        may write into the arrays afterwards.
        """
        kept = n_bytes > 0
        if np.count_nonzero(kept) < len(kept):
            epochs, n_bytes, n_active = epochs[kept], n_bytes[kept], None if n_active is None else n_active[kept]
        shares = np.ones(len(n_bytes)) if n_active is None else 1.0 / np.maximum(n_active, 1)
        whole, whole_bytes = (one.astype(np.int64, copy=False) for one in (epochs, n_bytes))
        self._fed.append((channel, whole, whole_bytes, shares))

    def poll(self, now_ns: int) -> Rows:
        """(n,) MOVED rows of the ops that are over. now_ns: until when all channels were seen; all before it has been fed."""
        self._spread()
        found: list[Rows] = []
        apart: list[tuple[Segment, _Expected]] = []
        for one in self._segmenter.poll(now_ns):
            self._run.append((one, self._ops.popleft()))
            if one.is_joined and len(self._run) < RUN_MAX:
                continue
            if len(self._run) == 1:
                apart += self._run
                self._run.clear()
                continue
            found += [self._close_apart(apart), self._close()]
            apart = []
        found.append(self._close_apart(apart))
        self._relieve()
        return np.concatenate(found)

    def open(self) -> Rows:
        """(n,) MOVED rows of the op under way, as far as the last poll saw it; without the flag of an op that is finished.

        Bytes that no op is expected for have the number -1.
        """
        one = self._segmenter.open()
        if one is None:
            return np.zeros(0, MOVED)
        if self._run:  # the ops before it are not over either, as far as each channel goes
            op, _, flags = self._run[0][1]
        else:
            op, _, flags = self._ops[0] if self._ops else _Expected(-1, 0.0, 0)
        flags |= self._flags(one)
        parts = [(channel, held.whole()) for channel, held in self._channels.items()]
        return np.array([self._row(op, channel, part, flags) for channel, part in parts if part.n_epochs], MOVED)

    def unexpected(self) -> tuple[Ints, Ints] | None:
        """(epochs, bytes) of all channels, seen by the last poll, that no op is expected for; None while an op is."""
        return None if self._run else self._segmenter.unexpected()

    def lose(self, op: int, at_ns: int, *, is_p2p: bool = False) -> Rows:
        """After a loss: (n,) MOVED rows of what is open, marked; then go on with `op` at `at_ns`, where its iteration begins.

        Ops expected before `op` are given up. Bytes already fed for later times are kept. is_p2p: sends and receives have
        numbers of their own.
        """
        self._spread()
        begin = -(-at_ns // self.epoch_ns)
        given_up = self.open()
        given_up["flags"] |= TRAFFIC_INCOMPLETE
        wanted = op, TRAFFIC_P2P if is_p2p else 0
        self._run.clear()
        while self._ops and (self._ops[0].op, self._ops[0].flags) != wanted:
            self._ops.popleft()
        self._segmenter.restart(begin)
        self._segmenter.expect([one.volume for one in self._ops])
        for channel in self._channels.values():
            channel.drop(begin)
        self._spoiled = False
        return given_up

    def _close_apart(self, ops: list[tuple[Segment, _Expected]]) -> Rows:
        """Rows of ops each of which a gap follows: of all at once, since there are many of them."""
        if not ops:
            return np.zeros(0, MOVED)
        untils = np.array([one.end_ns // self.epoch_ns for one, _ in ops], np.int64)
        flags = [one.flags | self._flags(whole) for whole, one in ops]
        found = np.zeros((len(ops), len(self._channels)), MOVED)
        found["op"], found["flags"] = np.array([[one.op] for _, one in ops]), np.array(flags, np.uint8)[:, None]
        for at, (channel, held) in enumerate(self._channels.items()):
            part, rows = held.take_each(untils), found[:, at]
            rows["channel"], rows["n_bytes"] = channel, part["n_bytes"]
            rows["start_ns"], rows["end_ns"] = part["first"] * self.epoch_ns, (part["last"] + 1) * self.epoch_ns
            rows["actual_ns"] = part["n_epochs"] * self.epoch_ns
            rows["share_ns"] = np.rint(part["share"] * self.epoch_ns)
        told: Rows = found.ravel()
        return told[told["actual_ns"] > 0]

    def _close(self) -> Rows:
        """Rows of the ops of a run, which a gap follows."""
        run, self._run = self._run, []
        until, volumes = run[-1][0].end_ns // self.epoch_ns, np.array([one.volume for _, one in run])
        found: list[tuple[int, tuple[int, ...]]] = []
        for channel, held in self._channels.items():
            for at, (part, (whole, one)) in enumerate(zip(held.divide(until, volumes), run, strict=True)):
                if part.n_epochs:
                    found.append((at, self._row(one.op, channel, part, one.flags | self._flags(whole))))
        return np.array([row for _, row in sorted(found)], MOVED)

    def _relieve(self) -> None:
        """Sum epochs of the open op when many are held: a channel may be ahead of the others, so it is not always done."""
        if sum(len(held.epochs) for held in self._channels.values()) * FOLD_AT <= self.cells_max:
            return
        if not self._run:
            for held in self._channels.values():
                held.fold(self._segmenter.held_from)

    def _spread(self) -> None:
        """Hand what was fed to its channel, and the channels' sums to the segmenter."""
        fed, self._fed = self._fed, []
        if not fed:
            return
        kept, taken = sum(len(channel.epochs) for channel in self._channels.values()), []
        for number, epochs, n_bytes, shares in fed:
            room = max(self.cells_max - kept, 0)
            if len(epochs) > room:
                self.n_refused += len(epochs) - room
                self._spoiled = True
            kept += min(len(epochs), room)
            self._channels.setdefault(number, _Channel()).add(epochs[:room], n_bytes[:room], shares[:room])
            taken.append((epochs[:room], n_bytes[:room]))
        self._segmenter.feed(*summed(*(np.concatenate(one) for one in zip(*taken, strict=True))))

    def _row(self, op: int, channel: int, part: _Part, flags: int) -> tuple[int, ...]:
        length, share_ns = self.epoch_ns, round(part.share * self.epoch_ns)
        start_ns, end_ns = part.first * length, (part.last + 1) * length
        return op, channel, start_ns, end_ns, part.n_epochs * length, part.n_bytes, share_ns, flags

    def _flags(self, one: Segment) -> int:
        finished, cut = TRAFFIC_FINISHED * one.is_finished, TRAFFIC_CUT * one.is_cut
        return finished | cut | TRAFFIC_INCOMPLETE * self._spoiled


def active_counts(flows: Sequence[Ints]) -> list[Ints]:
    """Of the epochs with bytes of each flow (of one communicator and direction, of the same stretch of time), in how many of
    these flows bytes moved then: what `PeerStream.feed` takes. Each flow has an epoch at most once."""
    if not flows:
        return []
    every = np.concatenate(flows)
    if is_dense(every):
        least = int(every.min())
        n = np.bincount(every - least)
        return [n[one - least] for one in flows]
    epochs, n = np.unique(every, return_counts=True)
    return [n[np.searchsorted(epochs, one)] for one in flows]


def summed(epochs: Ints, n_bytes: Ints) -> tuple[Ints, Ints]:
    """Bytes by epoch, rising, each epoch once, those without bytes left out."""
    if is_dense(epochs):
        least = int(epochs.min())
        total = np.bincount(epochs - least, weights=n_bytes)
        at = np.flatnonzero(total)
        return at + least, total[at].astype(np.int64)
    found, of = np.unique(epochs, return_inverse=True)
    return found, np.bincount(of, weights=n_bytes, minlength=len(found)).astype(np.int64)


def is_dense(epochs: Ints) -> bool:
    """Whether a place for every epoch between the first and the last is less work than to sort them."""
    return len(epochs) > 0 and int(epochs.max()) - int(epochs.min()) <= DENSE_MOST * len(epochs)
