"""What an op's time inside was spent on, at each rank, before the slowdown and during it (Mycroft Table 3, chunk level).

Three waits tell the components apart, and none of them is inherited from a peer. A chunk that has arrived and that the GPU
does not take, once its kernel runs, waits for the GPU's copies. A chunk that is on the wire waits for the network. A send
that could go, to a peer that has posted, and does not, waits for the proxy. What is left, waiting for a peer's data or
for its credit, is what victims do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.keys import Ints, Mask, mix
from rca.slow.iterations import Iterations
from rca.slow.streams import Floats


class Wait(StrEnum):
    """What a chunk waits for inside an op; for credits and data it waits for a peer."""

    COPY = "copy"
    NETWORK = "network"
    CREDIT = "credit"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Inside:
    """Of each place (P,), in ns per flow: `usual` and `slow` are means over the iterations before and during, by wait.

    lasted: the op's own time, from its GPU's first chunk to its end. noise: the usual deviation. room: (P,) equal for
    the same collective on one node, whose ring may pass through several of its ranks.
    """

    usual: dict[Wait, Floats]
    slow: dict[Wait, Floats]
    noise: dict[Wait, Floats]
    lasted_usual: Floats
    lasted_slow: Floats
    room: Ints

    def excess(self, wait: Wait) -> Floats:
        """(P,) by how much more each place waits now; 0 within the noise."""
        more = self.slow[wait] - self.usual[wait]
        return np.where(np.isfinite(more) & (more > 3 * self.noise[wait] + EXCESS_MIN_NS), more, 0.0)

    def of_room(self, values: Floats) -> Floats:
        """(P,) the most that any place of the same room has."""
        most = np.zeros(int(self.room.max(initial=-1)) + 1)
        np.maximum.at(most, self.room, np.nan_to_num(values))
        found: Floats = most[self.room]
        return found


EXCESS_MIN_NS = 200_000.0
BLOCK_CELLS = 2_000_000  # places times iterations


def inside_of(iterations: Iterations, node: Ints, is_socket: bool, usual: Mask, slow: Mask) -> Inside:
    """The waits of every place in the iterations of `usual` and of `slow`. node: (R,) of the ranks, -1 unknown."""
    room, lasted = _rooms(iterations, node), iterations.end - iterations.ready
    found = {name: {wait: np.full(len(room), np.nan) for wait in Wait} for name in ("usual", "slow", "noise")}
    for at in _blocks(room, iterations.n):
        for wait, values in _waits(_those(iterations, at), room[at], is_socket).items():
            found["usual"][wait][at] = _mean(values[:, usual])
            found["slow"][wait][at] = _mean(values[:, slow])
            found["noise"][wait][at] = _deviation(values[:, usual])
    return Inside(
        **found, lasted_usual=_mean(lasted[:, usual]), lasted_slow=_mean(lasted[:, slow]), room=room
    )  # fmt: skip


def _blocks(room: Ints, n_iterations: int) -> Iterator[Ints]:
    """Places in blocks of whole rooms, ascending: a large job's waits of all places at once would take gigabytes."""
    order = np.argsort(room, kind="stable")
    if not len(order):
        return
    is_first = np.ones(len(order), bool)
    is_first[1:] = room[order][1:] != room[order][:-1]
    per_block = max(BLOCK_CELLS // max(n_iterations, 1), 1)
    wanted = np.arange(0, len(order), per_block)
    starts = np.flatnonzero(is_first)
    cuts = np.unique(starts[np.searchsorted(starts, wanted, side="right") - 1])
    yield from np.split(order, cuts[1:])


def _those(iterations: Iterations, at: Ints) -> Iterations:
    """Some of the places, with what waits are made of."""
    names = ("func", "row", "ready", "end")
    return replace(iterations, **{name: getattr(iterations, name)[at] for name in names})


def _rooms(iterations: Iterations, node: Ints) -> Ints:
    """(P,) the place's room: collectives of one communicator, counted by each rank, on one node; sends are alone."""
    rank_at = iterations.rank_at
    at = np.arange(len(rank_at))
    mine = mix(rank_at, iterations.comm_id)
    order = np.argsort(mine, kind="stable")
    is_first = np.ones(len(order), bool)
    is_first[1:] = mine[order][1:] != mine[order][:-1]
    nth = np.empty(len(order), np.int64)
    nth[order] = at - np.maximum.accumulate(np.where(is_first, at, 0))
    is_alone = (iterations.func == FUNC_SEND) | (iterations.func == FUNC_RECV) | (node[rank_at] < 0)
    key = np.where(is_alone, mix(at, -1), mix(node[rank_at], iterations.comm_id, nth))
    found: Ints = np.unique(key, return_inverse=True)[1].astype(np.int64)
    return found


def _waits(iterations: Iterations, room: Ints, is_socket: bool) -> dict[Wait, Floats]:
    """(P, I) per wait and flow; the places of a room stand together."""
    sends, receives = (iterations.func == FUNC_SEND)[:, None], (iterations.func == FUNC_RECV)[:, None]
    gpu, peer, net = (iterations.column(f"{name}_wait_ns") for name in ("gpu", "peer", "net"))
    taken, awaited, flushed = (iterations.column(f"receive_{name}_wait_ns") for name in ("gpu", "peer", "net"))
    sending = _sending(gpu + peer + net, taken + awaited + flushed)
    flows = np.maximum(iterations.column("n_flows"), 1)
    n_sending = np.maximum(np.where(receives, 0, np.where(sends, flows, flows * sending)), 1)
    n_receiving = np.maximum(np.where(sends, 0, np.where(receives, flows, flows * (1 - sending))), 1)
    came = iterations.column("first_transfer_ns") - iterations.start_ns
    begun_all = _last_of_room(iterations.ready, room)
    late = np.maximum(np.nan_to_num(begun_all - came, neginf=0.0), 0.0) * ~receives  # a ring waits for all there
    not_taken = np.maximum(taken / n_receiving - late, 0)
    begun = iterations.column("first_ready_ns") - iterations.column("started_ns")
    not_made = np.where(sends, np.maximum((gpu - taken) / n_sending - begun, 0), 0)
    network, credit = (net - flushed) / n_sending, (peer - awaited) / n_sending
    if is_socket:  # it takes data at once and keeps back what the receiver has not asked for
        network, credit = np.zeros_like(network), network + credit
    data = np.where(sends, 0.0, awaited) / n_receiving
    return {Wait.COPY: not_taken + not_made, Wait.NETWORK: network, Wait.CREDIT: credit, Wait.DATA: data}


def _last_of_room(ready: Floats, room: Ints) -> Floats:
    """(P, I) when the last place of each one's room was ready, -inf where none is known. room: ascending."""
    is_first = np.ones(len(room), bool)
    is_first[1:] = room[1:] != room[:-1]
    last = np.maximum.reduceat(np.where(np.isfinite(ready), ready, -np.inf), np.flatnonzero(is_first), axis=0)
    found: Floats = last[np.cumsum(is_first) - 1]
    return found


def _sending(waited: Floats, received: Floats) -> Floats:
    """(P, 1) what share of a collective's flows sends: half, but where a ring passes through a node some ranks only send or
    only receive, and have waits of that alone. waited, received: (P, I) of all flows, and of the receiving ones."""
    all_flows, taken = np.nansum(waited, axis=1), np.nansum(received, axis=1)
    return np.select([taken == 0, taken == all_flows], [1.0, 0.0], 0.5)[:, None]


def _mean(values: Floats) -> Floats:
    n = np.isfinite(values).sum(axis=1)
    total = np.where(np.isfinite(values), values, 0.0).sum(axis=1)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _deviation(values: Floats) -> Floats:
    """Of a mean of a handful of iterations: outliers inflate it less than a plain standard deviation would."""
    spread = np.abs(values - _mean(values)[:, None])
    return _mean(spread)
