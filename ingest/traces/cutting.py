"""Cuts the rows of a window out of stored batches: inside its time, with ranks and nodes joined, times in unix ns.

Batches are inflated one after the other and turned into rows a chunk at a time (stacked.py), so that what is in memory is
the window's rows and the batches as they are stored, which are a twentieth of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ingest.door.arrival import completed_ns
from ingest.jobs.roster_columns import Roster, place_members, place_ranks
from ingest.traces.stacked import CHUNK_ROWS, OF_ONE, Stack, is_plain, newest
from ingest.window import WINDOW_DTYPE, Rows
from nccl_instrument.planes import PlaneTable
from nccl_instrument.tables import GROUPS, ROW_TIME, TIME_COLUMNS
from nccl_instrument.wire import BadBatch, PackedBatch, open_batch

Ints = npt.NDArray[np.int64]
GROUP_OF: Final = {table: group for group, held in GROUPS.items() for table in held}


@dataclass(frozen=True, slots=True)
class Group:
    """One table group of one stored batch. packed: opened, or as it is stored, when it may never be asked for."""

    node_id: int
    shift_ns: int
    end_ns: int
    packed: PackedBatch | bytes

    def opened(self) -> Group:
        """Raises BadBatch."""
        return replace(self, packed=open_batch(self.packed)) if isinstance(self.packed, bytes) else self

    def n_rows(self, table: str) -> int:
        """Of an opened group."""
        return self.packed.n_rows(table) if isinstance(self.packed, PackedBatch) else 0

    def inflate(self) -> dict[str, PlaneTable]:
        """Of an opened group. Raises BadBatch."""
        return self.packed.inflate() if isinstance(self.packed, PackedBatch) else {}


Groups = Mapping[str, Sequence[Group]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A window's time, [start_ns, end_ns). is_last: of what is in progress the newest rows are wanted, and some older
    ones may be left out. ranks: of what members of communicators did, the rows of these ranks alone; None: of all."""

    start_ns: int
    end_ns: int
    is_last: bool = False
    ranks: Ints | None = None


def cut(
    tables: Collection[str], stored: Groups, roster: Roster, bounds: Bounds
) -> tuple[dict[str, Rows], Counter[int]]:
    """The rows of each table, and node id → groups of it that do not inflate.

    Nodes that joined since the roster was read are left out: the next window will have them. Rows come node by node, in
    each in the order of time: what is of one rank then lies together, and is found in the caches.
    """
    known, unreadable = set(roster.node_ids.tolist()), Counter[int]()
    cuts: dict[str, _Cut] = {}
    for group, stored_groups in stored.items():
        names = [table for table in GROUPS[group] if table in tables]
        held = _opened(stored_groups, known, unreadable) if names else []
        wanted = [_Cut(table, held, roster, bounds) for table in names]
        for one in held:
            try:
                planes = one.inflate()
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


def _opened(groups: Sequence[Group], known: set[int], unreadable: Counter[int]) -> list[Group]:
    """Those of known nodes, by node and time, without those that cannot be read, which are counted."""
    found = []
    for one in sorted(groups, key=lambda one: (one.node_id, one.end_ns)):
        try:
            if one.node_id in known:
                found.append(one.opened())
        except BadBatch:
            unreadable[one.node_id] += 1
    return found


class _Cut:
    """The rows of one table as they become known."""

    def __init__(self, table: str, groups: Sequence[Group], roster: Roster, bounds: Bounds) -> None:
        self.table, self._roster, self._bounds = table, roster, bounds
        n_rows = sum(group.n_rows(table) for group in groups)
        self._rows, self._n = np.zeros(n_rows, WINDOW_DTYPE[table]), 0  # memory that is not written to is not taken
        self._waiting: dict[bool, list[tuple[Group, PlaneTable]]] = {True: [], False: []}
        self._n_waiting = {True: 0, False: 0}

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
        at = np.flatnonzero((when >= self._bounds.start_ns) & (when < self._bounds.end_ns))
        if self._bounds.ranks is not None and "comm_id" in (self._rows.dtype.names or ()):
            at = at[np.isin(place_members(self._roster, stack)[at], self._bounds.ranks)]
        if self._bounds.is_last and self.table in OF_ONE:
            at = newest(self.table, stack, at)
        found = self._rows[self._n : self._n + len(at)]
        stack.write(found, None if len(at) == len(stack) else at)
        _shift(self.table, found, shift_ns[at])
        found["node"] = np.repeat(self._roster.node_index(_column(groups, "node_id")), stack.lengths)[at]
        self._n += len(at)


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
