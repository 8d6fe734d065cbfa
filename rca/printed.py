"""A diagnosis as lines for a terminal: the verdict first, then what carries it, what speaks against others, what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from rca.findings import Alternative, Compared, Diagnosis, Evidence, Finding, Subject, SymptomKind
from rca.words import COMPONENT_WORDS, SYMPTOM_WORDS, cover_words, kind_words, subject_words

PATH_SHOWN = 16
VICTIMS_SHOWN = 32
CLOCKS_SHOWN = 8
FACTS_SHOWN = 6
MS = 1_000_000


def text(diagnosis: Diagnosis, occasion: str = "") -> str:
    """The whole diagnosis. occasion: why it was made, where no symptom is."""
    symptom = diagnosis.symptom
    lines = [
        f"{occasion or SYMPTOM_WORDS[symptom.kind]}: {symptom.sentence}",
        diagnosis.verdict,
        *map(_compared, diagnosis.compared),
    ]
    for number, finding in enumerate(diagnosis.findings, 1):
        lines += _finding(number, finding, diagnosis.symptom.kind)
    if diagnosis.victims:
        rest = len(diagnosis.victims) - VICTIMS_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        lines.append(f"Only waiting: {', '.join(map(str, diagnosis.victims[:VICTIMS_SHOWN]))}{more}")
    lines += [f"  {edge.waiter} waits for {edge.waits_for}: {edge.why}" for edge in diagnosis.path[:PATH_SHOWN]]
    for other in diagnosis.alternatives:
        lines += alternative_lines(other)
    lines += _clocks(diagnosis)
    lines += [f"Not seen: {sentence}" for sentence in diagnosis.missing]
    lines += [f"Graded down: {sentence}" for sentence in diagnosis.downgraded]
    return "\n".join(lines)


def alternative_lines(other: Alternative) -> list[str]:
    """Why somebody else was not blamed."""
    lines = [f"Why not {_named(other.subject)}{_of_node(other)}? {other.why_not}"]
    return [*lines, *(f"  - {_fact(fact)}" for fact in other.evidence[:FACTS_SHOWN])]


def _named(subject: Subject) -> str:
    """A rack's name says nothing without the word."""
    return f"rack {subject.name}" if subject.kind == "rack" else subject.name


def _of_node(other: Alternative) -> str:
    return f" ({other.subject.node})" if other.subject.node else ""


def _finding(number: int, finding: Finding, symptom: SymptomKind) -> Iterator[str]:
    yield (
        f"  {number}. {_named(finding.subject)}: {COMPONENT_WORDS[finding.component]}, {kind_words(finding.kind, symptom)}; "
        f"{finding.grade} evidence, score {finding.score:.2f} (rule {finding.rule}, version {finding.version})"
    )
    if number > 1:
        yield f"     {finding.sentence}"
    yield from (f"     {cover_words(part)}" for part in finding.cover)
    yield from (f"     {_compared(part)}" for part in finding.parts)
    is_one = len({fact.rank for fact in finding.evidence}) <= 1
    yield from (f"     - {_fact(fact) if is_one else _of_rank(fact)}" for fact in finding.evidence)
    may_be = "could also be" if finding.culprits else "may be"
    yield from (f"     {may_be}: {subject_words(tied)}" for tied in finding.tied)
    yield from (f"     next: {line}" for line in finding.advice.splitlines())


def _of_rank(fact: Evidence) -> str:
    return _fact(fact) if fact.rank is None or f"rank {fact.rank}" in fact.what else f"rank {fact.rank}: {_fact(fact)}"


def _fact(fact: Evidence) -> str:
    return f"{fact.what}: {fact.value} {fact.unit}".rstrip()


def _compared(part: Compared) -> str:
    return f"{part.what}: {part.now:g} {part.unit}, usually {part.usual:g} {part.unit}"


def _clocks(diagnosis: Diagnosis) -> list[str]:
    """Those that are further from the others than the error told; all of them agree otherwise."""
    if not diagnosis.clocks:
        return []
    off = [clock for clock in diagnosis.clocks if abs(clock.offset_ns) > clock.error_ns]
    if not off:
        offsets = [clock.offset_ns for clock in diagnosis.clocks]
        worst = max(clock.error_ns for clock in diagnosis.clocks) / MS
        apart = (max(offsets) - min(offsets)) / MS
        return [f"Clocks of {len(offsets)} nodes agree: apart by {apart:.3g} ms at most, known to ±{worst:.1f} ms."]
    said = [f"{one.node} {one.offset_ns / MS:+.1f} ±{one.error_ns / MS:.1f} ms" for one in off[:CLOCKS_SHOWN]]
    rest = f" and {len(off) - CLOCKS_SHOWN} more" if len(off) > CLOCKS_SHOWN else ""
    return [f"Clocks that differ from the others: {', '.join(said)}{rest}."]
