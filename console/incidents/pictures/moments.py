"""What the time scrubber offers: of which minutes something is stored, and the moments in them people look for.

Ten minutes around an incident; of a job, its newest ten. Moments: when the fault began by the evidence, its first symptom,
the trigger, each diagnosis, what people did, and when dumps were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import Min

from console.dumps.wanted import requests_for
from console.incidents.models import ActorKind, ConditionState, Incident
from console.incidents.pictures.evidence import newest_diagnosis
from ingest.door.dumps import requests_of
from ingest.models import Attempt, DumpRequest, Node
from ingest.read import latest_data_ns
from ingest.traces.held import read_held
from nccl_instrument.dumps import RECORDER, STACKS

SECOND: Final = 1_000_000_000
SPAN_NS: Final = 600 * SECOND
BEFORE_NS: Final = 180 * SECOND
STEP_NS: Final = 2 * SECOND
MOMENTS_MAX: Final = 200
AFTER_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Held:
    """A stretch of which traces are stored."""

    from_ns: int
    to_ns: int


@dataclass(frozen=True, slots=True)
class Moment:
    """kind: began, symptom, trigger, diagnosis, act or dumps. number: the diagnosis' revision or the dumps' request, else 0."""

    kind: str
    at_ns: int
    word: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Moments:
    """The scrubber's minutes. first_ns, newest_ns: what is known of the attempt at all, 0 where nothing is. is_live: more comes.

    held: where in [from_ns, to_ns) anything is stored. moments: by time; omitted: left out beyond the limit, the oldest of those
    that repeat. after: the first of those after to_ns; later: how many these are.
    """

    from_ns: int
    to_ns: int
    first_ns: int
    newest_ns: int
    is_live: bool
    held: list[Held]
    moments: list[Moment]
    omitted: int
    after: list[Moment]
    later: int


def incident_moments(incident: Incident) -> Moments:
    from_ns = incident.first_symptom_ns - BEFORE_NS
    asked = _of_dumps(requests_for(incident))
    is_live = incident.condition != ConditionState.CLEAR
    repeated = [_diagnoses(incident), _acts(incident), _listed(asked)]
    return _moments(incident.attempt, (from_ns, from_ns + SPAN_NS), _of_fault(incident), repeated, is_live)


def job_moments(attempt: Attempt) -> Moments:
    """Of the attempt's newest minutes."""
    to_ns = latest_data_ns(attempt.pk) + 1
    repeated = [_listed(_of_dumps(requests_of(attempt.pk))), _incidents(attempt)]
    return _moments(attempt, (to_ns - SPAN_NS, to_ns), [], repeated, attempt.state == Attempt.State.RUNNING)


def first_data_ns(attempt_id: int) -> int:
    """When the first batch of the attempt was cut; 0 where there is none."""
    first = Node.objects.filter(attempt_id=attempt_id, first_ns__gt=0).aggregate(first=Min("first_ns"))["first"]
    return int(first or 0)


Stretch = Callable[[int, int | None, bool], tuple[list[Moment], int]]
"""From, until (None: no end), whether the newest or the first are wanted → at most MOMENTS_MAX, and how many there are."""


def _moments(
    attempt: Attempt, span: tuple[int, int], once: Sequence[Moment], repeated: Sequence[Stretch], is_live: bool
) -> Moments:
    """once: moments of which there is one each, shown whatever else is."""
    (from_ns, to_ns), first_ns, newest_ns = span, first_data_ns(attempt.pk), latest_data_ns(attempt.pk)
    if newest_ns:
        from_ns = max(from_ns, min(first_ns, to_ns - 1))
        to_ns = max(min(to_ns, newest_ns + 1), from_ns + 1)
    held = [Held(*stretch) for stretch in read_held(attempt.pk, from_ns, to_ns, STEP_NS)] if newest_ns else []
    inside, n = _added_up(repeated, from_ns, to_ns, is_newest=True)
    after, later = _added_up(repeated, to_ns, None, is_newest=False)
    shown = sorted([*(one for one in once if from_ns <= one.at_ns < to_ns), *inside], key=_when)
    return Moments(from_ns, to_ns, first_ns, newest_ns, is_live, held, shown, n - len(inside), after[:AFTER_MAX], later)


