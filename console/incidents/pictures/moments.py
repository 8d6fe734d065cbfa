"""What the time scrubber offers: of which minutes something is stored, and the moments in them people look for.

Ten minutes around an incident; of a job, its newest ten. Moments: when the fault began by the evidence, its first symptom,
the trigger, each diagnosis, what people did, and when dumps were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

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
INCIDENTS_MAX: Final = 20


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

    held: where in [from_ns, to_ns) anything is stored. moments: by time; omitted: left out beyond the limit; later: of the
    incident, but after to_ns.
    """

    from_ns: int
    to_ns: int
    first_ns: int
    newest_ns: int
    is_live: bool
    held: list[Held]
    moments: list[Moment]
    omitted: int
    later: int


def incident_moments(incident: Incident) -> Moments:
    from_ns = incident.first_symptom_ns - BEFORE_NS
    found = [*_of_incident(incident), *_of_dumps(requests_for(incident))]
    is_live = incident.condition != ConditionState.CLEAR
    return _moments(incident.attempt, from_ns, from_ns + SPAN_NS, found, is_live)


def job_moments(attempt: Attempt) -> Moments:
    """Of the attempt's newest minutes."""
    to_ns = latest_data_ns(attempt.pk) + 1
    found = [*_of_dumps(requests_of(attempt.pk)), *_of_incidents(attempt, to_ns - SPAN_NS)]
    return _moments(attempt, to_ns - SPAN_NS, to_ns, found, attempt.state == Attempt.State.RUNNING)


def first_data_ns(attempt_id: int) -> int:
    """When the first batch of the attempt was cut; 0 where there is none."""
    first = Node.objects.filter(attempt_id=attempt_id, first_ns__gt=0).aggregate(first=Min("first_ns"))["first"]
    return int(first or 0)


def _moments(attempt: Attempt, from_ns: int, to_ns: int, found: Iterable[Moment], is_live: bool) -> Moments:
    first_ns, newest_ns = first_data_ns(attempt.pk), latest_data_ns(attempt.pk)
    if newest_ns:
        from_ns = max(from_ns, min(first_ns, to_ns - 1))
        to_ns = max(min(to_ns, newest_ns + 1), from_ns + 1)
    ordered = sorted(found, key=lambda one: one.at_ns)
    inside = [one for one in ordered if from_ns <= one.at_ns < to_ns]
    held = [Held(*stretch) for stretch in read_held(attempt.pk, from_ns, to_ns, STEP_NS)] if newest_ns else []
    later = sum(one.at_ns >= to_ns for one in ordered)
    shown = inside[:MOMENTS_MAX]
    return Moments(from_ns, to_ns, first_ns, newest_ns, is_live, held, shown, len(inside) - len(shown), later)


def _of_incident(incident: Incident) -> list[Moment]:
    diagnosis = newest_diagnosis(incident)
    began_ns = diagnosis.findings[0].began_ns if diagnosis and diagnosis.findings else 0
    found = [Moment("began", began_ns, "the fault began")] if began_ns else []
    found.append(Moment("symptom", incident.first_symptom_ns, "first symptom"))
    found.append(Moment("trigger", incident.triggered_ns, "triggered"))
    revisions = incident.revisions.order_by("-number").values_list("number", "at", "verdict")[:MOMENTS_MAX]
    found += [Moment("diagnosis", _ns(at), verdict or "nobody is named", number) for number, at, verdict in revisions]
    acts = incident.timeline.exclude(actor_kind=ActorKind.DETECTOR).order_by("-id")
    acted = acts.values_list("at", "actor", "verb")[:MOMENTS_MAX]
    return found + [Moment("act", _ns(at), f"{actor} {verb}") for at, actor, verb in acted]


def _of_incidents(attempt: Attempt, since_ns: int) -> list[Moment]:
    rows = Incident.objects.filter(attempt=attempt, triggered_ns__gte=since_ns).order_by("-id")
    newest = rows.values_list("pk", "first_symptom_ns", "triggered_ns")[:INCIDENTS_MAX]
    return [
        moment
        for number, first_ns, triggered_ns in newest
        for moment in (
            Moment("symptom", first_ns, f"first symptom of incident {number}"),
            Moment("trigger", triggered_ns, f"incident {number} triggered"),
        )
    ]


def _of_dumps(requests: Iterable[DumpRequest]) -> list[Moment]:
    named = [(one, [word for kind, word in _KINDS.items() if kind in one.kinds]) for one in requests]
    return [
        Moment("dumps", _ns(one.asked_at), f"{' and '.join(words)} asked for", one.pk) for one, words in named if words
    ]


_KINDS: Final = {STACKS: "stacks", RECORDER: "Flight Recorder"}


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000
