"""Trigger for jobs without NCCL traces: nobody's counts rise, although they had, and ops are in progress.

What a rank's own recorder (or its step counter) says once a second is less than a trace: how many ops of each process group
were entered and finished, and when that last changed. That is enough to see that a job stands still (Mycroft Alg. 1's
failure, on the same sampled ranks); who started it is for the dumps to say. A rank that has nothing in progress waits for
nobody, so a job in which no rank has is at work, until it has done nothing for
far longer than usual: then it is idle (idle.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ingest.columns import rows_at
from ingest.window import Rows, Window
from nccl_instrument.tables import ENDINGS, LACKS_DONE, SOURCE_RECORDER, SOURCES
from rca.findings import Symptom, SymptomKind
from rca.keys import Ints
from rca.ranks import known_ranks
from rca.settings import SECOND_NS, Settings
from rca.triggers.idle import Idle, seen_ns
from rca.triggers.normal import Normal, counted
from rca.words import named

AGES = "status"
"""The kind under which the normal keeps how old the newest change was when it was looked at, of ranks that then went on."""
AGES_MIN = 20
AGE_FACTOR = 2.5
DELTA_MAX_NS = 600 * SECOND_NS
_BY_EXCEPTION = ENDINGS.index("by an exception")
DONE_MIN = 3  # before so many ops or steps a job is still starting


@dataclass(frozen=True, slots=True)
class Standing:
    """A rank by its own counts. since_ns: their last change; stalled_ns: how long ago, when its node last told.

    written_ns: when the process last wrote them: much earlier means that its Python does not run. waits: it has entered an op
    that has not finished; of a job that counts steps alone nobody knows, so it may. told_ns: when its node told of it last.
    """

    rank: int
    told_ns: int
    since_ns: int
    stalled_ns: int
    written_ns: int
    has_progressed: bool
    waits: bool


def standings(window: Window, ranks: Ints) -> tuple[Standing, ...]:
    """Of those of `ranks` that tell how far they are, by rank."""
    rows = window.rows("status")
    rows = rows[np.isin(rows["rank"], ranks)]
    return tuple(_standing(mine) for mine in _of_each_rank(rows))


def _of_each_rank(rows: Rows) -> list[Rows]:
    """The rows of one rank after the other."""
    rows = rows_at(rows, np.argsort(rows["rank"], kind="stable"))
    return np.split(rows, np.flatnonzero(np.diff(rows["rank"])) + 1) if len(rows) else []


def _standing(rows: Rows) -> Standing:
    tick = int(rows["tick_ns"].max())
    newest = rows[rows["tick_ns"] == tick]
    since = int(newest["changed_ns"].max())
    by_recorder = newest[newest["source"] == SOURCE_RECORDER]
    in_progress = bool((by_recorder["n_enqueued"] > by_recorder["n_done"]).any())
    return Standing(
        int(rows["rank"][0]), tick, since, max(tick - since, 0), int(newest["written_ns"].max()),
        bool(newest["n_done"].max() >= DONE_MIN), in_progress if len(by_recorder) else True,
    )  # fmt: skip


def learn_ages(normal: Normal, window: Window, ranks: Ints) -> Normal:
    """`normal` with how old the newest change was at each tick since the last look, of ranks that went on afterwards."""
    rows = window.rows("status")
    rows = rows[np.isin(rows["rank"], ranks)]
    ages = [_ages(mine, normal.looked_ns) for mine in _of_each_rank(rows)]
    return counted(normal, AGES, np.concatenate(ages)) if ages else normal


def _ages(rows: Rows, since_ns: int) -> Ints:
    """Of one rank: (n,) the age of its newest change at each tick that a later change followed."""
    ticks, at = np.unique(rows["tick_ns"], return_inverse=True)
    changed = np.zeros(len(ticks), np.int64)
    np.maximum.at(changed, at, rows["changed_ns"])
    last = changed.max(initial=0)
    # Each tick once: it counts in the look in which the change that followed it is seen for the first time.
    followed = np.searchsorted(changed, ticks, side="right")
    seen_ns = ticks[np.minimum(followed, len(ticks) - 1)]
    keep = (ticks < last) & (seen_ns > since_ns)
    ages: Ints = np.maximum(ticks[keep] - changed[keep], 0)
    return ages


def delta_ns(normal: Normal, settings: Settings) -> int:
    """Δ for these counts: far longer than the job is usually between two changes; the paper's while nothing is known."""
    p99 = normal.quantile_ns(0.99, AGES) if normal.count(AGES) >= AGES_MIN else None
    if p99 is None:
        return settings.delta_max_ns
    return int(min(max(settings.delta_min_ns, AGE_FACTOR * p99), max(DELTA_MAX_NS, settings.delta_max_ns)))


