"""What a job's panel shows of its parallelism (Pulse §5.2): times of communication per iteration, stages, bubble, layout.

    stage 0   F0 F1 F2 F3 ........ B0 F4 B1 ...          F_i, B_i: the i-th microbatch forward and backward
    stage 1      F0 F1 F2 ... B0 ...                     dots: a stage waits for another one, the bubble

A stage computes from when it has what a microbatch needs until it hands on what came of it, so both are read off the sends and
receives of the pipeline: the i-th receive from before begins F_i, the i-th send behind ends it; for B_i the other way round. The
first stage receives nothing and the last hands nothing on: there a microbatch begins where the one before ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.flows.bubble import NO_ITERATIONS, Bubble, bubble_of, unknown
from rca.flows.layout import GroupLayout, layout_of
from rca.flows.measured import measured_of
from rca.flows.parallelism import Parallelism
from rca.keys import Ints, Mask
from rca.slow.iterations import Iterations, iterations_of
from rca.slow.slowdown import lengths_ns
from rca.slow.streams import Floats

STAGES_MAX: Final = 64
MICROBATCHES_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Communication:
    """One kind of parallelism, in an average iteration of an average rank that has it. ns: in which any of its ops ran.
    actual_ns: in which its bytes were on the wire, NaN where nothing was measured. n_ops, n_bytes: of the rank's calls.
    """

    parallelism: Parallelism
    ns: float
    actual_ns: float
    n_ops: float
    n_bytes: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """One stage of the pipelines, medians over its ranks and the iterations. forward_ns, backward_ns: F_i and B_i, by microbatch.
    began_ns: of each F_i and B_i since the iteration's begin, to mark them on curves.
    """

    stage: int
    ranks: tuple[int, ...]
    forward_ns: tuple[float, ...]
    backward_ns: tuple[float, ...]
    forward_began_ns: tuple[float, ...]
    backward_began_ns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """iteration_ns: the median, NaN where the ops do not repeat: then all but the layout is empty."""

    iteration_ns: float
    communication: tuple[Communication, ...]
    stages: tuple[StageTimes, ...]
    bubble: Bubble
    layout: tuple[GroupLayout, ...]


def panel_of(window: Window) -> Panel:
    """The panel of a window's job."""
    layout, iterations = layout_of(window), iterations_of(window)
    if not iterations.n:
        return Panel(float("nan"), (), (), unknown(NO_ITERATIONS), layout)
    serves = {one.comm_id: one.parallelism for one in layout}
    kind = np.array(
        [list(Parallelism).index(serves.get(int(comm), Parallelism.UNKNOWN)) for comm in iterations.comm_id]
    )
    communication = _communication(window, iterations, kind)
    stages = _stages(iterations, layout)
    length = float(np.nanmedian(lengths_ns(iterations))) if iterations.n > 1 else float("nan")
    return Panel(length, communication, stages, bubble_of(iterations, layout), layout)


def _communication(window: Window, iterations: Iterations, kind: Ints) -> tuple[Communication, ...]:
    measured, found = measured_of(window, iterations), []
    n_bytes = iterations.column("bytes")
    for which in Parallelism:
        mine = kind == list(Parallelism).index(which)
        ranks = np.unique(iterations.rank_at[mine])
        if not len(ranks):
            continue
        busy = np.array([_covered(iterations, mine & (iterations.rank_at == rank)) for rank in ranks])
        actual = np.nanmedian(_per_rank(iterations, measured.actual_ns, mine)[ranks])
        moved = np.nanmedian(_per_rank(iterations, n_bytes, mine)[ranks])
        n_ops = float(np.bincount(iterations.rank_at[mine])[ranks].mean())
        found.append(Communication(which, float(np.median(busy)), float(actual), n_ops, float(moved)))
    return tuple(found)


def _per_rank(iterations: Iterations, values: Floats, those: Mask) -> Floats:
    """(R,) sums over the places of the means over iterations; NaN where nothing is known of a rank."""
    chosen = values[those]
    n = np.isfinite(chosen).sum(axis=1)
    mean = np.where(n > 0, np.where(np.isfinite(chosen), chosen, 0.0).sum(axis=1) / np.maximum(n, 1), 0.0)
    at, n_ranks = iterations.rank_at[those], len(iterations.ranks)
    known = np.bincount(at, n > 0, n_ranks) > 0
    return np.where(known, np.bincount(at, mean, n_ranks), np.nan)


