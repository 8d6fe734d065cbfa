"""A draft of the post-mortem in Markdown: what is known, put in order; what only people know is left open and marked.

The machine's part is facts with their times and sources: timeline, impact, culprit and evidence, what was ruled out, who did
what. It never says why a fault was possible. Whatever comes from outside (names, notes, sentences) is escaped, so that a
job's name cannot become markup where the draft is pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.utils import timezone

from console.incidents.models import ActorKind, ConditionState, Incident, State, TimelineEntry
from console.incidents.pictures.evidence import newest_diagnosis
from console.incidents.read import TIMELINE_MAX, newest_revision, read_review
from console.incidents.watching.seen_before import SeenBefore, read_seen_before
from console.incidents.words import CONDITION, SYMPTOM, word_of
from console.tickets.telling import address_of
from ingest.models import Rank
from rca.findings import Diagnosis, Evidence, Finding
from rca.holes import NOT_SHOWN

RANKS_SHOWN: Final = 32
ROWS_SHOWN: Final = 40
HOUR_S: Final = 3600.0
NOT_KNOWN: Final = "not known"
STANDS_STILL: Final = ("failure", "silence", "idle")
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>|#~])")


@dataclass(frozen=True, slots=True)
class Impact:
    """What an incident cost. n_ranks: who could not work; until: when it ended, None while it has not; share: of each rank's
    time that was lost, None where it is not known; is_least: more ranks may have been held up than are known."""

    n_ranks: int
    since: datetime
    until: datetime | None
    counted_until: datetime
    share: float | None
    is_least: bool

    @property
    def seconds(self) -> float:
        return max((self.counted_until - self.since).total_seconds(), 0.0)

    @property
    def rank_hours(self) -> float | None:
        return None if self.share is None else self.n_ranks * self.seconds / HOUR_S * self.share


def post_mortem(incident: Incident) -> str:
    """The draft, from what is known now."""
    diagnosis = newest_diagnosis(incident)
    impact = impact_of(incident, diagnosis)
    parts = (
        _head(incident), _summary(incident, impact), _impact(incident, impact), _cause(incident, diagnosis),
        _ruled_out(diagnosis), _timeline(incident), _people(incident), _doubts(incident, diagnosis),
        _follow_ups(incident, diagnosis),
    )  # fmt: skip
    return "\n".join(line for part in parts for line in part) + "\n"


def impact_of(incident: Incident, diagnosis: Diagnosis | None) -> Impact:
    """From the first symptom until the condition was clear, or until it was last seen."""
    since = _moment(incident.first_symptom_ns)
    until = None if incident.condition != ConditionState.CLEAR else incident.cleared_at
    is_over = until is None and incident.state == State.RESOLVED and incident.attempt.ended_at is not None
    until = incident.attempt.ended_at if is_over else until
    counted = until or _moment(max(incident.last_seen_ns, incident.triggered_ns))
    known = incident.n_victims + incident.n_culprits
    n_ranks = known or incident.attempt.world_size
    return Impact(
        n_ranks, since, until, counted, _lost_share(incident, diagnosis), 0 < known < incident.attempt.world_size
    )


def _lost_share(incident: Incident, diagnosis: Diagnosis | None) -> float | None:
    """Of a rank's time: all of it while the job stands; of a slowdown by how much iterations are longer than usual."""
    if incident.symptom in STANDS_STILL:
        return 1.0
    for row in diagnosis.compared if diagnosis else ():
        if row.what == "iteration" and row.now > row.usual > 0:
            return 1.0 - row.usual / row.now
    return None


def _head(incident: Incident) -> Iterator[str]:
    yield f"# Post-mortem of incident {incident.pk}: {_safe(incident.headline)}"
    yield ""
    yield f"Draft, written by Diogenes at {_at(timezone.now())}. All times are UTC. Lines with **TODO** are for people."
    if address := address_of(incident):
        yield f"Incident: <{address}>"


