"""A slowdown: the iterations of a job before and after it set in, and what every rank did differently.

What Progress is for a job at rest, this is for one that goes on slowly. It is made once from a window that reaches back
before the slowdown; the rules of stragglers read it. A job whose ops do not repeat, or whose window holds too little of
either time, has no slowdown to explain, and the rules then say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import FUNC_RECV, SOCKET
from rca.findings import Symptom
from rca.keys import Ints, Mask, mix
from rca.ranks import TICKED_ONCE, Ranks, known_ranks
from rca.settings import Settings
from rca.slow.cover import Covered, covered
from rca.slow.cuts import same_cut
from rca.slow.delays import Delays, own_delays
from rca.slow.inside import Inside, Wait, inside_of
from rca.slow.iterations import Iterations, iterations_of, stretches
from rca.slow.launches import launches_of
from rca.slow.streams import Floats

ITERATIONS_MIN = 3
"""Of each of the two times: fewer tell nothing of what is usual."""
LOST_MIN = 0.02
"""Share of an iteration: less is no slowdown."""
SHOWN_MIN = 0.5
"""Of what a job lost that crept: a window that shows less of it has nothing to compare with."""
NOTHING_REPEATS = "The ops of this job do not repeat themselves, so none can be compared with itself."
NO_OPS = "No ops of this job are in this window: only what its recorders and nodes say is known."
TOO_FEW = "Too few iterations before or after the slowdown are in this window to compare them."
CREPT_BEFORE = (
    "The job crept to this pace: this window shows less than half of what was lost since its start, so nothing in it is "
    "compared."
)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Slowdown:
    """usual, slow: (I,) iterations before and after the onset. usual_ns, slow_ns: how long they last; of the slow ones
    the mean, since a slowdown may come and go. Ranks of `iterations` are at position `at` of `ranks`, (R,). waits: what
    each rank waits for more than usual, summed over its ops.
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
    waits: dict[Wait, Covered]

    @property
    def lost_ns(self) -> float:
        """Time lost per iteration."""
        return max(self.slow_ns - self.usual_ns, 0.0)

    def sum(self, values: Floats) -> Floats:
        """(R,) of each rank the sum of its places' (P,) values, what is unknown left out."""
        weights, n_ranks = np.nan_to_num(values), len(self.iterations.ranks)
        found: Floats = np.bincount(self.iterations.rank_at, weights=weights, minlength=n_ranks).astype(np.float64)
        return found

    @property
    def nodes(self) -> Ints:
        """(R,) node of each rank, -1 unknown."""
        return self.ranks.node[self.at]

    def node(self, rank_at: Ints) -> Ints:
        """Node of the ranks at these positions of `iterations.ranks`."""
        return self.ranks.node[self.at[rank_at]]


def slowdown_of(window: Window, onset_ns: int, settings: Settings) -> Slowdown | None:
    """What changed at `onset_ns`; None when the window cannot tell."""
    iterations = iterations_of(window)
    ranks = known_ranks(window, settings, TICKED_ONCE)
    at = ranks.position(iterations.ranks)
    node = ranks.node[at]
    iterations = same_cut(iterations, node, stretches(iterations, onset_ns)[0])
    usual, slow = stretches(iterations, onset_ns)
    if usual.sum() < ITERATIONS_MIN or slow.sum() < ITERATIONS_MIN:
        return None
    lengths = lengths_ns(iterations)
    usual_ns, slow_ns = float(np.nanmedian(lengths[usual])), float(np.nanmean(lengths[slow]))
    if not slow_ns > (1 + LOST_MIN) * usual_ns:
        return None
    group = node_groups(window, iterations.ranks, node)
    inside = inside_of(iterations, node, uses_sockets(window), usual, slow)
    launches = launches_of(iterations, inside.usual[Wait.NETWORK], settings.group_ns, usual)
    sends = iterations.func != FUNC_RECV
    waits = {
        wait: covered(iterations, node, inside.excess(wait), sends | (wait is Wait.COPY), slow_ns - usual_ns)
        for wait in Wait
    }
    return Slowdown(
        window=window, iterations=iterations, ranks=ranks, at=at, usual=usual, slow=slow,
        usual_ns=usual_ns, slow_ns=slow_ns,
        delays=own_delays(launches, group, usual), inside=inside, waits=waits,
    )  # fmt: skip


def compared(window: Window, symptom: Symptom, settings: Settings) -> tuple[Slowdown | None, str]:
    """What changed when `symptom` began, or why nothing can be compared; of a pace that crept there also where the window shows
    little of it: what that varies by is not what was lost."""
    found = slowdown_of(window, symptom.at_ns, settings)
    if found is None:
        return None, _why_none(window)
    if found.slow_ns / found.usual_ns - 1 < SHOWN_MIN * (symptom.crept_times - 1):
        return None, CREPT_BEFORE
    return found, ""


def _why_none(window: Window) -> str:
    """Why no iterations can be compared."""
    if not len(window.rows("op")):
        return NO_OPS
    return TOO_FEW if iterations_of(window).n else NOTHING_REPEATS


def uses_sockets(window: Window) -> bool:
    """Whether what is on the wire may wait for its receiver: then a slow network cannot be told from a late one."""
    return bool((window.ranks["transport"] == SOCKET).any())


def node_groups(window: Window, ranks: Ints, node: Ints) -> Ints:
    """(R,) the lowest of the ranks that each one is tied to inside its node; itself if none. node: (R,), -1 unknown.

    Members of a communicator wait for each other on their node where the network does not see it: in an op of their own
    there, in a tree's chain, in the sends of an all-to-all that stay inside. A rank of an unknown node is
    tied to nobody.
    """
    members = window.members[window.members["rank"] >= 0]
    at = np.searchsorted(ranks, members["rank"])
    is_seen = (at < len(ranks)) & (ranks[np.minimum(at, len(ranks) - 1)] == members["rank"])
    at, members = at[is_seen], members[is_seen]
    place = node[at]
    at, comm, place = at[place >= 0], members["comm_id"][place >= 0], place[place >= 0]
    _, room = np.unique(mix(comm, place), return_inverse=True)
    group = np.arange(len(ranks))
    while True:
        lowest = np.full(int(room.max(initial=-1)) + 1, len(ranks))
        np.minimum.at(lowest, room, group[at])
        merged = group.copy()
        np.minimum.at(merged, at, lowest[room])
        if (merged == group).all():
            return ranks[group]
        group = merged


def lengths_ns(iterations: Iterations) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(I,) how long each iteration lasted, by the ranks' own clocks; NaN for the last."""
    lengths = np.full(iterations.n, np.nan)
    steps = np.diff(iterations.began, axis=1)
    known = np.isfinite(steps).any(axis=0)
    lengths[:-1][known] = np.nanmedian(steps[:, known], axis=0)
    return lengths
