"""Who started a hang: the sink of the wait-for graph, and which of its parts (Mycroft Algorithm 2, Table 4).

    rank 5 → rank 4 → rank 7 → rank 3 ✗ NIC down

Every rank that waits points at what it waits for; what waits for nothing is where it started. The part is read from
direct evidence first (port state, process state, delivered data that is left lying), then from the counters of both ends.
Abstains when nobody waits for anything. docs/rules/hang.md has the picture of every case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rca import advice
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind
from rca.hang.extent import with_extent
from rca.hang.kernels import inside_of, unbegun
from rca.hang.progress import Progress
from rca.hang.sinks import Sink, sinks
from rca.hang.table4 import conditions
from rca.hang.together import once_together
from rca.ranks import PORT_DOWN, UNKNOWN_COUNT
from rca.rules import links, silence
from rca.settings import Settings
from rca.settled import settled
from rca.words import (
    capitalised,
    comm_name,
    entered_evidence,
    flow_evidence,
    kernel_evidence,
    lower,
    moderate_at_most,
    named,
    nic_name,
    nic_ranks,
    node_name,
    process_evidence,
    rank_subject,
    score,
    waiting,
)  # fmt: skip

RULE = "hang"
VERSION = 18

Answer = tuple[Component, FaultKind, Grade, str, str]


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding for every sink, those with most waiters first; () when nobody is seen to wait."""
    found = sinks(state)
    lost = [sink for sink in found if sink.link >= 0]
    if symptom.kind is SymptomKind.SILENCE:
        # Nobody said that ops stand still: what a moment of a running job looks like is no evidence, what is seen directly is.
        found, lost = [sink for sink in found if sink.ranks and state.is_cut[list(sink.ranks)].all()], []
    findings = [
        _explain_sink(state, sink, settings)
        for sink in once_together(state, _once_unseen(state, found, settings))
        if _is_ours(state, sink)
    ]
    if _may_be_late(state, symptom, settings):
        findings = [moderate_at_most(one) if one.component is Component.SOFTWARE else one for one in findings]
    by_link = links.explain(state, lost, settings)
    disputing = set(state.ranks.names(np.unique(state.disputed.at[~state.disputed.is_done])))
    told = disputing.union(*(other.culprits for other in by_link))
    findings = [one for one in findings if not _is_told_better(one, told)] + by_link
    return with_extent(state, findings, settings)


def _may_be_late(state: Progress, symptom: Symptom, settings: Settings) -> bool:
    """Whether a stall has lasted for less than the paper's time: who has not entered an op and lives may do so any moment, as
    after a pause."""
    return symptom.kind is SymptomKind.FAILURE and state.window.end_ns - symptom.at_ns < settings.delta_max_ns


def _once_unseen(state: Progress, found: list[Sink], settings: Settings) -> list[Sink]:
    """Ranks of a node of which no row is there may each be it: one sink per node, its unseen ranks tied if there are several.

    Not those that are named because nothing is heard of them, unless more is seen of them than their silence.
    """
    told, kept = set[int](), list[Sink]()
    unseen = state.ranks.seen_ns == 0
    is_known = state.ranks.is_gone | state.ranks.is_stopped | (state.ranks.port == PORT_DOWN)
    unheard = np.isin(np.arange(state.n_ranks), silence.silent_ranks(state, settings)) & ~is_known
    for sink in found:
        node = int(state.ranks.node[sink.ranks[0]]) if len(sink.ranks) == 1 and unseen[sink.ranks[0]] else -1
        if node < 0:
            kept.append(sink)
        elif node not in told:
            told.add(node)
            ranks = tuple(np.flatnonzero(unseen & (state.ranks.node == node)).tolist())
            if not unheard[list(ranks)].all():
                tied = ranks if len(ranks) > 1 else ()
                kept.append(replace(sink, ranks=ranks, tied=tied, waiters=sink.waiters - set(ranks)))
    return kept


def _is_ours(state: Progress, sink: Sink) -> bool:
    """Links, deadlocks, silent nodes and who was never heard of have rules of their own; a process seen stopped is ours."""
    ranks = state.ranks
    is_only_silent = (ranks.is_silent | state.behind[ranks.node]) & ~ranks.is_gone & ~ranks.is_stopped
    is_rank_or_nic = sink.link < 0 and not sink.is_deadlock and not sink.is_never_heard
    return is_rank_or_nic and not is_only_silent[list(sink.ranks)].any()


