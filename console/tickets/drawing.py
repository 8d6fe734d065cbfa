"""Pictures for tickets that hold files or show images: drawn after the ticket was made, so that nobody waits for them.

They go as a message of their own, in the order of the others and tried again like them. A ticket gets them once.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from console.evidence.drawn import drawings
from console.evidence.raster import NoPicture, png_of
from console.incidents.models import Incident
from console.incidents.rows import is_quiet
from console.tickets.destinations import KINDS
from console.tickets.message import wants_pictures
from console.tickets.models import Ticket, TicketPicture
from console.tickets.promises import put

log = logging.getLogger(__name__)
AFTER: Final = timedelta(seconds=10)
UNTIL: Final = timedelta(hours=1)
PER_RUN_MAX: Final = 8
NAMES: Final = ("topology", "waits", "flows")
TAKERS: Final = tuple(name for name, kind in KINDS.items() if kind.takes_pictures)


def draw_due() -> int:
    """Promise the pictures of tickets made of late; returns of how many. Who dies while drawing leaves them out, and so does
    an incident that was silenced meanwhile."""
    now = timezone.now()
    found = Ticket.objects.filter(
        told_at__gt=now - UNTIL, told_at__lte=now - AFTER, pictured_at=None, destination__kind__in=TAKERS,
        destination__enabled=True, destination__removed_at=None,
    )  # fmt: skip
    drawn: dict[int, list[tuple[str, bytes]]] = {}
    n = 0
    for ticket in found.select_related("destination", "incident").order_by("told_at")[:PER_RUN_MAX]:
        is_ours = Ticket.objects.filter(pk=ticket.pk, pictured_at=None).update(pictured_at=now)
        destination = ticket.destination
        if (
            not is_ours
            or is_quiet(ticket.incident)
            or not wants_pictures(KINDS[destination.kind], destination.settings)
        ):
            continue
        if ticket.incident_id not in drawn:
            drawn[ticket.incident_id] = pictures_of(ticket.incident)
        n += _promise(ticket, drawn[ticket.incident_id])
    return n


def pictures_of(incident: Incident) -> list[tuple[str, bytes]]:
    """(name of the file, PNG) of each that can be drawn."""
    made = []
    for one in drawings(incident, NAMES):
        try:
            if one.svg:
                made.append((f"incident-{incident.pk}-{one.name}.png", png_of(one.svg)))
        except NoPicture as error:
            log.warning("picture %s of incident %d not drawn: %s", one.name, incident.pk, error)
    return made


def _promise(ticket: Ticket, pictures: list[tuple[str, bytes]]) -> bool:
    if not pictures:
        return False
    with transaction.atomic():
        delivery = put(ticket.destination, ticket, "pictures", timezone.now())
        if delivery is not None:
            TicketPicture.objects.bulk_create(
                TicketPicture(delivery=delivery, name=name, body=body) for name, body in pictures
            )
    return delivery is not None
