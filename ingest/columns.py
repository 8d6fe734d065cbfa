"""The rows of one table as columns, each as narrow as the numbers in it.

Nine million ops are 1.6 GB as rows and half of that as columns; and who asks for one column of rows reads all of them, since
a row is longer than what memory hands out at once. `Columns` answers as a structured array does: a name gives a column of
the table's own type, positions give rows. It is read, never written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]


class Columns:
    """(n,) rows. A column that is left out is 0 in all of them."""

    __slots__ = ("_held", "_n", "dtype")

    def __init__(self, dtype: np.dtype[np.void], n: int, held: Mapping[str, npt.NDArray[Any]]) -> None:
        self.dtype, self._n, self._held = dtype, n, dict(held)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        """A column, or the rows at these positions."""
        return self._typed(key, slice(None)) if isinstance(key, str) else self._rows(key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Rows:
        return self._rows(slice(None))

    def taken(self, name: str, at: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """`self[name][at]`, without the rest of the column."""
        return self._typed(name, at)

    def floats(self, name: str, at: Ints, since: int = 0) -> npt.NDArray[np.float64]:
        """`self[name][at] - since` as floats; of whole numbers."""
        held = self._held.get(name)
        if held is None or since or held.dtype.kind not in "iu":
            values = self._typed(name, at)
            return (values - since if since else values).astype(np.float64)
        return held.take(at, mode="wrap").astype(
            np.float64
        )  # bounds are not checked one by one; -1 is the last, as usual

    def where(self, at: Ints, names: Collection[str]) -> Columns:
        """The rows at these positions with these columns alone."""
        dtype = np.dtype([(name, self.dtype[name]) for name in names])
        return Columns(dtype, len(at), {name: self._held[name][at] for name in names if name in self._held})

    def _typed(self, name: str, at: Any) -> npt.NDArray[Any]:
        kind = self.dtype[name]
        held = self._held.get(name)
        if held is None:
            return np.broadcast_to(np.zeros((), kind), self._n)[at]
        found: npt.NDArray[Any] = held[at].astype(kind, copy=False)
        return found

    def _rows(self, key: Any) -> Rows:
        at = np.flatnonzero(key) if isinstance(key, np.ndarray) and key.dtype == bool else key
        at = np.asarray(at, np.int64) if isinstance(at, list) else at
        found = np.zeros(np.broadcast_to(np.uint8(0), self._n)[at].shape, self.dtype)
        for name, held in self._held.items():
            found[name] = held[at]
        return found


def taken(rows: Rows | Columns, name: str, at: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`rows[name][at]` of either kind."""
    found: npt.NDArray[Any] = rows.taken(name, at) if isinstance(rows, Columns) else rows[name][at]
    return found


def rows_at(rows: Rows | Columns, which: npt.NDArray[Any]) -> Rows:
    """`rows[which]`, of positions or a mask, row by row: numpy copies structured rows column by column, ten times as slowly."""
    at = np.flatnonzero(which) if which.dtype == bool else which
    return rows[at] if isinstance(rows, Columns) else rows.take(at)


def of_ranks(rows: Rows | Columns, ranks: npt.NDArray[Any]) -> Rows:
    """The rows of these ranks; all of them uncopied where no others are there."""
    is_theirs = np.isin(rows["rank"], ranks)
    return rows if is_theirs.all() and not isinstance(rows, Columns) else rows_at(rows, is_theirs)


def floats(rows: Rows | Columns, name: str, at: Ints, since: int = 0) -> npt.NDArray[np.float64]:
    """`rows[name][at] - since` as floats, of either kind."""
    if isinstance(rows, Columns):
        return rows.floats(name, at, since)
    values = rows[name][at]
    return (values - since if since else values).astype(np.float64)


def picked(rows: Rows | Columns, at: Ints, names: Collection[str]) -> Columns:
    """The rows at these positions with these columns alone."""
    if isinstance(rows, Columns):
        return rows.where(at, names)
    dtype = np.dtype([(name, rows.dtype[name]) for name in names])
    return Columns(dtype, len(at), {name: rows[name][at] for name in names})


class Growing:
    """Columns that become known part by part, of n_max rows at most. Memory that is not written to is not taken."""

    def __init__(self, dtype: np.dtype[np.void], n_max: int) -> None:
        self._dtype, self._n_max, self._n = dtype, n_max, 0
        self._held: dict[str, npt.NDArray[Any]] = {}

    def add(self, n: int, part: Mapping[str, npt.NDArray[Any]]) -> None:
        """So many more rows; columns that are left out are 0 in them."""
        for name, column in part.items():
            held = self._held.get(name)
            if held is None:
                held = self._held[name] = np.zeros(self._n_max, column.dtype)
            elif held.dtype != column.dtype:
                held = self._held[name] = self._widened(held, np.result_type(held.dtype, column.dtype))
            held[self._n : self._n + n] = column
        self._n += n

    def _widened(self, held: npt.NDArray[Any], kind: np.dtype[Any]) -> npt.NDArray[Any]:
        if kind == held.dtype:
            return held
        found = np.zeros(self._n_max, kind)
        found[: self._n] = held[: self._n]
        return found

    def made(self) -> Columns:
        for column in self._held.values():
            column.flags.writeable = False
        return Columns(self._dtype, self._n, {name: column[: self._n] for name, column in self._held.items()})
