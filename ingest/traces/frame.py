"""What a window of an attempt says beside its trace rows: its nodes as they are now, its ranks and communicators."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ingest.door.listening import heard_since_ns
from ingest.jobs.roster_columns import Roster, racks_of, read_node_values, read_roster
from ingest.models import Attempt
from ingest.traces.cutting import GROUP_OF, Bounds, Groups, cut
from ingest.window import TRACE_TABLES, Ints, LateTables, Rows, Window


@dataclass(frozen=True, slots=True)
class Frame:
    """A window of [start_ns, end_ns) before its rows are read. nodes: (N,) NODE. racks: as Window."""

    attempt: Attempt
    roster: Roster
    nodes: Rows
    start_ns: int
    end_ns: int
    now_ns: int
    racks: Mapping[str, str]

    def window(
        self,
        stored: Groups,
        unreadable: Mapping[int, int],
        tables: Collection[str] = TRACE_TABLES,
        *,
        last: Collection[str] = (),
        late: Collection[str] = (),
        ranks: Ints | None = None,
        narrow: Mapping[str, Collection[str] | None] | None = None,
    ) -> Window:
        """The window with the rows of `stored`. unreadable: node id → groups of it that cannot be read.

        last: tables of what is in progress of which the newest rows are wanted, and some older ones may be left out. late:
        tables that are cut out of their batches when they are asked for. ranks: of what members of communicators did, their
        rows alone.
        narrow: tables that are Columns instead of rows, with these columns alone (None: all).
        """
        bounds = Bounds(self.start_ns, self.end_ns, last, ranks)
        rows, damaged = cut([table for table in tables if table not in late], stored, self.roster, bounds, narrow or {})
        kept = {GROUP_OF[table]: stored.get(GROUP_OF[table], ()) for table in late}
        return Window(
            job=self.attempt.job.name,
            attempt=self.attempt.number,
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            now_ns=self.now_ns,
            world_size=self.attempt.world_size or self.roster.largest_communicator(),
            nodes=self.nodes,
            ranks=self.roster.ranks,
            members=self.roster.members,
            tables=LateTables(rows, late, partial(self._cut_late, kept, bounds)) if late else rows,
            heard_since_ns=heard_since_ns(self.attempt, self.now_ns),
            unreadable=_by_name(self.roster, self.nodes, Counter(unreadable) + damaged),
            racks=self.racks,
        )

    def _cut_late(
        self, stored: Groups, bounds: Bounds, table: str, nodes: Ints | None, comms: npt.NDArray[np.uint64] | None
    ) -> Rows:
        groups = stored[GROUP_OF[table]]
        if nodes is not None:
            wanted = set(self.roster.node_ids[nodes].tolist())
            groups = [one for one in groups if one.node_id in wanted]
        if comms is not None:
            bounds = replace(bounds, last=(table,), comms=comms)
        return cut([table], {GROUP_OF[table]: groups}, self.roster, bounds)[0][table]


def read_frame(attempt_id: int, start_ns: int, end_ns: int, now_ns: int | None = None) -> Frame:
    """Raises Attempt.DoesNotExist."""
    attempt = Attempt.objects.select_related("job").get(pk=attempt_id)
    known = read_node_values(attempt_id)
    roster = read_roster(attempt_id, attempt.roster_version, known)
    now_ns = time.time_ns() if now_ns is None else now_ns
    return Frame(attempt, roster, roster.nodes(known), start_ns, end_ns, now_ns, racks_of(known))


def _by_name(roster: Roster, nodes: Rows, counts: Mapping[int, int]) -> dict[str, int]:
    names = dict(zip(roster.node_ids.tolist(), nodes["name"].tolist(), strict=True))
    return {names[node_id]: n for node_id, n in sorted(counts.items()) if node_id in names}
