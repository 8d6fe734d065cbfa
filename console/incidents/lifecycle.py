"""The incident's state change: `move()` is the only writer of Incident.state, by compare-and-set with a version.

Every change, of state or of anything else an incident shows, goes through one door: one transaction with the new
values, one timeline entry, one outbox row, and a live message when it is committed. Who may act is decided in
accounts/access.py, what is legal is decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from console.incidents.models import ActorKind, ConditionState, Incident, OutboxRow, State, TimelineEntry
from console.incidents.publish import relay_on_commit
from console.operations.metrics import INCIDENTS_OPENED

MOVES: Final[dict[str, tuple[frozenset[State], State]]] = {
    "acknowledge": (frozenset({State.OPEN}), State.ACKNOWLEDGED),
    "unacknowledge": (frozenset({State.ACKNOWLEDGED}), State.OPEN),
    "resolve": (frozenset({State.OPEN, State.ACKNOWLEDGED}), State.RESOLVED),
    "reopen": (frozenset({State.RESOLVED}), State.OPEN),
}
"""Verb → states it may start from, state it ends in."""

NOTE_CHARS_MAX: Final = 10_000


class BadAct(ValueError):
    """The act cannot be understood: no reason, an empty comment, a note beyond all limits."""


class IllegalMove(Exception):
    """The incident's state does not allow this act; `incident` is its current row."""

    def __init__(self, incident: Incident, verb: str) -> None:
        super().__init__(f"Incident {incident.pk} is {incident.state}: it cannot be {_PARTICIPLE[verb]} now.")
        self.incident = incident


class TooMany(Exception):
    """Asked too often; the message says what the limit is."""

    retry_after_s: Final = 60


class StaleVersion(Exception):
    """Somebody else was faster; `incident` is its current row."""

    def __init__(self, incident: Incident) -> None:
        super().__init__(f"Incident {incident.pk} has changed since you saw it: it is {incident.state} now.")
        self.incident = incident


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a person, a script, or the detector itself. id: which of the kind; names may be shared."""

    name: str
    kind: ActorKind
    id: int = 0


DETECTOR: Final = Actor("detector", ActorKind.DETECTOR)

_PARTICIPLE: Final = {
    "acknowledge": "acknowledged",
    "unacknowledge": "un-acknowledged",
    "resolve": "resolved",
    "reopen": "reopened",
}
_PAST: Final = {**_PARTICIPLE, "unacknowledge": "unacknowledged"}


def open_incident(
    fields: Mapping[str, Any], actor: Actor = DETECTOR, note: str = "", request_key: str = ""
) -> Incident:
    """A new incident from `fields`. IntegrityError when its key or its attempt has an unresolved one already."""
    now = timezone.now()
    with transaction.atomic():
        incident = Incident.objects.create(**fields, opened_at=now, updated_at=now)
        _note(incident, actor, "opened", now, "", State.OPEN, note, request_key, message="incident.opened")
    INCIDENTS_OPENED.labels(incident.symptom).inc()
    return incident


def move(
    number: int,
    verb: str,
    actor: Actor,
    *,
    version: int | None = None,
    note: str = "",
    regressed: bool = False,
    request_key: str = "",
) -> tuple[Incident, TimelineEntry]:
    """Change an incident's state. `version` is what the actor saw; None takes it as it is (the detector's way).

    Raises BadAct, StaleVersion, IllegalMove. A request_key seen before changes nothing and returns what it did then.
    """
    note = checked_note(note, needed=verb == "resolve")
    with transaction.atomic():
        incident = Incident.objects.select_for_update().get(pk=number)
        if done := done_before(incident.timeline.all(), actor, (_PAST[verb],), request_key):
            return incident, done
        if version is not None and version != incident.version:
            raise StaleVersion(incident)
        allowed, after = MOVES[verb]
        if incident.state not in allowed:
            raise IllegalMove(incident, verb)
        now, before = timezone.now(), incident.state
        fields = {"state": after, **_marks(verb, actor, note, now, regressed)}
        _compare_and_set(incident, fields, now)
        entry = _note(incident, actor, _PAST[verb], now, before, after, note, request_key)
    return incident, entry


def comment(number: int, actor: Actor, text: str, request_key: str = "") -> tuple[Incident, TimelineEntry]:
    """Add a comment. The version stays: a comment must not make somebody else's acknowledgement stale."""
    return remark(number, actor, "commented", checked_note(text, needed=True), request_key)