def _is_told_better(finding: Finding, told: set[int]) -> bool:
    """A GPU that seems to do nothing is explained by what its rank's proxy or NIC leaves lying, or by the op it is in, which
    is another than its peers'."""
    return finding.subject.kind == "gpu" and bool(finding.suspects & told)


def _explain_sink(state: Progress, sink: Sink, settings: Settings) -> Finding:
    if sink.nic >= 0:
        return nic_finding(state, sink.nic, sink.waiters, settings)
    cut_off = [at for at in sink.ranks if state.ranks.port[at] == PORT_DOWN and not state.is_cut[at]]
    if cut_off:  # what is seen comes before what a tie leaves open
        return nic_finding(state, int(state.ranks.nic[cut_off[0]]), sink.waiters, settings)
    component, kind, grade, sentence, told = _of_unknown_process(state, sink, _answer(state, sink))
    ties = tuple(rank_subject(state, (at,)) for at in sink.tied)
    stalled = conditions(state.pairs.where(_touching(state, sink.ranks)), state.ranks, settings.conditions_max)
    if grade is Grade.STRONG and not ties:
        stalled = settled(stalled, state.ranks.names(np.array(sink.ranks)), component)
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, sink.ranks, _kind_of_subject(component)),
        # A GPU that executes nothing stops its process as if it had failed; whether the GPU, a kernel or the driver is broken
        # cannot be told from here. So the fault table counts it to the process, and the subject says that it is the GPU.
        component=Component.PROCESS if component is Component.GPU else component, kind=kind,
        culprits=() if ties or component is Component.UNKNOWN else state.ranks.names(np.array(sink.ranks)),
        score=score(Grade.WEAK if ties else grade, len(sink.waiters), state.n_ranks),
        grade=Grade.WEAK if ties else grade, sentence=f"{sentence}; {waiting(len(sink.waiters))}.",
        evidence=_evidence(state, sink, settings),
        conditions=stalled, tied=ties, advice=told,
    )  # fmt: skip


def _of_unknown_process(state: Progress, sink: Sink, answer: Answer) -> Answer:
    """The answer, which says that the process lives only where it was seen, and is not sure of the part where it was not: a
    process that is gone or stopped leaves the same."""
    component, kind, grade, sentence, told = answer
    is_direct = (
        state.ranks.is_gone[sink.ranks[0]] | state.ranks.is_stopped[sink.ranks[0]] | (component is Component.UNKNOWN)
    )
    if is_direct or state.ranks.has_process[list(sink.ranks)].all():
        return answer
    for lives in ("; its process lives", ", though its process lives", ", though the process lives"):
        sentence = sentence.replace(lives, "")
    sentence = f"{sentence}; whether its process lives is not known"
    return component, kind, lower(grade) if grade is Grade.STRONG else grade, sentence, told


def _kind_of_subject(component: Component) -> str:
    if component is Component.GPU:
        return "gpu"
    return "process" if component in (Component.PROCESS, Component.PROXY, Component.SOFTWARE) else "rank"


