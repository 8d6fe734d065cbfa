"""What was dumped of a job, and the diagnosis it leads to together with the traces (Mycroft §6.2).

    traces ──▶ diagnosis ─┐
    stacks ───────────────┼─▶ one diagnosis: who, doing what, in front of which op; who agrees; which layer
    Flight Recorder ──────┘

The same code serves a running job, whose parts ingest received, and a bundle that somebody brought. The best sentence
joins them: the traces or the recorder say which op a rank has not entered, its stack says what it does instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from nccl_instrument import dumps
from nccl_instrument.dumps import Arrived, Silent
from nccl_instrument.recorder import ANSWERED, SEEN_LATELY
from rca.advice import without_python
from rca.dumps.dump_parts import Roster, looks_of, name_of, processes_of, refused_of, unanswered, within
from rca.dumps.fusion import COLLECTIVE, RAS, RECORDER, STACKS, STAGES, Fused, fuse
from rca.dumps.reasons import one_reason
from rca.findings import Component, Diagnosis, FaultKind, Finding, Grade, SymptomKind, WaitEdge
from rca.flight_recorder import analysis as recorder
from rca.flight_recorder.analysis import Waiting
from rca.flight_recorder.moving import moving
from rca.flight_recorder.reading import BadDump
from rca.flight_recorder.recording import Recording
from rca.flight_recorder.sandbox import read_dumps
from rca.frontier import joined
from rca.holes import best_of, ranked
from rca.ras import analysis as ras
from rca.ras.report import RasReport
from rca.rules import stage_delay
from rca.settings import DEFAULT, Settings
from rca.stacks import analysis as stacks
from rca.stacks.analysis import Doing, doing_of, is_most_read, stack_evidence, where
from rca.stacks.idle import idle_finding
from rca.stacks.places import WAITS, Place
from rca.stacks.process import Process
from rca.why_not import of_other_best
from rca.words import NOTHING_TO_EXPLAIN, capitalised, named, waiting

WHYS_SHOWN: Final = 8
MISSING_MAX: Final = 32
TOLD_TOGETHER_MAX: Final = 8
SEEN_DOING: Final = "what the culprit is doing is among the evidence; of a job that goes on they name nobody"
_SOURCES: Final = {dumps.STACKS: STACKS, dumps.RECORDER: RECORDER}


@dataclass(frozen=True, slots=True)
class Dumped:
    """first, last: processes at the first look and, of those looked at again, at the last. taken_ns: the newest, unix.

    asked: the sources somebody was asked for; unasked: what is said of others. refused: file → why it could not be read.
    recorded_ns: rank → when its recording was made, unix, where that is known.
    """

    first: tuple[Process, ...] = ()
    last: tuple[Process, ...] = ()
    recording: Recording | None = None
    ras: tuple[RasReport, ...] = ()
    silent: tuple[Silent, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    asked: frozenset[str] = frozenset()
    taken_ns: int = 0
    recorded_ns: Mapping[int, int] = field(default_factory=dict)
    unasked: str = "it was not asked"

    def ranks_asked(self, kind: str) -> frozenset[int]:
        """Who was asked, as far as is known: whoever sent something, and the silent."""
        sent = (
            [one.rank for one in self.first] if kind == dumps.STACKS else self.recording.ranks if self.recording else ()
        )
        silent = (one.rank for one in self.silent if one.kind == kind)
        return frozenset(rank for rank in (*sent, *silent) if rank >= 0)


def dumped_of(parts: Iterable[Arrived], roster: Roster = MappingProxyType({})) -> Dumped:
    """What these parts say; those that cannot be read are silent, and who was asked and is in none. Of several recordings of a
    rank the last look counts."""
    parts = list(parts)
    silent = [Silent(one.rank, one.node, one.kind, one.silent) for one in parts if one.silent]
    silent += unanswered(parts, roster)
    those = [one for one in parts if one.kind == dumps.STACKS]
    processes = processes_of(those)
    silent += [
        Silent(part.rank, part.node, part.kind, one.silent)
        for part, (_, one) in zip(those, processes, strict=True)
        if one.silent and not part.silent
    ]
    recording, unread = _recording(one for one in parts if one.kind != dumps.STACKS and not one.silent)
    first, last = looks_of(processes)
    asked = frozenset(_SOURCES.get(kind, kind) for kind in {*roster, *(one.kind for one in parts)})
    taken_ns = max((one.taken_ns for one in parts), default=0)
    # Of files that lay there, nobody knows when they were made.
    recorded_ns = {one.rank: one.taken_ns for one in sorted(parts, key=lambda one: one.look) if one.by == ANSWERED}
    return Dumped(first, last, recording, (), (*silent, *unread), (), asked, taken_ns, recorded_ns)


def _recording(parts: Iterable[Arrived]) -> tuple[Recording | None, list[Silent]]:
    """(all that could be read, of whom there is nothing, or nothing of their end)."""
    newest: dict[int, Arrived] = {}
    silent: list[Silent] = []
    for part in parts:
        if part.rank < 0:
            silent.append(Silent(part.rank, part.node, part.kind, "nobody knows which rank it is of"))
        elif part.rank not in newest or newest[part.rank].look < part.look:
            newest[part.rank] = part
    read, left = within(newest)
    silent += left
    silent += [
        Silent(rank, one.node, one.kind, f"the process is gone; this is {one.by}")
        for rank, one in read.items()
        if one.by == SEEN_LATELY
    ]
    try:
        recording = read_dumps([(name_of(part), part.raw) for _, part in sorted(read.items())]) if read else None
    except BadDump:
        return None, silent
    return recording, [*silent, *(refused_of(recording, read) if recording is not None else ())]


def with_dumps(
    diagnosis: Diagnosis,
    dumped: Dumped,
    settings: Settings = DEFAULT,
    *,
    has_traces: bool = True,
    members: Mapping[str, tuple[int, ...]] | None = None,
) -> Diagnosis:
    """`diagnosis` (of the traces, where there are some) and the dumps, fused in the paper's order.

    members: process group → ranks, where the launcher knows what the dumps do not say.
    """
    recording = dumped.recording if dumped.recording is not None and dumped.recording.ranks else None
    state = recorder.waiting_of(recording, members, unheard_in(dumped)) if recording is not None else None
    doing = doing_of(dumped.first, dumped.last)
    said = _said(diagnosis, dumped, doing, state, has_traces=has_traces)
    # Where there are traces they tell, and better, whether it does.
    goes_on = moving(state, dumped.recorded_ns) if state is not None and not has_traces else ""
    if goes_on or not stands_still(diagnosis):
        return _beside(diagnosis, said, dumped, doing, goes_on)
    fused = fuse(said, _missing_sources(said, dumped), _partial(dumped, doing))
    victims, path = _waiting(diagnosis, fused, state, doing, settings)
    alive = [one for one in doing if recording is None or one.rank not in recording.ended]
    findings = _advised(_told_by_stacks(fused, alive, victims, path, diagnosis.communicators), dumped)
    alternatives = of_other_best(diagnosis, findings[0], "stacks and recordings") if findings else ()
    shown, missing = best_of(findings, settings.findings_max, (*diagnosis.missing, *_missing(dumped)))
    return replace(
        diagnosis, findings=shown, victims=victims, path=path, alternatives=alternatives,
        missing=missing, agreement=_agreement(diagnosis, said, fused), layer=fused.layer,
    )  # fmt: skip


def _agreement(diagnosis: Diagnosis, said: Mapping[str, tuple[Finding, ...]], fused: Fused) -> tuple[str, ...]:
    """What every source says; stages that name nobody say why themselves (rca/frontier/joined.py)."""
    silent = () if STAGES in said else tuple(one for one in diagnosis.agreement if one.startswith(joined.STAGES))
    return (*fused.agreement, *silent)


def _advised(findings: tuple[Finding, ...], dumped: Dumped) -> tuple[Finding, ...]:
    """The findings without advice to read a process in a way that was tried and cannot work."""
    others = {one.rank for one in dumped.silent if one.kind == dumps.STACKS and one.why.startswith(dumps.NO_PYTHON)}
    return tuple(replace(one, advice=without_python(one.advice, others)) for one in findings) if others else findings


def unheard_in(dumped: Dumped) -> dict[int, str]:
    """Ranks that were asked for a recording and gave none, and why."""
    return {one.rank: one.why for one in dumped.silent if one.kind == dumps.RECORDER}


def stands_still(diagnosis: Diagnosis) -> bool:
    """Whether what a moment of the job looks like is evidence: not of one that goes on, however slowly."""
    kind = diagnosis.symptom.kind
    if kind is SymptomKind.SILENCE:
        return bool(diagnosis.victims)
    goes_on = kind is SymptomKind.EXTERNAL and NOTHING_TO_EXPLAIN in diagnosis.missing
    return kind is not SymptomKind.STRAGGLER and not goes_on


def _beside(
    diagnosis: Diagnosis, said: Mapping[str, tuple[Finding, ...]], dumped: Dumped, doing: Sequence[Doing], goes_on: str
) -> Diagnosis:
    """The diagnosis of a job that goes on, with what its culprits were doing: dumps name nobody there.

    goes_on: how the recorders tell that it does, '' where it is known otherwise.
    """
    silent = {**said, STACKS: (), RECORDER: ()}
    among = {source: silent[source] for source in said}
    findings, unsaid = diagnosis.findings, dict[str, str]()
    if goes_on:
        unsaid = dict.fromkeys((STACKS, RECORDER), "the job went on while it was dumped")
    elif findings and any(one.rank in findings[0].culprits for one in doing):
        unsaid = {STACKS: SEEN_DOING}
    fused = fuse(among, _missing_sources(said, dumped), unsaid or _partial(dumped, doing))
    if findings and findings[0].culprits:
        seen = tuple(stack_evidence(one) for one in doing if one.rank in findings[0].culprits)[:TOLD_TOGETHER_MAX]
        findings = (replace(findings[0], evidence=(*findings[0].evidence, *seen)), *findings[1:])
    layer = fused.layer if findings and findings[0].culprits else ""
    missing = (*diagnosis.missing, *([goes_on] if goes_on else []), *_missing(dumped))
    agreement = _agreement(diagnosis, said, fused)
    return replace(diagnosis, findings=findings, missing=missing, agreement=agreement, layer=layer)


def _said(
    diagnosis: Diagnosis, dumped: Dumped, doing: list[Doing], state: Waiting | None, *, has_traces: bool
) -> dict[str, tuple[Finding, ...]]:
    said: dict[str, tuple[Finding, ...]] = {}
    if doing:
        n_asked = len(dumped.ranks_asked(dumps.STACKS))
        said[STACKS] = stacks.findings_of(dumped.first, dumped.last, n_asked)
        if diagnosis.symptom.kind is SymptomKind.IDLE and not said[STACKS]:
            said[STACKS] = idle_finding(doing, n_asked)
    if state is not None:
        said[RECORDER] = _unless_waiting(recorder.findings_of(state), doing)
    stages = tuple(one for one in diagnosis.findings if one.rule == stage_delay.RULE)
    collective = tuple(one for one in diagnosis.findings if one not in stages)
    if has_traces or collective:
        said[COLLECTIVE] = collective
    if stages:
        said[STAGES] = stages
    if dumped.ras:
        said[RAS] = tuple(one for report in dumped.ras for one in ras.findings_of(report))
    return said


def _unless_waiting(findings: tuple[Finding, ...], doing: Sequence[Doing]) -> tuple[Finding, ...]:
    """Of ranks that are in no op by their recorder, yet wait for others by their stacks, nobody is sure.

    They wait in one that is not recorded, as gloo's sends and receives are not; where several do, one may wait for another.
    """
    waiting_ranks = {one.rank for one in doing if one.place in WAITS - {Place.GPU_WAIT}}
    unsure = [one for one in findings if _is_absence(one) and set(one.culprits) <= waiting_ranks]
    tied = tuple(one.subject for one in unsure) if len(unsure) > 1 else ()
    weaker = {
        one: replace(one, grade=Grade.WEAK, culprits=() if tied else one.culprits, tied=tied, score=0.5)
        for one in unsure
    }
    return tuple(ranked([weaker.get(one, one) for one in findings]))


def _is_absence(finding: Finding) -> bool:
    """Of a rank that sent a recording."""
    is_stop = finding.kind is FaultKind.COMPUTATION_FAIL_STOP
    return bool(finding.culprits) and is_stop and finding.component is Component.SOFTWARE


def _missing_sources(said: Mapping[str, tuple[Finding, ...]], dumped: Dumped) -> dict[str, str]:
    """Sources that say nothing at all, and why."""
    found = {source: _why_missing(source, dumped) for source in (STACKS, RECORDER) if source not in said}
    return found if COLLECTIVE in said else {**found, COLLECTIVE: "this job has no traces"}


def _why_missing(source: str, dumped: Dumped) -> str:
    whys = Counter(one.why for one in one_reason(dumped.silent) if _SOURCES.get(one.kind) == source)
    if whys:
        return whys.most_common(1)[0][0]
    return "nothing that was sent can be read" if source in dumped.asked else dumped.unasked


def _partial(dumped: Dumped, doing: Sequence[Doing]) -> dict[str, str]:
    """Sources that read too few of the ranks to say of all that nobody stands out, and how many they did."""
    n_read = {STACKS: len(doing), RECORDER: len(dumped.recording.ranks) if dumped.recording is not None else 0}
    n_asked = {source: len(dumped.ranks_asked(kind)) for kind, source in _SOURCES.items()}
    return {
        source: f"only {n} of {n_asked[source]} ranks could be read"
        for source, n in n_read.items()
        if not is_most_read(n, n_asked[source])
    }


def _missing(dumped: Dumped) -> tuple[str, ...]:
    """Which ranks did not answer, reason by reason: a rank that does not is evidence."""
    by_reason: dict[tuple[str, str], set[int]] = {}
    for one in one_reason(dumped.silent):
        by_reason.setdefault((_SOURCES.get(one.kind, one.kind), one.why), set()).add(one.rank)
    told = [f"No {source} of {named(ranks)}: {why}." for (source, why), ranks in by_reason.items()]
    told += [f"{name}: {why}." for name, why in dumped.refused[:WHYS_SHOWN]]
    n_files, n_told = len(dumped.refused) - WHYS_SHOWN, len(told) - MISSING_MAX
    told = told[:MISSING_MAX] + ([f"{n_told} more reasons are not told."] if n_told > 0 else [])
    return (*told, *([f"{n_files} more files could not be read."] if n_files > 0 else []))


def _waiting(
    diagnosis: Diagnosis, fused: Fused, state: Waiting | None, doing: Sequence[Doing], settings: Settings
) -> tuple[tuple[int, ...], tuple[WaitEdge, ...]]:
    """Who only waits and how, for whoever may have started it: by the traces where they say the same, else by the recorder.

    Where neither says it, those whose stacks wait for others.
    """
    suspects = fused.findings[0].suspects if fused.findings else frozenset[int]()
    if diagnosis.findings and suspects == diagnosis.suspects:
        return diagnosis.victims, diagnosis.path
    if state is not None and suspects:
        victims, path = recorder.edges_of(state, suspects, settings.path_edges_max)
        if victims:
            return victims, path
    waiters = {*diagnosis.victims, *diagnosis.suspects}
    if suspects and not waiters:
        waiters = {one.rank for one in doing if one.place in WAITS}
    return tuple(sorted(waiters - suspects)), tuple(edge for edge in diagnosis.path if edge.waiter not in suspects)


def _told_by_stacks(
    fused: Fused,
    doing: Sequence[Doing],
    victims: tuple[int, ...],
    path: tuple[WaitEdge, ...],
    communicators: Mapping[str, str],
) -> tuple[Finding, ...]:
    """The findings, of which the best says what its culprits are doing instead of entering their op."""
    if not fused.findings or not fused.findings[0].culprits:
        return fused.findings
    best = fused.findings[0]
    those = [one for one in doing if one.rank in best.culprits]
    if not those:
        return fused.findings
    if fused.source != STACKS:
        best = replace(best, evidence=(*best.evidence, *map(stack_evidence, those[:TOLD_TOGETHER_MAX])))
    if _is_elsewhere(best, those):
        entered = _not_entered(best.culprits, path, communicators)
        sentence = f"{where(those)}{entered}; {waiting(max(len(victims), _waiters(best)))}."
        best = replace(best, sentence=capitalised(sentence))
    return (best, *fused.findings[1:])


def _is_elsewhere(best: Finding, those: list[Doing]) -> bool:
    """Whether the culprits' stacks say why they have not entered the op: all are in one place that is no wait."""
    is_stop = best.kind is FaultKind.COMPUTATION_FAIL_STOP and best.component in (Component.SOFTWARE, Component.UNKNOWN)
    places = {one.place for one in those}
    return is_stop and len(those) == len(best.culprits) and len(places) == 1 and not places & WAITS


def _not_entered(culprits: tuple[int, ...], path: tuple[WaitEdge, ...], communicators: Mapping[str, str]) -> str:
    """', and has not entered op 20 of dp0': the op most of those next to them wait in."""
    edges = [edge for edge in path if edge.waits_for in culprits and "not entered" in edge.why]
    if not edges:
        return ""
    edge = Counter((one.comm_id, one.op, one.why) for one in edges).most_common(1)[0][0]
    has = "has" if len(culprits) == 1 else "have"
    if not edge[0]:  # the recorder's edges name the group themselves
        return f", and {edge[2] if has == 'has' else edge[2].replace('has ', 'have ', 1)}"
    title = communicators.get(str(edge[0])) or f"{edge[0]:#x}"
    return f", and {has} not entered op {edge[1]} of {title}"


def _waiters(best: Finding) -> int:
    """How many wait by the stacks alone."""
    return next((int(one.value) for one in best.evidence if one.what == "ranks waiting for others"), 0)
