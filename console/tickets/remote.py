"""Looking at tickets where they are: what people made of them there, noted here once, and acting on nothing.

One task at a time; several destinations side by side, the tickets of each one after the other. Only tickets of unresolved
incidents and of those resolved in the last day are looked at. Whatever a system says of its limits holds for all looks at that
destination; so does a failure, with the sender's pauses. Looks hold no message back, and a look during which a message was
sent is thrown away: it tells nothing certain.

A ticket that is closed there never resolves an incident here: the detector and the people here know whether the job runs.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.incidents.lifecycle import Actor, remark
from console.incidents.models import ActorKind, Incident, State
from console.operations.metrics import TICKETS_SEEN
from console.tickets.http import poster
from console.tickets.looks import github, gitlab, jira, servicenow
from console.tickets.looks.look import Known, Look, LookAt, Remark, plain
from console.tickets.message import Again, Config, Refused
from console.tickets.models import Delivery, DeliveryState, Destination, Ticket
from console.tickets.sealing import Unreadable, unseal
from console.tickets.sender import pause_s

log = logging.getLogger(__name__)
LOOKS: Final[dict[str, LookAt]] = {
    "github": github.look, "gitlab": gitlab.look, "jira": jira.look, "servicenow": servicenow.look,
}  # fmt: skip
"""Kinds of destinations whose tickets can be looked at."""
LOOK_LOCK: Final = 0x44475452
RUN_SECONDS: Final = 40.0
AT_ONCE_MAX: Final = 8
PER_RUN_MAX: Final = 20
AFTER_CLOSE: Final = timedelta(days=1)
SLOWER_AFTER: Final = timedelta(days=1)
SLOWER: Final = 10
GONE: Final = (404, 410)
CLOSED: Final = ("closed", "resolved")


@dataclass(frozen=True, slots=True)
class Seen:
    """How a look at a ticket went, and since when."""

    ticket: Ticket
    result: Look | Again | Refused
    began_at: datetime


def look_around(seconds_max: float = RUN_SECONDS) -> int:
    """Look at what is due; returns how many tickets were asked for. Nothing when somebody else looks already."""
    with _alone() as is_ours:
        if not is_ours or settings.TICKETS_LOOK_SECONDS <= 0:
            return 0
        shelves = _due(timezone.now())
        if not shelves:
            return 0
        end, n = time.monotonic() + seconds_max, 0
        pool = ThreadPoolExecutor(min(len(shelves), AT_ONCE_MAX))
        tries = [pool.submit(_look_at_all, shelf, end) for shelf in shelves]
        try:
            for future in as_completed(tries, timeout=seconds_max + 30):
                n += _note_all(future.result())
        except TimeoutError:
            log.warning("looks at tickets took too long")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return n


def may_look() -> Q:
    """Tickets that are looked at now and then."""
    young = Q(incident__resolved_at=None) | Q(incident__resolved_at__gt=timezone.now() - AFTER_CLOSE)
    there = ~Q(external_id="") & Q(told_at__isnull=False, destination__kind__in=LOOKS)
    return young & there & Q(destination__enabled=True, destination__removed_at=None)


def pause_of(incident: Incident, now: datetime) -> timedelta:
    """Until the next look: longer when the incident is old or over."""
    is_slow = incident.state == State.RESOLVED or now - incident.opened_at > SLOWER_AFTER
    usual = settings.TICKETS_LOOK_SECONDS * (SLOWER if is_slow else 1)
    return timedelta(seconds=usual * random.uniform(0.9, 1.1))


@contextmanager
def _alone() -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOOK_LOCK])
        is_ours = bool(cursor.fetchone()[0])
        try:
            yield is_ours
        finally:
            if is_ours:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [LOOK_LOCK])


def _due(now: datetime) -> list[list[tuple[Ticket, Config]]]:
    """What is to be looked at, by destination, whatever waits longest first."""
    rested = Q(destination__looks_not_before=None) | Q(destination__looks_not_before__lte=now)
    at_ease = Q(destination__not_before=None) | Q(destination__not_before__lte=now)
    found = Ticket.objects.filter(may_look(), rested, at_ease, Q(look_at=None) | Q(look_at__lte=now))
    quiet = found.exclude(deliveries__in=_on_their_way()).select_related("destination", "incident")
    rows = quiet.order_by(F("look_at").asc(nulls_first=True), "id")
    destinations = quiet.order_by("destination").values_list("destination", flat=True).distinct()
    shelves = [list(rows.filter(destination=destination)[:PER_RUN_MAX]) for destination in destinations]
    return [shelf for tickets in shelves if (shelf := _with_config(tickets))]


def _on_their_way() -> Any:
    return Delivery.objects.filter(state=DeliveryState.WAITING, due_at__lte=timezone.now())


def _with_config(tickets: list[Ticket]) -> list[tuple[Ticket, Config]]:
    destination = tickets[0].destination
    key = str(destination.key)
    try:
        config = Config(key, destination.settings, unseal(destination.sealed, key))
    except Unreadable as error:
        _put_off(destination, Refused(str(error)), [one.pk for one in tickets])
        return []
    return [(one, config) for one in tickets]


def _look_at_all(shelf: list[tuple[Ticket, Config]], end: float) -> list[Seen]:
    """In a thread, without the database: until the first failure that concerns the whole destination."""
    seen: list[Seen] = []
    for ticket, config in shelf:
        if time.monotonic() >= end:
            break
        began_at = timezone.now()
        result = _look_at(ticket, config)
        seen.append(Seen(ticket, result, began_at))
        if _is_theirs(result) or (isinstance(result, Look) and result.wait_s):
            break
    return seen


def _look_at(ticket: Ticket, config: Config) -> Look | Again | Refused:
    kind = ticket.destination.kind
    changed_at = ticket.remote_at.isoformat(timespec="milliseconds") if ticket.remote_at and ticket.seen_at else ""
    known = Known(ticket.external_id, ticket.etag, changed_at, ticket.remarks_since)
    try:
        return LOOKS[kind](known, config, poster(settings.TICKETS_HOSTS))
    except (Again, Refused) as error:
        return error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        log.warning("an answer of %s was not understood", kind, exc_info=error)
        return Again("its answer was not understood: see this process's log")


def _is_theirs(result: Look | Again | Refused) -> bool:
    """Whether it says something of the whole destination rather than of one ticket."""
    return isinstance(result, Again) or (isinstance(result, Refused) and result.status not in GONE)


def _note_all(seen: list[Seen]) -> int:
    for one in seen:
        TICKETS_SEEN.labels(one.ticket.destination.kind, type(one.result).__name__.lower()).inc()
        if _is_theirs(one.result):
            _put_off(one.ticket.destination, one.result, _waiting_at(one.ticket.destination))  # type: ignore[arg-type]
            next_at = timezone.now() + pause_of(one.ticket.incident, timezone.now())
            Ticket.objects.filter(pk=one.ticket.pk).update(
                look_at=next_at
            )  # if it is this one after all, others go first
        else:
            _note(one)
    return len(seen)


def _waiting_at(destination: Destination) -> list[int]:
    due = Q(look_at=None) | Q(look_at__lte=timezone.now())
    return list(Ticket.objects.filter(may_look(), due, destination=destination).values_list("pk", flat=True))


def _put_off(destination: Destination, error: Again | Refused, tickets: list[int]) -> None:
    """The system cannot be asked: all that would be looked at now is unknown, and it is left alone for a while."""
    asked_s = error.retry_after_s if isinstance(error, Again) else None
    n = Destination.objects.get(pk=destination.pk).n_looks_failed + 1
    pause = timedelta(seconds=max(pause_s(n, asked_s), settings.TICKETS_LOOK_SECONDS))
    Destination.objects.filter(pk=destination.pk).update(n_looks_failed=n, looks_not_before=timezone.now() + pause)
    Ticket.objects.filter(pk__in=tickets).update(unread_why=plain(error, 300))


def _note(seen: Seen) -> None:
    """Write down what was seen; the incident is held first, as whoever sends does."""
    now = timezone.now()
    with transaction.atomic():
        incident = Incident.objects.select_for_update().get(pk=seen.ticket.incident_id)
        ticket = Ticket.objects.select_for_update(of=("self",)).select_related("destination").get(pk=seen.ticket.pk)
        ticket.look_at = now + pause_of(incident, now)
        wrote = Q(sending_at__isnull=False) | Q(done_at__gte=seen.began_at)
        if ticket.deliveries.filter(wrote).exists():
            ticket.look_at = now  # we wrote to it meanwhile: look again
        else:
            look = _gone(seen.result) if isinstance(seen.result, Refused) else seen.result
            _take(ticket, incident, look, now)
        ticket.save(update_fields=["look_at", *LOOKED])
    wait_s = seen.result.wait_s if isinstance(seen.result, Look) else 0.0
    rest = now + timedelta(seconds=min(wait_s, 3600.0)) if wait_s else None
    Destination.objects.filter(pk=ticket.destination_id).update(n_looks_failed=0, looks_not_before=rest)


LOOKED: Final = (
    "remote_state", "remote_word", "remote_assignee", "remote_at", "seen_at", "unread_why", "etag", "remarks_since",
    "external_id", "url",
)  # fmt: skip


def _gone(error: Refused) -> Look:
    return Look(state="gone", word=f"answered {error.status}")


def _take(ticket: Ticket, incident: Incident, look: Any, now: datetime) -> None:
    ticket.seen_at, ticket.unread_why = now, ""
    if look.is_same:
        return
    actor = Actor(ticket.destination.name, ActorKind.TICKET, ticket.destination_id)
    if look.state != ticket.remote_state:
        _tell_change(ticket, incident, look, actor)
    for one in look.remarks:
        if one.id not in ticket.own_remarks:
            _tell_remark(incident, one, actor)
    ticket.remote_state, ticket.remote_word, ticket.remote_assignee = look.state, look.word, look.assignee
    ticket.remote_at = parse_datetime(look.changed_at) if look.changed_at else ticket.remote_at
    ticket.etag = look.etag if len(look.etag) <= 200 else ""
    ticket.remarks_since = max([ticket.remarks_since, *(one.at for one in look.remarks)])
    if look.external_id and len(look.external_id) <= 200:
        ticket.external_id = look.external_id
    ticket.url = look.url or ticket.url
    if look.has_more:
        note = "There are more comments there than are noted here."
        remark(incident.pk, actor, "commented elsewhere", note, f"more:{ticket.remarks_since}")


def _tell_change(ticket: Ticket, incident: Incident, look: Look, actor: Actor) -> None:
    """A line in the timeline for what people did there: not for what follows from what was done here."""
    is_over, was = incident.state == State.RESOLVED, ticket.remote_state
    by = f"{look.by} closed it" if look.by else "It was closed"
    said = {
        "closed": None if is_over else ("closed elsewhere", f"{by} there ({look.word}). Nothing changes here."),
        "open": ("reopened elsewhere", f"It is open there again ({look.word}). Nothing changes here.")
        if is_over and was in CLOSED else None,
        "gone": ("gone elsewhere", "There is no such ticket any more, or the account may not see it."),
        "moved": ("moved elsewhere", "It was moved there. News of the incident does not follow it."),
    }[look.state]  # fmt: skip
    if said:
        verb, note = said
        remark(incident.pk, actor, verb, note)


def _tell_remark(incident: Incident, one: Remark, actor: Actor) -> None:
    text = f"{one.author or 'Somebody'}: {one.text}"
    remark(incident.pk, actor, "commented elsewhere", text, f"remark:{one.id}")
