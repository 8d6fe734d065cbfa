"""Is something wrong? Algorithm 1's triggers, and silence; cheap enough to run every second.

Failure: a watched rank has ops in progress and none completed for Δ. Ops inside a node never count as completed, and a
rank between ops is not stuck: a pause with nothing in flight is nobody's fault, while a single rank that is missing
keeps the others in an op, and those are stuck. Straggler: iterations take longer than they did (pace.py). Silence: a
node or process is gone while others go on or wait. Idle: nothing is in flight anywhere for far too long (idle.py), or
nothing has ever begun (unstarted.py).

Looks reason in data time: each rank is judged at the newest moment its own node has told of, so a node that is late
or draining its spool is judged late, not stuck.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ingest.columns import of_ranks, rows_at
from ingest.window import Window
from rca.findings import CREPT, HABIT, Symptom, SymptomKind
from rca.hang.progress import Progress, state_of
from rca.hang.sinks import Sink, sinks
from rca.hang.stuck import Watched, ranks_going_on, resumed_ranks, watched_ranks
from rca.holes import unread
from rca.keys import Ints, Mask, latest, mix
from rca.ranks import lost_nodes
from rca.settings import DEFAULT, SECOND_NS, Settings
from rca.slow.iterations import iteration_lengths
from rca.triggers import pace
from rca.triggers.idle import file_traffic, idle_of, idle_symptom, learn_pause
from rca.triggers.kinds import Halved, halved_kind, learn_kinds
from rca.triggers.may_recur import may_recur
from rca.triggers.no_progress import AGES, held_by_files, idle_by_counts, learn_ages, no_progress
from rca.triggers.normal import ALL, Normal, learn
from rca.triggers.sampling import sampled_ranks
from rca.triggers.unstarted import unstarted_of, unstarted_symptom
from rca.words import listed, named


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a job saw.

    symptoms: at most one of each kind. normal: to be handed to the next look. watched: the sampled ranks. delta_ns: Δ in
    force. held: why a stall was not reported, or what of the window could not be read; '' when all was looked at. excused:
    why a job that does nothing is not reported. noted: what is odd and costs the job nothing. unjudged: that it cannot be told
    yet whether the job is slow, '' once it can.
    """

    symptoms: tuple[Symptom, ...]
    normal: Normal
    watched: tuple[Watched, ...]
    delta_ns: int
    held: str = ""
    excused: str = ""
    noted: str = ""
    unjudged: str = ""


def look(
    window: Window,
    normal: Normal = Normal(),  # noqa: B008
    settings: Settings = DEFAULT,
    history: Window | None = None,
    paused: str = "",
) -> Look:
    """One look at `window`. Pure: the same arguments give the same look.

    history: the ops of the sampled ranks over a longer time, when pace.history_ns asks for it. paused: a sentence when
    somebody declared that nothing is expected of the job now.
    """
    ranks = sampled_ranks(window, settings)
    delta = delta_ns(normal, settings)
    watched = watched_ranks(window, ranks, settings)
    if _has_ended(window):
        ended = "The job has ended or was cancelled: the process of every known rank is gone."
        return Look((), learn(normal, window, ranks), watched, delta, ended)
    complete = _complete(window, ranks)
    learned = _learned(normal, window, history, complete, settings)
    found, held = _standing(window, watched, delta, settings)
    noted = excused = ""
    if not found and not held:
        found, held = _by_status(window, ranks, normal, settings)
    if not found and not held:
        found, noted = _slow(window, complete, learned, settings)
    if not found and not held:
        found, excused = _idle(window, watched, normal, settings, paused)
    return Look(
        found, learned, watched, delta, held or unread(window), excused, noted, pace.unjudged(learned.pace, settings)
    )


def _standing(
    window: Window, watched: tuple[Watched, ...], delta: int, settings: Settings
) -> tuple[tuple[Symptom, ...], str]:
    """(failure and silence, why a stall is held back)."""
    stuck = [one for one in watched if one.stalled_ns >= delta]
    gone = _gone_ranks(window)
    state = state_of(window, settings) if stuck or len(gone) else None
    found, held = [], ""
    if stuck and state is not None:
        held = _held_by_return(window, settings) or _held_by_news(window, watched, delta, settings)
        held = held or _held_by_io(state, stuck, settings) or _held_by_going_on(state, stuck, settings)
        if not held:
            found.append(_failure(window, stuck, delta))
    silence = _silence(window, state, gone, settings)
    return (*found, *([silence] if silence else [])), held


def _by_status(window: Window, ranks: Ints, normal: Normal, settings: Settings) -> tuple[tuple[Symptom, ...], str]:
    """(failure by the ranks' own counts, where there are no traces; why it is held back)."""
    symptom = no_progress(window, ranks, normal, settings)
    held = held_by_files(window, symptom, settings) if symptom is not None else ""
    return (symptom,) if symptom is not None and not held else (), held


