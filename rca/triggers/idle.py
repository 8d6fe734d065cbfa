"""Trigger: a job whose processes live and that does nothing: no op in flight anywhere for far longer than usual.

What Algorithm 1 cannot see: between ops nobody waits for anybody, so a job that is stuck in its data loader, a lock or a
dead storage on all ranks at once looks like one that pauses. Stacks tell the two apart, so the symptom asks for those
first. File traffic, a declared pause and an ended job explain it and are no symptom. While no normal is known (a job that
starts) nothing is judged here: unstarted.py does.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from ingest.window import Window
from rca.findings import Symptom, SymptomKind
from rca.hang.stuck import Watched, watched_ranks
from rca.keys import Ints, latest, mix
from rca.ranks import known_ranks
from rca.settings import SECOND_NS, Settings
from rca.triggers.normal import Normal
from rca.words import named

ITERATIONS = 2
"""A gap between ops lies within an iteration, so a job with long ones may be quiet for about as long."""
PAUSES_KEPT = 8
PAUSE_MIN_NS = 10 * SECOND_NS
PAUSE_MAX_NS = 600 * SECOND_NS
PAUSE_SLACK = 1.5  # a pause that the job came back from twice, an evaluation, may be so many times as long


@dataclass(frozen=True, slots=True)
class Idle:
    """since_ns: the end of the last op. idle_ns: how long ago that was, limit_ns: what is too long for this job."""

    since_ns: int
    idle_ns: int
    limit_ns: int


def idle_limit_ns(normal: Normal, settings: Settings) -> int | None:
    """How long this job may be without an op in flight; None while nobody knows."""
    p99 = normal.quantile_ns(0.99) if normal.count() >= settings.intervals_min else None
    if p99 is None:
        return None
    iteration = int(median(normal.pace.usual_ns)) if normal.pace.usual_ns else 0
    pause = sorted(normal.pauses_ns)[-2] if len(normal.pauses_ns) > 1 else 0
    return int(max(settings.idle_ns, settings.idle_intervals * p99, ITERATIONS * iteration, PAUSE_SLACK * pause))


def learn_pause(normal: Normal, window: Window, ranks: Ints) -> tuple[int, ...]:
    """The job's pauses, with the one it has just come back from, if nothing was in flight meanwhile."""
    done = window.rows("op")
    done = done[np.isin(done["rank"], ranks) & (done["done_ns"] > normal.seen_ns) & (done["enqueued_ns"] > 0)]
    if not normal.seen_ns or not len(done):
        return normal.pauses_ns
    resumed_ns = int(done["enqueued_ns"].min())
    pause_ns = resumed_ns - normal.seen_ns
    tick = window.rows("flow")["tick_ns"]
    was_in_flight = ((tick > normal.seen_ns + SECOND_NS) & (tick < resumed_ns - SECOND_NS)).any()
    if pause_ns < PAUSE_MIN_NS or was_in_flight or resumed_ns < window.start_ns + SECOND_NS:
        return normal.pauses_ns  # the last: ops before the window's start would not be seen, as after an outage of ours
    return (*normal.pauses_ns, min(pause_ns, PAUSE_MAX_NS))[-PAUSES_KEPT:]


def idle_of(window: Window, watched: tuple[Watched, ...], normal: Normal, settings: Settings) -> Idle | None:
    """Whether nothing is in flight on any rank for too long, as far as every node's data reaches."""
    limit = idle_limit_ns(normal, settings)
    seen = seen_ns(window)
    if limit is None or seen is None or not watched or any(one.n_in_progress for one in watched):
        return None
    since = max(_last_ns(window), normal.seen_ns)
    if seen - since < limit:
        return None
    everyone = np.unique(window.ranks["rank"][window.ranks["rank"] >= 0]).astype(np.int64)
    if any(one.n_in_progress for one in watched_ranks(window, everyone, settings)):
        return None
    return Idle(since, seen - since, limit)


def file_traffic(window: Window, idle: Idle, settings: Settings) -> str:
    """A sentence when somebody reads or writes files, which explains it for a while; '' when nobody does."""
    ranks = known_ranks(window, settings)
    busy = np.flatnonzero(ranks.io_rate >= settings.io_bytes_per_s)
    if not len(busy) or idle.idle_ns >= settings.idle_patience_ns:
        return ""
    move = "moves" if len(busy) == 1 else "move"
    rate = float(ranks.io_rate[busy].sum()) / 1e6
    return (
        f"No op is in flight for {idle.idle_ns / SECOND_NS:.0f} s, but {named(ranks.names(busy))} {move} {rate:.1f} MB/s"
        " of files: a checkpoint or a data set."
    )


def idle_symptom(window: Window, idle: Idle, usual_ns: int) -> Symptom:
    """The symptom; it names no rank, since none is different. usual_ns: between two ops."""
    n_ranks = len(np.unique(window.ranks["rank"][window.ranks["rank"] >= 0]))
    return Symptom(
        kind=SymptomKind.IDLE, job=window.job, attempt=window.attempt, at_ns=idle.since_ns, seen_ns=window.now_ns,
        comm_id=0, ranks=(),
        sentence=f"No op is in flight on any of {n_ranks} ranks for {idle.idle_ns / SECOND_NS:.0f} s.",
        numbers={
            "idle_s": round(idle.idle_ns / SECOND_NS, 3), "limit_s": round(idle.limit_ns / SECOND_NS, 3),
            "op_interval_usual_s": round(usual_ns / SECOND_NS, 6),
        },
    )  # fmt: skip


def seen_ns(window: Window) -> int | None:
    """Data time up to which every node with a living process has told; None when one is behind or none lives."""
    if window.nodes["catching_up"].any():
        return None
    rows = window.rows("process")
    rows = rows[rows["rank"] >= 0]
    newest = rows[latest(mix(rows["rank"]), rows["tick_ns"])]
    alive = newest[newest["alive"] != 0]
    return int(alive["tick_ns"].min()) if len(alive) else None


def _last_ns(window: Window) -> int:
    """When any rank last enqueued or completed an op."""
    progress, done = window.rows("progress"), window.rows("op")
    columns = (progress["last_enqueued_ns"], progress["last_done_ns"], done["done_ns"], done["enqueued_ns"])
    return max(int(column.max(initial=0)) for column in columns)
