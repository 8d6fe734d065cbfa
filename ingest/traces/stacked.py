"""Rows of one table out of many stored batches, laid out together.

Making rows batch by batch costs a dozen steps of numpy for each, and a window is cut from tens of thousands of batches. Here
the byte planes of a chunk of them are laid side by side, asked for single columns, and turned into rows at once while
they are in the caches. Of what is in progress most rows say again what the next tick says; `newest` leaves one of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.window import Rows
from nccl_instrument.planes import PlaneTable, layout
from nccl_instrument.tables import DTYPE

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

CHUNK_ROWS: Final = 8192
"""A stack's planes and rows are then some two megabytes."""
OF_ONE: Final[dict[str, tuple[str, ...]]] = {
    "flow": ("comm_id", "comm_rank", "op", "func", "flags", "channel", "direction", "peer"),
    "live_op": ("comm_id", "comm_rank", "op", "func", "flags", "peer"),
    "progress": ("comm_id", "comm_rank"),
}
"""What a row of what is in progress is about: columns that are equal from tick to tick."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


class Stack:
    """The rows of some pieces, in order: `stack[name]` is a column, (n,); `write` makes rows."""

    def __init__(self, table: str, pieces: Sequence[PlaneTable]) -> None:
        self.lengths = [len(piece) for piece in pieces]
        self._width = DTYPE[table].itemsize
        self._places = layout(table, self._width).columns
        self._bounds = np.append(0, np.cumsum(self.lengths))
        self._made: dict[str, npt.NDArray[Any]] = {}
        self._rows = None if is_plain(pieces[0]) else _end_to_end(table, pieces)
        if self._rows is None:
            self._lay(pieces)

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if self._rows is not None:
            return self._rows[name]
        if name not in self._made:
            place = self._places[name]
            column = self._laid_together(place.start, place.stop - place.start)
            self._made[name] = self._sum(column, place.kind) if place.is_delta else column.view(place.kind)[:, 0]
        return self._made[name]

    @property
    def names(self) -> list[str]:
        """The columns that are not 0 in every row."""
        if self._rows is not None:
            return [name for name in self._rows.dtype.names or () if self._rows[name].any()]
        used = self._is_used[1:-1]
        return [name for name, place in self._places.items() if used[place.start : place.stop].any()]

    def narrow(self, name: str) -> npt.NDArray[Any]:
        """(n,) a column of one number a row, in as few bytes as its numbers take."""
        place = self._places[name]
        if self._rows is not None:
            return narrowed(self._rows[name])
        if place.is_delta or place.size == 1:
            return self[name]
        n_low = int(np.flatnonzero(self._is_used[place.start + 1 : place.stop + 1]).max(initial=0)) + 1
        if n_low > place.size // 2:
            return narrowed(self[name])
        width = 1 << (n_low - 1).bit_length()
        return self._laid_together(place.start, width).view(f"<u{width}")[:, 0]

    def write(self, rows: Rows, at: Ints | None) -> None:
        """Writes the rows at these positions, all where None, into `rows`, of the window's dtype; its bytes are 0."""
        flat = flattened(rows)
        if self._rows is not None:
            flat[:, : self._width] = flattened(self._rows if at is None else self._rows.take(at))
            return
        edges = np.flatnonzero(np.diff(self._is_used)).tolist()
        for first, last in zip(edges[::2], edges[1::2], strict=True):  # runs of neighbouring planes
            planes = self._planes[self._place[first] :][: last - first]
            flat[:, first:last] = (
                planes.T if at is None else planes.take(at, axis=1, mode="clip").T
            )  # unchecked: faster
        for name, place in self._places.items():
            if place.is_delta and self._is_used[place.start + 1 : place.stop + 1].any():
                rows[name] = self[name] if at is None else self[name].take(at)

    def _lay(self, pieces: Sequence[PlaneTable]) -> None:
        """Side by side, those planes that any piece has."""
        sent = {piece.sent.planes for piece in pieces}
        self._is_used = np.zeros(self._width + 2, bool)
        self._is_used[[plane + 1 for plane in set().union(*sent)]] = True
        self._place = np.cumsum(self._is_used[1:-1]) - 1
        n_used = int(self._is_used.sum())
        self._planes = np.zeros((n_used, len(self)), np.uint8)
        places = {one: slice(None) if len(one) == n_used else self._place[np.array(one, np.intp)] for one in sent}
        for piece, (start, end) in zip(pieces, pairwise(self._bounds.tolist()), strict=True):
            self._planes[places[piece.sent.planes], start:end] = piece.planes

    def _laid_together(self, start: int, width: int) -> Bytes:
        """(n, width) some neighbouring bytes of each row: plane by plane, which is faster than turning them around at once."""
        found = np.zeros((len(self), width), np.uint8)
        for k in np.flatnonzero(self._is_used[start + 1 : start + width + 1]).tolist():
            found[:, k] = self._planes[self._place[start + k]]
        return found

    def _sum(self, column: Bytes, kind: str) -> npt.NDArray[Any]:
        """(n,) a column sent as differences, summed from the first row of each piece."""
        numbers, first = column.view(np.uint64)[:, 0], self._bounds[:-1]
        total = np.cumsum(numbers)
        total -= np.repeat(total[first] - numbers[first], self.lengths)
        return total.view(kind)


