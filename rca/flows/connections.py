"""Which connection is slow, by the time its bytes were on the wire (Pulse §6.2), usually and now.

What rca/slow/edges.py infers from how long chunks were waited for is measured here: the epochs in which a rank sent to a peer,
with the pauses left out in which one of the two waited for somebody else. Custom collectives are judged by rank as a whole, over
the last ten: single sends of an all-to-all vary with what else is on the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from nccl_instrument.tables import FUNC_SEND
from rca.flows.measured import Measured, rank_actual_ns
from rca.keys import Ints, Keys, Mask, Rows, mix
from rca.slow.edges import Edges, receivers_of
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats

LAST_COLLECTIVES: Final = 10
NOISE_MIN: Final = 3
"""Measured iterations whose spread tells what is chance."""
BULK_MIN: Final = 0.5
"""Of the longest: what is sent in smaller pieces varies more, and costs little."""
MAD_TO_SIGMA: Final = 1.4826


def wire_edges(slowdown: Slowdown, measured: Measured, *, for_bytes: bool = True) -> Edges:
    """Connections of the ranks, with the ns of an iteration in which each moved bytes; of iterations that were measured.

    for_bytes: with now_ns for as many bytes as usual, since experts with more tokens are sent more, which is no slow wire.
    Connections that were not measured both before and during the slowdown are left out.
    """
    pairs, edge, lane, edge_of, total, is_seen = _laid(slowdown, measured)
    kept = measured.place >= 0
    usual, now = (_mean(total, is_seen & those) for those in (slowdown.usual, slowdown.slow))
    if for_bytes:
        cell = lane * is_seen.shape[1] + measured.iteration[kept]
        now = now / _grown_bytes(slowdown, measured.rows[kept], cell, is_seen)
    both = np.isfinite(usual) & np.isfinite(now)
    usual, now = (
        np.bincount(edge_of[both], weights=one[both], minlength=len(pairs)).astype(np.float64) for one in (usual, now)
    )
    lasted = _lasted(slowdown, edge, measured.place[kept], len(pairs))
    known = np.bincount(edge_of[both], minlength=len(pairs)) > 0
    return Edges(pairs[known, 0], pairs[known, 1], usual[known], now[known], lasted[known])


def wire_noise(slowdown: Slowdown, measured: Measured) -> float:
    """By what share of itself a connection's mean over the slow iterations may differ from that over the usual ones by chance:
    one standard deviation, off the usual ones' spread (median absolute deviation, of the ops that carry most together); NaN
    where fewer than NOISE_MIN of these are measured.
    """
    *_, total, is_seen = _laid(slowdown, measured)
    usual = is_seen & slowdown.usual
    n_usual, n_slow = (int((is_seen & those).any(axis=0).sum()) for those in (slowdown.usual, slowdown.slow))
    if n_usual < NOISE_MIN or not n_slow:
        return float("nan")
    times = np.where(usual & (total > 0), total, np.nan)[(usual & (total > 0)).sum(axis=1) >= NOISE_MIN]
    if not len(times):
        return float("nan")
    middle = np.nanmedian(times, axis=1, keepdims=True)
    times, middle = (one[middle[:, 0] >= BULK_MIN * middle.max()] for one in (times, middle))
    off = np.abs(times / middle - 1.0)
    return float(MAD_TO_SIGMA * np.nanmedian(off) * np.sqrt(1.0 / n_usual + 1.0 / n_slow))


def _laid(slowdown: Slowdown, measured: Measured) -> tuple[Ints, Ints, Ints, Ints, Floats, Mask]:
    """(E, 2) sender and receiver of each connection; of each row that has a place its connection and its lane, which is an op
    of the iteration on a connection; (L,) the connection of each lane; (L, I) ns in which it moved bytes; whether that is known.

    Op by op, since what a node measured as one iteration may begin and end within two of ours, of which each has but some ops.
    """
    kept = measured.place >= 0
    rows, place, iteration = measured.rows[kept], measured.place[kept], measured.iteration[kept]
    iterations, n = slowdown.iterations, max(slowdown.iterations.n, 1)
    sender = iterations.rank_at[place] if len(place) else place
    receiver = receivers_of(slowdown, rows["comm_id"], rows["peer"].astype(np.int64))
    pairs, edge = np.unique(np.stack([sender, receiver], axis=1), axis=0, return_inverse=True)
    edge = edge.ravel()
    _, at, lane = np.unique(mix(edge, place), return_index=True, return_inverse=True)
    shape = len(at), n
    longest = np.zeros(int(np.prod(shape)))
    np.maximum.at(
        longest, lane * n + iteration, rows["actual_ns"].astype(np.float64)
    )  # channels send beside each other
    is_seen = np.bincount(lane * n + iteration, minlength=len(longest)) > 0
    return pairs, edge, lane, edge[at], longest.reshape(shape), is_seen.reshape(shape)


def without_common(edges: Edges) -> Edges:
    """The connections less what most of them have in common, as a share of their usual time.

    Epochs longer than a straggler's slices fold its peers' pauses into their actual time (Pulse Figure 9): all are longer
    then, the straggler most.
    """
    common = float(np.median(edges.grown())) if len(edges.sender) else 0.0
    now = edges.now_ns - max(common, 0.0) * edges.usual_ns
    return Edges(edges.sender, edges.receiver, edges.usual_ns, now, edges.lasted_ns)


@dataclass(frozen=True, slots=True)
class Rates:
    """Rank-level actual rate of custom collectives, bytes per ns, of a rank in a communicator (n,): over the usual ones, and over
    the last ten. rank_at: position in the iterations' ranks. n_last: how many the last are.
    """

    rank_at: Ints
    comm_id: Keys
    usual: Floats
    now: Floats
    n_last: Ints

    def kept(self) -> Floats:
        """(n,) the share of its usual rate that each still has, NaN unknown."""
        return self.now / np.where(self.usual > 0, self.usual, np.nan)


def custom_rates(slowdown: Slowdown, measured: Measured, group_ns: int) -> Rates:
    """Of every rank and communicator that launches sends in groups of several. group_ns: ops enqueued this close are one."""
    collective, rank_at, comm_id, enqueued = groups_of_sends(slowdown, measured, group_ns)
    kept = collective >= 0
    n = int(collective.max(initial=-1)) + 1
    rows, of = measured.rows[kept], collective[kept]
    actual = rank_actual_ns(rows, of, n)
    n_bytes = np.bincount(of, weights=rows["n_bytes"], minlength=n).astype(np.float64)
    iteration = np.full(n, -1)
    iteration[of] = measured.iteration[kept]
    keys, whose = np.unique(np.stack([rank_at.astype(np.uint64), comm_id], axis=1), axis=0, return_inverse=True)
    whose = whose.ravel()
    is_last = _is_last(whose, enqueued, slowdown.slow[iteration])
    usual = _rate(whose, slowdown.usual[iteration], n_bytes, actual, len(keys))
    now = _rate(whose, is_last, n_bytes, actual, len(keys))
    n_last = np.bincount(whose[is_last], minlength=len(keys))
    return Rates(keys[:, 0].astype(np.int64), keys[:, 1], usual, now, n_last)


def groups_of_sends(slowdown: Slowdown, measured: Measured, group_ns: int) -> tuple[Ints, Ints, Keys, Floats]:
    """Custom collectives: (n,) of each row the group it belongs to, -1 for none; of each group its rank's position, its
    communicator and when it was enqueued, in the order of ranks, communicators and time.

    Sends of one ncclGroupStart and ncclGroupEnd are enqueued at once (Pulse §5.3). A send alone is no collective.
    """
    iterations, found = slowdown.iterations, np.full(len(measured.rows), -1)
    is_send = measured.place >= 0
    is_send[is_send] = iterations.func[measured.place[is_send]] == FUNC_SEND
    at = np.flatnonzero(is_send)
    place, iteration = measured.place[at], measured.iteration[at]
    enqueued = iterations.ops["enqueued_ns"][iterations.row[place, iteration]].astype(np.int64)
    rank_at, comm_id = iterations.rank_at[place], measured.rows["comm_id"][at]
    order = np.lexsort((enqueued, comm_id, rank_at))
    at, place, rank_at, comm_id, enqueued = at[order], place[order], rank_at[order], comm_id[order], enqueued[order]
    begins = np.ones(len(at), bool)
    begins[1:] = (rank_at[1:] != rank_at[:-1]) | (comm_id[1:] != comm_id[:-1]) | (np.diff(enqueued) > group_ns)
    group = np.cumsum(begins) - 1
    n_peers = np.bincount(np.unique(np.stack([group, place]), axis=1)[0], minlength=int(begins.sum()))
    number = np.cumsum(n_peers > 1) - 1
    is_kept = n_peers[group] > 1 if len(group) else begins
    found[at[is_kept]] = number[group[is_kept]]
    first = np.flatnonzero(begins)[n_peers > 1]
    return found, rank_at[first], comm_id[first], enqueued[first].astype(np.float64)


def _is_last(whose: Ints, enqueued: Floats, is_slow: Mask) -> Mask:
    """(n,) which are among the newest ten of their rank and communicator, of those since the slowdown."""
    found = np.zeros(len(whose), bool)
    slow = np.flatnonzero(is_slow)
    order = slow[np.lexsort((-enqueued[slow], whose[slow]))]
    first = np.ones(len(order), bool)
    first[1:] = whose[order][1:] != whose[order][:-1]
    nth = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    found[order[nth < LAST_COLLECTIVES]] = True
    return found


def _rate(whose: Ints, those: Mask, n_bytes: Floats, actual: Floats, n: int) -> Floats:
    moved, busy = (np.bincount(whose[those], weights=one[those], minlength=n) for one in (n_bytes, actual))
    found: Floats = np.where(busy > 0, moved / np.maximum(busy, 1.0), np.nan)
    return found


def _grown_bytes(slowdown: Slowdown, rows: Rows, cell: Ints, is_seen: Mask) -> Floats:
    """(L,) how many times its usual bytes each lane moves now. cell: (n,) lane and iteration of each row."""
    n_bytes = (
        np.bincount(cell, weights=rows["n_bytes"], minlength=is_seen.size).astype(np.float64).reshape(is_seen.shape)
    )
    usual, now = (_mean(n_bytes, is_seen & those) for those in (slowdown.usual, slowdown.slow))
    return np.where((usual > 0) & (now > 0), now / np.where(usual > 0, usual, 1.0), 1.0)


def received_bytes(slowdown: Slowdown) -> tuple[Floats, Floats]:
    """(R,) bytes of an iteration that each rank is sent by custom collectives, usually and now; NaN: not known.

    As their senders enqueued them: known of every iteration, however few are measured on the wire.
    """
    iterations, n_ranks = slowdown.iterations, len(slowdown.iterations.ranks)
    places = np.flatnonzero(iterations.func == FUNC_SEND)
    to, sent = receivers_of(slowdown, iterations.comm_id[places], iterations.peer[places]), iterations.column("bytes")
    usual, now = (_mean(sent[places], np.isfinite(sent[places]) & those) for those in (slowdown.usual, slowdown.slow))
    both = np.isfinite(usual) & np.isfinite(now) & (to >= 0)
    is_sent = np.bincount(to[both], minlength=n_ranks) > 0
    sums = [np.bincount(to[both], weights=one[both], minlength=n_ranks) for one in (usual, now)]
    return np.where(is_sent, sums[0], np.nan), np.where(is_sent, sums[1], np.nan)


def _lasted(slowdown: Slowdown, edge: Ints, place: Ints, n: int) -> Floats:
    """(n,) how long the ops of each connection last now, per iteration."""
    pairs = np.unique(np.stack([edge, place]), axis=1)
    lasted = np.nan_to_num(slowdown.inside.lasted_slow)
    return np.bincount(pairs[0], weights=lasted[pairs[1]], minlength=n).astype(np.float64)


def _mean(values: Floats, those: Mask) -> Floats:
    """(n,) means along the second axis of what is in `those`, NaN without any."""
    n = those.sum(axis=1)
    return np.where(n > 0, np.where(those, values, 0.0).sum(axis=1) / np.maximum(n, 1), np.nan)
