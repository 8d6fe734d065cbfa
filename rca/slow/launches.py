"""Launches: what a rank's GPU begins at once. A collective is one; sends and receives enqueued together are one too.

NCCL runs the sends and receives of a group in one kernel, so they start together, and whoever waits for one of them waits
for all. An all-to-all of experts is then one launch instead of a dozen ops, and the other half of a fused exchange says
when a receive could have begun. A host that is a step ahead enqueues a whole pipeline's exchanges at once too: what usually
begins well after all before it was over is another launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import ALGOS, FUNC_RECV, FUNC_SEND, FUNCS
from rca.keys import Ints, Keys, Mask, mix
from rca.slow.iterations import Iterations
from rca.slow.streams import Floats

TREE, RING = ALGOS.index("TREE"), ALGOS.index("RING")
WAITS = ("gpu", "peer", "net")
APART_NS = 200_000.0  # between the end of all that was enqueued with an op and its own beginning; ops of a kernel follow at once
APART_MIN = 0.9  # of the iterations of which both are known
SYMMETRIC = [FUNCS.index(name) for name in ("AllGather", "ReduceScatter", "AllReduce")]


@dataclass(frozen=True, slots=True)
class Launches:
    """Arrays of (L,), and (L, I) per iteration. first: (R + 1,) those of each rank. kind: of call, equal for the same one.

    ready: when the GPU touched the first chunk of any of its ops, end: when the last was over, arrived: when the peer's
    data came that the first chunk needed; ns since the window's start, NaN unknown, and NaN where it needs none: with a
    send in it, also in a ring, a launch begins by itself. on_wire_ns: how long its data usually is on the wire. is_tree: a
    collective whose start may wait for several peers.
    """

    first: Ints
    kind: Keys
    ready: Floats
    end: Floats
    arrived: Floats
    on_wire_ns: Floats
    is_tree: Mask

    def programs(self) -> Keys:
        """(R,) equal for ranks that launch the same in the same order."""
        sizes = np.diff(self.first)
        rank_at = np.repeat(np.arange(len(sizes)), sizes)
        hashed = np.zeros(len(sizes), np.uint64)
        np.add.at(hashed, rank_at, mix(self.kind, np.arange(len(self.kind)) - self.first[rank_at]))
        return mix(hashed, sizes)

    def places_of(self, rank_at: int) -> slice:
        return slice(int(self.first[rank_at]), int(self.first[rank_at + 1]))


def launches_of(iterations: Iterations, on_wire: Floats, group_ns: int, usual: Mask) -> Launches:
    """The launches of every rank. on_wire: (P,) ns, see `Inside`; group_ns: ops enqueued this close together are one.

    usual: (I,) which iterations tell what is one launch; a slowdown may pull apart what is, or together what is not.
    """
    at = np.flatnonzero(_begins(iterations, group_ns, usual))
    if not len(at):
        nothing = np.zeros((0, iterations.n))
        empty = np.zeros(0)
        return Launches(iterations.first, iterations.kind, nothing, nothing, nothing, empty, np.zeros(0, bool))
    sizes = np.diff(np.append(at, len(iterations.rank)))
    algo = _most(iterations.column("algo"))[at]
    begins_alone = (algo == RING) & np.isin(iterations.func[at], SYMMETRIC) & _sends(iterations)[at]
    begins_alone |= np.logical_or.reduceat(iterations.func == FUNC_SEND, at)
    arrived = np.fmin.reduceat(iterations.arrived, at, axis=0)
    return Launches(
        first=np.searchsorted(at, iterations.first).astype(np.int64),
        kind=mix(np.add.reduceat(iterations.kind, at), sizes),  # in whatever order they were enqueued
        ready=np.fmin.reduceat(iterations.ready, at, axis=0),
        end=np.fmax.reduceat(iterations.end, at, axis=0),
        arrived=np.where(begins_alone[:, None], np.nan, arrived),
        on_wire_ns=np.maximum.reduceat(np.nan_to_num(on_wire), at),
        is_tree=algo == TREE,
    )


def _begins(iterations: Iterations, group_ns: int, usual: Mask) -> Mask:
    """(P,) which places begin a launch."""
    begins = np.ones(len(iterations.rank), bool)
    sends = (iterations.func == FUNC_SEND) | (iterations.func == FUNC_RECV)
    later = np.diff(iterations.column("enqueued_ns")[:, usual], axis=0)
    known = np.isfinite(later)
    together = (known & (later <= group_ns)).sum(axis=1) > 0.5 * known.sum(axis=1)
    begins[1:] = ~(sends[1:] & sends[:-1] & together & (iterations.rank[1:] == iterations.rank[:-1]))
    return begins | _are_apart(iterations, begins, usual)


def _are_apart(iterations: Iterations, begins: Mask, usual: Mask) -> Mask:
    """(P,) which places begin only when all before them in what was enqueued at once were over."""
    at = np.arange(len(begins))
    depth = at - np.maximum.accumulate(np.where(begins, at, 0))
    found, ready, over = np.zeros(len(begins), bool), iterations.ready[:, usual], iterations.end[:, usual]
    order = np.argsort(depth, kind="stable")
    for places in np.split(order, np.cumsum(np.bincount(depth)))[1:]:
        gap = ready[places] - over[places - 1]
        known = np.isfinite(gap)
        found[places] = (known & (gap > APART_NS)).sum(axis=1) > APART_MIN * np.maximum(known.sum(axis=1), 1)
        over[places] = np.fmax(over[places], over[places - 1])
    return found


def _sends(iterations: Iterations) -> Mask:
    """(P,) who sends something over the network: where a ring enters a node, its first chunk is a peer's."""
    waited = [
        _most(iterations.column(f"{name}_wait_ns") - iterations.column(f"receive_{name}_wait_ns")) for name in WAITS
    ]
    found: Mask = np.maximum.reduce(waited) > 0
    return found


def _most(values: Floats) -> Floats:
    """(n,) the largest known of each row, 0 where nothing is."""
    found: Floats = np.fmax.reduce(np.nan_to_num(values), axis=1, initial=0.0)
    return found