def _answer(state: Progress, sink: Sink) -> Answer:
    """Component, kind, grade, sentence and advice for a sink that is a rank."""
    at, who = sink.ranks[0], named(state.ranks.names(np.array(sink.ranks)))
    who = f"one of {who}" if sink.tied else who
    stop = FaultKind.COMPUTATION_FAIL_STOP
    for is_so, answer in _direct(state, who, sink.ranks).items():
        if is_so(at):
            return answer
    unheeded = None if sink.tied else unbegun(state.kernels, state.members, at)
    if unheeded:
        sentence = (
            f"The GPU of {who} has not begun the kernel it was given in {comm_name(state, unheeded.comm)}, as the GPU itself "
            f"tells, and {unheeded.n_inside} of {unheeded.n_mates} mates are inside theirs: launched and not scheduled; its "
            "process lives"
        )
        return Component.GPU, stop, Grade.MODERATE, sentence, advice.for_gpu(state, sink.ranks)
    inside = inside_of(state.kernels, state.members, at)
    if inside >= 0 and not (state.fronts.is_front & (state.fronts.at == at)).any():
        sentence = (
            f"The GPU of {who} does not come out of a kernel of {comm_name(state, inside)}, as the GPU itself tells, and nothing "
            "is seen that it waits for; its process lives"
        )
        return Component.GPU, stop, Grade.MODERATE, sentence, advice.for_gpu(state, sink.ranks)
    in_op = [one for one in sink.tied if (state.fronts.is_front & (state.fronts.at == one)).any()]
    at = in_op[0] if in_op else at  # of ranks that may wait for each other in an op, all have entered it
    place = state.fronts.is_front & (state.fronts.at == at)
    if not place.any() and (sink.is_in_node or _may_be_in_node(state, at)):
        sentence = (
            f"{capitalised(who)} has not entered the op the others wait in, and nothing shows that its GPU has run what it "
            "enqueued last inside its node: either that does not start or end, or its program stopped there"
        )
        return Component.GPU, stop, Grade.MODERATE, sentence, advice.for_gpu(state, sink.ranks)
    if not place.any():
        told = advice.for_missing(state, sink.ranks)
        sentence = f"{capitalised(who)} has not entered the op the others wait in, though its process lives"
        return Component.SOFTWARE, stop, Grade.STRONG, sentence, told
    if state.fronts.is_mute[place].all():
        sentence = f"{capitalised(who)} has enqueued its op, but its proxy has posted nothing for it"
        return (
            Component.PROXY,
            FaultKind.COMPUTATION_FAIL_SLOW,
            Grade.STRONG,
            sentence,
            advice.for_proxy(state, sink.ranks),
        )
    told = advice.for_gpu(state, sink.ranks)
    if sink.is_by_ring and not sink.tied:
        sentence = (
            f"The GPU of {who} executes nothing: of the ranks of its node that a ring passes, those before it have filled up and "
            "those after it have passed on all they got; its process lives"
        )
        return Component.GPU, stop, Grade.MODERATE, sentence, told
    if not state.fronts.has_begun[place].any():
        sentence = f"The GPU of {who} has not started the op the others wait in, though the process lives"
        if not sink.tied and _is_unscheduled(state, at):
            sentence += ": all it was given before is over, so the kernel is launched and not scheduled"
        return Component.GPU, stop, Grade.MODERATE, sentence, told
    sentence = f"{capitalised(who)} has sent least and has all it needs to go on, but its GPU executes nothing; its process lives"
    return Component.GPU, stop, Grade.MODERATE, sentence, told


def _untold_in(state: Progress, places: tuple[int, ...]) -> int:
    """A communicator (a position) in which one of these ranks may wait, as nothing is told of it there: inside a node, or one
    that holds somebody; -1 where there is none."""
    members, fronts = state.members, state.fronts
    holds = members.is_local.copy()
    holds[fronts.comm[fronts.is_front & (fronts.comm >= 0)]] = True
    found = np.flatnonzero(members.is_untold & np.isin(members.rank_at, places) & holds[members.comm])
    return int(members.comm[found[0]]) if len(found) else -1


def _is_unscheduled(state: Progress, at: int) -> bool:
    """Whether the GPU has run all that the rank enqueued before the op it is blocked in, inside its node or not."""
    fronts, known = state.fronts, state.known
    front_ns = fronts.enqueued_ns[fronts.is_front & (fronts.at == at)].min()
    enqueued_ns = known.live["enqueued_ns"][known.live_at == at]
    return bool(state.ran_ns[at] > 0 and not ((enqueued_ns > state.ran_ns[at]) & (enqueued_ns < front_ns)).any())


def _may_be_in_node(state: Progress, at: int) -> bool:
    """Whether the rank's last op is one inside the node that no member is known to have left behind.

    A program that stops between two steps has its ops behind it; one that stops with an op enqueued may wait for its GPU.
    """
    members, ran = state.members, state.ran_ns
    mine = np.flatnonzero((members.rank_at == at) & (members.last_enqueued_ns > 0))
    if not len(mine):
        return False
    last = mine[members.last_enqueued_ns[mine].argmax()]
    comm = int(members.comm[last])
    mates = members.rank_at[members.of(comm)]
    return bool(members.is_local[comm] and (ran[mates] <= members.last_enqueued_ns[last]).all())


