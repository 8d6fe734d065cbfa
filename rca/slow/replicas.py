"""Ranks that were slower than their replicas from the first iteration on: what can be said where there is no "before".

Ranks that run the same program do the same work, so the time from a rank's last end to its next op is compared with that of
all others with the program, by medians. Who takes longer may be slow, or heavier by design, a master that logs say; so
nobody is blamed and nobody is called: it is told to who asks for a diagnosis of a job in which nothing has changed.
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window
from rca.findings import Alternative, Evidence, Subject
from rca.keys import Ints
from rca.ranks import known_ranks
from rca.settings import Settings
from rca.slow.cuts import same_cut
from rca.slow.inside import Wait, inside_of
from rca.slow.iterations import iterations_of
from rca.slow.launches import Launches, launches_of
from rca.slow.streams import Floats

REPLICAS_MIN = 4
DEVIATIONS = 4.0
BEYOND_MIN_NS = 300_000.0
SHARE_MIN = 0.05  # of an iteration
BESIDE_MIN = 0.4  # of the one that takes longest
NAMED_MAX = 8
MS = 1e6


def unlike_replicas(window: Window, settings: Settings) -> tuple[Alternative, ...]:
    """A suspicion per rank whose own work takes longer than that of ranks with the same program, worst first."""
    iterations = iterations_of(window)
    if not iterations.n:
        return ()
    ranks = known_ranks(window, settings)
    node = ranks.node[ranks.position(iterations.ranks)]
    iterations = same_cut(iterations, node)
    every = np.ones(iterations.n, bool)
    on_wire = inside_of(iterations, node, is_socket=False, usual=every, slow=every).usual[Wait.NETWORK]
    more = _beyond_replicas(launches_of(iterations, on_wire, settings.group_ns, every))
    least = max(SHARE_MIN * iterations.length_ns, BESIDE_MIN * float(more.max(initial=0.0)))
    worst = [at for at in np.argsort(-more, kind="stable").tolist() if more[at] > 0 and more[at] >= least]
    return tuple(_suspicion(window, int(iterations.ranks[at]), int(node[at]), more[at]) for at in worst[:NAMED_MAX])


def _beyond_replicas(launches: Launches) -> Floats:
    """(R,) by how much a rank's time before its launches exceeds the median of its replicas, where it clearly does."""
    programs, found = launches.programs(), np.zeros(len(launches.first) - 1)
    for program in np.unique(programs):
        at = np.flatnonzero(programs == program)
        n_places = int(launches.first[at[0] + 1] - launches.first[at[0]])
        if len(at) < REPLICAS_MIN or not n_places:
            continue
        gaps = _gaps(launches, launches.first[at][:, None] + np.arange(n_places))
        usual = np.nanmedian(gaps, axis=0)
        spread = np.nanmedian(np.abs(gaps - usual), axis=0)
        beyond = gaps - usual
        is_clear = beyond > DEVIATIONS * 1.4826 * spread + BEYOND_MIN_NS
        found[at] = np.where(is_clear, beyond, 0.0).sum(axis=1)
    return found


def _gaps(launches: Launches, places: Ints) -> Floats:
    """(R, K) medians of the time from the end of the launch before to the start of each; 0 where a peer's data starts it."""
    ready, end = launches.ready[places], np.fmax.accumulate(launches.end[places], axis=1)
    gaps = np.zeros(places.shape)
    gaps[:, 1:] = _medians(ready[:, 1:] - end[:, :-1])
    is_fed = np.isfinite(launches.arrived[places]).mean(axis=2) > 0.5
    gaps[is_fed | launches.is_tree[places]] = 0.0
    return np.maximum(gaps, 0.0)  # one that begins while another is under way did not wait for it


def _medians(values: Floats) -> Floats:
    """Medians of the last axis, 0 where nothing is known."""
    values = np.where(np.isfinite(values).any(axis=-1, keepdims=True), values, 0.0)
    found: Floats = np.nanmedian(values, axis=-1)
    return found


def _suspicion(window: Window, rank: int, node: int, more_ns: float) -> Alternative:
    name = str(window.nodes["name"][node]) if node >= 0 else ""
    return Alternative(
        Subject("rank", f"rank {rank}", (rank,), name),
        f"Its own work takes {more_ns / MS:.0f} ms of an iteration longer than that of ranks with the same program, since this "
        "window begins. It may be slow, wait for a mate inside its node, or always have more to do: nothing has changed, so "
        "it is not blamed.",
        (Evidence("own work beyond its replicas", round(more_ns / MS, 1), "ms per iteration", "op", rank),),
    )
