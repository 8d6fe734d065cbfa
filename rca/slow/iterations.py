"""Every op in its place: which iteration it belongs to and which of the rank's ops of that iteration it is.

Only ops that cross the network and whose end is known have a place; the network does not see the others. Places are
ordered as the host launched them, so that the same place holds the same op in every iteration, and ranks that run the
same program have the same number of places. Iterations are counted by each rank's rarest stream, on its own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ingest.columns import Columns, floats, of_ranks, picked, taken
from ingest.window import Window
from rca.keys import Ints, Keys, Mask, Rows, Told, grouped, in_order, is_p2p, medians, mix
from rca.slow.streams import Floats, known_streams

ITERATIONS_MAX = 2_000
FILLED_MIN = 0.5
_PLACED = (
    "comm_id", "comm_rank", "op", "func", "flags", "peer", "count", "dtype", "rank", "enqueued_ns", "first_ready_ns",
)  # fmt: skip
"""Columns that places are made of."""
LENGTH_COLUMNS = (*_PLACED, "done_ns")
"""Columns of ops that `iteration_lengths` asks for."""


@dataclass(frozen=True, slots=True)
class Iterations:
    """Ops by place (P, ordered by rank, then launch order) and iteration (I).

    rank, order, stream, func, comm_id, peer: (P,). first: (R + 1,) the places of the r-th rank are first[r]:first[r + 1].
    ranks: (R,) global ranks. kind: (P,) equal for the same call, of collectives with the same size. row: (P, I) position
    in `ops`, -1 where nothing was seen. ready, end, arrived: (P, I) ns since start_ns, NaN unknown: when the rank's GPU
    touched the first chunk, when the op was over, and when a peer's data came that the GPU had not yet asked for. began:
    (R, I) when the rank launched the iteration. length_ns: of an iteration in the whole window, 0 when nothing repeats.
    """

    ops: Told
    ranks: Ints
    first: Ints
    rank: Ints
    order: Ints
    func: Ints
    comm_id: Keys
    peer: Ints
    kind: Keys
    row: Ints
    ready: Floats
    end: Floats
    arrived: Floats
    began: Floats
    start_ns: int
    length_ns: float

    @property
    def n(self) -> int:
        """Iterations."""
        return int(self.row.shape[1])

    def column(self, name: str) -> Floats:
        """(P, I) a column of the ops, NaN where nothing was seen."""
        return _laid(self.ops, name, self.row)

    @property
    def rank_at(self) -> Ints:
        """(P,) the rank of each place, as a position in `ranks`."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    def programs(self) -> Keys:
        """(R,) equal for ranks that launch the same ops in the same order."""
        sizes = np.diff(self.first)
        hashed = np.zeros(len(sizes), np.uint64)
        np.add.at(hashed, self.rank_at, mix(self.kind, self.order))
        return mix(hashed, sizes)

    def places_of(self, rank_at: int) -> slice:
        return slice(int(self.first[rank_at]), int(self.first[rank_at + 1]))


