"""From Flight Recorder dumps to findings: who is behind, who entered something else, who waits for whom in a circle.

    rank 1 ─┐
    rank 2 ─┼─▶ op 20 of dp0 ──▶ rank 0, which has not entered it and waits in no op: it is stuck in front of it
    rank 3 ─┘

Ranks and the ops they wait in are one graph. Its sinks are the answers: a rank that waits nowhere, a circle, or an op that
everybody is in, where the recorder's sight ends and the layer below is to be asked (Mycroft §6.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, WaitEdge
from rca.flight_recorder.columns import NOWHERE
from rca.flight_recorder.disagreement import Disagreement, disagreement_in
from rca.flight_recorder.habit import Deviation, deviations
from rca.flight_recorder.p2p import p2p_stops
from rca.flight_recorder.progress import GroupProgress, Stop, collective_stops, group_progress
from rca.flight_recorder.recording import Recording
from rca.hang.graph import Graph
from rca.holes import ranked
from rca.words import capitalised, named, score, waiting

RULE: Final = "flight_recorder"
VERSION: Final = 3
FINDINGS_MAX: Final = 5
EVIDENCE_MAX: Final = 16
UNREADABLE: Final = "its dump cannot be read"
_GONE: Final = "gone"
_TELLING: Final = (_GONE, "no answer")
"""Reasons that say something of the rank itself, and not of its node, or of what we can read."""
CIRCLE_MAX: Final = 256
"""Of a larger circle it is not asked who left its habit."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for whom by the recorder. Vertices of `graph`: positions in `ranks`, then len(ranks) + number of the stop.

    silent: ranks of which there is no dump, or none of their end, and why.
    """

    recording: Recording
    groups: list[GroupProgress]
    stops: list[Stop]
    ranks: tuple[int, ...]
    graph: Graph
    silent: Mapping[int, str] = field(default_factory=dict)


def waiting_of(
    recording: Recording, members: Mapping[str, tuple[int, ...]] | None = None, silent: Mapping[int, str] | None = None
) -> Waiting:
    """The graph of what is in progress. members: group → ranks, where the launcher says what the dumps do not. silent: ranks
    that were asked for a dump and gave none, and why."""
    groups = group_progress(recording, members)
    stops = collective_stops(groups) + p2p_stops(recording, groups)
    ranks = tuple(sorted({*recording.ranks, *(rank for stop in stops for rank in (*stop.waiting, *stop.behind))}))
    at = {rank: position for position, rank in enumerate(ranks)}
    edges = [(at[rank], len(ranks) + number) for number, stop in enumerate(stops) for rank in stop.waiting]
    edges += [(len(ranks) + number, at[rank]) for number, stop in enumerate(stops) for rank in stop.behind]
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    graph = Graph(len(ranks) + len(stops), pairs[:, 0], pairs[:, 1])
    return Waiting(
        recording, groups, stops, ranks, graph, {rank: why for rank, why in (silent or {}).items() if rank >= 0}
    )


def _unheard_ranks(state: Waiting) -> tuple[int, ...]:
    return tuple(sorted(state.silent.keys() - set(state.recording.ranks)))


def _is_unknown(state: Waiting, rank: int) -> bool:
    """Whether a rank has no dump for a reason that says nothing of it."""
    why = state.silent.get(rank, "") if rank not in state.recording.ranks else ""
    return bool(why) and (why.startswith(UNREADABLE) or not any(word in why for word in _TELLING))


def findings_of(state: Waiting) -> tuple[Finding, ...]:
    """What the dumps say, best first; () when no op is in progress."""
    disputes = [one for stop in state.stops if (one := disagreement_in(state.recording, stop)) is not None]
    found = [_mismatch(state, one) for one in _first_of_group(disputes)]
    if disputes and state.recording.ended:
        return tuple(ranked(found)[:FINDINGS_MAX])  # which ended all the rest
    disputed = {(one.stop.group, one.stop.seq) for one in disputes}
    for component in state.graph.components():
        if _is_sink(state, component):
            found += _of_sink(state, component, disputed)
    return tuple(ranked(_without_repeats(found))[:FINDINGS_MAX])


def edges_of(state: Waiting, suspects: Collection[int], limit: int) -> tuple[tuple[int, ...], tuple[WaitEdge, ...]]:
    """(victims, edges): who waits for the suspects, directly or through others, nearest first."""
    at = {rank: position for position, rank in enumerate(state.ranks)}
    hops = state.graph.next_hops([at[rank] for rank in sorted(suspects) if rank in at])
    victims: list[int] = []
    edges: list[WaitEdge] = []
    for vertex, stop_at in hops.items():
        if vertex >= len(state.ranks) or state.ranks[vertex] in suspects or stop_at == vertex:
            continue
        stop, waiter = state.stops[stop_at - len(state.ranks)], state.ranks[vertex]
        victims.append(waiter)
        if len(edges) < limit:
            group = state.groups[stop.group]
            op = f"{'p2p op' if stop.is_p2p else 'op'} {stop.seq} of {group.title}"
            why = f"is in {op}, whose batch another op holds" if stop.is_joined else f"has not entered {op}"
            edges.append(WaitEdge(waiter, state.ranks[hops[stop_at]], 0, stop.seq, why))
    return tuple(sorted(victims)), tuple(edges)


def _is_sink(state: Waiting, component: list[int]) -> bool:
    inside = set(component)
    leaves = any(other not in inside for vertex in component for other in state.graph.out[vertex])
    return not leaves and (len(component) > 1 or bool(state.graph.into[component[0]]))


def _without_repeats(found: list[Finding]) -> list[Finding]:
    """The silence of a rank is told once, however many ops it could be missing in."""
    return list({(one.subject, one.culprits, one.sentence): one for one in found}.values())


def _of_sink(state: Waiting, component: list[int], disputed: set[tuple[int, int]]) -> list[Finding]:
    n = len(state.ranks)
    if len(component) > 1:
        return [_of_circle(state, component)]
    if component[0] < n:
        if _is_unknown(state, state.ranks[component[0]]):
            return [_unknown(state, [state.stops[one - n] for one in state.graph.into[component[0]]])]
        return [_absent(state, component[0])]
    stop = state.stops[component[0] - n]
    if stop.is_p2p:
        return [_transfer(state, component[0])]
    if (stop.group, stop.seq) in disputed:
        return []
    is_known = state.groups[stop.group].is_declared or not _unheard_ranks(state)
    return [_inside(state, component[0]) if is_known else _unheard(state)]


def _waiters(state: Waiting, targets: list[int]) -> int:
    return sum(vertex < len(state.ranks) for vertex in state.graph.reaching(targets) - set(targets))


def _absent(state: Waiting, vertex: int) -> Finding:
    """A rank for which others wait and which waits in no op itself."""
    rank, n_waiters = state.ranks[vertex], _waiters(state, [vertex])
    stops = [state.stops[one - len(state.ranks)] for one in state.graph.into[vertex]]
    first = min(stops, key=lambda stop: (-len(stop.waiting), stop.seq))
    title = state.groups[first.group].title
    is_heard, ended = rank in state.recording.ranks, state.recording.ended.get(rank, "")
    kind = "p2p op" if first.is_p2p else "op"
    said = f"rank {rank} has not entered {kind} {first.seq} of {title} and is in no other; {waiting(n_waiters)}."
    if ended:
        said = f"rank {rank} ended by {ended}, before {kind} {first.seq} of {title}; {waiting(n_waiters)}."
    if not is_heard:
        why = f" ({state.silent[rank]})" if rank in state.silent else ""
        said = f"rank {rank} sent no dump{why}; {waiting(n_waiters)}, first in {kind} {first.seq} of {title}."
    is_gone = is_heard and not ended and _GONE in state.silent.get(rank, "")
    if is_gone:
        said = f"rank {rank} ended without a word, before {kind} {first.seq} of {title}; {waiting(n_waiters)}."
    is_sure = any(stop.is_sure for stop in stops)
    grade = Grade.WEAK if not is_heard else Grade.STRONG if is_sure and not is_gone else Grade.MODERATE
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", f"rank {rank}", (rank,)),
        component=Component.PROCESS if is_gone else Component.SOFTWARE if is_heard else Component.UNKNOWN,
        kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=(rank,), score=score(grade, n_waiters, len(state.ranks)), grade=grade,
        sentence=capitalised(said),
        evidence=(*_last_op(state, rank), *(_stop_evidence(state, stop) for stop in stops[: EVIDENCE_MAX - 1])),
        advice=f"Look at the Python stack of rank {rank}: `py-spy dump --pid PID` shows where it is stuck.",
    )  # fmt: skip


def _unheard(state: Waiting) -> Finding:
    """Ops that all who sent a dump are in, of groups nobody says the members of: whoever sent none may be missing there."""
    silent = _unheard_ranks(state)
    n_ranks = len(state.ranks) + len(silent)
    stops = [stop for stop in state.stops if not stop.behind]
    if any(_is_unknown(state, rank) for rank in silent):
        return _unknown(state, stops)
    n_waiters = len({rank for stop in state.stops for rank in stop.waiting})
    are_gone = all(_GONE in state.silent[rank] for rank in silent)
    is_one = len(silent) == 1
    # A rank whose process is gone did end; one that does not answer may only be slow to.
    grade = Grade.MODERATE if is_one or are_gone else Grade.WEAK
    said = "left no dump before its process ended" if are_gone else "sent no dump"
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", named(silent), silent),
        component=Component.PROCESS if are_gone else Component.UNKNOWN, kind=FaultKind.COMPUTATION_FAIL_STOP,
        culprits=silent if is_one else (), score=score(grade, n_waiters, n_ranks), grade=grade,
        sentence=f"{capitalised(named(silent))} {said}, and all others are in ops that do not end; "
        f"{waiting(n_waiters) if is_one else 'which of these they wait for cannot be told'}.",
        evidence=(
            *(Evidence("no dump", state.silent[rank], "", "flight_recorder", rank) for rank in silent[:EVIDENCE_MAX // 2]),
            *(_stop_evidence(state, stop) for stop in stops[: EVIDENCE_MAX // 2]),
        ),
        tied=() if is_one else tuple(Subject("rank", f"rank {rank}", (rank,)) for rank in silent[:64]),
        advice="On its node: `ps -o pid,stat,wchan:32,cmd -p PID`, the rank's own log, `dmesg | grep -i -e xid -e oom`.",
    )  # fmt: skip


def _unknown(state: Waiting, stops: list[Stop]) -> Finding:
    """Ops that somebody may not have entered of whom nothing is known: nobody is blamed for that."""
    unheard = _unheard_ranks(state)
    members = {rank for stop in stops for rank in stop.behind}
    silent = tuple(rank for rank in unheard if rank in members) if members else unheard
    whys = list(dict.fromkeys(state.silent[rank] for rank in silent))
    n_waiters = len({rank for stop in stops for rank in stop.waiting})
    wait, it = "1 rank waits" if n_waiters == 1 else f"{n_waiters} ranks wait", "it" if len(silent) == 1 else "them"
    said = f"nothing is known of {named(silent)} ({whys[0]}{'; and other reasons' if len(whys) > 1 else ''})"
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", named(silent), silent), component=Component.UNKNOWN,
        kind=FaultKind.UNKNOWN, culprits=(), score=score(Grade.WEAK, n_waiters, len(state.ranks) + len(silent)),
        grade=Grade.WEAK, sentence=f"{capitalised(said)}; {wait}, and whether for {it} cannot be told.",
        evidence=(
            *(Evidence("no dump", state.silent[rank], "", "flight_recorder", rank) for rank in silent[:EVIDENCE_MAX // 2]),
            *(_stop_evidence(state, stop) for stop in stops[: EVIDENCE_MAX // 2]),
        ),
        tied=tuple(Subject("rank", f"rank {rank}", (rank,)) for rank in silent[:64]),
        advice="See whether the agent of its node runs, and ask for dumps again.",
    )  # fmt: skip


def _of_circle(state: Waiting, component: list[int]) -> Finding:
    """Ranks that wait for each other: those who left an op out are to blame, else both sides of the circle.

    Whoever enters two groups' ops in another order than ever before is held at once; who has gone on since has left one out. A
    single rank that is held at once has, too, unless both groups have the same members, where an exchange is as likely.
    """
    n = len(state.ranks)
    ranks = tuple(sorted(state.ranks[one] for one in component if one < n))
    left = deviations(state.recording, ranks) if len(ranks) <= CIRCLE_MAX else []
    went_on = [one for one in left if one.since]
    if not went_on and len(left) == 1 and not _is_between_twins(state, component, left[0]):
        went_on = left
    if went_on and len(went_on) < len(ranks):
        return _left_out(state, component, went_on)
    return _circle(state, component)


def _is_between_twins(state: Waiting, component: list[int], found: Deviation) -> bool:
    """Whether the op it is in and the one it is missing in belong to groups of the same members."""
    n = len(state.ranks)
    inside = [state.stops[one - n] for one in component if one >= n]
    entered = {stop.group for stop in inside if found.rank in stop.waiting}
    missing = {stop.group for stop in inside if found.rank in stop.behind}
    members = [{one.rank for one in state.groups[group].standings} for group in sorted(entered | missing)]
    return all(one == members[0] for one in members)


def _circle(state: Waiting, component: list[int]) -> Finding:
    """Ranks that wait for each other in different ops."""
    n = len(state.ranks)
    ranks = tuple(sorted(state.ranks[one] for one in component if one < n))
    stops = [state.stops[one - n] for one in component if one >= n]
    titles = sorted({state.groups[stop.group].title for stop in stops})
    n_waiters = _waiters(state, component)
    is_p2p = all(stop.is_p2p for stop in stops)
    why = "their sends and receives do not meet" if is_p2p else "the groups were entered in different orders"
    grade = Grade.STRONG if all(stop.is_sure for stop in stops) else Grade.MODERATE
    said = f"{named(ranks)} wait for each other in {' and '.join(titles[:4])}: {why}"
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", named(ranks), ranks), component=Component.SOFTWARE,
        kind=FaultKind.DEADLOCK, culprits=ranks, score=score(grade, n_waiters, len(state.ranks)), grade=grade,
        sentence=f"{capitalised(said)}; {waiting(n_waiters)}.",
        evidence=tuple(_stop_evidence(state, stop) for stop in stops[:EVIDENCE_MAX]),
        advice="Let every rank enter these groups' ops in the same order.",
    )  # fmt: skip


def _left_out(state: Waiting, component: list[int], found: list[Deviation]) -> Finding:
    """Ranks that went on without an op that was due, as all their own history says."""
    n, rows = len(state.ranks), state.recording.entries
    ranks = tuple(sorted(one.rank for one in found))
    stops = [state.stops[one - n] for one in component if one >= n]
    missed = [stop for stop in stops if set(stop.behind) & set(ranks)] or stops
    stop = max(missed, key=lambda stop: len(stop.waiting))
    title, first = state.groups[stop.group].title, found[0]
    n_waiters = len({state.ranks[one] for one in component if one < n}) - len(ranks) + _waiters(state, component)
    due, instead = rows[first.due], rows[first.row]
    what = f"{state.recording.names[due['name']]} of {state.recording.groups[due['group']].name}"
    said = f"{state.recording.names[instead['name']]} {int(instead['seq'])} of {state.recording.groups[instead['group']].name}"
    how = f"left out op {stop.seq} of {title} and went on to later ones"
    if not any(one.since for one in found):
        inside = next(one for one in stops if ranks[0] in one.waiting)
        entered = f"entered op {inside.seq} of {state.groups[inside.group].title}"
        how = f"{entered} when op {stop.seq} of {title} was due, left out or out of order"
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", named(ranks), ranks), component=Component.SOFTWARE,
        kind=FaultKind.MISMATCH, culprits=ranks, score=score(Grade.STRONG, n_waiters, len(state.ranks)), grade=Grade.STRONG,
        sentence=f"{capitalised(named(ranks))} {how}; {waiting(n_waiters)}.",
        evidence=(
            Evidence("due by its own history", f"{what}; it entered {said}", "", "flight_recorder", first.rank),
            *_last_op(state, first.rank),
            *(_stop_evidence(state, one) for one in stops[: EVIDENCE_MAX - 2]),
        ),
        advice=f"Look for a branch or a swallowed exception in front of this call on {named(ranks)}.",
    )  # fmt: skip


def _mismatch(state: Waiting, found: Disagreement) -> Finding:
    """Members that entered different ops as the same number."""
    title, seq = state.groups[found.stop.group].title, found.stop.seq
    is_tie = not found.deviating
    ranks = tuple(sorted(found.deviating or found.said))
    n_waiters = len(found.said) - (0 if is_tie else len(ranks))
    said = f"{named(ranks)} entered different ops as number {seq} of {title}, without a majority"
    if not is_tie:
        said = f"{named(ranks)} entered another op than the rest as number {seq} of {title}"
    grade = Grade.MODERATE if is_tie else Grade.STRONG
    evidence = [
        Evidence(f"op {seq} of {title}", found.said[rank], "", "flight_recorder", rank)
        for rank in sorted(found.said, key=lambda rank: rank not in found.deviating)[:8]
    ]
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", named(ranks), ranks), component=Component.SOFTWARE,
        kind=FaultKind.MISMATCH, culprits=() if is_tie else ranks, score=score(grade, n_waiters, len(state.ranks)), grade=grade,
        sentence=f"{capitalised(said)}.", evidence=tuple(evidence),
        tied=tuple(Subject("rank", f"rank {rank}", (rank,)) for rank in ranks[:64]) if is_tie else (),
        advice="Compare what these ranks pass to this call: condition, size, type.",
    )  # fmt: skip


def _inside(state: Waiting, vertex: int) -> Finding:
    """An op that every member has entered and that does not end: nobody's Python is to blame for it."""
    stop = state.stops[vertex - len(state.ranks)]
    n_waiters = _waiters(state, [vertex])
    ranks = tuple(sorted(stop.waiting))
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("communicator", state.groups[stop.group].title, ranks),
        component=Component.UNKNOWN, kind=FaultKind.UNKNOWN, culprits=(),
        score=score(Grade.MODERATE, n_waiters, len(state.ranks)), grade=Grade.MODERATE,
        sentence=f"All members have entered op {stop.seq} of {state.groups[stop.group].title} and agree on it; it does not "
        f"end at {named(ranks)}: the trouble is inside the collective.",
        evidence=(_stop_evidence(state, stop),),
        advice="Ask the layer below: the flows of this communicator, its NICs and links.",
    )  # fmt: skip