def no_progress(window: Window, ranks: Ints, normal: Normal, settings: Settings) -> Symptom | None:
    """The symptom when every watched rank had progressed, none has for Δ, and somebody waits in an op."""
    if _has_traces(window):
        return None  # they see more
    watched, delta = standings(window, ranks), delta_ns(normal, settings)
    known = window.ranks["node"][np.isin(window.ranks["rank"], ranks)]
    if not watched or window.nodes["catching_up"][known].any():
        return None
    stuck = [one for one in watched if one.has_progressed and one.waits and one.stalled_ns >= delta]
    if not stuck or any(one.stalled_ns < settings.delta_min_ns for one in watched):
        return None
    longest = max(one.stalled_ns for one in stuck)
    those = tuple(one.rank for one in stuck)
    return Symptom(
        kind=SymptomKind.FAILURE, job=window.job, attempt=window.attempt, at_ns=min(one.since_ns for one in stuck),
        seen_ns=window.now_ns, comm_id=0, ranks=those,
        sentence=f"No op has finished for {longest / SECOND_NS:.1f} s on {named(those)}, by their own {_sources(window)}.",
        numbers={
            "stalled_s": round(longest / SECOND_NS, 3), "delta_s": round(delta / SECOND_NS, 3), BY_STATUS: 1.0,
        },
    )  # fmt: skip


def idle_by_counts(window: Window, normal: Normal, settings: Settings) -> Idle | None:
    """Whether no rank has an op in progress, nor has had one, for far longer than its counts usually stand still."""
    if _has_traces(window):
        return None  # they see more
    everyone, seen = np.unique(window.ranks["rank"][window.ranks["rank"] >= 0]).astype(np.int64), seen_ns(window)
    p99 = normal.quantile_ns(0.99, AGES) if normal.count(AGES) >= AGES_MIN else None
    if p99 is None or seen is None or not len(everyone):
        return None
    told = standings(window, everyone)
    if len(told) < len(everyone) or any(one.waits or not one.has_progressed for one in told):
        return None  # of whom nobody knows, or who waits
    since = max(one.since_ns for one in told)
    limit = int(max(settings.idle_ns, settings.idle_intervals * p99))
    return Idle(since, seen - since, limit) if seen - since >= limit else None


def _has_traces(window: Window) -> bool:
    """Whether traces tell when ops end; where only calls of NCCL's API are seen, the ranks' own counts know more."""
    if len(window.ranks) and (window.ranks["counters_seen"] & LACKS_DONE != 0).all() and not len(window.rows("flow")):
        return False
    return any(len(window.rows(table)) for table in ("progress", "live_op", "op"))


BY_STATUS = "by_status"
"""Among a symptom's numbers: it was seen by the ranks' own counts, so dumps decide what it is."""


def held_by_files(window: Window, symptom: Symptom, settings: Settings) -> str:
    """A sentence when a rank that waits in no op reads or writes files: late, not stuck; '' when none does."""
    if symptom.numbers["stalled_s"] * SECOND_NS >= settings.io_patience_ns:
        return ""
    ranks = known_ranks(window, settings)
    busy = ranks.rank[ranks.io_rate >= settings.io_bytes_per_s]
    late = [one.rank for one in standings(window, busy) if not one.waits]
    return f"The job waits, and {named(late)} moves files: late, not stuck." if late else ""


def is_by_status(symptom: Symptom) -> bool:
    return BY_STATUS in symptom.numbers


def died_by_exception(window: Window) -> tuple[int, ...]:
    """Ranks that had progressed and whose programs said, at their end, that it was an exception."""
    rows = window.rows("status")
    said = rows[(rows["ending"] == _BY_EXCEPTION) & (rows["n_done"] >= DONE_MIN) & (rows["rank"] >= 0)]
    return tuple(int(rank) for rank in np.unique(said["rank"]))


def died_symptom(window: Window, ranks: Iterable[int], sentence: str) -> Symptom:
    """The symptom of a job whose programs ended by exceptions, as what they left says."""
    rows = window.rows("status")
    at_ns = int(rows["changed_ns"].max(initial=0)) or window.end_ns
    return Symptom(
        kind=SymptomKind.FAILURE, job=window.job, attempt=window.attempt, at_ns=at_ns, seen_ns=window.now_ns, comm_id=0,
        ranks=tuple(sorted(ranks)), sentence=sentence, numbers={BY_STATUS: 1.0},
    )  # fmt: skip


def _sources(window: Window) -> str:
    said = {SOURCES[int(source)] for source in np.unique(window.rows("status")["source"])}
    return "Flight Recorders" if "recorder" in said else "step counts"