def _direct(state: Progress, who: str, places: tuple[int, ...]) -> dict[Callable[[int], np.bool_], Answer]:
    """What is seen of a rank without reasoning about ops, the surest first."""
    ranks, stop = state.ranks, FaultKind.COMPUTATION_FAIL_STOP
    who_first, untold = capitalised(who), _untold_in(state, places)
    return {
        lambda at: ranks.is_gone[at]: (
            Component.PROCESS, stop, Grade.STRONG, f"The process of {who} has ended",
            advice.for_gone(state, places),
        ),
        lambda at: ranks.is_stopped[at]: (
            Component.PROCESS, stop, Grade.STRONG, f"The process of {who} is stopped (state T)",
            advice.for_stopped(state, places),
        ),
        lambda at: state.is_deaf[at]: (
            Component.PROXY, FaultKind.COMPUTATION_FAIL_SLOW, Grade.STRONG,
            f"The proxy of {who} does not react: it leaves undone what it could do at once, though its process lives",
            advice.for_proxy(state, places),
        ),
        lambda at: ranks.seen_ns[at] == 0: (
            Component.UNKNOWN, FaultKind.UNKNOWN, Grade.WEAK, f"{who_first} holds up the others and nothing is known of it",
            advice.for_unheard(state, places[0]),
        ),
        lambda at: np.bool_(untold >= 0): (
            Component.UNKNOWN, FaultKind.UNKNOWN, Grade.WEAK,
            f"{who_first} holds up the others, and nothing is known of it in {comm_name(state, untold)}, where it may wait",
            advice.for_unheard(state, places[0]),
        ),
    }  # fmt: skip


def _touching(state: Progress, ranks: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(state.pairs.sender, ranks) | np.isin(state.pairs.receiver, ranks)


def _evidence(state: Progress, sink: Sink, settings: Settings) -> tuple[Evidence, ...]:
    found = []
    for at in sink.ranks[: settings.evidence_max]:
        found += process_evidence(state, at) + kernel_evidence(state, at) + entered_evidence(state, at, settings)
    found += flow_evidence(state, _telling(state, sink.ranks), settings.evidence_max)
    return tuple(found[: settings.evidence_max])


def _telling(state: Progress, ranks: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The flows at these ranks that show most: what is left lying, else what is lost or waited for, else all that moved."""
    stalls, touching = state.stalls, _touching(state, ranks)
    moved = (state.pairs.sent > 0).any(axis=1) | (state.pairs.taken > 0).any(axis=1)
    left, stuck = stalls.not_taken | stalls.not_noticed, stalls.is_lost | stalls.wants_data | stalls.wants_credit
    for mask in (left, stuck & moved):
        if (mask & touching).any():
            return mask & touching
    return touching & moved


def nic_finding(state: Progress, nic: int, waiters: frozenset[int], settings: Settings) -> Finding:
    """The finding that this NIC's port is down: an observation, confirmed by flows that stand still across it."""
    users = nic_ranks(state, nic)
    name, node = nic_name(state, nic), node_name(state, users[0])
    victims = waiters - set(users)
    across = _touching(state, users) & state.stalls.is_lost
    row, ranks = state.ranks.nics[nic], state.ranks.names(np.array(users))
    grade = Grade.STRONG if (state.ranks.nic[list(users)] == nic).all() else Grade.MODERATE
    evidence = [Evidence(f"port of {name}", "down", "", "nic", ranks[0])]
    evidence += [
        Evidence(f"{name} {what}", int(row[what]), "bytes", "nic", ranks[0])
        for what in ("rx_bytes", "tx_bytes")
        if int(row[what]) != UNKNOWN_COUNT
    ]
    evidence += flow_evidence(state, across, settings.evidence_max - len(evidence))
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("nic", f"{name} of {node or named(ranks)}", ranks, node),
        component=Component.NIC, kind=FaultKind.COMMUNICATION_FAIL_STOP, culprits=ranks,
        score=score(grade, len(victims), state.n_ranks), grade=grade,
        sentence=f"NIC {name} of {node or 'its node'} is down: {named(ranks)} can neither send nor receive; "
        f"{waiting(len(victims))}.",
        evidence=tuple(evidence),
        conditions=settled(
            conditions(state.pairs.where(across), state.ranks, settings.conditions_max), ranks, Component.NIC
        ),
        advice=advice.for_nic(state, nic, users[0]),
    )  # fmt: skip
