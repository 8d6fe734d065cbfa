"""Sentences and evidence that several rules share, so that the same fact always reads the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import PORT_STATES
from rca.findings import Component, Cover, Evidence, FaultKind, Finding, Grade, Subject, SymptomKind
from rca.hang.kernels import unbegun
from rca.hang.pairs import ABSENT, FINISHED, NO_FLOWS, SEEN, UNHEARD
from rca.hang.progress import Progress
from rca.settings import SECOND_NS, Settings

_SCORES = {Grade.STRONG: 0.9, Grade.MODERATE: 0.7, Grade.WEAK: 0.5}
_LOWER = {Grade.STRONG: Grade.MODERATE, Grade.MODERATE: Grade.WEAK, Grade.WEAK: Grade.WEAK}
RUN_MIN = 3
_NAMES_SHOWN = 8
NOTHING_TO_EXPLAIN = "No op stands still, and the newest iterations are not longer than those before."

SYMPTOM_WORDS: Final = {
    SymptomKind.FAILURE: "Hang",
    SymptomKind.STRAGGLER: "Straggler",
    SymptomKind.IDLE: "Idle",
    SymptomKind.SILENCE: "Silence",
    SymptomKind.EXTERNAL: "Reported by hand",
}
COMPONENT_WORDS: Final = {
    Component.NIC: "NIC",
    Component.NETWORK: "Network",
    Component.COPY: "GPU copy",
    Component.GPU: "GPU",
    Component.NODE: "Node",
    Component.PROXY: "NCCL proxy thread",
    Component.PROCESS: "Process",
    Component.SOFTWARE: "Training code",
    Component.UNKNOWN: "Unknown component",
}
KIND_WORDS: Final = {
    FaultKind.COMMUNICATION_FAIL_STOP: "communication stopped",
    FaultKind.COMMUNICATION_FAIL_SLOW: "communication slowed down",
    FaultKind.COMPUTATION_FAIL_STOP: "computation stopped",
    FaultKind.COMPUTATION_FAIL_SLOW: "computation slowed down",
    FaultKind.MISMATCH: "ranks called different ops",
    FaultKind.DEADLOCK: "ranks wait for each other in a circle",
    FaultKind.GROUP_ANOMALY: "a whole group is off",
    FaultKind.SILENCE: "nothing is heard",
    FaultKind.UNKNOWN: "kind unknown",
}
STALLED_WORDS: Final = {
    FaultKind.COMMUNICATION_FAIL_SLOW: "communication stands still",
    FaultKind.COMPUTATION_FAIL_SLOW: "computation stands still",
}
"""The codes in words, as the pages have them (frontend/src/state/words.ts; tests/rca/test_printed.py compares)."""


_COVER_WORDS: Final = {"nic": ("NIC", "NICs"), "flow in progress": ("flow in progress", "flows in progress")}


def kind_words(kind: FaultKind, symptom: SymptomKind) -> str:
    """The kind of fault; what is slow enough to stop the job has not "slowed down"."""
    return (STALLED_WORDS if symptom is SymptomKind.FAILURE else {}).get(kind, KIND_WORDS[kind])


def cover_words(part: Cover) -> str:
    """'1 of 32 flows of rank 4', 'all 8 ranks of node-1', as the page says it."""
    one, many = _COVER_WORDS.get(part.kind, (part.kind, f"{part.kind}s"))
    where = f" of {part.whole}" if part.whole else ""
    if part.of == 1:
        return f"the only {one}{where}"
    return f"all {part.of:,} {many}{where}" if part.n == part.of else f"{part.n:,} of {part.of:,} {many}{where}"


def named(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 3 and 5', 'ranks 8–15', 'ranks 1, 4–7 and 90 more'."""
    parts = _parts(sorted(ranks))
    if not parts:
        return "no rank"
    shown, rest = [words for words, _ in parts[:_NAMES_SHOWN]], sum(n for _, n in parts[_NAMES_SHOWN:])
    last = f"{rest} more" if rest else shown.pop()
    joined = f"{', '.join(shown)} and {last}" if shown else last
    return f"rank {joined}" if len(parts) == parts[0][1] == 1 else f"ranks {joined}"


