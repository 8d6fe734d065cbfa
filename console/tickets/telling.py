"""An incident and what happened to it as the message a destination is sent: read when it is sent, never when promised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from console.incidents.models import Incident, Severity
from console.incidents.rows import CULPRITS_SHOWN_MAX, NODES_SHOWN_MAX, iso
from console.tickets.destinations import KINDS
from console.tickets.known import known_of
from console.tickets.message import Message, Verb
from console.tickets.models import Delivery, Ticket, TicketPicture
from console.tickets.templates import with_templates

NOTE_CHARS_MAX: Final = 4000
UPLOADED_CHARS_MAX: Final = 1000
EXAMPLE: Final = Message(
    verb="open", delivery="", ticket="", dedup_key="", number=12, headline="Rank 3 has not entered the op the others wait in.",
    state="open", condition="firing", severity="high", symptom="failure", component="process", grade="strong", job="llama-70b",
    attempt=1, culprits=(3,), nodes=("node-1",), n_victims=7, opened_at="2026-01-01T00:00:00.000Z", at="2026-01-01T00:00:00.000Z",
    places=("rank 3: node-1, GPU 0000:3b:00.0, NIC mlx5_1, process 4711",), evidence=("last op entered: 811 (rank 3)",),
    advice="Take the stacks of rank 3, and look at its process on node-1.",
    url="https://diogenes.example/incidents/12",
)  # fmt: skip
"""For a preview where a team has had no incident yet."""


def message_of(delivery: Delivery) -> Message:
    """What is to be told, in the destination's own words; the incident, its job and attempt should be selected with it."""
    destination = delivery.destination
    ticket = delivery.ticket
    plain = _told_of(delivery, ticket, _known_where_shown(delivery, ticket)) if ticket else _test_of(delivery)
    return with_templates(plain, destination.title_template, destination.body_template)


def sample_of(incident: Incident | None) -> Message:
    """What a destination would be told of this incident when it opens, for a preview; of none, an example."""
    if incident is None:
        return EXAMPLE
    ticket = Ticket(incident=incident)
    return _told_of(Delivery(ticket=ticket, verb="open", made_at=incident.opened_at), ticket, known_of(incident))


def _known_where_shown(delivery: Delivery, ticket: Ticket) -> dict[str, Any]:
    kind = KINDS[delivery.destination.kind]
    return known_of(ticket.incident) if kind.shows_evidence(cast(Verb, delivery.verb), ticket.external_id) else {}


def _told_of(delivery: Delivery, ticket: Ticket, known: Mapping[str, Any]) -> Message:
    incident, entry = ticket.incident, delivery.entry
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
        n_culprits=incident.n_culprits,
        suspects=tuple(incident.suspects[:CULPRITS_SHOWN_MAX]),
        n_suspects=incident.n_suspects,
        opened_at=iso(incident.opened_at) or "",
        at=iso(entry.at if entry else delivery.made_at) or "",
        resolved_at=iso(incident.resolved_at) or "",
        resolution=incident.resolution or "",
        actor=entry.actor if entry else "",
        note=entry.note[:NOTE_CHARS_MAX] if entry and delivery.verb != "open" else "",
        url=address_of(incident),
        **known,
        external_id=ticket.external_id,
        **(_pictures(delivery) if delivery.verb == "pictures" else {}),
    )


def pictures_of(delivery: Delivery) -> QuerySet[TicketPicture]:
    """The delivery's own, or those of the one it repeats; none when they are not kept any more."""
    own = [delivery.pk, *([delivery.replay_of_id] if delivery.replay_of_id else [])]
    return TicketPicture.objects.filter(delivery__in=own).order_by("id")


def note_uploaded(delivery: Delivery, uploaded: Mapping[str, str]) -> None:
    """Which of its pictures are there, so that the next try sends the others; none once all was sent: a replay sends all.

    What cannot be stored is not noted, and goes once more.
    """
    for one in pictures_of(delivery).defer("body"):
        name = uploaded.get(one.name)
        one.uploaded_as = name if name is not None and len(name) <= UPLOADED_CHARS_MAX and "\0" not in name else None
        one.save(update_fields=["uploaded_as"])


def _pictures(delivery: Delivery) -> dict[str, Any]:
    rows = list(pictures_of(delivery))
    there = {one.name: one.uploaded_as for one in rows if one.uploaded_as is not None}
    return {"pictures": tuple((one.name, bytes(one.body)) for one in rows), "uploaded": there}


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
