"""Cuts the rows of a window out of stored batches: inside its time, with ranks and nodes joined, times in unix ns.

Batches are inflated one after the other and turned into rows a chunk at a time (stacked.py), so that what is in memory is
the window's rows and the batches as they are stored, which are a twentieth of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from ingest.columns import Growing
from ingest.door.arrival import completed_ns
from ingest.jobs.roster_columns import Roster, place_members, place_ranks
from ingest.traces.stacked import CHUNK_ROWS, Stack, is_plain, newest
from ingest.traces.uncollected import uncollected
from ingest.window import WINDOW_DTYPE, Rows
from nccl_instrument.planes import PlaneTable
from nccl_instrument.tables import GROUPS, ROW_TIME, TIME_COLUMNS
from nccl_instrument.wire import BadBatch, PackedBatch, open_batch

Ints = npt.NDArray[np.int64]
GROUP_OF: Final = {table: group for group, held in GROUPS.items() for table in held}


@dataclass(frozen=True, slots=True)
class Group:
    """One table group of one stored batch, as it is stored."""

    node_id: int
    shift_ns: int
    end_ns: int
    packed: bytes


Groups = Mapping[str, Sequence[Group]]
Opened = tuple[Group, PackedBatch]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A window's time, [start_ns, end_ns). last: tables of OF_ONE of which the newest rows are wanted, and some older ones
    may be left out. ranks, comms: of what members of communicators did, the rows of these ranks, and of these
    communicators (sorted), alone; None: of all."""

    start_ns: int
    end_ns: int
    last: Collection[str] = ()
    ranks: Ints | None = None
    comms: npt.NDArray[np.uint64] | None = None


@uncollected()
def cut(
    tables: Collection[str],
    stored: Groups,
    roster: Roster,
    bounds: Bounds,
    narrow: Mapping[str, Collection[str] | None] = MappingProxyType({}),
) -> tuple[dict[str, Rows], Counter[int]]:
    """The rows of each table, of those in `narrow` as Columns (of these columns; None: all), and node id → groups of it that
    do not inflate.

    Nodes that joined since the roster was read are left out: the next window will have them. Rows come node by node, in
    each in the order of time: what is of one rank then lies together, and is found in the caches.
    """
    known, unreadable = set(roster.node_ids.tolist()), Counter[int]()
    cuts: dict[str, _Cut] = {}
    for group, stored_groups in stored.items():
        names = [table for table in GROUPS[group] if table in tables]
        held = _opened(stored_groups, known, unreadable) if names else []
        wanted = [
            _NarrowCut(table, held, roster, bounds, narrow[table])
            if table in narrow
            else _Cut(table, held, roster, bounds)
            for table in names
        ]
        for one, packed in held:
            try:
                planes = packed.inflate()
            except BadBatch:  # damaged: the rest is still worth a look
                unreadable[one.node_id] += 1
                continue
            for cutting in wanted:
                if cutting.table in planes:
                    cutting.add(one, planes[cutting.table])
        cuts |= {cutting.table: cutting for cutting in wanted}
    return {
        table: cuts[table].rows() if table in cuts else np.zeros(0, WINDOW_DTYPE[table]) for table in tables
    }, unreadable


def _opened(groups: Sequence[Group], known: set[int], unreadable: Counter[int]) -> list[Opened]:
    """Those of known nodes, by node and time, without those that cannot be read, which are counted."""
    found = []
    for one in sorted(groups, key=lambda one: (one.node_id, one.end_ns)):
        try:
            if one.node_id in known:
                found.append((one, open_batch(one.packed)))
        except BadBatch:
            unreadable[one.node_id] += 1
    return found


