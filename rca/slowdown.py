"""A slowdown: the iterations of a job before and after it set in, and what every rank did differently.

What Progress is for a job at rest, this is for one that goes on slowly. It is made once from a window that reaches back
before the slowdown; the rules of stragglers read it. A job whose ops do not repeat, or whose window holds too little of
either time, has no slowdown to explain, and the rules then say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import OP_HAS_FLOWS
from rca.delays import Delays, own_delays
from rca.inside import Inside, Wait, inside_of
from rca.iterations import Iterations, iterations_of, stretches
from rca.keys import Ints, Mask
from rca.ranks import Ranks, known_ranks
from rca.settings import Settings

ITERATIONS_MIN = 3
"""Of each of the two times: fewer tell nothing of what is usual."""
LOST_MIN = 0.02
"""Share of an iteration: less is no slowdown."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """usual, slow: (I,) iterations before and after the onset. usual_ns, slow_ns: how long they last; of the slow ones
    the mean, since a slowdown may come and go. Ranks of `iterations` are at position `at` of `ranks`, (R,).
    """

    window: Window
    iterations: Iterations
    ranks: Ranks
    at: Ints
    usual: Mask
    slow: Mask
    usual_ns: float
    slow_ns: float
    delays: Delays
    inside: Inside

    @property
    def lost_ns(self) -> float:
        """Time lost per iteration."""
        return max(self.slow_ns - self.usual_ns, 0.0)

    def node(self, rank_at: Ints) -> Ints:
        """Node of the ranks at these positions of `iterations.ranks`."""
        return self.ranks.node[self.at[rank_at]]


def slowdown_of(window: Window, onset_ns: int, settings: Settings) -> Slowdown | None:
    """What changed at `onset_ns`; None when the window cannot tell."""
    iterations = iterations_of(window)
    usual, slow = stretches(iterations, onset_ns)
    if usual.sum() < ITERATIONS_MIN or slow.sum() < ITERATIONS_MIN:
        return None
    lengths = lengths_ns(iterations)
    usual_ns, slow_ns = float(np.nanmedian(lengths[usual])), float(np.nanmean(lengths[slow]))
    if not slow_ns > (1 + LOST_MIN) * usual_ns:
        return None
    ranks = known_ranks(window, settings)
    group = node_groups(window, iterations.ranks)
    inside = inside_of(iterations, usual, slow)
    return Slowdown(
        window=window, iterations=iterations, ranks=ranks, at=ranks.position(iterations.ranks), usual=usual, slow=slow,
        usual_ns=usual_ns, slow_ns=slow_ns,
        delays=own_delays(iterations, group, usual, inside.usual[Wait.NETWORK]), inside=inside,
    )  # fmt: skip


def node_groups(window: Window, ranks: Ints) -> Ints:
    """(R,) the lowest of the ranks each one shares a communicator with that the network does not see; itself if none."""
    done = window.rows("op")
    crosses = np.unique(done["comm_id"][(done["flags"] & OP_HAS_FLOWS) != 0])
    members = window.members[(window.members["rank"] >= 0) & (window.members["n_ranks"] > 1)]
    hidden = members[(members["n_nodes"] == 1) | ((members["n_nodes"] <= 0) & ~np.isin(members["comm_id"], crosses))]
    group = {int(rank): int(rank) for rank in ranks}
    order = np.argsort(hidden["comm_id"], kind="stable")
    bounds = np.flatnonzero(np.diff(hidden["comm_id"][order])) + 1
    for mates in np.split(hidden["rank"][order], bounds):
        mine = [_lowest(group, int(rank)) for rank in mates if int(rank) in group]
        group.update(dict.fromkeys(mine, min(mine, default=0)))
    return np.array([_lowest(group, int(rank)) for rank in ranks], np.int64)


def _lowest(group: dict[int, int], rank: int) -> int:
    while group[rank] != rank:
        rank = group[rank]
    return rank


def lengths_ns(iterations: Iterations) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(I,) how long each iteration lasted, by the ranks' own clocks; NaN for the last."""
    lengths = np.full(iterations.n, np.nan)
    steps = np.diff(iterations.began, axis=1)
    known = np.isfinite(steps).any(axis=0)
    lengths[:-1][known] = np.nanmedian(steps[:, known], axis=0)
    return lengths
