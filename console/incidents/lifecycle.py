"""The incident's state change: `move()` is the only writer of Incident.state, by compare-and-set with a version.

Every change, of state or of anything else an incident shows, goes through one door (record.py): one transaction with
the new values, one timeline entry, one outbox row, and a live message when it is committed. Who may act is decided in
accounts/access.py, what is legal is decided here. What follows from a change follows here too: an acknowledgement ends
when things get much worse, incidents attached to a root are handled with it, silences are settled anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.incidents.models import ConditionState, Incident, State, TimelineEntry
from console.incidents.record import (
    DETECTOR,
    NOTE_CHARS_MAX,
    UNSEEN,
    Actor,
    BadAct,
    Seen,
    StaleVersion,
    TooMany,
    check_seen,
    checked_note,
    done_before,
    note_entry,
    record,
)
from console.incidents.severity import severity_of
from console.incidents.silenced import MATTERS, clusters_of, placed, settle
from console.incidents.watching.worsening import acknowledged_marks, baseline, why_worse
from console.operations.metrics import INCIDENTS_OPENED

__all__ = [
    "DETECTOR", "MOVES", "NOTE_CHARS_MAX", "Actor", "BadAct", "IllegalMove", "Seen", "StaleVersion", "TooMany",
    "checked_note", "comment", "done_before", "end_acknowledgements", "move", "observe", "open_incident", "remark", "replay",
]  # fmt: skip

MOVES: Final[dict[str, tuple[frozenset[State], State]]] = {
    "acknowledge": (frozenset({State.OPEN}), State.ACKNOWLEDGED),
    "unacknowledge": (frozenset({State.ACKNOWLEDGED}), State.OPEN),
    "resolve": (frozenset({State.OPEN, State.ACKNOWLEDGED}), State.RESOLVED),
    "reopen": (frozenset({State.RESOLVED}), State.OPEN),
}
"""Verb → states it may start from, state it ends in."""

MINUTES_MAX: Final = 7 * 24 * 60
ATTACHED_MAX: Final = 500
_PARTICIPLE: Final = {
    "acknowledge": "acknowledged",
    "unacknowledge": "un-acknowledged",
    "resolve": "resolved",
    "reopen": "reopened",
    "attach": "attached",
    "detach": "detached",
}
PAST: Final = {**_PARTICIPLE, "unacknowledge": "unacknowledged"}
_STATE_VERBS: Final = {PAST[verb]: after for verb, (_, after) in MOVES.items()}


class IllegalMove(Exception):
    """The incident's state does not allow this act; `incident` is its current row."""

    def __init__(self, incident: Incident, verb: str, why: str = "") -> None:
        super().__init__(why or f"Incident {incident.pk} is {incident.state}: it cannot be {_PARTICIPLE[verb]} now.")
        self.incident = incident


def open_incident(
    fields: Mapping[str, Any], actor: Actor = DETECTOR, note: str = "", request_key: str = ""
) -> Incident:
    """A new incident from `fields`. IntegrityError when its key or its attempt has an unresolved one already."""
    now = timezone.now()
    given = {"severity": severity_of(str(fields["symptom"])), **fields}
    with transaction.atomic():
        incident = Incident(**given, opened_at=now, updated_at=now)
        incident.clusters = clusters_of(incident.attempt_id)
        incident.save(force_insert=True)
        message = "incident.opened"
        note_entry(
            incident, actor, "opened", now, after=State.OPEN, note=note, request_key=request_key, message=message
        )
        settle(incident, now)
    INCIDENTS_OPENED.labels(incident.symptom).inc()
    return incident