def _covered(iterations: Iterations, those: Mask) -> float:
    """ns of an average iteration in which any of these places' ops ran: they may overlap."""
    began, ended = iterations.ready[those], iterations.end[those]
    spans = np.stack([began.ravel(), ended.ravel()], axis=1)
    spans = spans[np.isfinite(spans).all(axis=1)]
    n = int(np.isfinite(began).any(axis=0).sum())
    if not len(spans) or not n:
        return 0.0
    spans = spans[np.argsort(spans[:, 0])]
    before = np.concatenate([[-np.inf], np.maximum.accumulate(spans[:, 1])[:-1]])
    return float(np.maximum(spans[:, 1] - np.maximum(spans[:, 0], before), 0.0).sum() / n)


def _stages(iterations: Iterations, layout: tuple[GroupLayout, ...]) -> tuple[StageTimes, ...]:
    pipelines = [one for one in layout if one.parallelism is Parallelism.PIPELINE]
    told: dict[int, list[tuple[int, list[Floats]]]] = {}
    for group in pipelines:
        for stage, rank in enumerate(group.ranks[:STAGES_MAX]):
            at = np.flatnonzero(iterations.ranks == rank)
            if len(at):
                times = _microbatches(iterations, int(at[0]), group, stage)
                told.setdefault(stage, []).append((rank, times))
    found = []
    for stage, ranks in sorted(told.items()):
        columns = [_medians([times[i] for _, times in ranks]) for i in range(4)]
        found.append(
            StageTimes(stage, tuple(sorted(rank for rank, _ in ranks)), columns[0], columns[1], columns[2], columns[3])
        )
    return tuple(found)


def _microbatches(iterations: Iterations, rank_at: int, group: GroupLayout, stage: int) -> list[Floats]:
    """(microbatches, iterations) each: how long F_i and B_i took, and when they began since the iteration did."""
    places = np.arange(len(iterations.rank))[iterations.places_of(rank_at)]
    places = places[iterations.comm_id[places] == np.uint64(group.comm_id)]
    last, begin = len(group.ranks) - 1, iterations.began[rank_at]
    before, behind = (stage - 1) % len(group.ranks), (stage + 1) % len(group.ranks)
    has_before, has_behind = stage > 0, stage < last
    found = []
    for first, then, takes, gives in (
        (before, behind, has_before, has_behind),
        (behind, before, has_behind, has_before),
    ):
        came = iterations.end[_those(iterations, places, FUNC_RECV, first)] if takes else None
        went = iterations.ready[_those(iterations, places, FUNC_SEND, then)] if gives else None
        found.append(_spans(came, went))
    lasted, began = zip(*found, strict=True)
    return [*lasted, *(one - begin[None, :] for one in began)]


def _those(iterations: Iterations, places: Ints, func: int, peer: int) -> Ints:
    found: Ints = places[(iterations.func[places] == func) & (iterations.peer[places] == peer)][:MICROBATCHES_MAX]
    return found


def _spans(came: Floats | None, went: Floats | None) -> tuple[Floats, Floats]:
    """How long each microbatch took, and when it began. What is not received begins where the one before ended; of what is not
    sent nobody sees the end: nothing is said."""
    if went is None:
        nothing = np.zeros((0, 0))
        return nothing, nothing.reshape(0, 0 if came is None else came.shape[1])
    if came is None:
        came = np.concatenate([np.full((1, went.shape[1]), np.nan), went[:-1]])
    n = min(len(came), len(went))
    return np.maximum(went[:n] - came[:n], 0.0), came[:n]


def _medians(of_ranks: list[Floats]) -> tuple[float, ...]:
    """By microbatch, the median over ranks and iterations; NaN where nobody knows."""
    n = max((len(one) for one in of_ranks), default=0)
    found = []
    for i in range(n):
        values = np.concatenate([one[i] for one in of_ranks if i < len(one)])
        values = values[np.isfinite(values)]
        found.append(float(np.median(values)) if len(values) else float("nan"))
    return tuple(found)
