"""Where the time of a slow job goes, in numbers: part by part at one rank, and per kind of op for the whole job.

What the page shows beside a diagnosis (Mycroft Figure 2): what a rank's chunks wait for in an iteration, usually and now,
and how often its ops come and how fast they move data (Algorithm 1's op interval and throughput).
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import FUNCS
from rca.findings import Compared, Cover
from rca.keys import Ints
from rca.racks import rack_cover
from rca.slow.inside import Wait
from rca.slow.slowdown import Slowdown, lengths_ns

MS = 1e6
KINDS_MAX = 4
PARTS = {
    Wait.COPY: "GPU copies",
    Wait.NETWORK: "NIC and network",
    Wait.CREDIT: "receiver's credits",
    Wait.DATA: "peers' data",
}
"""What a chunk waits for; over sockets what the network and the receiver take cannot be told apart."""


def parts_of(slowdown: Slowdown, at: int) -> tuple[Compared, ...]:
    """What the rank at this position waits for in an iteration, usually and now, in ms."""
    late_ns = float(slowdown.delays.per_iteration_ns(slowdown.slow)[at])
    usual_ns = float(slowdown.delays.per_iteration_ns(slowdown.usual)[at])
    found = [_compared("own work, beyond the usual", usual_ns / MS, late_ns / MS, "ms")]
    places = slowdown.iterations.places_of(at)
    for wait, name in PARTS.items():
        before, now = (np.nansum(of[wait][places]) / MS for of in (slowdown.inside.usual, slowdown.inside.slow))
        found.append(_compared(name, before, now, "ms"))
    return tuple(found)


def compared_of(slowdown: Slowdown) -> tuple[Compared, ...]:
    """The job's iterations, and the op interval and throughput of the kinds of op that move most, usual against now."""
    found = [_compared("iteration", slowdown.usual_ns / MS, slowdown.slow_ns / MS, "ms")]
    iterations, inside = slowdown.iterations, slowdown.inside
    size = np.nanmedian(iterations.column("bytes"), axis=1) if len(iterations.rank) else np.zeros(0)
    known = np.isfinite(size) & (inside.lasted_usual > 0) & (inside.lasted_slow > 0)
    moved = np.bincount(iterations.func[known], weights=size[known], minlength=len(FUNCS))
    for func in np.argsort(-moved)[: min(KINDS_MAX, int((moved > 0).sum()))]:
        those = np.flatnonzero(known & (iterations.func == func))
        ranks = max(len(np.unique(iterations.rank[those])), 1)
        per_iteration = len(those) / ranks
        name = FUNCS[func]
        interval = slowdown.usual_ns / per_iteration / MS, slowdown.slow_ns / per_iteration / MS
        before, now = (float(size[those].sum() / of[those].sum()) for of in (inside.lasted_usual, inside.lasted_slow))
        found += [
            _compared(f"{name}: op interval", *interval, "ms"),
            _compared(f"{name}: throughput", before, now, "GB/s"),
        ]
    return tuple(found)


def cover_of(slowdown: Slowdown, who: Ints, shown: tuple[int, int]) -> tuple[Cover, ...]:
    """How far it goes: ops of the worst rank, ranks of its node, nodes of the rack and job. shown: ops that show it, of all."""
    node = slowdown.nodes
    found = [Cover("op", *shown, f"an iteration of rank {int(slowdown.iterations.ranks[who[0]])}")]
    mine = np.unique(node[who])
    if len(mine) == 1 and mine[0] >= 0:
        name = str(slowdown.window.nodes["name"][mine[0]])
        found.append(Cover("rank", len(who), int((node == mine[0]).sum()), name))
    found += rack_cover(slowdown.window, mine[mine >= 0])
    found.append(Cover("node", len(mine), len(np.unique(node)), "the job"))
    return tuple(found)


def began_ns(slowdown: Slowdown) -> int:
    """Data time of the first iteration after the usual ones that is longer by a quarter of what is lost; 0 unknown."""
    lengths, began = lengths_ns(slowdown.iterations), slowdown.iterations.began
    last_usual = int(np.flatnonzero(slowdown.usual).max(initial=-1))
    is_long = np.nan_to_num(lengths) >= slowdown.usual_ns + slowdown.lost_ns / 4
    at = np.flatnonzero(is_long & (np.arange(len(lengths)) > last_usual))
    if not len(at) or not np.isfinite(began[:, at[0]]).any():
        return 0
    return int(np.nanmedian(began[:, at[0]])) + slowdown.iterations.start_ns


def _compared(what: str, usual: float, now: float, unit: str) -> Compared:
    return Compared(what, round(float(usual), 3), round(float(now), 3), unit)
