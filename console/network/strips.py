"""What the strips of a figure of raw epochs hold: the curve of each rank or flow, its ops as they were cut, its microbatches, and
what is seen of pauses, in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from console.incidents.rows import iso_from_ns
from console.network.curves import Curve, curve_of, moved_by_flow, moved_by_rank, pauses
from console.network.epochs_figure import BOUNDS_MAX, Strip
from console.network.fetched import Fetched, Iteration, Kept, enqueued_in
from console.network.microbatches import Mark, marks_of
from ingest.window import Window
from nccl_instrument.tables import TRAFFIC_P2P
from rca.flows.layout import parallelism_in
from rca.flows.measured import usable_rows
from rca.flows.parallelism import Parallelism
from rca.keys import Rows

FLOWS_MAX: Final = 12
LONG_PAUSE_NS: Final = 1_000_000
Stretch = tuple[int, int]
"""From and until, on the server's clock."""


def strips_of_ranks(
    window: Window, fetched: Fetched, comm_id: int, stretch: Stretch, iteration: Iteration | None
) -> list[Strip]:
    """A curve for each rank. iteration: whose microbatches are marked where the group is a pipeline."""
    rows, found = _rows(window, comm_id, stretch), []
    is_marked = iteration is not None and parallelism_in(window).get(comm_id) is Parallelism.PIPELINE
    for one in fetched.ranks:
        moved = moved_by_rank(one.epochs, comm_id, one.offset_ns)
        marks = _marks(window, comm_id, one, iteration, stretch) if is_marked and iteration else []
        found.append(_strip(f"rank {one.rank}", curve_of(moved, *stretch), rows[rows["rank"] == one.rank], marks))
    return found


def strips_of_flows(window: Window, one: Kept, comm_id: int, stretch: Stretch) -> tuple[list[Strip], int]:
    """A curve for each flow of a rank, and how many there was no room for."""
    rows, found = _rows(window, comm_id, stretch), []
    rows = rows[rows["rank"] == one.rank]
    members = window.members[window.members["comm_id"] == np.uint64(comm_id)]
    ranks = dict(zip(members["comm_rank"].tolist(), members["rank"].tolist(), strict=True))
    flows = moved_by_flow(one.epochs, comm_id, one.offset_ns)
    for (peer, channel, _), moved in list(flows.items())[:FLOWS_MAX]:
        mine = rows[(rows["peer"] == peer) & (rows["channel"] == channel)]
        whom = f"rank {ranks[peer]}" if peer in ranks else "?"
        found.append(_strip(f"to {whom}, ch {channel}", curve_of(moved, *stretch), mine, []))
    return found, max(len(flows) - FLOWS_MAX, 0)


def _rows(window: Window, comm_id: int, stretch: Stretch) -> Rows:
    rows = usable_rows(window)
    mine = (rows["comm_id"] == comm_id) & (rows["end_ns"] > stretch[0]) & (rows["start_ns"] < stretch[1])
    found: Rows = rows[mine]
    return found


def _strip(name: str, curve: Curve, rows: Rows, marks: list[Mark]) -> Strip:
    """An op of several flows begins with the first of them and ends with the last; sends to each peer are ops of their own."""
    peer = np.where((rows["flags"] & TRAFFIC_P2P) != 0, rows["peer"], -1).astype(np.int64)
    _, of = np.unique(np.stack([rows["op"], peer], axis=1), axis=0, return_inverse=True)
    n = int(of.max(initial=-1)) + 1
    begins, ends = np.full(n, np.iinfo(np.int64).max), np.zeros(n, np.int64)
    np.minimum.at(begins, of.ravel(), rows["start_ns"])
    np.maximum.at(ends, of.ravel(), rows["end_ns"])
    return Strip(name, curve, np.sort(begins), np.sort(ends), marks)


def _marks(window: Window, comm_id: int, one: Kept, iteration: Iteration, stretch: Stretch) -> list[Mark]:
    members = window.members[window.members["comm_id"] == np.uint64(comm_id)]
    n_ranks, enqueued = int(members["n_ranks"].max(initial=0)), enqueued_in(one, iteration.number)
    found = marks_of(window.rows("op"), comm_id, one.rank, one.place, n_ranks, enqueued)
    return [mark for mark in found if mark.ends_ns > stretch[0] and mark.begins_ns < stretch[1]]


def words_of(strips: Sequence[Strip], stretch: Stretch) -> str:
    """What a point of the curves is, and what is left out."""
    what = f"Bytes sent from {iso_from_ns(stretch[0])} on, {(stretch[1] - stretch[0]) / 1e6:.4g} ms"
    widest = max((strip.curve.epochs for strip in strips), default=1)
    said = f"{what}; each point is one epoch."
    if widest > 1:
        said = (
            f"{what}; each point is {widest} epochs: dark their mean, light the fullest of them. Where light stands above dark "
            "there are pauses, which show when the stretch is shorter."
        )
    n = max((len(strip.begins_ns) for strip in strips), default=0)
    return said + (f" Of {n:,} ops of a rank the first {BOUNDS_MAX} are marked." if n > BOUNDS_MAX else "")


def pauses_of(one: Kept, comm_id: int, stretch: Stretch) -> str:
    """How often and how long the rank was silent between its bytes: milliseconds (a late receiver) and microseconds (waiting
    for a slow one) apart."""
    _, lengths = pauses(moved_by_rank(one.epochs, comm_id, one.offset_ns), *stretch, 1)
    if not len(lengths):
        return f" Rank {one.rank} never paused between its bytes."
    long, short = lengths[lengths >= LONG_PAUSE_NS], lengths[lengths < LONG_PAUSE_NS]
    told = [
        f"{len(some):,} of {word}, {some.sum() / 1e6:.3g} ms in all"
        for some, word in ((long, "a millisecond or more"), (short, "less than a millisecond"))
        if len(some)
    ]
    return f" Pauses of rank {one.rank} between its bytes: {'; '.join(told)}."
