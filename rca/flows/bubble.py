"""How much of a pipeline's time is bubble: between what it must be at least and can be at most, by sends and receives alone.

    stage 0   [F0]F1 F2 F3 ....... B0 ... B1 ... [B3]     [ ]: nobody sees the begin of the first F, nor the end of the last B
    stage 1         F0 F1 F2 F3 B0 ... B1 ...             dots: the bubble

A stage works in the order in which it launches. So what ends with a send was computed, from what came or was handed on before;
what lies between a send and a receive was waited. Not seen, and so between nothing and all of it: what lies between two receives
(the last stage's forwards, the first one's backwards), what ends with a send that stood behind another one, and the two ends
above. The first F begins after the gradients were reduced and the first weights gathered; the last B is over when the last
reduction begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nccl_instrument.tables import FUNC_SEND, FUNCS
from rca.flows.layout import GroupLayout
from rca.flows.parallelism import Parallelism
from rca.keys import Ints, Keys, Mask
from rca.slow.iterations import Iterations
from rca.slow.streams import Floats

REDUCTIONS: Final = (FUNCS.index("AllReduce"), FUNCS.index("ReduceScatter"))
GATHER: Final = FUNCS.index("AllGather")
QUEUED_NS: Final = 500_000.0
"""A send that begins so soon after the one before was over may have waited for that, and not for what is computed."""
TOGETHER_NS: Final = 200_000.0
"""Calls that are launched so close together may be one group, of which the receive need not come first."""
READ_MAX: Final = 512
NO_ITERATIONS: Final = "the job's ops do not repeat themselves"
NO_PIPELINE: Final = "no communicator serves a pipeline"
NOT_SEEN: Final = "not all of its stages' sends and receives were seen in any iteration"
INTERLEAVED: Final = "the first stage receives from the last one: each holds several parts of the model"
ANOTHER_ORDER: Final = "a stage's iteration does not begin and end as a pipeline that is drained after each does"
AHEAD: Final = (
    "stages hand on what they computed before what they asked for earlier had come, so waiting is not to be seen"
)


@dataclass(frozen=True, slots=True)
class Bubble:
    """at_least, at_most: share of the time from the first forward's begin to the last backward's end, over all stages, in which
    they wait for one another; medians over pipelines and iterations, NaN where nothing is known. reason: why not, "" if known.
    n_told, n: in how many of how many iterations of a pipeline it could be told, the first and last one apart; of more than
    READ_MAX so many are read, evenly.
    """

    at_least: float
    at_most: float
    reason: str
    n_told: int = 0
    n: int = 0


@dataclass(frozen=True, slots=True)
class _Stage:
    """One stage's sends and receives in one iteration, in the order of time. at_ns: a receive's end, a send's begin. sure_ns,
    open_ns: what was computed, and what may have been besides."""

    is_send: Mask
    at_ns: Floats
    sure_ns: float
    open_ns: float


def unknown(reason: str) -> Bubble:
    """Nothing is known, for this reason."""
    return Bubble(float("nan"), float("nan"), reason)


def bubble_of(iterations: Iterations, layout: tuple[GroupLayout, ...]) -> Bubble:
    """The bubble of a job's pipelines."""
    pipelines = [one for one in layout if one.parallelism is Parallelism.PIPELINE and one.n_ranks > 1]
    if not pipelines:
        return unknown(NO_PIPELINE)
    gradients = np.array([one.comm_id for one in layout if one.parallelism is Parallelism.DATA], np.uint64)
    sending = [(group, [_places(iterations, rank, group.comm_id) for rank in group.ranks]) for group in pipelines]
    inner = max(iterations.n - 2, 0)  # of the first and the last one end is not known
    pairs = len(sending) * inner
    read = np.unique(np.linspace(0, pairs - 1, min(pairs, READ_MAX)).astype(np.int64)).tolist()
    told = []
    for at in read:
        group, places = sending[at // inner]
        told.append(_in_iteration(iterations, group, places, gradients, at % inner + 1))
    found = [one for one in told if not isinstance(one, str)]
    if not found:
        reasons = [one for one in told if isinstance(one, str)]
        return replace(unknown(max(sorted(set(reasons)), key=reasons.count, default=NOT_SEEN)), n=pairs)
    at_least, at_most = np.median(np.array(found), axis=0)
    return Bubble(float(at_least), float(at_most), "", len(found), pairs)


def _in_iteration(
    iterations: Iterations, group: GroupLayout, places: list[Ints], gradients: Keys, index: int
) -> tuple[float, float] | str:
    """(at least, at most), or why nothing is known. places: of the sends and receives of each stage."""
    n = len(places)
    if n < group.n_ranks or not all(len(one) for one in places):
        return NOT_SEEN
    if n > 2 and (iterations.peer[places[0]] == n - 1).any():
        return INTERLEAVED
    stages = list[_Stage]()
    for mine in places:
        told = _stage(iterations, mine, index)
        if isinstance(told, str):
            return told
        if not _is_drained(told, is_first=not stages):
            return ANOTHER_ORDER
        stages.append(told)
    ends = _first_ends(iterations, places[0], stages[0], gradients, index)
    return _bounds(stages, ends) if ends is not None else NOT_SEEN


def _places(iterations: Iterations, rank: int, comm_id: int) -> Ints:
    found: Ints = np.flatnonzero((iterations.rank == rank) & (iterations.comm_id == np.uint64(comm_id)))
    return found


def _stage(iterations: Iterations, places: Ints, index: int) -> _Stage | str:
    rows = iterations.row[places, index]
    if not len(rows) or (rows < 0).any():
        return NOT_SEEN
    is_send = iterations.func[places] == FUNC_SEND
    began, ended = iterations.ready[places, index], iterations.end[places, index]
    at_ns = np.where(is_send, began, ended)
    if not np.isfinite(at_ns).all():
        return NOT_SEEN
    launched = np.asarray(iterations.ops["enqueued_ns"])[rows]
    if _runs_ahead(is_send, at_ns, launched):
        return AHEAD
    order = np.argsort(at_ns, kind="stable")
    is_send, at_ns, ended = is_send[order], at_ns[order], ended[order]
    gaps, over = np.diff(at_ns), np.maximum.accumulate(np.where(is_send, ended, -np.inf))[:-1]
    is_queued = at_ns[1:] < over + QUEUED_NS
    sure = is_send[1:] & ~is_queued
    is_open = (is_send[1:] & is_queued) | (~is_send[1:] & ~is_send[:-1])
    return _Stage(is_send, at_ns, float(gaps[sure].sum()), float(gaps[is_open].sum()))


def _runs_ahead(is_send: Mask, at_ns: Floats, launched: Ints) -> bool:
    """Whether a send began before a receive that was launched before it had come."""
    order = np.argsort(launched, kind="stable")
    came = np.maximum.accumulate(np.where(is_send[order], -np.inf, at_ns[order]))
    before = np.searchsorted(launched[order], launched[order] - TOGETHER_NS, side="right") - 1
    late = np.where(before >= 0, came[before], -np.inf)
    return bool((is_send[order] & (at_ns[order] < late)).any())


def _is_drained(stage: _Stage, is_first: bool) -> bool:
    """Whether the stage begins and ends an iteration as it does whose microbatches have all been handed on before."""
    outside = stage.is_send if is_first else ~stage.is_send
    ahead = np.cumsum(np.where(outside, 1, -1))
    return bool((ahead >= 0).all() and ahead[-1] == 0)


def _first_ends(
    iterations: Iterations, places: Ints, first: _Stage, gradients: Keys, index: int
) -> tuple[float, float] | None:
    """(earliest begin of the first forward, latest end of the last backward) of the first stage; None: not seen."""
    is_send, rank = iterations.func[places] == FUNC_SEND, iterations.rank[places[0]]
    before = float(np.max(iterations.end[places[~is_send], index - 1]))
    after = float(np.min(iterations.ready[places[is_send], index + 1]))
    if not np.isfinite([before, after]).all():
        return None
    own = np.flatnonzero(iterations.rank == rank)
    own = own[np.isin(iterations.comm_id[own], gradients)]
    reductions, gathers = own[np.isin(iterations.func[own], REDUCTIONS)], own[iterations.func[own] == GATHER]
    begun, over = iterations.ready[reductions], iterations.end[reductions]
    earliest = float(np.max(over[(over > before) & (over <= first.at_ns[0])], initial=before))
    asked, came = iterations.ready[gathers], iterations.end[gathers]
    gathered = came[(asked >= earliest) & (came <= first.at_ns[0])]
    reduced = begun[(begun > first.at_ns[-1]) & (begun < after)]
    earliest = float(gathered.min()) if len(gathered) else earliest
    return earliest, float(reduced.max()) if len(reduced) else after


def _bounds(stages: list[_Stage], ends: tuple[float, float]) -> tuple[float, float]:
    """Of all begins and ends that can be, and all that may have been computed, the least and the largest share.

    It grows or falls all the way with each of them, so one of the corners has it.
    """
    first = stages[0]
    sure, may = sum(one.sure_ns for one in stages), sum(one.open_ns for one in stages)
    shares = [
        1.0 - (computed + (first.at_ns[0] - begin) + (end - first.at_ns[-1])) / (len(stages) * (end - begin))
        for begin in (ends[0], first.at_ns[0])
        for end in (first.at_ns[-1], ends[1])
        for computed in (sure, sure + may)
    ]
    return float(np.clip(min(shares), 0.0, 1.0)), float(np.clip(max(shares), 0.0, 1.0))
