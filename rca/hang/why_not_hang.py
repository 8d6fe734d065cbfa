"""Why a rank was not blamed for a hang: what it waits for itself, or that nobody waits for it (Mycroft §5.1).

Nearly every rank of a stalled job looks guilty at first sight. The wait-for graph that found the culprit also clears the
others, one at a time: each waits for somebody, is through with everything, or keeps nobody waiting. The few that look most
like culprits are cleared without being asked: the first to stop, and the one through which most others wait.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rca.findings import Alternative, Evidence, Finding
from rca.hang.pairs import SEEN
from rca.hang.paths import Paths
from rca.hang.progress import Progress
from rca.hang.sinks import sinks
from rca.keys import Ints
from rca.settings import Settings
from rca.words import comm_name, entered_evidence, named, process_evidence, rank_subject

MS = 1_000_000


def cleared(paths: Paths, at: int, settings: Settings) -> Alternative:
    """Why the rank at this position is not what the waiting ends at."""
    state = paths.state
    found = [*_own_part(state, at), *process_evidence(state, at), *entered_evidence(state, at, settings)]
    said = _waits(paths, at) or _waits_elsewhere(paths, at) or _is_free(state, at)
    return Alternative(rank_subject(state, (at,)), said, tuple(found[: settings.evidence_max]))


def hang_alternatives(paths: Paths, findings: Sequence[Finding], settings: Settings) -> list[Alternative]:
    """Victims that look most like culprits, each with why it is none; () when nobody waits for what was found."""
    if not findings:
        return []
    chosen: dict[int, str] = {}
    first = _first_to_stop(paths)
    if first is not None:
        chosen[first[0]] = f"It was the first to stop, {first[1] / MS:.0f} ms before what is named, by its node's clock"
    behind, n = _most_behind(paths)
    if n > 1:
        chosen.setdefault(behind, f"{n} ranks wait through it")
    found = []
    for at, why in chosen.items():
        one = cleared(paths, at, settings)
        found.append(Alternative(one.subject, f"{why}; but {one.why_not[:1].lower()}{one.why_not[1:]}", one.evidence))
    return found


def _waits(paths: Paths, at: int) -> str:
    """What it waits for on the way to what is named; '' when it does not wait for that."""
    edge, state = paths.edge(at) if at in paths.hops and at not in paths.blamed else None, paths.state
    if edge is None:
        return ""
    place = _place(state, edge.comm_id, edge.op)
    chain = paths.chain(at)
    ends, n_steps = chain[-1:], len(chain)
    if paths.blamed and chain and chain[-1] not in paths.blamed:  # the last step is to a NIC or link of who is blamed
        ends, n_steps = sorted(paths.blamed), n_steps + 1
    goal = _named_at(state, ends) if paths.blamed else "ranks of which nothing is heard"
    steps = f", {n_steps} steps on the way to {goal}" if n_steps > 1 else ""
    return f"It waits for rank {edge.waits_for}{place}: {edge.why}{steps}.{_passed_on(state, at)}"


def _place(state: Progress, comm_id: int, op: int) -> str:
    comm = state.members.comm_of(np.array([comm_id], np.uint64))[0]
    return f" in op {op} of {comm_name(state, int(comm))}" if comm >= 0 else ""


def _named_at(state: Progress, at: Sequence[int]) -> str:
    return named(state.ranks.names(np.array(at, np.int64)))


def _passed_on(state: Progress, at: int) -> str:
    """That its counters are complete, where they are."""
    sent = state.pairs.sent[(state.pairs.sender == at) & (state.pairs.sender_end == SEEN)]
    if not len(sent) or (sent[:, 1] != sent[:, 3]).any():
        return ""
    return " All that its GPU has made ready has been sent and has arrived."


def _own_part(state: Progress, at: int) -> list[Evidence]:
    """What it has sent and taken in the ops that block it."""
    pairs, rank, found = state.pairs, int(state.ranks.rank[at]), []
    for mine, end, counters, what in (
        (pairs.sender, pairs.sender_end, pairs.sent, "ready transmitted done"),
        (pairs.receiver, pairs.receiver_end, pairs.taken, "received flushed consumed"),
    ):
        chosen = np.flatnonzero((mine == at) & (end == SEEN) & state.fronts.blocks(mine, pairs.key))
        if len(chosen):
            counts = " ".join(str(int(n)) for n in counters[chosen].sum(axis=0)[1:])
            said = f"{what} in the ops it is in, {len(chosen)} flows"
            found.append(Evidence(said, f"{counts} of {int(pairs.total[chosen].sum())}", "chunks", "flow", rank))
    return found


def _waits_elsewhere(paths: Paths, at: int) -> str:
    """What else its waiting ends at; '' when it waits for nothing."""
    state = paths.state
    for sink in sinks(state):
        if at in sink.ranks and not paths.hops:
            return "At this moment others wait for it. In a job of which nothing else is wrong, that blames nobody."
        if at in sink.ranks:
            return "Others wait for it and it seems to wait for nobody; what was found explains that better."
        if at in sink.waiters and sink.ranks:
            return (
                f"It waits, for another reason: its waiting ends at {named(state.ranks.names(np.array(sink.ranks)))}."
            )
        if at in sink.waiters and sink.is_never_heard:
            return "It waits, and its waiting may end at ranks of which nothing is heard."
        if at in sink.waiters:
            return "It waits, for another reason: its waiting ends at a NIC or link."
    return ""


def _is_free(state: Progress, at: int) -> str:
    """That it keeps nobody waiting, and what it does."""
    nobody = "nobody waits for it" if not state.graph.into[at] else "nobody is kept waiting by it for long"
    mine = np.flatnonzero(state.fronts.is_front & (state.fronts.at == at))
    if not len(mine):
        return f"It is in no op over the network, and {nobody}."
    place = f"op {int(state.fronts.op[mine[0]])} of {comm_name(state, int(state.fronts.comm[mine[0]]))}"
    return f"It is in {place} and waits for nobody, and {nobody}."


def _first_to_stop(paths: Paths) -> tuple[int, int] | None:
    """The victim that moved last before all others, and by how many ns before what is named; None when that came first."""
    state, waiting = paths.state, np.array(paths.waiting(), np.int64)
    moved = _moved_ns(state)
    waiting, blamed = waiting[moved[waiting] > 0], np.array(sorted(paths.blamed), np.int64)
    blamed = blamed[moved[blamed] > 0]
    if not len(waiting) or not len(blamed):
        return None
    first = int(waiting[moved[waiting].argmin()])
    before = int(moved[blamed].min() - moved[first])
    return (first, before) if before >= MS else None


def _moved_ns(state: Progress) -> Ints:
    """(R,) when anything of each rank was last seen to move or complete, 0 never."""
    known, moved = state.known, np.zeros(state.n_ranks, np.int64)
    np.maximum.at(moved, known.flow_at, known.flow["tick_ns"] - known.flow["stuck_ns"])
    np.maximum.at(moved, known.progress_at, known.progress["last_done_ns"])
    return moved


def _most_behind(paths: Paths) -> tuple[int, int]:
    """The victim through which most others wait, and how many; (-1, 0) without any."""
    waiting = paths.waiting()
    carried = dict.fromkeys(paths.hops, 0)
    for vertex in reversed(paths.hops):  # farthest first
        following = paths.hops[vertex]
        if following != vertex:
            carried[following] += carried[vertex] + (vertex < paths.state.n_ranks)
    behind = {vertex: carried[vertex] for vertex in waiting}
    best = max(behind, key=lambda vertex: behind[vertex], default=-1)
    return best, behind.get(best, 0)
