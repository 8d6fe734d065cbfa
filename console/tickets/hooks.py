"""PagerDuty's webhook back (version 3): what people do there, as far as it may act here.

An acknowledgement there acknowledges here. A resolution there is noted and never resolves anything: the detector and the
people here know whether the job runs. A call must be signed by the destination's secret, be at most an hour old and not
have been taken before. Calls come late and in any order: one that is older than what the ticket or the incident became
since is out of date. What is refused changes nothing and is counted by its reason.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.incidents.lifecycle import MOVES as STATE_MOVES
from console.incidents.lifecycle import PAST, Actor, IllegalMove, move, remark
from console.incidents.models import ActorKind, Incident
from console.operations.metrics import HOOKS_REFUSED
from console.tickets.looks.look import names
from console.tickets.models import Destination, HookSeen, Ticket
from console.tickets.sealing import Unreadable, unseal

BODY_BYTES_MAX: Final = 64 * 1024
AGE_MAX, AHEAD_MAX = timedelta(hours=1), timedelta(minutes=5)
MOVES: Final = {"incident.acknowledged": "acknowledge", "incident.unacknowledged": "unacknowledge"}
ENDS: Final = {"incident.resolved": "resolved", "incident.reopened": "reopened"}
STATE_VERBS: Final = ("opened", *(PAST[verb] for verb in STATE_MOVES))
OUT_OF_DATE: Final = "out of date"


class BadCall(Exception):
    """The call changes nothing. reason: a word that is counted."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """What a webhook says: `kind` happened to `dedup_key`, done by `person` (empty: by a machine, such as we).

    assignee: whose it is there; None when the call does not say.
    """

    id: str
    kind: str
    at: datetime
    dedup_key: str
    person: str
    assignee: str | None = None


def take(destination: Destination, body: bytes, headers: Mapping[str, str]) -> str:
    """Do what the call says; returns what was done, in words. Raises BadCall, which is counted."""
    try:
        call = _checked(destination, body, headers.get("X-PagerDuty-Signature", ""), timezone.now())
    except BadCall as error:
        _count(destination, error.reason)
        raise
    with transaction.atomic():
        _, is_new = HookSeen.objects.get_or_create(
            destination=destination, call=call.id, defaults={"at": timezone.now()}
        )
        if is_new:
            done = _act(destination, call)
            Destination.objects.filter(pk=destination.pk).update(n_hooks=F("n_hooks") + 1)
    if not is_new:
        _count(destination, "repeated")
        return "taken before"
    if done == OUT_OF_DATE:
        _count(destination, OUT_OF_DATE)
    return done


def is_signed(body: bytes, signatures: str, secret: str) -> bool:
    """Whether one of the `v1=<hex>` in the header is ours."""
    ours = "v1=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    found = [hmac.compare_digest(ours.encode(), one.strip().encode()) for one in signatures.split(",")[:10]]
    return any(found)


def _checked(destination: Destination, body: bytes, signatures: str, now: datetime) -> Call:
    try:
        secret = unseal(destination.sealed, str(destination.key)).get("hook_secret", "")
    except Unreadable as error:
        raise BadCall("no secret", 401) from error
    if not secret:
        raise BadCall("no secret", 401)
    if not signatures:
        raise BadCall("not signed", 401)
    if not is_signed(body, signatures, secret):
        raise BadCall("wrong signature", 401)
    call = _call_of(body)
    if not now - AGE_MAX <= call.at <= now + AHEAD_MAX:
        raise BadCall("too old", 400)
    return call


def _call_of(body: bytes) -> Call:
    try:
        told = json.loads(body)["event"]
        at = parse_datetime(told["occurred_at"])
        agent = told.get("agent") or {}
        person = str(agent.get("summary") or "somebody") if agent.get("type") == "user_reference" else ""
        about = told.get("data") or {}
        key = str(about.get("incident_key") or "")
        assignee = names(one.get("summary") for one in about["assignees"]) if "assignees" in about else None
        if at is None or at.tzinfo is None:
            raise ValueError("no time")
        call = Call(str(told["id"])[:100], str(told["event_type"])[:100], at, key[:1000], person[:100], assignee)
        if "\0" in "".join((call.id, call.kind, call.dedup_key, call.person)).encode().decode():
            raise ValueError("text that cannot be stored")  # encode() refuses halves of surrogate pairs
        return call
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadCall("not understood", 400) from error


def _act(destination: Destination, call: Call) -> str:
    ticket = _ticket_of(destination, call.dedup_key)
    if ticket is None:
        return "no incident of ours"
    Incident.objects.select_for_update().get(pk=ticket.incident_id)  # nothing happens to it between look and act
    _heard(ticket, call)
    if call.kind in (*MOVES, *ENDS) and not _is_news(ticket, call):
        return OUT_OF_DATE
    if not call.person:
        return "our own news"  # what we told it comes back without a person
    actor = Actor(destination.name, ActorKind.TICKET, destination.pk)
    if verb := MOVES.get(call.kind):
        changes = ticket.incident.timeline.filter(verb__in=STATE_VERBS, at__gt=call.at)
        return OUT_OF_DATE if changes.exists() else _move(ticket, verb, actor, call)
    if end := ENDS.get(call.kind):
        note = f"{call.person} {end} it there. Nothing changes here."
        remark(ticket.incident_id, actor, f"{end} elsewhere", note, call.id)
        return "noted"
    return "nothing to do"


def _heard(ticket: Ticket, call: Call) -> None:
    """That something was heard of it, and whose it is, unless something newer is known."""
    Ticket.objects.filter(pk=ticket.pk).update(seen_at=timezone.now(), unread_why="")
    if call.assignee is not None:
        older = Ticket.objects.filter(Q(remote_at=None) | Q(remote_at__lte=call.at), pk=ticket.pk)
        older.update(remote_assignee=call.assignee)


def _is_news(ticket: Ticket, call: Call) -> bool:
    """Note what it became there, unless something newer is known."""
    older = Ticket.objects.filter(Q(remote_at=None) | Q(remote_at__lte=call.at), pk=ticket.pk)
    return bool(older.update(remote_state=call.kind.removeprefix("incident."), remote_at=call.at))


def _move(ticket: Ticket, verb: str, actor: Actor, call: Call) -> str:
    try:
        with transaction.atomic():
            move(ticket.incident_id, verb, actor, note=f"By {call.person}.", request_key=call.id)
    except IllegalMove:
        return "it is so already"
    return verb


def _ticket_of(destination: Destination, dedup_key: str) -> Ticket | None:
    """By the ticket's own key at the end of the deduplication key."""
    key = dedup_key.rpartition(":")[2]
    if len(key) != 32 or any(letter not in "0123456789abcdef" for letter in key):
        return None
    found: Ticket | None = Ticket.objects.filter(destination=destination, key=key).first()
    return found


def _count(destination: Destination, reason: str) -> None:
    HOOKS_REFUSED.labels(reason).inc()
    with transaction.atomic():
        row: Any = Destination.objects.select_for_update().get(pk=destination.pk)
        row.hooks_refused[reason] = row.hooks_refused.get(reason, 0) + 1
        row.save(update_fields=["hooks_refused"])