def remark(number: int, actor: Actor, verb: str, note: str, request_key: str = "") -> tuple[Incident, TimelineEntry]:
    """Note what somebody did that changes nothing the incident shows. Repeated with its key, it is the same act."""
    note = checked_note(note, needed=False)
    with transaction.atomic():
        incident = Incident.objects.select_for_update().get(pk=number)
        if done := done_before(incident.timeline.all(), actor, (verb,), request_key):
            return incident, done
        message = "timeline.appended"
        entry = _note(incident, actor, verb, timezone.now(), note=note, request_key=request_key, message=message)
    return incident, entry


def observe(
    incident: Incident, verb: str, fields: Mapping[str, Any], *, before: str = "", after: str = "", note: str = ""
) -> None:
    """Record what the machine found out: a condition, a diagnosis, a further symptom. Never the state.

    What people did meanwhile stands: the row is locked and taken as it is, and `incident` is refreshed.
    """
    if "state" in fields:
        raise ValueError("Incident.state is changed by move() alone")
    with transaction.atomic():
        now = timezone.now()
        incident.version = Incident.objects.select_for_update().get(pk=incident.pk).version
        _compare_and_set(incident, fields, now)
        _note(incident, DETECTOR, verb, now, before, after, note)


def replay(entries: list[TimelineEntry]) -> tuple[State, ConditionState]:
    """State and condition that follow from a timeline alone, oldest entry first."""
    state, condition = State.OPEN, ConditionState.FIRING
    for entry in entries:
        if entry.after in State.values:
            state = State(entry.after)
        elif entry.after in ConditionState.values:
            condition = ConditionState(entry.after)
    return state, condition


def _marks(verb: str, actor: Actor, note: str, now: datetime, regressed: bool) -> dict[str, Any]:
    """The columns that tell when, by whom and why, beside the state."""
    acknowledged: dict[str, Any] = {"acknowledged_at": now, "acknowledged_by": actor.name}
    not_acknowledged = {"acknowledged_at": None, "acknowledged_by": None}
    marks: dict[str, dict[str, Any]] = {
        "acknowledge": acknowledged,
        "unacknowledge": not_acknowledged,
        "resolve": {"resolved_at": now, "resolution": note},
        "reopen": {"resolved_at": None, "resolution": None, "regressed": regressed, **not_acknowledged},
    }
    return marks[verb]


def _compare_and_set(incident: Incident, fields: Mapping[str, Any], now: datetime) -> None:
    """Write `fields` if nobody else has since `incident` was read, else StaleVersion with what it is now."""
    same = Incident.objects.filter(pk=incident.pk, version=incident.version)
    if not same.update(**fields, version=F("version") + 1, updated_at=now):
        raise StaleVersion(Incident.objects.get(pk=incident.pk))
    incident.refresh_from_db()


def _note(
    incident: Incident,
    actor: Actor,
    verb: str,
    now: datetime,
    before: str = "",
    after: str = "",
    note: str = "",
    request_key: str = "",
    message: str = "incident.changed",
) -> TimelineEntry:
    """The timeline entry, and the promise to tell everybody once it is committed."""
    entry = TimelineEntry.objects.create(
        incident=incident, at=now, actor=actor.name, actor_kind=actor.kind,
        verb=verb, before=before, after=after, note=note, request_key=_stored_key(actor, request_key),
    )  # fmt: skip
    relay_on_commit(OutboxRow.objects.create(incident=incident, entry=entry, type=message, made_at=now))
    return entry


def done_before(
    entries: QuerySet[TimelineEntry], actor: Actor, verbs: Sequence[str], request_key: str
) -> TimelineEntry | None:
    """What this actor did earlier with the same key."""
    if not request_key:
        return None
    return entries.filter(verb__in=verbs, request_key=_stored_key(actor, request_key)).first()


def _stored_key(actor: Actor, request_key: str) -> str:
    """The key as this actor's own: a token labelled like a person, or like another token, shares no keys with them."""
    if not request_key:
        return ""
    return hashlib.sha256(f"{actor.kind}:{actor.id}:{actor.name}:{request_key}".encode()).hexdigest()


def checked_note(note: str, needed: bool) -> str:
    """`note` without white space around it. Raises BadAct when it is too long, or empty and needed."""
    note = note.strip()
    if needed and not note:
        raise BadAct("Say why: a reason (or the comment's text) is needed.")
    if len(note) > NOTE_CHARS_MAX:
        raise BadAct(f"At most {NOTE_CHARS_MAX} characters.")
    return note