def _transfer(state: Waiting, vertex: int) -> Finding:
    """A send or receive that both ends have entered, or of which nobody knows the other end: nobody is blamed for it."""
    stop, n_waiters = state.stops[vertex - len(state.ranks)], _waiters(state, [vertex])
    title, ranks = state.groups[stop.group].title, stop.waiting
    name = state.recording.names[state.recording.entries["name"][stop.rows[0]]]
    what = f"p2p op {stop.seq} of {title} ({name})"
    grade = Grade.MODERATE if stop.is_sure and not stop.is_open else Grade.WEAK
    said = f"Both ends have entered {what}; it does not end at {named(ranks)}: the trouble is inside the transfer."
    if stop.is_open:
        said = f"{capitalised(named(ranks))} waits in {what}; no dump declares the members, so for whom cannot be told."
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("communicator", title, ranks), component=Component.UNKNOWN,
        kind=FaultKind.UNKNOWN, culprits=(), score=score(grade, n_waiters, len(state.ranks)), grade=grade, sentence=said,
        evidence=(_stop_evidence(state, stop),),
        advice="Ask the layer below: the flows of this communicator, its NICs and links.",
    )  # fmt: skip


def _first_of_group(disputes: list[Disagreement]) -> list[Disagreement]:
    """The oldest of each group: the later ones follow from it."""
    first: dict[int, Disagreement] = {}
    for one in disputes:
        if one.stop.group not in first or one.stop.seq < first[one.stop.group].stop.seq:
            first[one.stop.group] = one
    return list(first.values())


