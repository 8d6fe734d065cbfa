"""Promising to tell: the outbox rows, written in the transaction of the timeline entry they tell of.

Nothing is sent here. An incident is first told of ten seconds after it opened, or when its evidence is strong; not while
it is silenced, attached or kept from paging; what happens to it afterwards is told wherever it was told of. Waiting news
of the same incident is one message: it is written when it is sent, from what the incident is then. News that comes while
a message is on its way is a message of its own.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from celery import current_app
from django.db import transaction
from django.db.models import F, QuerySet
from kombu.exceptions import OperationalError

from console.incidents.models import ActorKind, ConditionState, Incident, State, TimelineEntry
from console.incidents.rows import is_quiet
from console.incidents.severity import rank_of
from console.operations.metrics import TICKETS_REFUSED
from console.tickets.models import Delivery, DeliveryState, Destination, Ticket
from rca.findings import Grade

log = logging.getLogger(__name__)
TELL_AFTER: Final = timedelta(seconds=10)
WAITING_MAX: Final = 1000
TOLD_AT_ONCE_MAX: Final = 20
"""Open incidents a new destination is told of at once, newest first; of the others when something happens to them."""
VERBS: Final = {
    "acknowledged": "acknowledge", "unacknowledged": "unacknowledge", "resolved": "resolve", "reopened": "reopen",
    "commented": "comment", "diagnosed": "update", "named nobody": "update", "revised": "update",
    "attached": "update", "assigned": "update", "detached": "update", "unsilenced": "update", "fired again": "update",
    "got worse": "update",
}  # fmt: skip
"""Verb of the timeline → what destinations are told. Others (looks, dumps asked for) are nobody else's business."""
SEND_TASK: Final = "console.tickets.tasks.send_due"


def promise(incident: Incident, entry: TimelineEntry) -> None:
    """The listener of record.py: a waiting delivery for every destination that should hear of `entry`."""
    for destination in Destination.objects.filter(team=incident.team_id, removed_at=None, enabled=True):
        if entry.actor_kind == ActorKind.TICKET and entry.actor == destination.name:
            continue  # its own news
        _promise_to(destination, incident, entry)


def is_worth_telling(incident: Incident, destination: Destination) -> bool:
    """Whether somebody there should hear of an incident that nobody there knows."""
    is_bad_enough = rank_of(incident.severity) >= rank_of(destination.severity_min)
    return incident.state != State.RESOLVED and incident.pages and not is_quiet(incident) and is_bad_enough


def put(
    destination: Destination,
    ticket: Ticket | None,
    verb: str,
    now: datetime,
    *,
    due_at: datetime | None = None,
    entry: TimelineEntry | None = None,
    replay_of: Delivery | None = None,
) -> Delivery | None:
    """A waiting delivery; None when too many wait already, which is counted."""
    waiting = destination.deliveries.filter(state=DeliveryState.WAITING)
    if waiting.count() >= WAITING_MAX:
        Destination.objects.filter(pk=destination.pk).update(n_refused=F("n_refused") + 1)
        TICKETS_REFUSED.inc()
        return None
    due_at = due_at or now
    made = Delivery.objects.create(
        destination=destination, ticket=ticket, verb=verb, made_at=now, due_at=due_at, entry=entry, replay_of=replay_of
    )
    if due_at <= now:
        transaction.on_commit(kick, robust=True)
    return made


def kick() -> None:
    """Have waiting deliveries sent now; when the broker is away the beat does it later."""
    try:
        current_app.send_task(SEND_TASK, retry=False, expires=60)
    except OperationalError as error:
        log.warning("deliveries are sent later: %s", error)


def _promise_to(destination: Destination, incident: Incident, entry: TimelineEntry) -> None:
    ticket = Ticket.objects.filter(incident=incident, destination=destination).first()
    waiting = Delivery.objects.filter(ticket=ticket, state=DeliveryState.WAITING) if ticket else Delivery.objects.none()
    verb = _verb_of(entry, incident, ticket)
    if ticket and (ticket.told_at or waiting.filter(verb="open").exists()):
        _bring_forward(waiting, incident, entry.at)
        if verb == "update" and waiting.filter(verb__in=("open", "update"), n_attempts=0, sending_at=None).update(
            n_merged=F("n_merged") + 1
        ):
            return
        if verb and not (verb == "update" and is_quiet(incident)):
            put(destination, ticket, verb, entry.at, due_at=_due_at(incident, entry.at), entry=entry)
    elif is_worth_telling(incident, destination):
        ticket = ticket or Ticket.objects.create(incident=incident, destination=destination)
        put(destination, ticket, "open", entry.at, due_at=_due_at(incident, entry.at), entry=entry)


def _verb_of(entry: TimelineEntry, incident: Incident, ticket: Ticket | None) -> str | None:
    """What to tell of it. Of what is resolved there is nothing new: an update would open a pager's alert again."""
    verb = VERBS.get(entry.verb)
    if verb == "update" and incident.state == State.RESOLVED:
        return None
    if entry.verb == "unsilenced" and ticket and _is_taken_for_over(ticket):
        return "reopen"
    return verb


def _is_taken_for_over(ticket: Ticket) -> bool:
    """Whether the place was told of the end, and not that the incident was reopened, as while it is silenced."""
    ends = ticket.deliveries.filter(verb__in=("resolve", "reopen")).exclude(state=DeliveryState.SKIPPED)
    return ends.order_by("-pk").values_list("verb", flat=True).first() == "resolve"


def tell_of_the_open(destination: Destination, now: datetime) -> None:
    """Somebody makes a destination while a job hangs: it is told of what still is to be told and nobody has taken.

    What is beyond the limit is counted as n_left_out.
    """
    open_ones = Incident.objects.filter(team=destination.team_id, state=State.OPEN).exclude(
        condition=ConditionState.CLEAR
    )
    n_worth = 0
    for incident in open_ones.select_related("attached_to").order_by("-pk").iterator():
        n_worth += (is_worth := is_worth_telling(incident, destination))
        if is_worth and n_worth <= TOLD_AT_ONCE_MAX:
            ticket = Ticket.objects.create(incident=incident, destination=destination)
            put(destination, ticket, "open", now, due_at=_due_at(incident, now))
    destination.n_left_out = max(n_worth - TOLD_AT_ONCE_MAX, 0)
    destination.save(update_fields=["n_left_out"])


def _due_at(incident: Incident, now: datetime) -> datetime:
    return now if incident.grade == Grade.STRONG else max(now, incident.opened_at + TELL_AFTER)


def _bring_forward(waiting: QuerySet[Delivery], incident: Incident, now: datetime) -> None:
    """Strong evidence ends the ten seconds."""
    if incident.grade == Grade.STRONG and waiting.filter(due_at__gt=now).update(due_at=now):
        transaction.on_commit(kick, robust=True)
