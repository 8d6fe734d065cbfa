"""One flow of an op that is slow while the op's others are as fast as ever: flows should take similar times (Mycroft Table 3).

    channel 0   ────────▶│ fastest done
    channel 1   ────────▶│
    channel 2   ──────────────────────────────▶│ last transfer      all of the op's longer wait for the wire is this one's

An op's record sums over its flows, so one slow channel of sixteen looks like a sixteenth of a slow NIC. The sum, though, is
no less than what one flow waits longer, nor is the time between the first flow's end and the last's: the smaller of the two is
how long a single flow can have been held up on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, SEND
from rca.keys import Ints
from rca.slow.edges import receivers_of
from rca.slow.inside import Wait
from rca.slow.slowdown import Slowdown, uses_sockets
from rca.slow.streams import Floats

LOST_MIN = 0.5  # of what an iteration loses: all that follows waits for it
OFTEN_MIN = 0.7  # of the slow iterations the same channel to the same peer is through last
ALONE_MIN = 1.5  # times what a mean flow waits longer: less is not one flow's


@dataclass(frozen=True, slots=True)
class LoneFlow:
    """sender, receiver: positions in the iterations' ranks. excess_ns: per iteration. n_channels: of the op."""

    sender: int
    receiver: int
    channel: int
    n_channels: int
    excess_ns: float


def lone_flow(slowdown: Slowdown) -> LoneFlow | None:
    """The flow that costs most of what is lost, where one does; None over sockets, which hide whom a send waits for."""
    iterations = slowdown.iterations
    is_shared = (iterations.func != FUNC_SEND) & (iterations.func != FUNC_RECV)
    if uses_sockets(slowdown.window) or not is_shared.any():
        return None
    mean, flows = (
        slowdown.inside.excess(Wait.NETWORK),
        np.nan_to_num(_mean(iterations.column("n_flows"), slowdown.slow)),
    )
    apart = iterations.column("last_transfer_ns") - iterations.column("fastest_done_ns")
    grown = np.nan_to_num(_mean(apart, slowdown.slow) - _mean(apart, slowdown.usual))
    alone = np.where(is_shared & (mean > 0), np.minimum(mean * flows / 2, grown), 0.0)  # about half of the flows send
    alone = np.where(alone >= ALONE_MIN * mean, alone, 0.0)
    rank_at, worst = int(slowdown.sum(alone).argmax()), int(alone.argmax())
    excess_ns = float(slowdown.sum(alone)[rank_at])
    if excess_ns < LOST_MIN * slowdown.lost_ns or int(iterations.rank_at[worst]) != rank_at:
        return None
    return _named(slowdown, worst, excess_ns)


def _named(slowdown: Slowdown, place: int, excess_ns: float) -> LoneFlow | None:
    """The flow that is through last nearly always at this place."""
    iterations, names = slowdown.iterations, ("slowest_channel", "slowest_peer", "slowest_direction")
    seen = np.stack([iterations.column(name)[place, slowdown.slow] for name in names], axis=1)
    seen = seen[np.isfinite(seen).all(axis=1)].astype(np.int64)
    if not len(seen):
        return None
    flows, times = np.unique(seen, axis=0, return_counts=True)
    channel, peer, direction = (int(one) for one in flows[times.argmax()])
    receiver = int(receivers_of(slowdown, iterations.comm_id[place : place + 1], _one(peer))[0])
    if times.max() < OFTEN_MIN * len(seen) or direction != SEND or receiver < 0:
        return None
    n_channels = int(np.nanmax(iterations.column("channels")[place]))
    return LoneFlow(int(iterations.rank_at[place]), receiver, channel, n_channels, excess_ns)


def _one(value: int) -> Ints:
    return np.array([value], np.int64)


def _mean(values: Floats, those: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Floats:
    chosen = values[:, those]
    n = np.isfinite(chosen).sum(axis=1)
    found: Floats = np.where(n > 0, np.nansum(chosen, axis=1) / np.maximum(n, 1), np.nan)
    return found
