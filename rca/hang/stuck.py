"""How long each watched rank has been stuck: ops in progress over the network, and nothing completed or moved since.

A rank without an op in progress has stalled for 0: it is between ops. An op that still moves data is slow, not stuck.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ingest.columns import of_ranks
from ingest.window import WINDOW_DTYPE, Window
from rca.hang.fronts import NEVER, known_fronts
from rca.hang.known import last_known
from rca.hang.members import known_members
from rca.keys import Ints
from rca.settings import Settings

PARTS = 3
"""Of a time: who completes ops in each of them goes on all the while."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A sampled rank in one look. Times in data time; 0 where unknown.

    stalled_ns: how long it has had ops in progress with nothing completing or moving. since_ns: when that began.
    last_done_ns: its last completion. active_ns: that, or when one of its flows last moved.
    n_in_progress: its unfinished ops over the network. seen_ns: newest tick.
    """

    rank: int
    stalled_ns: int
    since_ns: int
    last_done_ns: int
    active_ns: int
    n_in_progress: int
    seen_ns: int


def watched_ranks(window: Window, ranks: Ints, settings: Settings) -> tuple[Watched, ...]:
    """The state of `ranks` (global, sorted)."""
    known = last_known(_only(window, ranks), settings)
    fronts = known_fronts(known, known_members(known), np.zeros(0, np.uint64), settings)
    n = len(known.ranks.rank)
    last_done, oldest, moved = (np.zeros(n, np.int64) for _ in range(3))
    oldest[:] = NEVER
    np.maximum.at(last_done, known.progress_at, known.progress["last_done_ns"])
    done = known.window.rows("op")
    np.maximum.at(last_done, known.ranks.position(done["rank"]), done["done_ns"])
    np.minimum.at(oldest, fronts.at, fronts.enqueued_ns)
    np.maximum.at(moved, known.flow_at, known.flow["tick_ns"] - known.flow["stuck_ns"])
    n_ops = np.bincount(fronts.at, minlength=n)
    found = []
    for at in known.ranks.position(ranks):
        seen, is_in_op = int(known.ranks.seen_ns[at]), bool(oldest[at] < NEVER)
        since = max(int(last_done[at]), int(oldest[at]), int(moved[at])) if is_in_op else 0
        stalled = max(0, seen - since) if is_in_op else 0
        rank = int(known.ranks.rank[at])
        active = max(int(last_done[at]), int(moved[at]))
        found.append(Watched(rank, stalled, since, int(last_done[at]), active, int(n_ops[at]), seen))
    return tuple(found)


def resumed_ranks(window: Window, watched: tuple[Watched, ...], delta_ns: int, settings: Settings) -> list[int]:
    """Watched ranks that stood still with the stuck ones and have gone on since those were last heard of.

    Nodes report up to a second apart: when a stall ends, the news of it arrives from some nodes first, and the older
    news of the others must not be taken for a hang. A rank that went on all the time is no such news.
    """
    stuck = [one for one in watched if one.stalled_ns >= delta_ns]
    if not stuck:
        return []
    heard, since = min(one.seen_ns for one in stuck), min(one.since_ns for one in stuck)
    done = window.rows("op")
    during = (done["done_ns"] > since + settings.spread_ns) & (done["done_ns"] < heard - settings.spread_ns)
    busy = set(done["rank"][during].tolist())
    return [one.rank for one in watched if one.active_ns > heard - settings.spread_ns and one.rank not in busy]


def ranks_going_on(window: Window, since_ns: int, settings: Settings) -> Ints:
    """Global ranks, ascending, that have completed ops in every part of the time since then."""
    done = window.rows("op")
    start_ns = since_ns + settings.spread_ns
    part = (
        (done["done_ns"].astype(np.int64) - start_ns) * PARTS // max(window.end_ns - settings.spread_ns - start_ns, 1)
    )
    each = [done["rank"][(done["done_ns"] > start_ns) & (part == one)] for one in range(PARTS)]
    found = np.unique(each[0])
    for ranks in each[1:]:
        found = np.intersect1d(found, ranks)
    return found.astype(np.int64)


def _only(window: Window, ranks: Ints) -> Window:
    """`window` with the trace rows of these ranks alone, so that a look costs the same at any size of job."""
    tables = {}
    for name in WINDOW_DTYPE:
        rows = window.rows(name)
        tables[name] = of_ranks(rows, ranks) if name not in ("nic", "loss") else rows
    return replace(window, tables=tables)