def iterations_of(window: Window) -> Iterations:
    """Places and iterations of the ops of `window`; without any when the job does not repeat itself."""
    told = window.rows("op")
    known = _known(told)
    ops = picked(told, known, _PLACED)
    streams = known_streams(ops)
    of_row, per_iteration = streams.of_row, streams.per_iteration[streams.of_row]
    if not streams.iteration_ns:
        known, of_row, per_iteration = known[:0], of_row[:0], per_iteration[:0]
        ops = picked(told, known, _PLACED)
    ranks, _, rank_at = grouped(ops["rank"])
    index, began = _count(ops, rank_at, of_row, per_iteration, window.start_ns, len(ranks))
    per_iteration = _recounted(rank_at, of_row, per_iteration, index)
    kept = np.flatnonzero((per_iteration > 0) & (index >= 0))
    if len(kept) < len(known):
        known, ops, of_row, rank_at = known[kept], ops.where(kept, _PLACED), of_row[kept], rank_at[kept]
        index, per_iteration = index[kept], per_iteration[kept]
    number = ops["op"].astype(np.int64)
    phase = number % per_iteration
    _, sample, place = grouped(mix(rank_at, of_row, ops["func"], phase))
    index = _by_number(place, (number - phase) // per_iteration, index, len(sample))
    index = np.clip(index, 0, began.shape[1] - 1)
    launched = _launched(place, index, _nth(rank_at, index), len(sample))
    rows, order = _laid_out(rank_at[sample], place, index, launched, known, began.shape[1])
    return _placed(told, rows, ops[sample[order]], rank_at[sample[order]], ranks, began, window, streams.iteration_ns)


def _known(told: Told) -> Ints:
    """Positions of the ops that have a place, rank by rank as they were enqueued, equal ones as they came."""
    known = np.flatnonzero((told["done_ns"] > 0) & (told["rank"] >= 0) & (told["first_ready_ns"] > 0))
    rank, enqueued = taken(told, "rank", known).astype(np.int64), taken(told, "enqueued_ns", known)
    since = enqueued.min(where=enqueued > 0, initial=np.iinfo(np.int64).max) - 1
    after = np.where(enqueued > 0, enqueued - since, 0)
    span = int(after.max(initial=0)) + 1
    if int(rank.max(initial=0)) * span >= 2**62:
        return known[np.lexsort((enqueued, rank))]
    return known[in_order(rank * span + after)]


def _laid(ops: Told, name: str, rows: Ints, since: int = 0) -> Floats:
    """A column of the ops at these positions, less `since`; NaN for -1."""
    if not len(ops):
        return np.full(rows.shape, np.nan)
    found: Floats = floats(ops, name, rows, since)
    found[rows < 0] = np.nan
    return found


def _by_number(place: Ints, number: Ints, index: Ints, n_places: int) -> Ints:
    """(n,) iterations by the ops' own numbers: a lost anchor would put what follows it into the iteration before."""
    return number - medians(place, number - index, n_places).astype(np.int64)[place]


def iteration_lengths(window: Window, ranks: Ints) -> list[tuple[int, int]]:
    """(began_ns, length_ns) of the iterations of one of `ranks`, oldest first, in unix ns: of the one best known."""
    iterations = iterations_of(replace(window, tables={"op": of_ranks(window.rows("op"), ranks)}))
    if not iterations.n:
        return []
    best = iterations.began[int(np.isfinite(iterations.began).sum(axis=1).argmax())]
    lengths = np.diff(best)
    known = np.flatnonzero(np.isfinite(lengths))
    return [(int(best[i]) + iterations.start_ns, int(lengths[i])) for i in known]


def _count(
    ops: Columns, rank_at: Ints, stream: Ints, per_iteration: Ints, start_ns: int, n_ranks: int
) -> tuple[Ints, Floats]:
    """(n,) the iteration of every op, and (R, I) when each rank launched it; counted by each rank's rarest stream."""
    anchor = _anchors(rank_at, stream, per_iteration, n_ranks)
    is_anchor = (stream == anchor[rank_at]) if len(ops) else np.zeros(0, bool)
    number, enqueued = ops["op"].astype(np.int64) // np.maximum(per_iteration, 1), ops["enqueued_ns"]
    at = np.flatnonzero(is_anchor)
    fresh = np.ones(len(at), bool)
    fresh[1:] = (rank_at[at][1:] != rank_at[at][:-1]) | (number[at][1:] != number[at][:-1])
    at = at[fresh]
    base = _bases(anchor, stream[at], number[at], enqueued[at])
    n = min(int((number[at] - base[rank_at[at]]).max(initial=-1)) + 1, ITERATIONS_MAX)
    began = np.full((n_ranks, max(n, 0)), np.nan)
    inside = at[(number[at] >= base[rank_at[at]]) & (number[at] - base[rank_at[at]] < n)]
    began[rank_at[inside], number[inside] - base[rank_at[inside]]] = enqueued[inside] - start_ns
    if not len(ops):
        return np.zeros(0, np.int64), began
    # The anchor op that was launched last at or before an op says which iteration the op belongs to.
    newest = np.full(len(ops), -1, np.int64)
    newest[at] = at
    newest = np.maximum.accumulate(newest)
    known = (newest >= 0) & (rank_at[newest] == rank_at)
    index = np.where(known, number[newest] - base[rank_at], -1)
    return np.where((index >= 0) & (index < n), index, -1), began


def _bases(anchor: Ints, stream: Ints, number: Ints, began_ns: Ints) -> Ints:
    """(R,) the number that each rank's stream has in iteration 0: at about the same time in all, whatever is counted.

    stream, number, began_ns: of the ops that begin an iteration.
    """
    base = np.zeros(len(anchor), np.int64)
    if not len(stream):
        return base
    _, first, of_pair = grouped(mix(stream, number))
    began = medians(of_pair, began_ns, len(first))
    streams, n_ranks = np.unique(anchor[anchor >= 0], return_counts=True)
    order = np.lexsort((number[first], stream[first]))
    bounds = np.searchsorted(stream[first][order], np.append(streams, streams[-1] + 1))
    runs = [order[start:end] for start, end in pairwise(bounds.tolist())]
    most = runs[int(n_ranks.argmax())]
    based = np.zeros(len(streams), np.int64)
    for at, mine in enumerate(runs):
        since = max(began[mine].min(), began[most].min())
        same, theirs = (run[np.abs(began[run] - since).argmin()] for run in (mine, most))
        based[at] = number[first][same] - (number[first][theirs] - number[first][most[0]])
    known = anchor >= 0
    base[known] = based[np.searchsorted(streams, anchor[known])]
    return base


def _recounted(rank_at: Ints, stream: Ints, per_iteration: Ints, index: Ints) -> Ints:
    """(n,) ops of each op's stream in an iteration, counted where whole iterations were seen.

    Told from how often they come (streams.py) it may be off by one in seventy, and each op then is compared with another.
    """
    last = np.zeros(int(rank_at.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, rank_at, index)
    whole = np.flatnonzero((per_iteration > 0) & (index >= 0) & (index < last[rank_at]))
    if not len(whole):
        return per_iteration
    _, sample, of = grouped(mix(stream[whole], rank_at[whole], index[whole]))
    n_streams = int(stream.max()) + 1
    middle = medians(stream[whole][sample], np.bincount(of), n_streams)
    counted = np.where(np.bincount(stream[whole], minlength=n_streams) > 0, middle, 0).astype(np.int64)[stream]
    return np.where((per_iteration > 0) & (counted > 0), counted, per_iteration)


def _anchors(rank_at: Ints, stream: Ints, per_iteration: Ints, n_ranks: int) -> Ints:
    """(R,) the stream by which each rank's iterations are counted: the rarest, of equals the one most ranks share."""
    anchor = np.full(n_ranks, -1, np.int64)
    seen = np.flatnonzero(per_iteration > 0)
    pairs, first, _ = grouped(rank_at[seen] << 32 | stream[seen])
    of_rank, of_stream, times = pairs >> 32, pairs & 0xFFFFFFFF, per_iteration[seen][first]
    shared = np.bincount(of_stream, minlength=int(of_stream.max(initial=0)) + 1)[of_stream]
    order = np.lexsort((of_stream, -shared, times, of_rank))
    ranks, best = np.unique(of_rank[order], return_index=True)
    anchor[ranks] = of_stream[order][best]
    return anchor


def _laid_out(
    rank_at: Ints, place: Ints, index: Ints, launched: Floats, known: Ints, n: int
) -> tuple[Ints, Ints]:  # fmt: skip
    """(P, n) the op at each place and iteration, -1 where none was seen, and which of the samples each place is.

    rank_at, launched: of each sample; place, index, known: of each op its sample, its iteration and its position.
    """
    filled = np.bincount(place, minlength=len(rank_at)) >= FILLED_MIN * n
    order = np.lexsort((launched, rank_at))
    order = order[filled[order]]
    at = np.full(len(rank_at), -1, np.int64)
    at[order] = np.arange(len(order))
    place = at[place]
    rows = np.full((len(order), n), -1, np.int64)
    rows[place[place >= 0], index[place >= 0]] = known[place >= 0]
    return rows, order


def _placed(
    told: Told, rows: Ints, sample: Rows, rank_at: Ints, ranks: Ints, began: Floats, window: Window,
    length_ns: float,
) -> Iterations:  # fmt: skip
    """sample: (P,) an op of each place."""
    first = np.searchsorted(rank_at, np.arange(len(ranks) + 1)).astype(np.int64)
    ready, end, came = (
        _laid(told, name, rows, window.start_ns) for name in ("first_ready_ns", "done_ns", "first_transfer_ns")
    )
    return Iterations(
        ops=told, ranks=ranks.astype(np.int64), first=first, rank=sample["rank"].astype(np.int64),
        order=(np.arange(len(sample)) - first[rank_at]).astype(np.int64),
        func=sample["func"].astype(np.int64), comm_id=sample["comm_id"], peer=sample["peer"].astype(np.int64),
        kind=_kinds(sample), row=rows,
        ready=ready, end=end, arrived=np.where(came < ready, came, np.nan), began=began,
        start_ns=window.start_ns, length_ns=length_ns,
    )  # fmt: skip


def _kinds(ops: Rows) -> Keys:
    """(n,) what is called; sends are of no size: those of experts differ from rank to rank and from time to time."""
    sends = is_p2p(ops)
    return mix(ops["func"], np.where(sends, 0, ops["count"]), np.where(sends, 0, ops["dtype"]))


def _launched(place: Ints, index: Ints, nth: Ints, n_places: int) -> Floats:
    """(n_places,) the how many-th op of its iteration each place usually is: in the first quarter of the iterations, where
    it was seen in these. What is enqueued at one instant comes in the order in which it ends, and that may change."""
    is_early = 4 * index <= int(index.max(initial=0))
    is_early |= np.bincount(place[is_early], minlength=n_places)[place] == 0
    return medians(place[is_early], nth[is_early], n_places)


def _nth(rank_at: Ints, index: Ints) -> Ints:
    """(n,) how many ops of the same rank and iteration were launched before; the rows are in launch order."""
    if not len(index):
        return np.zeros(0, np.int64)
    n = len(index)
    ordered = np.sort((rank_at * (int(index.max()) + 1) + index) * n + np.arange(n))  # group by group, as they came
    order, group = ordered % n, ordered // n
    is_first = np.ones(n, bool)
    is_first[1:] = group[1:] != group[:-1]
    nth = np.empty(n, np.int64)
    nth[order] = np.arange(n) - np.maximum.accumulate(np.where(is_first, np.arange(n), 0))
    return nth


def stretches(iterations: Iterations, onset_ns: int) -> tuple[Mask, Mask]:
    """(I,) the iterations that were over before `onset_ns`, and those that began after it, the last without an end."""
    ends = _row_max(iterations.end) + iterations.start_ns
    begins = np.nanmin(iterations.began, axis=0, initial=np.inf) + iterations.start_ns
    return (ends < onset_ns) & (begins < onset_ns), begins >= onset_ns


def _row_max(values: Floats) -> Floats:
    found: Floats = np.max(np.where(np.isnan(values), -np.inf, values), axis=0, initial=-np.inf)
    return found