def _parts(numbers: Sequence[int]) -> list[tuple[str, int]]:
    """The numbers in order, with how many each part of them is: three in a row and more are one."""
    parts = list[tuple[str, int]]()
    for first, last in runs_of(numbers):
        run = range(first, last + 1)
        parts += [(f"{first}–{last}", len(run))] if len(run) >= RUN_MIN else [(str(one), 1) for one in run]
    return parts


def runs_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last) of each run of ascending numbers that follow each other."""
    firsts = [one for at, one in enumerate(numbers) if not at or one != numbers[at - 1] + 1]
    lasts = [one for at, one in enumerate(numbers) if at + 1 == len(numbers) or one + 1 != numbers[at + 1]]
    return list(zip(firsts, lasts, strict=True))


def listed(names: Sequence[object], most: int = 8) -> str:
    """'n1', 'n1, n2', of more than `most` 'n1, n2 and 90 more'."""
    rest = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {rest} more" if rest > 0 else "")


def subject_words(subject: Subject) -> str:
    """'GPU rank 4', 'node gx-17', and the name alone where it says itself what it is: 'rank 4', 'nic0 of node1'."""
    kind = {"gpu": "GPU", "nic": "NIC"}.get(subject.kind, subject.kind)
    is_said = subject.kind in ("process", "job") or subject.name.casefold().startswith(subject.kind)
    return subject.name if is_said else f"{kind} {subject.name}"


def capitalised(words: str) -> str:
    """The sentence with its first letter large, and nothing else changed."""
    return words[:1].upper() + words[1:]


def lowered(words: str) -> str:
    """The sentence as the rest of another one: "NIC eth0 is down" stays, "The process" does not."""
    return words if words[1:2].isupper() else words[:1].lower() + words[1:]


def communicator_names(window: Window, comm_ids: Iterable[int]) -> dict[str, str]:
    """Number → name of these communicators, '' where it is not known."""
    rows = window.members
    names = dict(zip(rows["comm_id"].tolist(), rows["name"].tolist(), strict=True))
    return {str(comm_id): str(names.get(comm_id, "")) for comm_id in sorted(comm_ids)}


def waiting(n: int) -> str:
    """'1 rank waits', '7 ranks wait', or that nobody is seen to."""
    if n == 0:
        return "no other rank is seen waiting for it"
    return "1 rank waits for it" if n == 1 else f"{n} ranks wait for it"


def score(grade: Grade, n_waiters: int, n_ranks: int) -> float:
    """0 to 1: the grade, raised by the share of the job's ranks that wait for this."""
    return round(_SCORES[grade] + 0.1 * min(1.0, n_waiters / max(1, n_ranks - 1)), 4)


def moderate_at_most(found: Finding) -> Finding:
    """The finding; a strong one as moderate, with less of a score."""
    if found.grade is not Grade.STRONG:
        return found
    return replace(found, grade=Grade.MODERATE, score=round(0.8 * found.score, 4))


def lower(grade: Grade) -> Grade:
    """The next weaker grade."""
    return _LOWER[grade]


def node_name(state: Progress, at: int) -> str:
    """Name of the rank's node, '' when unknown."""
    node = int(state.ranks.node[at])
    return str(state.window.nodes["name"][node]) if node >= 0 else ""


def rank_subject(state: Progress, at: Iterable[int], kind: str = "rank") -> Subject:
    """The ranks at these positions as a subject."""
    places = tuple(at)
    ranks = state.ranks.names(np.array(places, np.int64))
    return Subject(kind, named(ranks), ranks, node_name(state, places[0]))


def nic_name(state: Progress, nic: int) -> str:
    row = state.ranks.nics[nic]
    return str(row["name"].decode("ascii", "replace")) or f"#{int(row['index'])}"


def nic_ranks(state: Progress, nic: int) -> tuple[int, ...]:
    """Positions of the ranks that use this NIC; where that is not known, of those that lose data on its node, else of all there
    that may use it."""
    pairs, lost = state.pairs, state.stalls.is_lost
    losing = np.unique(np.concatenate([pairs.sender[lost], pairs.receiver[lost]]))
    guessed = losing[(losing >= 0) & (state.ranks.fallen[losing] == nic)]
    known = {*np.flatnonzero(state.ranks.nic == nic).tolist(), *guessed.tolist()}
    return tuple(sorted(known or np.flatnonzero(state.ranks.fallen == nic).tolist()))