def _summary(incident: Incident, impact: Impact) -> Iterator[str]:
    why = f": {_safe(incident.resolution)}" if incident.resolution else ""
    ended = _at(impact.until) if impact.until else "not over as far as is known"
    rows = [
        ("Job", f"{_safe(incident.job.name)}, attempt {incident.attempt.number}"),
        ("What", f"{word_of(SYMPTOM, incident.symptom)}, {incident.severity} severity"),
        ("State", f"{incident.state}, {word_of(CONDITION, incident.condition)}"),
        ("First symptom", _at(impact.since)), ("Trigger", _at(_moment(incident.triggered_ns))),
        ("Named", _at(incident.root_caused_at)), ("First acknowledged", _by(incident.acknowledged_at, incident.acknowledged_by)),
        ("Over", ended), ("Resolved", _by(incident.resolved_at, "") + why),
    ]  # fmt: skip
    yield from ("", "## Summary", "", "| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows))
    yield from ("", "**TODO** two sentences for somebody who was not there.")


def _impact(incident: Incident, impact: Impact) -> Iterator[str]:
    """In rank-hours, with what they are made of: a number nobody can check is none."""
    yield from ("", "## Impact", "")
    least = "at least " if impact.is_least else ""
    span = f"{impact.n_ranks:,} ranks × {_span(impact.seconds)}"
    if impact.rank_hours is None:
        yield f"{span}; how much of their time was lost is {NOT_KNOWN}."
    else:
        share = "" if impact.share == 1.0 else f" × {impact.share:.1%} of their time"
        hours = _hours(impact.rank_hours)
        yield f"**{least}{hours} rank-hours**: {span}{share}."
    if impact.is_least:
        yield "Only ranks that were seen to wait, and the culprits, are counted."
    if impact.until is None:
        goes_on = incident.condition == ConditionState.FIRING and incident.attempt.ended_at is None
        since = "it is still happening" if goes_on else f"since when it is over is {NOT_KNOWN}"
        yield f"It is counted up to {_at(impact.counted_until)}, when it was last seen; {since}."
    yield from ("", "**TODO** what this meant for the training (steps lost, checkpoint it went back to, delay).")


def _cause(incident: Incident, diagnosis: Diagnosis | None) -> Iterator[str]:
    yield from ("", "## Culprit and evidence", "")
    finding = diagnosis.findings[0] if diagnosis and diagnosis.findings else None
    if diagnosis is None or finding is None:
        yield _safe(diagnosis.verdict) if diagnosis else "Nobody has been named."
        return
    yield from (f"**{_safe(finding.sentence)}**", "")
    said = f"{finding.grade.value} evidence; component: {finding.component.value}"
    yield f"Rule `{finding.rule}` version {finding.version}, {said}."
    if diagnosis.layer:
        yield f"Layer: {_safe(diagnosis.layer)}."
    yield from _places(incident, finding)
    yield from _evidence(finding.evidence)
    yield from (f"- {_safe(said)}" for said in diagnosis.agreement[:ROWS_SHOWN])
    if (review := read_review(incident)) is not None:
        yield from (
            "",
            f"Found out afterwards by {_safe(review.actor)}: {review.alarm}, verdict {review.verdict}. {_safe(review.cause)}",
        )
    else:
        yield from ("", "**TODO** the cause behind it: nobody has recorded a review yet.")


def _places(incident: Incident, finding: Finding) -> Iterator[str]:
    """Where the culprits ran, as names that can be looked up."""
    found = Rank.objects.filter(attempt=incident.attempt_id, rank__in=finding.culprits[:RANKS_SHOWN], replaced=False)
    rows = found.order_by("rank").values_list("rank", "node__name", "gpu_bus_id", "nic", "pid")
    if rows:
        yield from ("", "| rank | node | GPU | NIC | pid |", "|---|---|---|---|---|")
    for rank, node, gpu, nic, pid in rows:
        yield f"| {rank} | {_safe(node)} | {_safe(gpu) or '–'} | {_safe(nic) or '–'} | {pid} |"
    if len(finding.culprits) > RANKS_SHOWN:
        yield f"\n{len(finding.culprits) - RANKS_SHOWN} more culprits are in the diagnosis."


def _evidence(evidence: tuple[Evidence, ...]) -> Iterator[str]:
    if evidence:
        yield from ("", "| what | value | rank | from |", "|---|---|---|---|")
    for one in evidence[:ROWS_SHOWN]:
        rank = "–" if one.rank is None else one.rank
        yield f"| {_safe(one.what)} | {_safe(str(one.value))} {_safe(one.unit)} | {rank} | {_safe(one.source) or '–'} |"
    if len(evidence) > ROWS_SHOWN:
        yield f"\n{len(evidence) - ROWS_SHOWN} more rows are in the diagnosis."
    yield ""


def _ruled_out(diagnosis: Diagnosis | None) -> Iterator[str]:
    yield from ("", "## What was ruled out", "")
    alternatives = diagnosis.alternatives if diagnosis else ()
    best = diagnosis.findings[0] if diagnosis and diagnosis.findings else None
    tied = best.tied if best else ()
    if not alternatives and not tied:
        yield "No other subject came into question."
    others = [one for one in alternatives if one.subject not in tied]
    yield from (f"- {_safe(one.subject.name)}: {_safe(one.why_not)}" for one in others[:ROWS_SHOWN])
    from_whom = "the culprit" if best and best.culprits else "the others that may have started it"
    yield from (
        f"- **Not** ruled out: {_safe(one.name)} cannot be told from {from_whom} by what was seen." for one in tied
    )


def _timeline(incident: Incident) -> Iterator[str]:
    """What the machine saw and what people did, in one order."""
    yield from ("", "## Timeline", "", "| UTC | who | what |", "|---|---|---|")
    rows = [(_moment(incident.first_symptom_ns), "–", "first symptom in the traces"),
            (_moment(incident.triggered_ns), "trigger", "saw it")]  # fmt: skip
    newest = list(incident.timeline.order_by("-id")[:TIMELINE_MAX])
    rows += [(entry.at, _safe(entry.actor), _what(entry)) for entry in newest]
    yield from (f"| {_at(at)} | {who} | {what} |" for at, who, what in sorted(rows, key=lambda row: row[0]))
    if (n := incident.timeline.count()) > TIMELINE_MAX:
        yield f"\n{n - TIMELINE_MAX} older entries are left out."


def _what(entry: TimelineEntry) -> str:
    moved = f" ({_safe(entry.before) or '–'} → {_safe(entry.after)})" if entry.after else ""
    return f"{_safe(entry.verb)}{moved}" + (f": {_safe(entry.note)}" if entry.note else "")


def _people(incident: Incident) -> Iterator[str]:
    yield from ("", "## Who did what", "")
    people = incident.timeline.exclude(actor_kind=ActorKind.DETECTOR).order_by("id")
    told: dict[str, list[str]] = {}
    for entry in people[:TIMELINE_MAX]:
        told.setdefault(entry.actor, []).append(f"{_safe(entry.verb)} at {entry.at.astimezone(UTC):%H:%M:%S}")
    if not told:
        yield "Nobody acted on it here."
    for actor, acts in told.items():
        more = f", and {len(acts) - ROWS_SHOWN} more acts" if len(acts) > ROWS_SHOWN else ""
        yield f"- {_safe(actor)}: {', '.join(acts[:ROWS_SHOWN])}{more}"


def _doubts(incident: Incident, diagnosis: Diagnosis | None) -> Iterator[str]:
    """What was not seen: a verdict is worth what it rests on."""
    revision = newest_revision(incident)
    yield from ("", "## What the diagnosis could not see", "")
    said = [*(_unseen(diagnosis) if diagnosis else ()), *(diagnosis.downgraded if diagnosis else ())]
    yield from (f"- {_safe(one)}" for one in said[:ROWS_SHOWN])
    if not said:
        yield "Nothing is known to have been missing."
    if revision is not None:
        yield f"\nThis is revision {revision.number} of the diagnosis, made at {_at(revision.at)}."


def _unseen(diagnosis: Diagnosis) -> list[str]:
    return [one for one in diagnosis.missing if not one.startswith(NOT_SHOWN)]  # these were seen


def _follow_ups(incident: Incident, diagnosis: Diagnosis | None) -> Iterator[str]:
    """What the facts suggest; the rest is for people."""
    yield from ("", "## Follow-ups", "")
    advice = diagnosis.findings[0].advice if diagnosis and diagnosis.findings else ""
    yield from (f"- [ ] {_with_code(line)}" for line in advice.splitlines() if line.strip())
    yield from _again(read_seen_before(incident))
    if incident.regressed:
        yield "- [ ] It came back soon after it was resolved: what was done did not help."
    if not incident.review:
        yield "- [ ] Record what it was (*What was it?* on the incident's page), so that the scorecard counts it."
    if diagnosis is not None and _unseen(diagnosis):
        yield "- [ ] Mend what could not be seen (above)."
    yield "- [ ] **TODO** what keeps it from happening again, who does it, until when."


def _again(rows: list[SeenBefore]) -> Iterator[str]:
    for one in rows[:5]:
        when = _at(datetime.fromisoformat(one.at))
        yield f"- [ ] Blamed before: {_safe(one.what)} in incident {one.incident} ({when}). Take it out of service?"


def _by(at: datetime | None, who: str | None) -> str:
    return "not yet" if at is None else _at(at) + (f" by {_safe(who)}" if who else "")


def _at(at: datetime | None) -> str:
    return NOT_KNOWN if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _moment(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns / 1e9, UTC)


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.95 else f"{hours:.2g}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:.1f} h"


def _with_code(text: str) -> str:
    """As `_safe`, but what stands between two backticks stays code, so that a command can be copied."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0 or not all(parts[1:-1]):
        return _safe(text)  # no pairs, or two side by side, which would begin another kind of code
    return "".join(f"`{part}`" if n % 2 else _MARKUP.sub(r"\\\1", part) for n, part in enumerate(parts))


def _safe(text: str) -> str:
    """One line of plain text whatever it holds."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