def _stop_evidence(state: Waiting, stop: Stop) -> Evidence:
    row = stop.rows[0]
    name = state.recording.names[state.recording.entries["name"][row]]
    what = f"{name}, op {stop.seq} of {state.groups[stop.group].title}"
    unheard = set(state.groups[stop.group].unheard)
    missing = [rank for rank in stop.behind if rank not in unheard]
    said = f"{named(stop.waiting)} in it, {named(missing) if missing and not stop.is_joined else 'nobody'} missing"
    if stop.is_open:
        said = f"{named(stop.waiting)} in it, members not declared"
    if len(missing) < len(stop.behind):
        said += f", nothing known of {named(rank for rank in stop.behind if rank in unheard)}"
    return Evidence(what, said, "", "flight_recorder", stop.waiting[0])


def _last_op(state: Waiting, rank: int) -> list[Evidence]:
    """What a rank recorded last, and where its code called it."""
    rows = state.recording.entries
    mine = np.flatnonzero(rows["rank"] == rank)
    if not len(mine):
        return []
    last = rows[mine[-1]]
    group = state.recording.groups[last["group"]]
    place = state.recording.places[last["place"]] if last["place"] != NOWHERE else ""
    called = f", called at {place}" if place else ""
    value = f"{state.recording.names[last['name']]} {int(last['seq'])} of {group.what or group.name}{called}"
    return [Evidence("last op it entered", value, "", "flight_recorder", rank)]