def move(
    number: int,
    verb: str,
    actor: Actor,
    *,
    version: int | None = None,
    seen: Seen = UNSEEN,
    note: str = "",
    minutes: int | None = None,
    regressed: bool = False,
    request_key: str = "",
) -> tuple[Incident, TimelineEntry]:
    """Change an incident's state. `seen` (or `version`) is what the actor saw; the detector takes it as it is.

    minutes: after how long an acknowledgement ends by itself; 0 never, None as the settings say. Raises BadAct,
    StaleVersion, IllegalMove. A request_key seen before changes nothing and returns what it did then.
    """
    note = checked_note(note, needed=verb == "resolve")
    with _alone_open(number), transaction.atomic():
        root, incident = _held(number, verb)
        if done := done_before(incident.timeline.all(), actor, (PAST[verb],), request_key):
            return incident, done
        check_seen(incident, seen if version is None else Seen(version))
        if incident.state not in MOVES[verb][0]:
            raise IllegalMove(incident, verb)
        now = timezone.now()
        fields = _marks(incident, verb, actor, note, now, minutes)
        if verb == "reopen":
            _check_alone(incident)
            fields["regressed"] = regressed
            _free(incident, root, now)
        entry = _move(incident, verb, actor, fields, now, note, request_key)
        if incident.n_attached:
            _bring_along(incident, verb, actor, now)
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
        entry = note_entry(incident, actor, verb, timezone.now(), note=note, request_key=request_key, message=message)
    return incident, entry


def observe(
    incident: Incident, verb: str, fields: Mapping[str, Any], *, suspects: Sequence[int] | None = None, before: str = "",
    after: str = "", note: str = "",
) -> None:  # fmt: skip
    """Record what the machine found out: a condition, a diagnosis, a further symptom. Never the state.

    What people did meanwhile stands: the row is locked and taken as it is, and `incident` is refreshed. Much worse than
    what was acknowledged takes the acknowledgement back. suspects: all of them, where `fields` has the first only.
    """
    if "state" in fields:
        raise ValueError("Incident.state is changed by move() alone")
    given = dict(fields)
    if "suspects" in given:  # the row keeps the first of them only
        given |= placed(incident.attempt_id, given["suspects"] if suspects is None else suspects)
        given["nodes_known"] &= suspects is not None or given.get("n_suspects", 0) <= len(given["suspects"])
    with transaction.atomic():
        now = timezone.now()
        incident.refresh_from_db(from_queryset=Incident.objects.select_for_update())
        record(incident, DETECTOR, verb, given, now, before=before, after=after, note=note)
        if why := why_worse(incident):
            _move(incident, "unacknowledge", DETECTOR, _marks(incident, "unacknowledge", DETECTOR, "", now), now, why)
        elif first := baseline(incident):
            Incident.objects.filter(pk=incident.pk).update(**first)
        if MATTERS & given.keys():
            settle(incident, now)


def end_acknowledgements() -> int:
    """Take back the acknowledgements whose time is over; returns how many."""
    over = Incident.objects.filter(acknowledged_until__lte=timezone.now()).order_by("id")
    return sum(_end_acknowledgement(number) for number in over.values_list("pk", flat=True)[:1000])


def _end_acknowledgement(number: int) -> bool:
    with transaction.atomic():
        incident, now = Incident.objects.select_for_update().get(pk=number), timezone.now()
        if incident.acknowledged_until is None or incident.acknowledged_until > now:
            return False  # somebody was faster
        note = f"{incident.acknowledged_by} acknowledged it until now."
        _move(incident, "unacknowledge", DETECTOR, _marks(incident, "unacknowledge", DETECTOR, "", now), now, note)
    return True


def replay(entries: list[TimelineEntry]) -> tuple[State, ConditionState]:
    """State and condition that follow from a timeline alone, oldest entry first."""
    state, condition = State.OPEN, ConditionState.FIRING
    for entry in entries:
        if entry.verb in _STATE_VERBS:
            state = _STATE_VERBS[entry.verb]
        elif entry.after in ConditionState.values and entry.actor_kind == DETECTOR.kind:
            condition = ConditionState(entry.after)
    return state, condition


def _move(
    incident: Incident, verb: str, actor: Actor, fields: Mapping[str, Any], now: datetime, note: str, key: str = ""
) -> TimelineEntry:
    """Write the state, with the row held."""
    before, after = incident.state, MOVES[verb][1]
    given = {**fields, "state": after}
    entry = record(incident, actor, PAST[verb], given, now, before=before, after=after, note=note, request_key=key)
    settle(incident, now)
    return entry


