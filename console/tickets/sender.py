"""Sending what was promised: one task at a time, to several destinations at once, to each in order.

What a message says is read with its incident held, and marked as being sent: news of after that is a message of its own.
Requests run in threads, without the database; what became of each is written as soon as it ends, so a crash in between
sends a message a second time, with the same identifier. A failure that may pass holds back everything for its destination: five
seconds, then three times longer each time up to half an hour, with jitter, or as long as the other side asks. After a day
a message is given up; what can never work is given up at once.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Q
from django.utils import timezone

from console.incidents.lifecycle import DETECTOR, Actor, remark
from console.incidents.models import ActorKind, Incident, State
from console.incidents.rows import is_quiet
from console.operations.metrics import TICKETS_SENT
from console.tickets.destinations import KINDS
from console.tickets.http import DELIVERY_SECONDS_MAX, poster
from console.tickets.message import ERROR_CHARS_MAX, Again, Config, Message, Refused, Sent
from console.tickets.models import (
    Attempt,
    Delivery,
    DeliveryState,
    Destination,
    DestinationChange,
    HookSeen,
    Ticket,
    TicketPicture,
)
from console.tickets.sealing import Unreadable, unseal
from console.tickets.telling import message_of, note_uploaded, pictures_of

log = logging.getLogger(__name__)
SENDER_LOCK: Final = 0x4447544B
RUN_SECONDS: Final = 75.0
ROUND_SECONDS_MAX: Final = DELIVERY_SECONDS_MAX + 5.0
AT_ONCE_MAX: Final = 16
HEADS_SEEN_MAX: Final = 200
PAUSE_FIRST_S, PAUSE_FACTOR, PAUSE_MAX_S = 5.0, 3.0, 1800.0
ASKED_PAUSE_MAX_S: Final = 3600.0
OWN_REMARKS_MAX: Final = 500
GIVE_UP_AFTER: Final = timedelta(days=1)
KEPT: Final = timedelta(days=30)
PICTURES_KEPT: Final = timedelta(days=2)
HOOKS_KEPT: Final = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one try went. uploaded: which pictures are there now, and what they are called there."""

    result: Sent | Again | Refused
    took_ms: int
    uploaded: Mapping[str, str] = field(default_factory=dict)


def config_of(destination: Destination) -> Config:
    """Settings and secrets. Raises Unreadable."""
    key = str(destination.key)
    return Config(key, destination.settings, unseal(destination.sealed, key))


def send_due(seconds_max: float = RUN_SECONDS) -> int:
    """Send what is due; returns how many were tried. Nothing when somebody else sends already.

    A round that might not end within `seconds_max` is not begun.
    """
    with _alone() as is_ours:
        n, end = 0, time.monotonic() + seconds_max
        if is_ours:
            _take_back_marks()
        while is_ours and time.monotonic() + ROUND_SECONDS_MAX <= end:
            tried = _send_heads()
            n += tried
            if not tried:
                break
        return n


def tidy() -> int:
    """Forget deliveries that are long over, and calls from outside that cannot be repeated any more."""
    now = timezone.now()
    TicketPicture.objects.filter(delivery__done_at__lt=now - PICTURES_KEPT).delete()
    HookSeen.objects.filter(at__lt=now - HOOKS_KEPT).delete()
    return Delivery.objects.filter(done_at__lt=now - KEPT).delete()[0]


def pause_s(n_failures: int, asked_s: float | None) -> float:
    """Seconds until the next try after so many failures in a row."""
    usual = min(PAUSE_FIRST_S * PAUSE_FACTOR ** min(n_failures - 1, 20), PAUSE_MAX_S) * random.uniform(0.8, 1.2)
    return max(usual, min(asked_s or 0.0, ASKED_PAUSE_MAX_S))