def _idle(
    window: Window, watched: tuple[Watched, ...], normal: Normal, settings: Settings, paused: str
) -> tuple[tuple[Symptom, ...], str]:
    """(the symptom of a job that does nothing, what explains it instead)."""
    idle, kind = idle_of(window, watched, normal, settings), ALL
    if idle is None:
        idle, kind = idle_by_counts(window, normal, settings), AGES
    unstarted = unstarted_of(window, normal, settings) if idle is None else None
    found = idle or unstarted
    excused = (paused or file_traffic(window, found, settings)) if found else ""
    if found is None or excused:
        return (), excused
    if unstarted is not None:
        return (unstarted_symptom(window, unstarted),), ""
    return (idle_symptom(window, found, normal.quantile_ns(0.5, kind) or 0),), ""


def _learned(normal: Normal, window: Window, history: Window | None, ranks: Ints, settings: Settings) -> Normal:
    """What is usual, with what this look adds to it."""
    theirs = replace(window, tables={**window.tables, "op": of_ranks(window.rows("op"), ranks)})
    return replace(
        learn_ages(learn(normal, theirs, ranks), window, ranks),
        pace=_paced(normal.pace, theirs, history, ranks, settings),
        kinds=learn_kinds(normal.kinds, theirs, ranks, normal.looked_ns, settings),
        pauses_ns=learn_pause(normal, theirs, ranks),
        looked_ns=window.end_ns,
    )


def _paced(before: pace.Pace, window: Window, history: Window | None, ranks: Ints, settings: Settings) -> pace.Pace:
    tried_ns = before.tried_ns if history is None else history.end_ns
    lengths = iteration_lengths(window if history is None else history, ranks)
    return replace(pace.learn(before, lengths, settings), tried_ns=tried_ns)


def _slow(window: Window, ranks: Ints, learned: Normal, settings: Settings) -> tuple[tuple[Symptom, ...], str]:
    """Whether the job has become slower, by its iterations, else by the kinds of its ops; and what is only to be noted.

    While iterations are about as long as ever, an op kind at half its throughput is hidden behind computation: nobody
    loses time by it, so it is noted and wakes nobody.
    """
    slow = pace.slowing(learned.pace, settings)
    if slow is not None:
        return (_straggler(window, ranks, slow),), ""
    kind = halved_kind(learned.kinds, settings)
    maybe = may_recur(learned.pace, settings) if kind is None else None
    if maybe is not None:
        return (_of_habit(_straggler(window, ranks, maybe), maybe),), ""
    if kind is None:
        return (), ""
    stretch = pace.stretch(learned.pace, kind.since_ns, settings)
    if stretch is not None and stretch < (1 + settings.slow_factor) / 2:
        return (), f"{kind.sentence} Iterations take {stretch:.2f} times as long as usual."
    return (_slow_kind(window, ranks, kind),), ""


def _slow_kind(window: Window, ranks: Ints, kind: Halved) -> Symptom:
    unit = "op_interval" if kind.what == "interval" else "byte_time"
    return Symptom(
        kind=SymptomKind.STRAGGLER, job=window.job, attempt=window.attempt, at_ns=kind.since_ns, seen_ns=window.now_ns,
        comm_id=0, ranks=tuple(int(rank) for rank in ranks), sentence=kind.sentence,
        numbers={f"{unit}_usual_s": kind.usual_s, f"{unit}_s": kind.now_s},
    )  # fmt: skip


def _straggler(window: Window, ranks: Ints, slow: pace.Slowing) -> Symptom:
    usual, now = pace.seconds(slow.usual_ns), pace.seconds(slow.now_ns)
    said = {
        "recurring": "on average, again and again",
        "crept": f"{slow.now_ns / slow.usual_ns:.2f} times as long as at the start of the job; it crept there",
    }.get(slow.kind, f"for {slow.n_iterations} iterations")
    crept = {CREPT: float(slow.n_iterations)} if slow.kind == "crept" else {}
    return Symptom(
        kind=SymptomKind.STRAGGLER, job=window.job, attempt=window.attempt, at_ns=slow.since_ns, seen_ns=window.now_ns,
        comm_id=0, ranks=tuple(int(rank) for rank in ranks),
        sentence=f"An iteration takes {now} instead of {usual}, {said}.",
        numbers={"iteration_usual_s": slow.usual_ns / SECOND_NS, "iteration_s": slow.now_ns / SECOND_NS, **crept},
    )  # fmt: skip


def _of_habit(symptom: Symptom, slow: pace.Slowing) -> Symptom:
    said = (
        f"{symptom.sentence} It came too seldom, or the job is not known for long enough, to say that it is no habit."
    )
    return replace(symptom, sentence=said, numbers={**symptom.numbers, HABIT: float(slow.n_iterations)})