def comm_name(state: Progress, comm: int) -> str:
    """The communicator's name, else its number as NCCL prints it. comm: -1 where nobody knows which it is."""
    if comm < 0:
        return "an unknown communicator"
    comm_id = state.members.comm_ids[comm]
    rows = state.window.members[state.window.members["comm_id"] == comm_id]
    return str(rows["name"][0]) if len(rows) and rows["name"][0] else f"{int(comm_id):#x}"


def process_evidence(state: Progress, at: int) -> list[Evidence]:
    """What is seen of a rank's process and NIC."""
    ranks, rank = state.ranks, int(state.ranks.rank[at])
    letter = chr(int(ranks.state[at])) if ranks.state[at] else "unknown"
    found = [Evidence("process state", "gone" if ranks.is_gone[at] else letter, "", "process", rank)]
    if ranks.last_callback_ns[at] > 0 and ranks.seen_ns[at] > 0:
        age = max(0, int(ranks.seen_ns[at] - ranks.last_callback_ns[at])) / SECOND_NS
        found.append(Evidence("last NCCL callback", round(age, 2), "s ago", "process", rank))
    if ranks.nic[at] >= 0:
        what = f"port of {nic_name(state, int(ranks.nic[at]))}"
        found.append(Evidence(what, PORT_STATES[int(ranks.port[at])], "", "nic", rank))
    return found


def entered_evidence(state: Progress, at: int, settings: Settings) -> list[Evidence]:
    """How far a rank has come in each communicator where others are further on."""
    members, found = state.members, []
    for mine in np.flatnonzero(members.rank_at == at):
        comm = int(members.comm[mine])
        most = int(members.entered[members.of(comm)].max())
        if most > members.entered[mine] and not members.is_untold[mine]:
            what = f"ops entered in {comm_name(state, comm)}, others {most}"
            found.append(Evidence(what, int(members.entered[mine]), "ops", "progress", int(state.ranks.rank[at])))
    return found[: settings.evidence_max]


def kernel_evidence(state: Progress, at: int) -> list[Evidence]:
    """What the rank's GPU was given, has not begun, and is waited for in; [] where NCCL reports no kernels."""
    found = unbegun(state.kernels, state.members, at)
    if found is None:
        return []
    what = f"kernels begun in {comm_name(state, found.comm)}, given {found.given}, mates inside one {found.n_inside}"
    return [Evidence(what, found.begun, "ops", "progress", int(state.ranks.rank[at]))]


def flow_evidence(state: Progress, mask: np.ndarray[tuple[int], np.dtype[np.bool_]], limit: int) -> list[Evidence]:
    """Both ends' counters of the flows that `mask` selects."""
    pairs, ranks, found = state.pairs, state.ranks, []
    for i in pairs.oldest(mask)[:limit]:
        sent = _counted(pairs.sent[i].tolist(), int(pairs.sender_end[i]))
        taken = _counted(pairs.taken[i].tolist(), int(pairs.receiver_end[i]))
        sender, receiver = (int(ranks.rank[at]) if at >= 0 else -1 for at in (pairs.sender[i], pairs.receiver[i]))
        way = f"{f'rank {sender}' if sender >= 0 else 'an unknown rank'} to {receiver if receiver >= 0 else 'an unknown rank'}"
        what = (
            f"{comm_name(state, int(pairs.comm[i]))} op {int(pairs.op[i])} channel {int(pairs.channel[i])}, {way}: "
            "posted ready transmitted done | posted received flushed consumed"
        )
        found.append(Evidence(what, f"{sent} | {taken} of {int(pairs.total[i])}", "chunks", "flow", sender))
    return found


_UNSEEN = {ABSENT: "not entered", NO_FLOWS: "no flow", FINISHED: "finished", UNHEARD: "unknown"}


def _counted(counters: list[int], end: int) -> str:
    return " ".join(map(str, counters)) if end == SEEN else _UNSEEN[end]
