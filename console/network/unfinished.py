"""Ops that ranks have entered and that do not end: how many of a group, since when none has ended, at which ranks and on which
flows. Rates tell of what moved; of a job that hangs the tab has to say first what does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from console.incidents.rows import iso_from_ns
from ingest.window import Window
from nccl_instrument.tables import FUNCS, OP_API, OP_NO_NETWORK
from rca.keys import Rows

SECOND: Final = 1_000_000_000
HEARD_NS: Final = 5 * SECOND // 2
"""Nodes tell of ops in progress once a second."""
STILL_NS: Final = 3 * SECOND
"""So long an op is in progress, and its rank ends none of the group, before it is said not to end."""
SHOWN_MAX: Final = 32
TABLES: Final = ("live_op", "progress", "flow")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Of a group, as at `at`. n_ops: different ops; oldest: their first in words. last_done_at: when an op of the group ended
    last at any rank; None where none is known to have. ranks: the first n of the n_ranks that are in one. n_flows: that stand
    still in one. n_read: members on nodes that were read, and those whose node nobody knows; all else is of these.
    n_unheard: of these, whose nothing was heard shortly before `at`.
    """

    at: str
    n_ops: int
    oldest: str
    entered_at: str | None
    last_done_at: str | None
    ranks: list[int]
    n_ranks: int
    n_flows: int
    n_read: int
    n_unheard: int


def standing_ops(window: Window) -> Rows:
    """(n,) rows of `live_op`, the newest of each rank and op, that have stood for STILL_NS at the window's end."""
    rows = window.rows("live_op")
    rows = rows[(rows["flags"] & (OP_NO_NETWORK | OP_API)) == 0]  # when these end nobody sees
    rows = rows[(rows["done_ns"] == 0) & (rows["rank"] >= 0) & (rows["enqueued_ns"] < window.end_ns - STILL_NS)]
    rows = rows[np.lexsort((-rows["tick_ns"], rows["peer"], rows["op"], rows["rank"], rows["comm_id"]))]
    first = np.ones(len(rows), np.bool_)
    first[1:] = np.any([rows[name][1:] != rows[name][:-1] for name in ("comm_id", "rank", "op", "peer")], axis=0)
    rows = rows[first]
    moving = _moving(window)
    still = [
        (comm, rank) not in moving for comm, rank in zip(rows["comm_id"].tolist(), rows["rank"].tolist(), strict=True)
    ]
    found: Rows = rows[np.array(still, np.bool_)]
    return found


def _moving(window: Window) -> set[tuple[int, int]]:
    """Communicators and ranks that ended an op lately."""
    progress = window.rows("progress")
    lately = progress[progress["last_done_ns"] >= window.end_ns - STILL_NS]
    return set(zip(lately["comm_id"].tolist(), lately["rank"].tolist(), strict=True))


def by_group(standing: Rows, rank: int) -> dict[int, int]:
    """Communicator → how many ops of it this rank stands in."""
    return Counter(standing["comm_id"][standing["rank"] == rank].tolist())


def by_rank(standing: Rows, comm_id: int) -> dict[int, int]:
    """Rank → how many ops of this communicator it stands in."""
    return Counter(standing["rank"][standing["comm_id"] == np.uint64(comm_id)].tolist())


def unfinished_of(window: Window, standing: Rows, comm_id: int, members: Collection[int], n_read: int) -> Unfinished:
    """members: ranks of the communicator on nodes that were read; n_read: how many there should be. window: as
    standing_ops had it. A rank is heard that tells of any communicator: of one that has not begun nobody tells."""
    mine = standing[standing["comm_id"] == np.uint64(comm_id)]
    progress = window.rows("progress")
    heard = set(progress["rank"].tolist()) & set(members)
    progress = progress[progress["comm_id"] == np.uint64(comm_id)]
    ranks = np.unique(mine["rank"]).tolist()
    oldest = mine[np.argmin(mine["enqueued_ns"])] if len(mine) else None
    return Unfinished(
        at=iso_from_ns(window.end_ns) or "",
        n_ops=len(np.unique(np.stack([mine["op"].astype(np.int64), mine["func"]], axis=1), axis=0)),
        oldest="" if oldest is None else f"{FUNCS[int(oldest['func'])]} {int(oldest['op'])}",
        entered_at=None if oldest is None else iso_from_ns(int(oldest["enqueued_ns"])),
        last_done_at=_or_none(int(progress["last_done_ns"].max(initial=0))),
        ranks=ranks[:SHOWN_MAX], n_ranks=len(ranks), n_flows=_still_flows(window, mine),
        n_read=n_read, n_unheard=max(n_read - len(heard), 0),
    )  # fmt: skip


def _still_flows(window: Window, mine: Rows) -> int:
    """Flows of these ops, each counted once however often it was told of."""
    flow = window.rows("flow")
    ops = set(zip(mine["rank"].tolist(), mine["op"].tolist(), strict=True))
    flow = flow[np.isin(flow["comm_id"], mine["comm_id"]) & (flow["stuck_ns"] >= STILL_NS)]
    names = ("rank", "op", "channel", "peer", "direction")
    keys = set(zip(*(flow[name].tolist() for name in names), strict=True))
    return len({key[:1] + key[2:] for key in keys if key[:2] in ops})


def _or_none(ns: int) -> str | None:
    return iso_from_ns(ns) if ns else None