@contextmanager
def _alone() -> Iterator[bool]:
    """A lock of this database connection: it is gone with the process that held it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [SENDER_LOCK])
        is_ours = bool(cursor.fetchone()[0])
        try:
            yield is_ours
        finally:
            if is_ours:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [SENDER_LOCK])


def _send_heads() -> int:
    """One try at the first due delivery of every destination; returns how many deliveries were dealt with."""
    ready: list[tuple[Delivery, Message, Config]] = []
    n_settled = 0
    for delivery in _heads(timezone.now()):
        if prepared := _prepared(delivery):
            ready.append((delivery, *prepared))
        else:
            n_settled += 1
    if ready:
        _send_all(ready)
    return n_settled + len(ready)


def _send_all(ready: list[tuple[Delivery, Message, Config]]) -> None:
    """Try them side by side, and write down how each went as soon as it is over."""
    pool = ThreadPoolExecutor(len(ready))
    tries = {pool.submit(_try, message, config, one.destination.kind): (one, message) for one, message, config in ready}
    left: dict[Future[Outcome], tuple[Delivery, Message]] = dict(tries)
    try:
        for future in as_completed(tries, timeout=ROUND_SECONDS_MAX):
            _written(left.pop(future)[0], future.result())
    except TimeoutError:  # a name server or mail server that hangs: its thread ends some time later
        took_ms = round(ROUND_SECONDS_MAX * 1000)
        for delivery, message in left.values():
            late = Again(f"not over within {ROUND_SECONDS_MAX:g} s")
            _written(delivery, Outcome(late, took_ms, dict(message.uploaded)))
    finally:
        pool.shutdown(wait=False)


def _written(delivery: Delivery, outcome: Outcome) -> None:
    """The outcome of one; when it cannot be written, the others still are, and this one is sent again."""
    try:
        _conclude(delivery, outcome)
    except DatabaseError as error:
        log.exception("the outcome of delivery %d was not written", delivery.pk, exc_info=error)


def _take_back_marks() -> None:
    """Whoever holds the lock is the only sender: what is marked is left from one that crashed."""
    Delivery.objects.filter(state=DeliveryState.WAITING, sending_at__isnull=False).update(sending_at=None)


def _heads(now: datetime) -> list[Delivery]:
    is_up = Q(enabled=True, removed_at=None) & (Q(not_before=None) | Q(not_before__lte=now))
    waiting = Q(deliveries__state=DeliveryState.WAITING, deliveries__due_at__lte=now)
    destinations = Destination.objects.filter(is_up & waiting).distinct().order_by("not_before", "pk")[:AT_ONCE_MAX]
    return [head for destination in destinations if (head := _head(destination, now))]


def _head(destination: Destination, now: datetime) -> Delivery | None:
    """The oldest due delivery whose ticket has nothing older that still waits."""
    earlier: set[int | None] = set()
    waiting = destination.deliveries.filter(state=DeliveryState.WAITING).order_by("id")
    for delivery in waiting.select_related(
        "destination", "ticket__incident__job", "ticket__incident__attempt", "entry"
    )[:HEADS_SEEN_MAX]:
        if delivery.due_at <= now and delivery.ticket_id not in earlier:
            return delivery
        earlier.add(delivery.ticket_id)
    return None


def _prepared(delivery: Delivery) -> tuple[Message, Config] | None:
    """What is to be sent; None when the delivery is settled without sending, or its destination was switched off."""
    with transaction.atomic():
        if not _hold(delivery) or delivery.state != DeliveryState.WAITING:
            return None  # somebody removed the destination
        if why := _pointless(delivery):
            _finish(delivery, DeliveryState.SKIPPED, why)
            return None
        try:
            prepared = message_of(delivery), config_of(delivery.destination)
        except Unreadable as error:
            _switch_off(delivery.destination, str(error))
            return None
        delivery.sending_at = timezone.now()
        delivery.save(update_fields=["sending_at"])
        return prepared


def _hold(delivery: Delivery) -> bool:
    """Lock the incident, the destination and the delivery, in the order in which promises do, and read them as they are."""
    if ticket := delivery.ticket:
        held = Incident.objects.select_for_update(of=("self",)).select_related("job", "attempt")
        ticket.incident = held.get(pk=ticket.incident_id)
    delivery.destination = Destination.objects.select_for_update(no_key=True).get(pk=delivery.destination_id)
    found = Delivery.objects.select_for_update(no_key=True).filter(pk=delivery.pk).values("state", "n_attempts").first()
    if found:
        delivery.state, delivery.n_attempts = found["state"], found["n_attempts"]
    return found is not None


def _pointless(delivery: Delivery) -> str:
    """Why there is nothing to say any more; empty when there is."""
    ticket = delivery.ticket
    if why := KINDS[delivery.destination.kind].untold.get(delivery.verb):
        return why
    if delivery.verb == "reopen" and ticket and not delivery.replay_of_id and is_quiet(ticket.incident):
        return "silenced or attached: told when that ends"
    if delivery.verb == "pictures" and not pictures_of(delivery).exists():
        return "the pictures are not kept any more"
    if ticket is None or ticket.told_at or delivery.replay_of_id:
        return ""
    incident = ticket.incident
    if delivery.verb != "open":
        return "nobody there was told of the incident"
    if incident.state == State.RESOLVED:
        return "over before anybody was told"
    return "silenced or attached" if is_quiet(incident) else ""


def _try(message: Message, config: Config, kind: str) -> Outcome:
    """One try, in a thread of its own: no database here."""
    began = time.monotonic()
    result: Sent | Again | Refused
    try:
        result = KINDS[kind].send(message, config, poster(settings.TICKETS_HOSTS))
    except (Again, Refused) as error:
        result = error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        log.warning("an answer of %s was not understood", kind, exc_info=error)
        result = Again("its answer was not understood: see this process's log")
    return Outcome(result, round((time.monotonic() - began) * 1000), message.uploaded)


def _conclude(delivery: Delivery, outcome: Outcome) -> None:
    result, now = outcome.result, timezone.now()
    said = result.said if isinstance(result, Sent) else str(result)
    with transaction.atomic():
        if not _hold(delivery):
            return
        Attempt.objects.create(
            delivery=delivery, at=now, took_ms=outcome.took_ms, status=result.status, said=said[:ERROR_CHARS_MAX]
        )
        delivery.n_attempts, delivery.sending_at = delivery.n_attempts + 1, None
        delivery.save(update_fields=["n_attempts", "sending_at"])
        if outcome.uploaded:
            note_uploaded(delivery, {} if isinstance(result, Sent) else outcome.uploaded)
        if isinstance(result, Sent):
            _sent(delivery, result, now)
        elif isinstance(result, Again) and now - delivery.due_at < GIVE_UP_AFTER:
            _later(delivery, result, now)
        else:
            _finish(delivery, DeliveryState.DEAD, said)
            if isinstance(result, Refused) and result.is_gone:
                _switch_off(delivery.destination, said)
    TICKETS_SENT.labels(delivery.destination.kind, type(result).__name__.lower()).inc()


def _sent(delivery: Delivery, result: Sent, now: datetime) -> None:
    _finish(delivery, DeliveryState.SENT, result.said)
    Destination.objects.filter(pk=delivery.destination_id).update(n_failures=0, not_before=None)
    if delivery.ticket_id is None:
        return
    is_first = Ticket.objects.filter(pk=delivery.ticket_id, told_at=None).update(told_at=now)
    given = {"external_id": result.external_id, "url": result.url[:1000]}
    if changed := {name: text for name, text in given.items() if text}:
        Ticket.objects.filter(pk=delivery.ticket_id).update(**changed)
    if result.remark_id:
        ticket = Ticket.objects.select_for_update().get(pk=delivery.ticket_id)
        ticket.own_remarks = [*ticket.own_remarks, result.remark_id][-OWN_REMARKS_MAX:]
        ticket.save(update_fields=["own_remarks"])
    if is_first and result.url and delivery.ticket:
        actor = Actor(delivery.destination.name, ActorKind.TICKET, delivery.destination_id)
        remark(delivery.ticket.incident_id, actor, "ticket opened", result.url)


def _later(delivery: Delivery, result: Again, now: datetime) -> None:
    if delivery.state == DeliveryState.WAITING:
        delivery.said = str(result)
        delivery.save(update_fields=["said"])
    destination = delivery.destination
    destination.n_failures += 1
    destination.not_before = now + timedelta(seconds=pause_s(destination.n_failures, result.retry_after_s))
    destination.save(update_fields=["n_failures", "not_before"])


def _finish(delivery: Delivery, state: DeliveryState, said: str) -> None:
    delivery.state, delivery.said, delivery.done_at = state, said[:ERROR_CHARS_MAX], timezone.now()
    delivery.save(update_fields=["state", "said", "done_at"])


def _switch_off(destination: Destination, why: str) -> None:
    Destination.objects.filter(pk=destination.pk).update(enabled=False, paused_why=why[:300])
    act = DestinationChange.Act.CHANGED
    DestinationChange.objects.create(
        destination=destination, actor=DETECTOR.name, actor_kind=DETECTOR.kind, act=act, changed=["enabled"]
    )
