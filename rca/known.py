"""The last that is known of every rank's ops and flows: the newest row of each, with what completed since left out.

A window holds ten ticks a second of everything in progress; a hang needs only where things came to rest. Ranks are
positions into one sorted array here, so that the steps after this one are array operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.window import Window
from rca.keys import Ints, Keys, Rows, in_sorted, latest, mix, op_keys
from rca.ranks import Ranks, known_ranks
from rca.settings import Settings


@dataclass(frozen=True, slots=True)
class Known:
    """Newest rows. `*_at`: position of the row's rank in `ranks`; `*_key`: the row's op (keys.op_keys).

    finished: keys of (rank position, op) known to be complete, sorted; finished_ns: when. op_at, op_key: of the rows of the
    window's table `op`, completed or not.
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
    op_key: Keys


def last_known(window: Window, settings: Settings) -> Known:
    """The newest rows of `window`."""
    ranks = known_ranks(window, settings)
    ops = window.rows("op")
    op_at, op_key, done_ns = ranks.position(ops["rank"]), op_keys(ops), ops["done_ns"].astype(np.int64)
    done = np.flatnonzero((done_ns > 0) & (op_at >= 0))
    finished, first = np.unique(mix(op_at[done], op_key[done]), return_index=True)
    flow, flow_at, flow_key = _in_progress(window.rows("flow"), ranks, finished, settings)
    live, live_at, live_key = _in_progress(window.rows("live_op"), ranks, finished, settings)
    progress = window.rows("progress")
    progress = progress[progress["rank"] >= 0]
    progress = progress[latest(mix(progress["rank"], progress["comm_id"]), progress["tick_ns"])]
    return Known(
        window, ranks, flow, flow_at, flow_key, live, live_at, live_key,
        progress, ranks.position(progress["rank"]), finished, done_ns[done[first]], op_at, op_key,
    )  # fmt: skip


def _in_progress(rows: Rows, ranks: Ranks, finished: Keys, settings: Settings) -> tuple[Rows, Ints, Keys]:
    """Newest row of every op or flow, its rank's position and its op's key."""
    at = ranks.position(rows["rank"])
    is_fresh = at >= 0
    is_fresh[is_fresh] = rows["tick_ns"][is_fresh] >= ranks.seen_ns[at[is_fresh]] - settings.fresh_ns
    rows, at = rows[is_fresh], at[is_fresh]
    key = op_keys(rows)
    is_flow = "counters" in (rows.dtype.names or ())
    own = mix(at, key, rows["channel"], rows["peer"], rows["direction"]) if is_flow else mix(at, key)
    keep = latest(own, rows["tick_ns"])
    keep = keep[~in_sorted(mix(at[keep], key[keep]), finished)]
    return rows[keep], at[keep], key[keep]