def narrowed(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(n,) the same whole numbers in as few bytes as they take; text as it is."""
    if column.dtype.kind not in "iu":
        return column
    low, high = int(column.min(initial=0)), int(column.max(initial=0))
    kind = np.min_scalar_type(min(low, -high - 1) if low < 0 else high)
    return column.astype(kind) if kind.itemsize < column.itemsize else column


def is_plain(piece: PlaneTable) -> bool:
    """Whether it came in planes as they are written today; a stack is of such pieces alone, or of others alone."""
    return not piece.sent.is_by_rows and piece.sent.row_bytes == DTYPE[piece.sent.table].itemsize


def newest(table: str, rows: Stack, at: Ints) -> Ints:
    """Those of the positions `at` after which no other tells of the same thing."""
    key = np.zeros(len(at), np.uint64)
    for name in OF_ONE[table]:
        key = (key ^ rows.narrow(name).take(at).astype(np.uint64)) * _ODD
        key ^= key >> _SHIFT
    tick = rows["tick_ns"].take(at)
    left = np.flatnonzero(~_is_told_again(key, tick))
    left = left[np.argsort(key[left])]
    key, tick = key[left], tick[left]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    last_ns = np.maximum.reduceat(tick, first) if len(first) else tick
    return np.sort(at[left[tick == np.repeat(last_ns, np.diff(np.append(first, len(key))))]])


def _is_told_again(key: npt.NDArray[np.uint64], tick: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """(n,) rows that are surely not the newest of their key: the row at the same place of the next tick has it, too.

    In what stands still those are nine in ten, found without sorting; of the others nothing is known.
    """
    starts = np.flatnonzero(np.append(True, tick[1:] != tick[:-1])[: len(tick)])
    lengths = np.diff(np.append(starts, len(tick)))
    next_at = np.minimum(np.arange(len(tick)) + np.repeat(lengths, lengths), len(tick) - 1)
    found: npt.NDArray[np.bool_] = (key[next_at] == key) & (tick[next_at] > tick)
    return found


def flattened(rows: Rows) -> Bytes:
    """(n, bytes of a row): numpy copies bytes at once, and structured rows column by column."""
    return rows.view(np.uint8).reshape(len(rows), rows.itemsize)


def _end_to_end(table: str, pieces: Sequence[PlaneTable]) -> Rows:
    return np.frombuffer(b"".join(piece.rows().tobytes() for piece in pieces), DTYPE[table])