def is_halved(symptom: Symptom, settings: Settings) -> bool:
    """Whether a straggler symptom reaches the paper's own threshold: half the throughput, twice the interval.

    That of an op kind always does; what may be the job's habit never.
    """
    if symptom.may_be_habit:
        return False
    usual = symptom.numbers.get("iteration_usual_s")
    return usual is None or symptom.numbers["iteration_s"] >= settings.slow_factor * usual


def _complete(window: Window, ranks: Ints) -> Ints:
    """Those of `ranks` whose completions have all arrived: a spool that drains leaves holes that look like long intervals."""
    behind = window.nodes["catching_up"][window.ranks["node"]]
    return ranks[~np.isin(ranks, window.ranks["rank"][behind])]


def delta_ns(normal: Normal, settings: Settings) -> int:
    """Δ: ten times the p99 of the op interval between the floor and the paper's 10 s, which holds while unknown."""
    p99 = normal.quantile_ns(0.99) if normal.count() >= settings.intervals_min else None
    if p99 is None:
        return settings.delta_max_ns
    return int(min(settings.delta_max_ns, max(settings.delta_min_ns, settings.delta_intervals * p99)))


def _failure(window: Window, stuck: list[Watched], delta: int) -> Symptom:
    at = min(one.since_ns for one in stuck)
    longest = max(one.stalled_ns for one in stuck)
    ranks = tuple(sorted(one.rank for one in stuck))
    return Symptom(
        kind=SymptomKind.FAILURE, job=window.job, attempt=window.attempt, at_ns=at, seen_ns=window.now_ns,
        # The same hang is seen from different communicators in later looks; the incident's key must not change with it.
        comm_id=0, ranks=ranks,
        sentence=f"No op has completed for {longest / SECOND_NS:.1f} s on {named(ranks)}, with ops in progress.",
        numbers={"stalled_s": round(longest / SECOND_NS, 3), "delta_s": round(delta / SECOND_NS, 3)},
    )  # fmt: skip


def _held_by_return(window: Window, settings: Settings) -> str:
    """A sentence when we have only just come back from an outage and nodes are still to return: they may be the reason."""
    nodes, heard_ns = window.nodes, window.now_ns - window.heard_since_ns
    is_away = (nodes["watermark_ns"] > 0) & (window.now_ns - nodes["watermark_ns"] >= settings.silence_ns)
    if heard_ns >= settings.return_ns or not is_away.any() or is_away.all():
        return ""
    names = listed(nodes["name"][is_away].tolist())
    return f"Nobody could be heard until {max(heard_ns, 0) / SECOND_NS:.0f} s ago; still to return: {names}."


def _held_by_news(window: Window, watched: tuple[Watched, ...], delta: int, settings: Settings) -> str:
    """A sentence when some ranks have just gone on, so that the stall of the others is old news."""
    resumed = resumed_ranks(window, watched, delta, settings)
    return f"{named(resumed).capitalize()} went on a moment ago: the others' data is older." if resumed else ""


def _held_by_io(state: Progress, stuck: list[Watched], settings: Settings) -> str:
    """A sentence when all that the job waits for is a rank that reads or writes files: late, not stuck."""
    found = [sink for sink in sinks(state) if not sink.is_never_heard]  # for these the job may wait at any time
    if not found or max(one.stalled_ns for one in stuck) >= settings.io_patience_ns:
        return ""
    busy = {at for sink in found for at in sink.ranks if _is_busy(state, sink, at, settings)}
    waiting = frozenset[int]().union(*(sink.waiters for sink in found if set(sink.ranks) & busy))
    if not busy or any(not _may_wait_for(state, sink, busy, waiting) for sink in found):
        return ""
    ranks = state.ranks.names(np.array(sorted(busy), np.int64))
    rate = max(int(state.ranks.io_rate[at]) for at in busy) / 1e6
    return f"The job waits for {named(ranks)}, which moves {rate:.1f} MB/s of files: late, not stuck."


def _held_by_going_on(state: Progress, stuck: list[Watched], settings: Settings) -> str:
    """A sentence when all for whom some wait go on completing ops all the while: who waits for them may do so by design, as
    one that evaluates waits for the next weights, and holds up nobody."""
    found, since_ns = sinks(state), min(one.since_ns for one in stuck)
    ends = sorted({at for sink in found for at in sink.ranks})
    if not ends or any(not sink.ranks or sink.is_deadlock for sink in found):
        return ""
    ranks = state.ranks.names(np.array(ends, np.int64))
    if not np.isin(ranks, ranks_going_on(state.window, since_ns, settings)).all():
        return ""
    longest_s = max(one.stalled_ns for one in stuck) / SECOND_NS
    those, others = named([one.rank for one in stuck]), named(ranks)
    return f"No op has completed for {longest_s:.1f} s on {those}, yet those they wait for, {others}, complete ops all the while."