def _added_up(
    repeated: Sequence[Stretch], from_ns: int, to_ns: int | None, *, is_newest: bool
) -> tuple[list[Moment], int]:
    found = [stretch(from_ns, to_ns, is_newest) for stretch in repeated]
    ordered = sorted((moment for some, _ in found for moment in some), key=_when)
    return ordered[-MOMENTS_MAX:] if is_newest else ordered[:MOMENTS_MAX], sum(n for _, n in found)


def _when(moment: Moment) -> int:
    return moment.at_ns


def _of_fault(incident: Incident) -> list[Moment]:
    diagnosis = newest_diagnosis(incident)
    began_ns = diagnosis.findings[0].began_ns if diagnosis and diagnosis.findings else 0
    found = [Moment("began", began_ns, "the fault began")] if began_ns else []
    found.append(Moment("symptom", incident.first_symptom_ns, "first symptom"))
    return [*found, Moment("trigger", incident.triggered_ns, "triggered")]


def _diagnoses(incident: Incident) -> Stretch:
    def made(row: tuple[datetime, int, str]) -> list[Moment]:
        at, number, verdict = row
        return [Moment("diagnosis", _ns(at), verdict or "nobody is named", number)]

    return _stored(incident.revisions.values_list("at", "number", "verdict"), "at", made)


def _acts(incident: Incident) -> Stretch:
    def made(row: tuple[datetime, str, str]) -> list[Moment]:
        at, actor, verb = row
        return [Moment("act", _ns(at), f"{actor} {verb.replace('_', ' ')}")]

    acts = incident.timeline.exclude(actor_kind=ActorKind.DETECTOR)
    return _stored(acts.values_list("at", "actor", "verb"), "at", made)


def _incidents(attempt: Attempt) -> Stretch:
    def made(row: tuple[int, int, int]) -> list[Moment]:
        number, first_ns, triggered_ns = row
        first = Moment("symptom", first_ns, f"first symptom of incident {number}")
        return [first, Moment("trigger", triggered_ns, f"incident {number} triggered")]

    rows = Incident.objects.filter(attempt=attempt).values_list("pk", "first_symptom_ns", "triggered_ns")
    return _stored(rows, "triggered_ns", made, each=2)


def _stored(rows: Any, column: str, made: Callable[[Any], list[Moment]], each: int = 1) -> Stretch:
    """Moments of the rows of a query. column: their time; each: moments that a row makes."""
    is_ns = column.endswith("_ns")

    def stretch(from_ns: int, to_ns: int | None, is_newest: bool) -> tuple[list[Moment], int]:
        ends = {"gte": from_ns} | ({} if to_ns is None else {"lt": to_ns})
        asked = {f"{column}__{end}": ns if is_ns else _at(ns) for end, ns in ends.items()}
        found = rows.filter(**asked)
        shown = list(found.order_by(f"-{column}" if is_newest else column)[: MOMENTS_MAX // each])
        moments = [moment for row in shown for moment in made(row)]
        inside = [one for one in moments if from_ns <= one.at_ns and (to_ns is None or one.at_ns < to_ns)]
        return inside, len(inside) if len(shown) < MOMENTS_MAX // each else found.count() * each

    return stretch


def _listed(moments: Sequence[Moment]) -> Stretch:
    def stretch(from_ns: int, to_ns: int | None, is_newest: bool) -> tuple[list[Moment], int]:
        found = sorted(
            (one for one in moments if from_ns <= one.at_ns and (to_ns is None or one.at_ns < to_ns)), key=_when
        )
        return found[-MOMENTS_MAX:] if is_newest else found[:MOMENTS_MAX], len(found)

    return stretch


def _of_dumps(requests: Iterable[DumpRequest]) -> list[Moment]:
    named = [(one, [word for kind, word in _KINDS.items() if kind in one.kinds]) for one in requests]
    return [
        Moment("dumps", _ns(one.asked_at), f"{' and '.join(words)} asked for", one.pk) for one, words in named if words
    ]


_KINDS: Final = {STACKS: "stacks", RECORDER: "Flight Recorder"}


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def _at(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
