"""Somebody sends nothing any more while others do: a node, or a rank whose process is gone.

    node A ▮▮▮▮▮▮▮▮▮▮      node B ▮▮▮▮▮………… silent      node C ▮▮▮ (draining its spool: late, not silent)

Says where, not why: a silent node may be down, cut off, or have lost its agent. Abstains when everybody is silent (then
it is the server or the network) and for processes that ended with nothing in progress and nobody waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from rca.advice import for_never_heard, for_silent_node, for_unheard
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind
from rca.hang.behind import heard_ns
from rca.hang.cut import first_of
from rca.hang.extent import unheard, with_extent
from rca.hang.progress import Progress
from rca.hang.sinks import Sink, sinks
from rca.keys import Ints
from rca.racks import one_per_rack, racks_apart
from rca.ranks import PORT_DOWN, are_alive_unheard, lost_nodes
from rca.settings import SECOND_NS, Settings
from rca.words import comm_name, named, node_name, rank_subject, runs_of, score, waiting

RULE = "silence"
VERSION = 8


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per rank that is silent on a node that reports, and per silent node: of a stall only those where the waiting
    ends. One of all ranks never heard of, where it may end there."""
    behind = _behind(state, symptom, settings)
    told = {rank for finding in behind for rank in finding.subject.ranks}
    quiet = [int(at) for at in silent_ranks(state, settings) if int(state.ranks.rank[at]) not in told]
    lone = tuple(_silent_rank(state, at) for at in first_of(state, quiet, settings.findings_max, "silent ranks"))
    away, living = _lost(state, symptom, settings)
    dead = tuple(_silent_node(state, int(node)) for node in away)
    return (
        *with_extent(state, dead + lone + behind, settings),
        *with_extent(
            state, tuple(_unheard_node(state, int(node)) for node in living), settings, partial(_goes_on, state)
        ),
        *_never_heard(state, symptom, settings),
    )


def _lost(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Sequence[int], Sequence[int]]:
    """Silent nodes to tell of, and those with whose ranks the job goes on: with all of a rack that is silent as a whole, or
    with none of it."""
    nodes = lost_nodes(state.window, settings)
    if symptom.kind not in (SymptomKind.SILENCE, SymptomKind.EXTERNAL):
        last = [at for sink in sinks(state) for at in sink.ranks]
        nodes = np.intersect1d(nodes, state.ranks.node[last])
    if not len(nodes):
        return (), ()
    is_alive = are_alive_unheard(state.window, settings)
    for rack in racks_apart(state.window, _away(state)).values():
        is_alive[rack] = is_alive[rack].all()
    lost = (nodes[~is_alive[nodes]], nodes[is_alive[nodes]])
    dead, living = (_first(state, those, settings, "silent nodes") for those in lost)
    return dead, living


def _goes_on(state: Progress, grade: Grade, at: Ints) -> tuple[float, str]:
    """Score and last words of a finding about ranks with which the job goes on: what is known of them is old, nobody waits."""
    del at
    ends = "ops in communicators with its ranks go on, so that it is likely its agent, or its way here"
    return score(grade, 0, state.n_ranks), ends


def _away(state: Progress) -> Ints:
    """Nodes of which nothing is heard."""
    away = np.unique(state.ranks.node[unheard(state)])
    return away[away >= 0]


