"""What can be told without what moves inside an op: begins and ends of ops alone, as tools that time operators do (Pulse §2.3).

The baseline that Pulse is compared with, in the same run and on the same window. Communication that fails slow: the group whose
ops last longer; a rank of it where its own ops last longest, or where a custom collective's size over duration is lowest.
Computation: the first rank that begins late. It sees neither pauses nor who waits for whom inside an op, so a straggler
of a collective is its whole group, and what a CPU delays inside an op is blamed on the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.findings import FaultKind
from rca.keys import Ints, Mask, is_p2p
from rca.settings import Settings
from rca.slow.iterations import Iterations, iterations_of, stretches
from rca.slow.slowdown import ITERATIONS_MIN, lengths_ns
from rca.slow.streams import Floats

LONGER_MIN = 1.25
LATE_SHARE = 0.2
APART_MIN = 1.2
LOW_RATE = 0.8


@dataclass(frozen=True, slots=True)
class OpLevelVerdict:
    """ranks: global, () where only the group can be named. comm_ids: the groups."""

    kind: FaultKind
    ranks: tuple[int, ...]
    comm_ids: tuple[int, ...]


def op_level(window: Window, onset_ns: int, settings: Settings) -> tuple[OpLevelVerdict, ...]:
    """What durations and starts of ops say of a job that is slow since onset_ns; () when they say nothing."""
    del settings
    iterations = iterations_of(window)
    usual, slow = stretches(iterations, onset_ns)
    if usual.sum() < ITERATIONS_MIN or slow.sum() < ITERATIONS_MIN:
        return ()
    lengths = lengths_ns(iterations)
    lost_ns = float(np.nanmean(lengths[slow]) - np.nanmedian(lengths[usual]))
    late = _first_late(iterations, usual, slow, lost_ns)
    if late is not None:
        return (late,)
    return (*_slow_groups(iterations, usual, slow), *_slow_rates(iterations, usual, slow))


def stopped_op_level(window: Window) -> tuple[OpLevelVerdict, ...]:
    """Of a job that stands still: ranks that have not begun the op their group is in; else the group, whose ops do not end."""
    live = window.rows("live_op")
    live = live[(live["rank"] >= 0) & ~is_p2p(live)]
    found = []
    for comm_id in np.unique(live["comm_id"]):
        mine = live[live["comm_id"] == comm_id]
        members = window.members[window.members["comm_id"] == comm_id]
        newest = int(mine["op"].max())
        begun = set(mine["rank"][(mine["op"] == newest) & (mine["enqueued_ns"] > 0)].tolist())
        absent = tuple(sorted({int(rank) for rank in members["rank"] if rank >= 0} - begun))
        kind = FaultKind.COMPUTATION_FAIL_STOP if absent else FaultKind.COMMUNICATION_FAIL_STOP
        found.append(OpLevelVerdict(kind, absent, (int(comm_id),)))
    return tuple(found)


def _first_late(iterations: Iterations, usual: Mask, slow: Mask, lost_ns: float) -> OpLevelVerdict | None:
    """The rank that is first, in the order of an iteration, to begin an op later after its own last one than it used to."""
    work, first = _work_before(iterations), iterations.first[:-1]
    more = _mean(work, slow) - _mean(work, usual)
    more[first[np.diff(iterations.first) > 0]] = np.nan  # before the first op of an iteration lies the last one's end
    is_late = np.nan_to_num(more) >= LATE_SHARE * lost_ns
    if not is_late.any() or lost_ns <= 0:
        return None
    began = _mean(iterations.ready - np.fmin.reduce(iterations.ready, axis=0, keepdims=True), slow)
    at = np.flatnonzero(is_late)
    place = int(at[np.nanargmin(began[at])])
    same = at[iterations.order[at] == iterations.order[place]]
    ranks = tuple(sorted({int(iterations.rank[one]) for one in same}))
    return OpLevelVerdict(FaultKind.COMPUTATION_FAIL_SLOW, ranks, (int(iterations.comm_id[place]),))


def _work_before(iterations: Iterations) -> Floats:
    """(P, I) from the end of the rank's op before to this one's begin; negative where they overlap."""
    found = np.full(iterations.ready.shape, np.nan)
    found[1:] = iterations.ready[1:] - iterations.end[:-1]
    return found


def _slow_groups(iterations: Iterations, usual: Mask, slow: Mask) -> tuple[OpLevelVerdict, ...]:
    """Communicators whose collectives last longer than they did; a member whose own last longer still is named."""
    shared = (iterations.func != FUNC_SEND) & (iterations.func != FUNC_RECV)
    lasted = iterations.end - iterations.ready
    before, now = _mean(lasted, usual), _mean(lasted, slow)
    comms, of = np.unique(iterations.comm_id, return_inverse=True)
    found = []
    for at, comm_id in enumerate(comms):
        mine = shared & (of == at) & np.isfinite(before) & np.isfinite(now)
        if not mine.any() or now[mine].sum() < LONGER_MIN * before[mine].sum():
            continue
        ranks = _apart(iterations.rank[mine], now[mine])
        found.append(OpLevelVerdict(FaultKind.COMMUNICATION_FAIL_SLOW, ranks, (int(comm_id),)))
    return tuple(found)


def _slow_rates(iterations: Iterations, usual: Mask, slow: Mask) -> tuple[OpLevelVerdict, ...]:
    """Ranks whose sends go at a lower observed rate, size over duration with all pauses in it, than theirs before."""
    sends = iterations.func == FUNC_SEND
    lasted, size = iterations.end - iterations.ready, iterations.column("bytes")
    ranks, of = np.unique(iterations.rank, return_inverse=True)
    rates = []
    for those in (usual, slow):
        moved, busy = (
            np.bincount(of[sends], np.nan_to_num(_mean(one, those))[sends], len(ranks)) for one in (size, lasted)
        )
        rates.append(np.where(busy > 0, moved / np.maximum(busy, 1.0), np.nan))
    kept = rates[1] / np.where(rates[0] > 0, rates[0], np.nan)
    low = np.nan_to_num(kept, nan=1.0) <= LOW_RATE
    if not low.any():
        return ()
    comms = tuple(int(one) for one in np.unique(iterations.comm_id[sends]))
    return (OpLevelVerdict(FaultKind.COMMUNICATION_FAIL_SLOW, tuple(int(one) for one in ranks[low]), comms),)


def _apart(rank: Ints, lasted: Floats) -> tuple[int, ...]:
    """The one rank whose ops last clearly longer than those of all others of its group, if there is one."""
    ranks, of = np.unique(rank, return_inverse=True)
    each = np.bincount(of, lasted) / np.bincount(of)
    if len(ranks) < 2:
        return ()
    order = np.argsort(-each)
    return (int(ranks[order[0]]),) if each[order[0]] >= APART_MIN * each[order[1]] else ()


def _mean(values: Floats, those: Mask) -> Floats:
    chosen = values[:, those]
    n = np.isfinite(chosen).sum(axis=1)
    return np.where(n > 0, np.where(np.isfinite(chosen), chosen, 0.0).sum(axis=1) / np.maximum(n, 1), np.nan)
