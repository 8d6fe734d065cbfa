"""The last that is known of every rank's ops and flows: the newest row of each, with what completed since left out.

A window holds ten ticks a second of everything in progress; a hang needs only where things came to rest. Ranks are
positions into one sorted array here, so that the steps after this one are array operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.columns import rows_at
from ingest.window import Window
from rca.keys import Ints, Keys, Mask, Rows, in_sorted, is_p2p, latest, mix, op_keys
from rca.ranks import Ranks, known_ranks
from rca.settings import Settings


@dataclass(frozen=True, slots=True)
class Known:
    """Newest rows. `*_at`: position of the row's rank in `ranks`; `*_key`: the row's op (keys.op_keys).

    finished: keys of (rank position, op) known to be complete, sorted; finished_ns: when. op_at, op_p2p: of the rows of the
    window's table `op`, completed or not. recent: those rows that can be of an op in progress anywhere, and no others
    are in `finished`; recent_key: theirs.
    """

    window: Window
    ranks: Ranks
    flow: Rows
    flow_at: Ints
    flow_key: Keys
    live: Rows
    live_at: Ints
    live_key: Keys
    progress: Rows
    progress_at: Ints
    finished: Keys
    finished_ns: Ints
    op_at: Ints
    op_p2p: Mask
    recent: Ints
    recent_key: Keys


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest row of every op or flow, its rank's position and its op's key."""

    rows: Rows
    at: Ints
    key: Keys

    def without(self, finished: Keys) -> _Newest:
        keep = np.flatnonzero(~in_sorted(mix(self.at, self.key), finished))
        return _Newest(rows_at(self.rows, keep), self.at[keep], self.key[keep])


def last_known(window: Window, settings: Settings) -> Known:
    """The newest rows of `window`."""
    ranks = known_ranks(window, settings)
    ops = window.rows("op")
    op_at, op_p2p = ranks.position(ops["rank"]), is_p2p(ops)
    flow, live = (_newest(window.rows(table), ranks, settings) for table in ("flow", "live_op"))
    recent = _recent(ops, flow, live)
    recent_key = op_keys(rows_at(ops, recent), op_p2p[recent])
    done_ns, at = ops["done_ns"][recent].astype(np.int64), op_at[recent]
    done = np.flatnonzero((done_ns > 0) & (at >= 0))
    finished, first = np.unique(mix(at[done], recent_key[done]), return_index=True)
    flow, live = flow.without(finished), live.without(finished)
    progress = window.rows("progress")
    seen = np.flatnonzero(progress["rank"] >= 0)
    rank, comm_id, tick_ns = (progress[name][seen] for name in ("rank", "comm_id", "tick_ns"))
    progress = rows_at(progress, seen[latest(mix(rank, comm_id), tick_ns)])
    return Known(
        window, ranks, flow.rows, flow.at, flow.key, live.rows, live.at, live.key,
        progress, ranks.position(progress["rank"]), finished, done_ns[done[first]], op_at, op_p2p, recent, recent_key,
    )  # fmt: skip


def _newest(rows: Rows, ranks: Ranks, settings: Settings) -> _Newest:
    at, tick_ns = ranks.position(rows["rank"]), rows["tick_ns"].astype(np.int64)
    is_fresh = (at >= 0) & (tick_ns >= np.append(ranks.seen_ns, 0)[at] - settings.fresh_ns)
    key = op_keys(rows)
    is_flow = "counters" in (rows.dtype.names or ())
    own = mix(at, key, rows["channel"], rows["peer"], rows["direction"]) if is_flow else mix(at, key)
    fresh = np.flatnonzero(is_fresh)
    keep = fresh[latest(own[fresh], tick_ns[fresh])]
    return _Newest(rows_at(rows, keep), at[keep], key[keep])


def _recent(ops: Rows, *in_progress: _Newest) -> Ints:
    """Rows of the ops that are no older than the oldest in progress in their communicator."""
    comm_id = np.concatenate([newest.rows["comm_id"] for newest in in_progress])
    number = np.concatenate([newest.rows["op"].astype(np.int64) for newest in in_progress])
    ids, place = np.unique(comm_id, return_inverse=True)
    if not len(ids):
        return np.zeros(0, np.int64)
    oldest = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(oldest, place, number)
    theirs = ops["comm_id"]
    place = np.minimum(np.searchsorted(ids, theirs), len(ids) - 1)
    recent: Ints = np.flatnonzero((ops["op"].astype(np.int64) >= oldest[place]) & (ids[place] == theirs))
    return recent