def _behind(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per node where the waiting ends and of which nothing was heard since the job came to rest."""
    if symptom.kind is SymptomKind.SILENCE or not state.behind.any():
        return ()
    last = [at for sink in sinks(state) for at in sink.ranks if not state.ranks.is_silent[at]]
    nodes = np.intersect1d(np.flatnonzero(state.behind[:-1]), state.ranks.node[last])
    return tuple(_node_behind(state, int(node)) for node in _first(state, nodes, settings, "nodes behind"))


def _first(state: Progress, nodes: Ints, settings: Settings, what: str) -> Sequence[int]:
    """At most `findings_max` of these nodes, the others counted; of racks that are all silent one, which stands for the rack."""
    firsts: list[int] = one_per_rack(state.window, nodes, _away(state)).tolist()
    return first_of(state, firsts, settings.findings_max, what)


def silent_ranks(state: Progress, settings: Settings) -> Ints:
    """Positions of the ranks without any row for `silence_ns` though their nodes report and all other ranks do.

    With others gone or silent as well, the job ends or a node is lost, and a rank that ended cleanly is no riddle.
    """
    window, ranks = state.window, state.ranks
    nodes = window.nodes
    is_read = ~np.isin(nodes["name"], list(window.unreadable))  # else what a rank sent may be what cannot be read
    is_fresh = is_read & (window.now_ns - nodes["watermark_ns"] < settings.silence_ns // 2) & ~nodes["catching_up"]
    is_old = is_fresh & (nodes["first_ns"] > 0) & (window.now_ns - nodes["first_ns"] >= settings.silence_ns)
    on_fresh = (ranks.node >= 0) & np.append(is_old, False)[ranks.node]
    is_quiet = window.now_ns - ranks.seen_ns >= settings.silence_ns
    has_span = window.now_ns - window.start_ns >= settings.silence_ns
    found = np.flatnonzero(on_fresh & is_quiet & ~ranks.is_gone)
    others_report = bool(len(found) * 2 < len(ranks.rank) and not (ranks.is_gone | (is_quiet & ~on_fresh)).any())
    return found if has_span and others_report else found[:0]


def _silent_rank(state: Progress, at: int) -> Finding:
    ranks = state.ranks.names(np.array([at]))
    waiters = {other for other in state.graph.reaching([at]) if other < state.n_ranks} - {at}
    grade = Grade.MODERATE if waiters else Grade.WEAK
    seen, node = int(state.ranks.seen_ns[at]), node_name(state, at)
    since = seen or state.window.start_ns
    silent_s = round((state.window.now_ns - since) / SECOND_NS, 1)
    longer = "" if seen else "at least "
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", named(ranks), ranks, node),
        component=Component.UNKNOWN, kind=FaultKind.SILENCE, culprits=ranks,
        score=score(grade, len(waiters), state.n_ranks), grade=grade,
        sentence=f"Nothing is heard of {named(ranks)} for {longer}{silent_s:g} s, though {node or 'its node'} and the "
        f"other ranks report; {waiting(len(waiters))}.",
        evidence=(Evidence("no rows since", silent_s, "s", "process", ranks[0]),),
        advice=for_unheard(state, at),
    )  # fmt: skip


def _node_behind(state: Progress, node: int) -> Finding:
    """The node is named when its batches do not come; when they come late, or hold nothing of its ranks, these are tied."""
    row, window = state.window.nodes[node], state.window
    places = np.flatnonzero(state.ranks.node == node)
    ranks, until_ns = state.ranks.names(places), int(heard_ns(state.known)[node])
    waiters = {at for at in state.graph.reaching(places.tolist()) if at < state.n_ranks} - set(places.tolist())
    is_away = int(row["watermark_ns"]) <= until_ns and not row["catching_up"]
    grade = Grade.MODERATE if is_away else Grade.WEAK
    since_s = round((window.now_ns - max(until_ns, window.start_ns)) / SECOND_NS, 1)
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("node", str(row["name"]), ranks, str(row["name"])),
        component=Component.NODE, kind=FaultKind.SILENCE, culprits=ranks if is_away else (),
        score=score(grade, len(waiters), state.n_ranks), grade=grade,
        sentence=f"Nothing has been heard of the ranks of {row['name']} ({named(ranks)}) for {since_s:g} s, since before the job "
        f"came to rest, and the waiting ends there: whether it is down, cut off or late cannot be told yet; "
        f"{waiting(len(waiters))}.",
        evidence=(Evidence("no data since", since_s, "s", "nodes", None),),
        tied=() if is_away else tuple(rank_subject(state, (int(at),)) for at in places),
        advice=for_silent_node(str(row["name"])), began_ns=until_ns,
    )  # fmt: skip


def _silent_node(state: Progress, node: int) -> Finding:
    places = np.flatnonzero(state.ranks.node == node)
    n_waiters = len({at for at in state.graph.reaching(places.tolist()) if at < state.n_ranks} - set(places.tolist()))
    # Others wait in ops with its ranks: then it is more than a lost agent.
    grade = Grade.STRONG if n_waiters else Grade.MODERATE
    return _of_node(state, node, grade, (score(grade, n_waiters, state.n_ranks), waiting(n_waiters)))


def _unheard_node(state: Progress, node: int) -> Finding:
    return _of_node(
        state, node, Grade.MODERATE, _goes_on(state, Grade.MODERATE, np.flatnonzero(state.ranks.node == node))
    )


def _of_node(state: Progress, node: int, grade: Grade, weighed: tuple[float, str]) -> Finding:
    """That this node is silent. weighed: score and last words."""
    row, ranks = state.window.nodes[node], state.ranks.names(np.flatnonzero(state.ranks.node == node))
    silent_s = round((state.window.now_ns - int(row["watermark_ns"])) / SECOND_NS, 1)
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("node", str(row["name"]), ranks, str(row["name"])),
        component=Component.NODE, kind=FaultKind.SILENCE, culprits=ranks, score=weighed[0], grade=grade,
        sentence=f"Node {row['name']} ({named(ranks)}) has sent nothing for {silent_s:g} s while others report; {weighed[1]}.",
        evidence=(Evidence("no data since", silent_s, "s", "nodes", None),),
        advice=for_silent_node(str(row["name"])), began_ns=int(row["watermark_ns"]),
    )  # fmt: skip


def _never_heard(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """That waiting may end at ranks of which nothing was ever heard; not beside a cause that is seen directly."""
    found = sinks(state)
    if symptom.kind is SymptomKind.SILENCE or any(_is_seen(state, sink) for sink in found):
        return ()
    return tuple(_of_never_heard(state, sink, settings) for sink in found if sink.is_never_heard)


def _is_seen(state: Progress, sink: Sink) -> bool:
    """Whether what keeps the others is seen at a sink itself: a port, a process or a proxy."""
    ranks, at = state.ranks, list(sink.ranks)
    is_seen = ranks.is_gone | ranks.is_stopped | state.is_deaf | (ranks.port == PORT_DOWN)
    return sink.nic >= 0 or bool(len(at) and is_seen[at].all())


def _of_never_heard(state: Progress, sink: Sink, settings: Settings) -> Finding:
    missing = _missing(state)
    to = state.hidden.where(state.hidden.target == state.never_heard)
    comms, n_waiting = np.unique(to.comm[to.comm >= 0], return_counts=True)
    subject = Subject("rank", named(missing), missing)
    if not missing:
        name = comm_name(state, int(comms[n_waiting.argmax()]) if len(comms) else -1)
        subject = Subject("communicator", f"members of {name} that are not heard of")
    return Finding(
        rule=RULE, version=VERSION, subject=subject, component=Component.UNKNOWN, kind=FaultKind.SILENCE, culprits=(),
        score=score(Grade.WEAK, len(sink.waiters), state.n_ranks), grade=Grade.WEAK,
        sentence=f"Nothing has ever been heard of {subject.name.removesuffix(' that are not heard of')}, and the waiting may end "
        f"there: what they do, and whether they do anything, is not known; {waiting(len(sink.waiters))}.",
        evidence=tuple(_told_of(state, int(comm)) for comm in comms[: settings.evidence_max]),
        tied=tuple(_run(first, last) for first, last in runs_of(missing)), advice=for_never_heard(),
    )  # fmt: skip


def _missing(state: Progress) -> tuple[int, ...]:
    """Ranks of the declared world that nobody ever heard of; () where these are more than the others, or nobody says how many
    there are: what is declared may be anything."""
    known, world = state.ranks.rank, state.window.world_size
    if not len(known) or not known[-1] < world <= 2 * len(known):
        return ()
    return tuple(np.setdiff1d(np.arange(world), known).tolist())


def _told_of(state: Progress, comm: int) -> Evidence:
    members = state.members
    n_known, n = int(np.diff(members.first)[comm]), int(members.n_ranks[comm])
    return Evidence(f"members of {comm_name(state, comm)} heard of, of {n}", n_known, "ranks", "comm")


def _run(first: int, last: int) -> Subject:
    ranks = tuple(range(first, last + 1))
    return Subject("rank", named(ranks), ranks)
