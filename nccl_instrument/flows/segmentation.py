"""Where each op begins and ends in a flow's bytes per epoch (Pulse Algorithm 1).

An op ends at a gap of at least δ once its expected volume has gone. Epochs without bytes are left out, so that a pause in
the middle of an op, shorter than δ or before the volume is reached, does not cut it. Ops that follow each other without a
gap are cut by volume alone and marked: their boundary is inside one epoch at best. It runs on the node, between two polls of a
second, so a poll costs one pass over what is new: what surely belongs to the open op is kept as a sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

DELTA_NS: Final = 1_000_000
CELLS_MAX: Final = 4_000_000
OPS_MAX: Final = 65_536
"""Expected and not over: bytes that fall short of what is expected for ever must not fill the node."""
SLACK: Final = 0.001
"""Of its volume an op may lack this and be over when silence follows: chunks are rounded to whole lines, so that one rank of a
ring sends a little less than the formula has. Cutting by volume alone takes the whole of it, or errors would add up.
"""
HEADERS_MAX: Final = 0.1
SYNC_BYTES_MAX: Final = 65_536
"""Headers are 2 to 6 % of what they go with, messages of synchronisation some bytes for each chunk."""
_ALL: Final = 2**62


@dataclass(frozen=True, slots=True)
class Segment:
    """One op on one flow. start_ns, end_ns: of its first epoch's start and its last epoch's end. actual_ns: time in
    epochs with bytes. is_finished: its volume was reached, and δ of silence or another op followed. is_cut: by volume alone,
    at its begin or its end; is_joined: at its end.
    """

    start_ns: int
    end_ns: int
    actual_ns: int
    n_bytes: int
    is_finished: bool
    is_cut: bool
    is_joined: bool = False


@dataclass(slots=True)
class _Head:
    """What surely belongs to the open op and is no longer kept epoch by epoch."""

    first: int = -1
    last: int = -1
    n_epochs: int = 0
    n_bytes: int = 0


class Segmenter:
    """Algorithm 1 with its state kept between polls: one flow, or all channels to one peer added up.

    Expect an op before the poll that may close the op before it: unexpected bytes are held, and belong to no op until one is
    expected. epoch_ns: length of an epoch; delta_ns: the silence that ends an op. n_refused: epochs beyond
    cells_max; n_ops_refused: ops beyond ops_max, after which nothing says whose the bytes are.
    """

    def __init__(
        self, epoch_ns: int, delta_ns: int = DELTA_NS, cells_max: int = CELLS_MAX, ops_max: int = OPS_MAX
    ) -> None:
        self.epoch_ns, self.delta_ns, self.cells_max, self.ops_max = epoch_ns, delta_ns, cells_max, ops_max
        self.n_refused = self.n_ops_refused = 0
        self._epochs, self._bytes = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._fed: list[tuple[Ints, Ints]] = []
        self._expected: deque[float] = deque()
        self._head = _Head()
        self._is_cut = False

    def expect(self, volumes: Iterable[float]) -> None:
        """The ops that come next on this flow, in order, each with its own bytes (> 0)."""
        wanted = list(volumes)
        room = max(self.ops_max - len(self._expected), 0)
        self.n_ops_refused += max(len(wanted) - room, 0)
        self._expected.extend(wanted[:room])

    def feed(self, epochs: Ints, n_bytes: Ints) -> None:
        """Bytes by epoch number, rising, later than what was fed before; zeros are left out."""
        kept = np.asarray(n_bytes) > 0
        if np.count_nonzero(kept) < len(kept):
            epochs, n_bytes = np.asarray(epochs)[kept], np.asarray(n_bytes)[kept]
        # Of the bytes a copy, which is written into where an epoch holds the end of one op and the begin of the next.
        self._fed.append((np.asarray(epochs).astype(np.int64, copy=False), np.asarray(n_bytes).astype(np.int64)))

    def poll(self, now_ns: int) -> list[Segment]:
        """The ops that are over, in order. now_ns: until when the flow was seen; all before it has been fed."""
        self._gather()
        seen = int(np.searchsorted(self._epochs, now_ns // self.epoch_ns))
        total = np.concatenate([[0], np.cumsum(self._bytes[:seen])])
        # Of a head only that it was there matters for the first cell: its op lacks volume, so no gap ends it.
        gaps = np.flatnonzero((np.diff(self._epochs[:seen]) - 1) * self.epoch_ns >= self.delta_ns) + 1
        is_silent = bool(seen) and now_ns - (int(self._epochs[seen - 1]) + 1) * self.epoch_ns >= self.delta_ns
        found, first = [], 0
        while self._expected:
            end, over, reached = self._end(total, gaps, first, is_silent)
            if end < 0:
                first = self._fold(first, reached)
                break
            is_joined = over >= 0
            found.append(
                self._made(first, end, is_finished=True, is_cut=self._is_cut or is_joined, is_joined=is_joined)
            )
            self._expected.popleft()
            self._head, self._is_cut, first = _Head(), is_joined, end
            if over > 0:  # the epoch that holds its last bytes holds the next op's first
                first = end - 1
                found[-1] = replace(found[-1], n_bytes=found[-1].n_bytes - over)
                self._bytes[first], total[first] = over, total[end] - over
        self._epochs, self._bytes = self._epochs[first:], self._bytes[first:]
        return found

    def open(self) -> Segment | None:
        """What has been seen, by the last poll, of an op that is not over; None without any."""
        if not self._head.n_epochs and not len(self._epochs):
            return None
        return self._made(0, len(self._epochs), is_finished=False, is_cut=self._is_cut)

    def unexpected(self) -> tuple[Ints, Ints] | None:
        """(epochs, bytes) seen by the last poll that no op is expected for; None while an op is."""
        if self._expected or self._head.n_epochs:
            return None
        return self._epochs, self._bytes

    def restart(self, epoch: int) -> None:
        """Forget the open op, all that is expected, and what lies before this epoch."""
        self._gather()
        kept = self._epochs >= epoch
        self._epochs, self._bytes = self._epochs[kept], self._bytes[kept]
        self._expected.clear()
        self._head, self._is_cut = _Head(), False

    @property
    def held_from(self) -> int:
        """The first epoch that may still go to another op than the open one."""
        return int(self._epochs[0]) if len(self._epochs) else self._head.last + 1

    def _gather(self) -> None:
        room = max(self.cells_max - len(self._epochs), 0)
        fed = [(epochs, n_bytes) for epochs, n_bytes in self._fed if len(epochs)]
        self._fed = []
        if fed:
            epochs, n_bytes = fed[0] if len(fed) == 1 else (np.concatenate(one) for one in zip(*fed, strict=True))
            self.n_refused += max(len(epochs) - room, 0)
            is_first = not len(self._epochs)
            self._epochs = epochs[:room] if is_first else np.concatenate([self._epochs, epochs[:room]])
            self._bytes = n_bytes[:room] if is_first else np.concatenate([self._bytes, n_bytes[:room]])

    def _end(self, total: Ints, gaps: Ints, first: int, is_silent: bool) -> tuple[int, int, int]:
        """(where the op that begins at `first` ends, -1 while that is open; the bytes before there that are the next op's, -1
        where silence follows; where its volume is there)."""
        n, wanted = len(total) - 1, self._expected[0]
        following = self._expected[1] if len(self._expected) > 1 else np.inf
        base = int(total[first]) - self._head.n_bytes
        least = first if self._head.n_epochs else first + 1
        # By whole numbers: searching for a fraction would turn the whole array into fractions, for every op.
        sums = (base + np.ceil(one) for one in (wanted, _least(wanted)))
        reached, enough = (max(int(np.searchsorted(total, np.int64(min(one, _ALL)))), least) for one in sums)
        if enough > n:
            return -1, -1, enough
        at = int(np.searchsorted(gaps, enough))
        stretch = int(gaps[at]) if at < len(gaps) else n
        # Without a gap, what follows is the next op if it is as much as that one has, or more than headers are; that op may
        # itself pause before its volume has gone.
        if reached <= stretch and total[stretch] - base - wanted >= min(
            _least(following), _most_headers(wanted, following)
        ):
            return reached, max(int(total[reached] - base - wanted), 0), enough
        if at < len(gaps) or is_silent:
            return stretch, -1, enough
        return -1, -1, enough

    def _fold(self, first: int, reached: int) -> int:
        """Sum what comes before the epoch that reaches the open op's volume; where the rest begins."""
        last = max(min(reached - 1, len(self._epochs)), first)
        if last > first:
            self._head = self._joined(first, last)
        return last

    def _joined(self, first: int, end: int) -> _Head:
        head = self._head
        if end <= first:
            return head
        begin = head.first if head.n_epochs else int(self._epochs[first])
        n_bytes = head.n_bytes + int(self._bytes[first:end].sum())
        return _Head(begin, int(self._epochs[end - 1]), head.n_epochs + end - first, n_bytes)

    def _made(self, first: int, end: int, *, is_finished: bool, is_cut: bool, is_joined: bool = False) -> Segment:
        whole, length = self._joined(first, end), self.epoch_ns
        times = whole.first * length, (whole.last + 1) * length, whole.n_epochs * length
        return Segment(*times, whole.n_bytes, is_finished, is_cut, is_joined)


def _most_headers(volume: float, following: float) -> float:
    """What may come with an op beyond its volume; without an end where no other op is expected."""
    return max(HEADERS_MAX * volume, SYNC_BYTES_MAX) if following < np.inf else np.inf


def _least(volume: float) -> float:
    return volume * (1.0 - SLACK)


def segment(
    epochs: Ints, n_bytes: Ints, expected: Sequence[float], *, epoch_ns: int, now_ns: int, delta_ns: int = DELTA_NS
) -> list[Segment]:
    """The ops of one flow to one peer. epochs: (n,) rising numbers of those with bytes; expected: each op's own volume, in
    order; what comes after the last of them is one more segment. now_ns: until when the flow was seen.
    """
    whole = Segmenter(epoch_ns, delta_ns, max(len(epochs), 1), max(len(expected), 1))
    whole.expect(expected)
    whole.feed(epochs, n_bytes)
    found = whole.poll(now_ns)
    rest = whole.open()
    return [*found, rest] if rest else found
