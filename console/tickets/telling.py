"""An incident and what happened to it as the message a destination is sent: read when it is sent, never when promised."""

from __future__ import annotations

from typing import Final, cast

from django.conf import settings
from django.utils import timezone

from console.incidents.models import Incident, Severity
from console.incidents.rows import CULPRITS_SHOWN_MAX, NODES_SHOWN_MAX, iso
from console.tickets.message import Message, Verb
from console.tickets.models import Delivery

NOTE_CHARS_MAX: Final = 4000


def message_of(delivery: Delivery) -> Message:
    """What is to be told; the incident, its job and attempt should be selected with it."""
    if delivery.ticket is None:
        return _test_of(delivery)
    incident, entry, ticket = delivery.ticket.incident, delivery.entry, delivery.ticket
    return Message(
        verb=cast(Verb, delivery.verb),
        delivery=str(delivery.key),
        ticket=str(ticket.key),
        dedup_key=f"{incident.key}:{ticket.key.hex}",
        number=incident.pk,
        headline=incident.headline,
        state=incident.state,
        condition=incident.condition,
        severity=incident.severity,
        symptom=incident.symptom,
        component=incident.component,
        grade=incident.grade,
        job=incident.job.name,
        attempt=incident.attempt.number,
        culprits=tuple(incident.culprits[:CULPRITS_SHOWN_MAX]),
        nodes=tuple(incident.culprit_nodes[:NODES_SHOWN_MAX]),
        n_victims=incident.n_victims,
        opened_at=iso(incident.opened_at) or "",
        at=iso(entry.at if entry else delivery.made_at) or "",
        resolved_at=iso(incident.resolved_at) or "",
        resolution=incident.resolution or "",
        actor=entry.actor if entry else "",
        note=entry.note[:NOTE_CHARS_MAX] if entry and delivery.verb != "open" else "",
        url=address_of(incident),
        external_id=ticket.external_id,
    )


def address_of(incident: Incident) -> str:
    """Where people see the incident; empty while the operator has not said where the console is."""
    return f"{settings.PUBLIC_URL}/incidents/{incident.pk}" if settings.PUBLIC_URL else ""


def _test_of(delivery: Delivery) -> Message:
    at = iso(timezone.now()) or ""
    return Message(
        verb="test", delivery=str(delivery.key), ticket=str(delivery.key), dedup_key=f"test:{delivery.key.hex}", number=0,
        headline="A test: nothing has happened", state="open", condition="clear", severity=Severity.LOW, symptom="test",
        component="", grade="", job="test", attempt=0, culprits=(), nodes=(), n_victims=0, opened_at=at, at=at,
        url=settings.PUBLIC_URL,
    )  # fmt: skip