class _Cut:
    """The rows of one table as they become known."""

    def __init__(self, table: str, groups: Sequence[Opened], roster: Roster, bounds: Bounds) -> None:
        self.table, self._roster, self._bounds = table, roster, bounds
        self._waiting: dict[bool, list[tuple[Group, PlaneTable]]] = {True: [], False: []}
        self._n_waiting = {True: 0, False: 0}
        self._is_member = "comm_id" in (WINDOW_DTYPE[table].names or ())
        self._begin(sum(packed.n_rows(table) for _, packed in groups))

    def add(self, group: Group, piece: PlaneTable) -> None:
        kind = is_plain(piece)
        self._waiting[kind].append((group, piece))
        self._n_waiting[kind] += len(piece)
        if self._n_waiting[kind] >= CHUNK_ROWS:
            self._flush(kind)

    def rows(self) -> Rows:
        """(n,) all of them, with their ranks."""
        self._flush(True)
        self._flush(False)
        return self._end()

    def _begin(self, n_rows: int) -> None:
        self._rows, self._n = np.zeros(n_rows, WINDOW_DTYPE[self.table]), 0  # memory not written to is not taken

    def _keep(self, stack: Stack, at: Ints, shift_ns: Ints, node: Ints) -> None:
        """These rows of the stack. shift_ns, node: of each of them."""
        found = self._rows[self._n : self._n + len(at)]
        stack.write(found, None if len(at) == len(stack) else at)
        _shift(self.table, found, shift_ns)
        found["node"] = node
        self._n += len(at)

    def _end(self) -> Rows:
        rows = self._rows[: self._n]
        rows["rank"] = place_ranks(self._roster, self.table, rows)
        return rows

    def _flush(self, kind: bool) -> None:
        chunk, self._waiting[kind], self._n_waiting[kind] = self._waiting[kind], [], 0
        if not chunk:
            return
        stack, groups = Stack(self.table, [piece for _, piece in chunk]), [group for group, _ in chunk]
        shift_ns = np.repeat(_column(groups, "shift_ns"), stack.lengths)
        when = _when(self.table, stack, shift_ns, np.repeat(_column(groups, "end_ns"), stack.lengths))
        at = self._wanted(stack, np.flatnonzero((when >= self._bounds.start_ns) & (when < self._bounds.end_ns)))
        node = np.repeat(self._roster.node_index(_column(groups, "node_id")), stack.lengths)
        self._keep(stack, at, shift_ns[at], node[at].astype(np.int64))

    def _wanted(self, stack: Stack, at: Ints) -> Ints:
        """Those of these positions that are asked for."""
        ranks, comms = self._bounds.ranks, self._bounds.comms
        if comms is not None and self._is_member:
            at = at[_is_in(stack["comm_id"][at], comms)]
        if ranks is not None and self._is_member:
            at = at[np.isin(place_members(self._roster, stack)[at], ranks)]
        return newest(self.table, stack, at) if self.table in self._bounds.last else at


class _NarrowCut(_Cut):
    """The same as Columns, of a table whose rows are of communicators. columns: no others are kept; None: all."""

    def __init__(
        self, table: str, groups: Sequence[Opened], roster: Roster, bounds: Bounds, columns: Collection[str] | None
    ) -> None:
        self._columns = columns
        super().__init__(table, groups, roster, bounds)

    def _begin(self, n_rows: int) -> None:
        self._made = Growing(WINDOW_DTYPE[self.table], n_rows)

    def _keep(self, stack: Stack, at: Ints, shift_ns: Ints, node: Ints) -> None:
        is_all, found = len(at) == len(stack), dict[str, npt.NDArray[np.generic]]()
        for name in stack.names if self._columns is None else [one for one in stack.names if one in self._columns]:
            column = stack.narrow(name) if is_all else stack.narrow(name).take(at)
            if name in TIME_COLUMNS[self.table]:
                column = np.where(column != 0, column + shift_ns, 0)
            found[name] = column
        found["rank"] = place_members(self._roster, stack)[at]
        found["node"] = node.astype(np.int32)
        self._made.add(len(at), found)

    def _end(self) -> Rows:
        return cast(Rows, self._made.made())  # read as rows are: see Window


def _is_in(values: npt.NDArray[np.uint64], ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(values), bool)
    found: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


def _column(groups: Sequence[Group], name: str) -> Ints:
    return np.array([getattr(group, name) for group in groups], np.int64)


def _shift(table: str, rows: Rows, shift_ns: Ints) -> None:
    for name in TIME_COLUMNS[table]:
        column = rows[name]
        np.add(column, shift_ns, out=column, where=column != 0)


def _when(table: str, rows: Stack, shift_ns: Ints, batch_end_ns: Ints) -> Ints:
    """The time a row belongs to, unix ns: completion of an op, tick of a sample, end of a step; a loss: of its batch."""
    if table == "loss":
        return batch_end_ns
    at = completed_ns(rows) if table == "op" else rows[ROW_TIME[table]]
    return np.where(at != 0, at + shift_ns, 0)
