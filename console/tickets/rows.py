"""Destinations, deliveries and tickets as the REST API answers them. No field here can hold a secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from console.accounts.access import Caller
from console.incidents.models import Incident, State
from console.incidents.rows import iso
from console.tickets.destinations import KINDS, objection_of
from console.tickets.message import Kind
from console.tickets.models import Attempt, Delivery, DeliveryState, DestinationChange, Ticket
from console.tickets.remote import AFTER_CLOSE, CLOSED, LOOKS
from console.tickets.templates import parts_of

LATE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class SettingRow:
    name: str
    words: str
    is_secret: bool
    is_needed: bool
    usual: str
    choices: list[str]


@dataclass(frozen=True, slots=True)
class KindRow:
    """A kind of destination, the settings it takes, and which templates it shows: of title and body."""

    name: str
    title: str
    settings: list[SettingRow]
    templates: list[str]


@dataclass(frozen=True, slots=True)
class DestinationRow:
    """A destination. has_secrets: whether any are stored; n_*: of the last thirty days. hook_path: whom to call back.

    n_left_out: incidents open when it was made that it was not told of then, but is with their next change.
    not_sent_why: why nothing will be sent there as it is set up, where that shows before it is tried.
    version: for `version` and If-Match; failures that are counted here leave it as it is, switching off for them does not.
    """

    id: int
    version: int
    team: str
    name: str
    kind: str
    title: str
    settings: dict[str, str]
    has_secrets: bool
    severity_min: str
    title_template: str
    body_template: str
    enabled: bool
    paused_why: str
    not_sent_why: str
    made_by: str
    not_before: str | None
    n_failures: int
    n_waiting: int
    n_sent: int
    n_dead: int
    n_refused: int
    n_left_out: int
    hook_path: str
    n_hooks: int
    hooks_refused: dict[str, int]
    may_change: bool


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A promised message. said: why it is as it is, in the other side's words."""

    id: int
    destination: int
    destination_name: str
    incident: int | None
    headline: str
    verb: str
    state: str
    made_at: str
    due_at: str
    done_at: str | None
    n_attempts: int
    n_merged: int
    said: str
    replay_of: int | None
    may_replay: bool


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Who made or changed a destination. changed: names alone."""

    at: str
    actor: str
    actor_kind: str
    act: str
    changed: list[str]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    at: str
    took_ms: int
    status: int | None
    said: str


@dataclass(frozen=True, slots=True)
class TicketRow:
    """An incident's copy. differs: it is over there and not here; it is never resolved here for that.

    untold_why: why it has not been told of yet, '' where it has. remote_*: how it stood there when it was last seen.
    unknown_since: it could not be seen since, unknown_why says why.
    """

    destination: int
    destination_name: str
    kind: str
    external_id: str
    url: str
    told_at: str | None
    untold_why: str
    remote_state: str
    remote_word: str
    remote_assignee: str
    remote_at: str | None
    seen_at: str | None
    unknown_since: str | None
    unknown_why: str
    differs: bool


def kind_row(kind: Kind) -> KindRow:
    settings = [
        SettingRow(one.name, one.words, one.is_secret, one.is_needed, one.usual, list(one.choices))
        for one in kind.settings
    ]
    return KindRow(kind.name, kind.title, settings, parts_of(kind.name))


def destination_row(one: Any, caller: Caller) -> DestinationRow:
    """`one`: annotated with n_waiting, n_sent, n_dead, version."""
    kind = KINDS[one.kind]
    return DestinationRow(
        id=one.pk, version=one.version or 0, team=one.team.name, name=one.name, kind=one.kind, title=kind.title,
        settings=one.settings, has_secrets=bool(one.sealed), severity_min=one.severity_min,
        title_template=one.title_template, body_template=one.body_template, enabled=one.enabled, paused_why=one.paused_why,
        not_sent_why=objection_of(kind, one.settings),
        made_by=one.made_by, not_before=iso(one.not_before), n_failures=one.n_failures, n_waiting=one.n_waiting,
        n_sent=one.n_sent, n_dead=one.n_dead, n_refused=one.n_refused, n_left_out=one.n_left_out,
        hook_path=f"/hooks/{one.kind}/{one.key}" if kind.calls_back else "", n_hooks=one.n_hooks,
        hooks_refused=one.hooks_refused, may_change=caller.may("administer", one.team_id),
    )  # fmt: skip


def delivery_row(one: Delivery, caller: Caller) -> DeliveryRow:
    ticket, destination = one.ticket, one.destination
    is_up = destination.enabled and destination.removed_at is None
    return DeliveryRow(
        id=one.pk, destination=destination.pk, destination_name=destination.name,
        incident=ticket.incident_id if ticket else None, headline=ticket.incident.headline if ticket else "",
        verb=one.verb, state=one.state, made_at=iso(one.made_at) or "", due_at=iso(one.due_at) or "",
        done_at=iso(one.done_at), n_attempts=one.n_attempts, n_merged=one.n_merged, said=one.said,
        replay_of=one.replay_of_id,
        may_replay=is_up and one.state != DeliveryState.WAITING and caller.may("replay", destination.team_id),
    )  # fmt: skip


def attempt_row(one: Attempt) -> AttemptRow:
    return AttemptRow(iso(one.at) or "", one.took_ms, one.status, one.said)


def change_row(one: DestinationChange) -> ChangeRow:
    return ChangeRow(iso(one.at) or "", one.actor, one.actor_kind, one.act, one.changed)


def ticket_row(one: Ticket, incident: Incident) -> TicketRow:
    why = unknown_why(one, incident, timezone.now())
    return TicketRow(
        destination=one.destination_id, destination_name=one.destination.name, kind=one.destination.kind,
        external_id=one.external_id, url=one.url, told_at=iso(one.told_at), untold_why=untold_why(one),
        remote_state=one.remote_state,
        remote_word=one.remote_word, remote_assignee=one.remote_assignee, remote_at=iso(one.remote_at),
        seen_at=iso(one.seen_at), unknown_since=iso(one.seen_at or one.told_at) if why else None, unknown_why=why,
        differs=one.remote_state in CLOSED and incident.state != State.RESOLVED,
    )  # fmt: skip


def untold_why(one: Ticket) -> str:
    """Why the destination has not been told of the incident; '' where it has, or nobody knows why."""
    if one.told_at is not None:
        return ""
    destination, newest = one.destination, one.deliveries.filter(verb="open").order_by("-pk").first()
    if not destination.enabled or destination.removed_at:
        return destination.paused_why or "the destination is switched off"
    if newest is None:
        return "too many messages waited for it already" if destination.n_refused else ""
    if newest.state == DeliveryState.SKIPPED:
        return newest.said
    tried = newest.attempts.order_by("-pk").first()
    if newest.state == DeliveryState.DEAD:
        return f"given up after {_tries(newest.n_attempts)}: {newest.said}"
    if tried:
        return f"{_tries(newest.n_attempts)} so far: {tried.said}"
    is_held = destination.not_before is not None and destination.not_before > timezone.now()
    return "other messages to it failed, so it is left alone for a while" if is_held else "it is about to be"


def _tries(n: int) -> str:
    return f"{n} {'try' if n == 1 else 'tries'}"


def unknown_why(one: Ticket, incident: Incident, now: datetime) -> str:
    """Why nobody knows how the ticket stands there now; empty where it is known, or there is nothing to know."""
    destination = one.destination
    if one.told_at is None:
        return ""
    if KINDS[destination.kind].calls_back:
        return "" if one.seen_at else "it has not called back: its webhook may not be set up"
    if destination.kind not in LOOKS or (
        one.seen_at and incident.resolved_at and now - incident.resolved_at > AFTER_CLOSE
    ):
        return ""
    if not destination.enabled or destination.removed_at:
        return "the destination is switched off"
    if settings.TICKETS_LOOK_SECONDS <= 0:
        return "looking at tickets is switched off"
    if one.unread_why:
        return one.unread_why
    is_late = now - (one.look_at or one.told_at) > LATE
    return "nobody has looked for some time" if is_late else "" if one.seen_at else "it has not been looked at yet"