def _held(number: int, verb: str) -> tuple[Incident | None, Incident]:
    """The incident, its row held; before it, as whoever attaches does, the root that a reopening frees it from."""
    root_number = Incident.objects.values_list("attached_to", flat=True).get(pk=number) if verb == "reopen" else None
    root = Incident.objects.select_for_update().get(pk=root_number) if root_number else None
    return root, Incident.objects.select_for_update().get(pk=number)


def _open_beside(incident: Incident) -> Incident | None:
    """The unresolved incident that the attempt has beside this one."""
    unresolved = Incident.objects.filter(attempt=incident.attempt_id).exclude(state=State.RESOLVED)
    return unresolved.exclude(pk=incident.pk).select_related("job", "attempt").first()


def _check_alone(incident: Incident) -> None:
    """IllegalMove, with the other one, where a reopening would give the attempt a second unresolved incident."""
    if other := _open_beside(incident):
        raise IllegalMove(
            other, "reopen",
            f"Incident {incident.pk} cannot be reopened while incident {other.pk} of the same attempt is {other.state}:"
            f" an attempt has one at a time. Go on in incident {other.pk}, or resolve it first.",
        )  # fmt: skip


@contextmanager
def _alone_open(number: int) -> Iterator[None]:
    """Who opens another incident while this one is being reopened is seen by the database alone."""
    try:
        yield
    except IntegrityError:
        _check_alone(Incident.objects.get(pk=number))
        raise


def _free(incident: Incident, root: Incident | None, now: datetime) -> None:
    """What comes back by itself is told by itself: its root's handling was of another time."""
    if root is None or incident.attached_to_id != root.pk:
        return
    record(
        incident, DETECTOR, "detached", {"attached_to": None}, now, before=str(root.pk), note="It is back by itself."
    )
    record(root, DETECTOR, "let go", {"n_attached": max(root.n_attached - 1, 0)}, now, after=str(incident.pk))


def _bring_along(root: Incident, verb: str, actor: Actor, now: datetime) -> None:
    """What people do to a root is done to what is attached to it; what the detector does frees it."""
    children = Incident.objects.select_for_update().filter(attached_to=root).order_by("id")[:ATTACHED_MAX]
    is_over = actor.is_detector and verb == "resolve"
    for child in children:
        if is_over:
            record(child, actor, "detached", {"attached_to": None}, now, before=str(root.pk), note="Its root is over.")
        elif not actor.is_detector and child.state in MOVES[verb][0]:
            if verb == "reopen" and _open_beside(child) is not None:
                continue  # its attempt has another trouble now, which has an incident of its own
            note = f"With incident {root.pk}."
            _move(child, verb, actor, _marks(child, verb, actor, root.resolution or note, now), now, note)
    if is_over:
        Incident.objects.filter(pk=root.pk).update(n_attached=0)
        root.n_attached = 0


def _marks(
    incident: Incident, verb: str, actor: Actor, note: str, now: datetime, minutes: int | None = None
) -> dict[str, Any]:
    """The columns that tell when, by whom and why, beside the state."""
    nobody: dict[str, Any] = {
        "acknowledged_at": None, "acknowledged_by": None, "acknowledged_until": None,
        "acknowledged_reach": 0, "acknowledged_severity": "",
    }  # fmt: skip
    if verb == "acknowledge":
        until = _until(now, settings.ACKNOWLEDGED_MINUTES if minutes is None else minutes)
        who = {"acknowledged_at": now, "acknowledged_by": actor.name, "acknowledged_until": until}
        return {**who, **acknowledged_marks(incident)}
    if verb == "resolve":
        return {"resolved_at": now, "resolution": note, "acknowledged_until": None}
    return {**nobody, "resolved_at": None, "resolution": None} if verb == "reopen" else nobody


def _until(now: datetime, minutes: int) -> datetime | None:
    if not 0 <= minutes <= MINUTES_MAX:
        raise BadAct(f"An acknowledgement lasts 1 to {MINUTES_MAX} minutes, or 0 for as long as it takes.")
    return now + timedelta(minutes=minutes) if minutes else None