def _may_wait_for(state: Progress, sink: Sink, busy: set[int], waiting: frozenset[int]) -> bool:
    """Whether the waiting ends in one of `busy`, or in ranks whose waiting for it nobody sees: a tie of its node, or one in a
    collective that passes on to a mate on its own node, where one of its mates is of those `waiting` for it."""
    if set(sink.ranks) & busy:
        return True
    nodes = state.ranks.node[list(sink.ranks)]
    if sink.tied and {*nodes.tolist()} <= {int(state.ranks.node[at]) for at in busy}:
        return True
    fronts, members = state.fronts, state.members
    comms = fronts.comm[fronts.is_front & ~fronts.p2p & np.isin(fronts.at, sink.ranks)]
    mates = members.rank_at[np.isin(members.comm, comms) & (members.rank_at >= 0)]
    return bool(np.isin(mates[np.isin(state.ranks.node[mates], nodes)], list(waiting)).any())


def _is_busy(state: Progress, sink: Sink, at: int, settings: Settings) -> bool:
    is_between_ops = not (state.fronts.is_front & (state.fronts.at == at)).any()
    return is_between_ops and not state.is_cut[at] and bool(state.ranks.io_rate[at] >= settings.io_bytes_per_s)


def _has_ended(window: Window) -> bool:
    """Whether the newest row of every known rank says that its process is gone; agents go on sending what those left."""
    rows = window.rows("process")
    newest = latest(mix(rows["rank"]), rows["tick_ns"])
    gone = rows["rank"][newest][rows["alive"][newest] == 0]
    known = window.ranks["rank"][window.ranks["rank"] >= 0]
    return len(known) > 0 and bool(np.isin(known, gone).all())


def _gone_ranks(window: Window) -> Ints:
    rows = window.rows("process")
    return np.unique(rows["rank"][(rows["alive"] == 0) & (rows["rank"] >= 0)]).astype(np.int64)


def _silence(window: Window, state: Progress | None, gone: Ints, settings: Settings) -> Symptom | None:
    """One symptom for every silent node and every process that is gone while others wait for it."""
    nodes = lost_nodes(window, settings)
    ended = _waited_for(state, gone, window, settings) if state is not None else np.zeros(0, np.int64)
    if not len(nodes) and not len(ended):
        return None
    ranks = np.unique(np.concatenate([window.ranks["rank"][np.isin(window.ranks["node"], nodes)], ended]))
    said = []
    if len(nodes):
        names = listed(window.nodes["name"][nodes].tolist())
        said.append(f"{f'Node {names} sends' if len(nodes) == 1 else f'Nodes {names} send'} nothing while others do.")
    if len(ended):
        said.append(f"The process of {named(ended.tolist())} is gone while others wait for it.")
    starts = [int(ns) for ns in window.nodes["watermark_ns"][nodes]] + _gone_since(window, ended)
    return Symptom(
        kind=SymptomKind.SILENCE, job=window.job, attempt=window.attempt, at_ns=min(starts), seen_ns=window.now_ns,
        comm_id=0, ranks=tuple(int(rank) for rank in ranks), sentence=" ".join(said),
        numbers={"silence_s": settings.silence_ns / SECOND_NS, "gone_s": settings.gone_ns / SECOND_NS},
    )  # fmt: skip


def _gone_since(window: Window, ranks: Ints) -> list[int]:
    """When each process was first seen gone; the window's start when it was never seen alive in it."""
    rows, each = window.rows("process"), np.unique(ranks)
    rows = rows_at(rows, np.isin(rows["rank"], each))
    at, is_alive = np.searchsorted(each, rows["rank"]), rows["alive"] != 0
    was_seen = np.bincount(at[is_alive], minlength=len(each)) > 0
    first_gone = np.full(len(each), np.iinfo(np.int64).max)
    np.minimum.at(first_gone, at[~is_alive], rows["tick_ns"][~is_alive])
    found: list[int] = np.where(was_seen, first_gone, window.start_ns)[np.searchsorted(each, ranks)].tolist()
    return found


def _waited_for(state: Progress, gone: Ints, window: Window, settings: Settings) -> Ints:
    """Those of `gone` that have been gone long enough and for whom some rank waits in an op."""
    at = state.ranks.position(gone)
    is_waited = _has_waiters(state)[at] & state.ranks.is_gone[at]
    since = np.array(_gone_since(window, gone), np.int64)
    return gone[is_waited & (window.now_ns - since >= settings.gone_ns)]


def _has_waiters(state: Progress) -> Mask:
    return np.array([bool(state.graph.into[at]) for at in range(state.n_ranks)], bool)
