"""Byte planes: how the rows of a trace table travel, and how rows or single columns are made of them again.

Plane k holds byte k of every row. Planes of zeros are not sent, so most numbers arrive as the one or two bytes they
have; `PlaneTable` hands out a column as that, without making rows, which is what lets ingest check a batch for a
fraction of the cost of decoding it. A table of few rows travels row by row: for those, planes save little and cost most.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import DTYPE, TABLES, empty_rows

Rows = npt.NDArray[np.void]
Bytes = npt.NDArray[np.uint8]

NARROW_ROWS: Final = 400
"""Below, making rows of all columns is cheaper than handing out two or three."""
_WIDTHS: Final = (0, 1, 2, 4, 4, 8, 8, 8, 8)
"""Bytes to hold a number of which so many low bytes are sent."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a directory says of a table. planes: the numbers of the byte planes that are sent, ascending.

    is_by_rows: the rows are sent as they are, one after the other; then there are no planes.
    """

    table: str
    row_bytes: int
    n_rows: int
    planes: tuple[int, ...] = ()
    is_by_rows: bool = False

    @property
    def n_bytes(self) -> int:
        return self.rows_bytes if self.is_by_rows else len(self.planes) * self.n_rows

    @property
    def rows_bytes(self) -> int:
        return self.row_bytes * self.n_rows

    @property
    def widened_bytes(self) -> int:
        """What the rows take in memory: with the columns their writer did not have."""
        known = DTYPE[self.table].itemsize if self.table in DTYPE else 0
        return max(self.row_bytes, known) * self.n_rows


class PlaneTable:
    """A table as it came: `table[name]` is a column, (n,) or (n, width), narrow but of equal value; `rows()` is all."""

    __slots__ = ("_columns", "_matrix", "_rows", "sent")

    def __init__(self, sent: Sent, planes: Bytes) -> None:
        self.sent = sent
        self._matrix = planes.reshape((sent.n_rows, -1) if sent.is_by_rows else (len(sent.planes), sent.n_rows))
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._rows: Rows | None = None

    def __len__(self) -> int:
        return self.sent.n_rows

    @property
    def planes(self) -> Bytes:
        """(planes sent, n), or (n, bytes per row) of a table that travels row by row."""
        return self._matrix

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if self._rows is not None or self.sent.n_rows < NARROW_ROWS or self.sent.is_by_rows:
            return self.rows()[name]
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._column(name)
        return column

    def peaks(self) -> bytes:
        """For each byte of a row its largest value in any; of columns sent as differences it says nothing."""
        width = max(self.sent.row_bytes, DTYPE[self.sent.table].itemsize)
        if self.sent.is_by_rows:
            return np.maximum.reduce(self._matrix, axis=0).tobytes().ljust(width, b"\0")
        found = bytearray(width)
        for plane, peak in zip(self.sent.planes, np.maximum.reduce(self._matrix, axis=1).tolist(), strict=True):
            found[plane] = peak
        return bytes(found)

    def largest(self, start: int, stop: int) -> int:
        """The largest of the 8-byte numbers between two bytes of all rows; negative ones count as very large."""
        return int(_numbers(self.rows(), start, stop).max())

    def rows(self) -> Rows:
        """(n,) rows of the table's dtype. Columns an older writer did not have hold their `unknown` value."""
        if self._rows is None:
            self._rows = _rows(self.sent, self._matrix)
        return self._rows

    def number(self, name: str, k: int) -> npt.NDArray[Any]:
        """(n,) the k-th number of a column that has several in each row."""
        place = layout(self.sent.table, DTYPE[self.sent.table].itemsize).columns[name]
        if place.stop > self.sent.row_bytes or self.sent.n_rows < NARROW_ROWS or self.sent.is_by_rows:
            return self.rows()[name][:, k]
        return self._number(place, place.start + k * place.size)

    def _column(self, name: str) -> npt.NDArray[Any]:
        place = layout(self.sent.table, DTYPE[self.sent.table].itemsize).columns[name]
        if place.stop > self.sent.row_bytes or place.is_text:
            return self.rows()[name]
        if place.stop - place.start > place.size:
            return np.stack([self.number(name, k) for k in range((place.stop - place.start) // place.size)], axis=1)
        return self._number(place, place.start)

    def _number(self, place: Place, start: int) -> npt.NDArray[Any]:
        """The number whose bytes begin at `start`, in as few bytes as it came in; negative ones in all of theirs."""
        first, last = bisect_left(self.sent.planes, start), bisect_left(self.sent.planes, start + place.size)
        if first == last:
            return np.zeros(self.sent.n_rows, np.uint8)
        n_low = self.sent.planes[last - 1] - start + 1
        if n_low == 1 and not place.is_delta:
            return self._matrix[first]
        width = place.size if place.is_delta else _WIDTHS[n_low]
        low = np.zeros((width, self.sent.n_rows), np.uint8)
        low[[plane - start for plane in self.sent.planes[first:last]]] = self._matrix[first:last]
        number = np.ascontiguousarray(low.T).view(f"<u{width}")[:, 0]
        if place.is_delta:
            number.cumsum(dtype=number.dtype, out=number)
        return number.view(place.kind) if width == place.size else number


class PlaneTables(Mapping[str, Rows]):
    """Tables by name, made into rows when they are first asked for."""

    def __init__(self, planes: Mapping[str, PlaneTable]) -> None:
        self._planes = planes

    def __getitem__(self, table: str) -> Rows:
        return self._planes[table].rows()

    def __iter__(self) -> Iterator[str]:
        return iter(self._planes)

    def __len__(self) -> int:
        return len(self._planes)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column lies in a row. size: bytes of one number of it."""

    start: int
    stop: int
    size: int
    kind: str
    is_delta: bool
    is_text: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's row. runs: bytes of neighbouring 8-byte columns that are sent as differences, undone together."""

    dtype: np.dtype[np.void]
    columns: Mapping[str, Place]
    runs: tuple[tuple[int, int], ...]


@functools.cache
def layout(table: str, row_bytes: int) -> Layout:
    """Worked out once per table (and size, as tests make tables of other versions)."""
    columns, runs, at = dict[str, Place](), list[tuple[int, int]](), 0
    for column in TABLES[table]:
        size = np.dtype(column.kind).itemsize
        start, at = at, at + size * column.width
        columns[column.name] = Place(start, at, size, column.kind, column.delta, column.kind.startswith("S"))
        if column.delta:
            assert size == at - start == 8, "only 8-byte numbers are sent as differences"
            follows = runs and runs[-1][1] == start
            runs[-1:] = [(runs[-1][0], at)] if follows else [*runs[-1:], (start, at)]
    assert at == row_bytes
    return Layout(DTYPE[table], columns, tuple(runs))


def to_planes(table: str, rows: Rows) -> Bytes:
    """(bytes per row, n): all planes, those of zeros included."""
    packed = np.array(rows, DTYPE[table])  # a copy: deltas must not touch the caller's rows
    for start, stop in layout(table, packed.itemsize).runs:
        numbers = _numbers(packed, start, stop)
        numbers[1:] = np.diff(numbers, axis=0)
    return np.ascontiguousarray(packed.view(np.uint8).reshape(len(packed), -1).T)


def _numbers(rows: Rows, start: int, stop: int) -> npt.NDArray[np.uint64]:
    """(n, k) the 8-byte numbers between two bytes of the rows, in place."""
    shape, strides = (len(rows), (stop - start) // 8), (rows.itemsize, 8)
    return np.ndarray(shape, np.uint64, rows.data, start, strides)


def _rows(sent: Sent, matrix: Bytes) -> Rows:
    """Whole planes are laid out first and turned into rows at once: writing them column by column is slower."""
    known = layout(sent.table, DTYPE[sent.table].itemsize)
    if sent.is_by_rows:
        every = matrix
    else:
        planes = np.zeros((sent.row_bytes, sent.n_rows), np.uint8)
        planes[list(sent.planes)] = matrix
        every = planes.T
    width = known.dtype.itemsize
    if sent.row_bytes >= width:
        rows: Rows = np.array(every[:, :width], order="C").view(known.dtype)[:, 0]
        runs: Sequence[tuple[int, int]] = known.runs
    else:
        had = [place for place in known.columns.values() if place.stop <= sent.row_bytes]
        width = max((place.stop for place in had), default=0)
        rows = empty_rows(sent.table, sent.n_rows)
        rows.view(np.uint8).reshape(sent.n_rows, -1)[:, :width] = every[:, :width]
        runs = [(place.start, place.stop) for place in had if place.is_delta]
    if sent.is_by_rows:
        return rows
    for start, stop in runs:
        if bisect_left(sent.planes, start) < bisect_left(sent.planes, stop):
            numbers = _numbers(rows, start, stop)
            numbers.cumsum(axis=0, out=numbers)
    return rows


@functools.lru_cache(512)
def planes_of(bits: bytes, row_bytes: int) -> tuple[int, ...]:
    """The numbers of the bits that are set among the first row_bytes, lowest first; the same few come for ever."""
    return tuple(np.unpackbits(np.frombuffer(bits, np.uint8), count=row_bytes, bitorder="little").nonzero()[0].tolist())
