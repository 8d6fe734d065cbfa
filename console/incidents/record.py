"""Writing down what happened to an incident: one transaction with the new values, a timeline entry and an outbox row.

The inner side of lifecycle.py and of the verb modules beside it, which decide what is legal; nobody else calls it. Who
wants to act on what happened, as tickets do, registers with `tell_in_transaction` and promises in the same transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from console.incidents.models import ActorKind, Incident, OutboxRow, TimelineEntry
from console.incidents.publish import relay_on_commit

NOTE_CHARS_MAX: Final = 10_000

Listener = Callable[[Incident, TimelineEntry], None]
_LISTENERS: list[Listener] = []


class BadAct(ValueError):
    """The act cannot be understood: no reason, an empty comment, a note beyond all limits."""


class TooMany(Exception):
    """Asked too often; the message says what the limit is."""

    retry_after_s: Final = 60


class StaleVersion(Exception):
    """Somebody else was faster; `incident` is its current row. exact: the caller asked for this very version."""

    def __init__(self, incident: Incident, exact: bool = False) -> None:
        super().__init__(f"Incident {incident.pk} has changed since you saw it: it is {incident.state} now.")
        self.incident = incident
        self.exact = exact


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a person, a script, or the detector itself. id: which of the kind; names may be shared."""

    name: str
    kind: ActorKind
    id: int = 0

    @property
    def is_detector(self) -> bool:
        return self.kind == ActorKind.DETECTOR


@dataclass(frozen=True, slots=True)
class Seen:
    """The version an actor saw; None takes the incident as it is. exact: nothing at all may have changed since."""

    version: int | None = None
    exact: bool = False


DETECTOR: Final = Actor("detector", ActorKind.DETECTOR)
UNSEEN: Final = Seen()


def tell_in_transaction(listener: Listener) -> None:
    """Call `listener(incident, entry)` for every timeline entry, in the transaction that writes it.

    What it raises undoes the act, so it writes a row of its own at most and does the rest when that is committed.
    """
    _LISTENERS.append(listener)


def check_seen(incident: Incident, seen: Seen) -> None:
    """StaleVersion when somebody has acted since. What the machine found out meanwhile stands in nobody's way."""
    if seen.version is None or seen.version == incident.version:
        return
    if seen.exact or not incident.acted_version <= seen.version < incident.version:
        raise StaleVersion(incident, seen.exact)


def record(
    incident: Incident,
    actor: Actor,
    verb: str,
    fields: Mapping[str, Any],
    now: datetime,
    *,
    before: str = "",
    after: str = "",
    note: str = "",
    request_key: str = "",
) -> TimelineEntry:
    """Write `fields` and say so. The caller holds the row; StaleVersion when it was written all the same."""
    acted = {} if actor.is_detector else {"acted_version": incident.version + 1}
    _compare_and_set(incident, {**fields, **acted}, now)
    return note_entry(incident, actor, verb, now, before=before, after=after, note=note, request_key=request_key)


def _compare_and_set(incident: Incident, fields: Mapping[str, Any], now: datetime) -> None:
    """Write `fields` if nobody else has since `incident` was read, else StaleVersion with what it is now."""
    same = Incident.objects.filter(pk=incident.pk, version=incident.version)
    written = {**fields, "version": incident.version + 1, "updated_at": now}
    if not same.update(**written):
        raise StaleVersion(Incident.objects.get(pk=incident.pk))
    for name, value in written.items():
        setattr(incident, name, value)


def note_entry(
    incident: Incident,
    actor: Actor,
    verb: str,
    now: datetime,
    *,
    before: str = "",
    after: str = "",
    note: str = "",
    request_key: str = "",
    message: str = "incident.changed",
) -> TimelineEntry:
    """The timeline entry, and the promise to tell everybody once it is committed."""
    entry = TimelineEntry.objects.create(
        incident=incident, at=now, actor=actor.name, actor_kind=actor.kind,
        verb=verb, before=before, after=after, note=note, request_key=stored_key(actor, request_key),
    )  # fmt: skip
    for listener in _LISTENERS:
        listener(incident, entry)
    relay_on_commit(OutboxRow.objects.create(incident=incident, entry=entry, type=message, made_at=now))
    return entry


def done_before(
    entries: QuerySet[TimelineEntry], actor: Actor, verbs: Sequence[str], request_key: str
) -> TimelineEntry | None:
    """What this actor did earlier with the same key."""
    if not request_key:
        return None
    return entries.filter(verb__in=verbs, request_key=stored_key(actor, request_key)).first()


def stored_key(actor: Actor, request_key: str) -> str:
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
