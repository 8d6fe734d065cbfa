"""Telling browsers: the one door through which rows reach the live streams, always after the commit.

An act writes an outbox row in its own transaction; the row is relayed right after the commit and, when the live stream
was away, by a task later. Relays of one incident wait for each other and always send the newest row, so the last
message of a stream never shows an older state than the database. In the web process a thread relays, so that nobody who
acts waits until everybody has been told.
"""

from __future__ import annotations

import dataclasses
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from console.incidents.live import DumpsRow, IngestRow, JobRow, MessageType, Row
from console.incidents.models import Incident, OutboxRow
from console.incidents.rows import incident_row, iso, timeline_row
from console.incidents.streams import UNREACHABLE, Message, append, incident_stream, team_stream
from console.operations.metrics import PUBLISHED, UNPUBLISHED
from ingest.process import NAME

log = logging.getLogger(__name__)
RELAY_LOCK: Final = 0x44474F42  # first key of the advisory locks that relays take; the second is the incident
_APART: Final = ThreadPoolExecutor(1, "relay") if NAME == "web" else None
"""Where relays run; None: where the act was committed, as in workers, which nobody waits for."""


def relay_on_commit(row: OutboxRow) -> None:
    """Relay once the surrounding transaction is committed; a failure leaves the row for `relay_waiting`."""
    relay = partial(_relay_safely, row.incident_id) if _APART is None else partial(_relay_apart, row.incident_id)
    transaction.on_commit(relay, robust=True)


def relay_waiting(rows_max: int = 1000) -> int:
    """Relay what could not be relayed when it happened; returns for how many incidents."""
    waiting = OutboxRow.objects.filter(relayed_at=None).order_by("id")[:rows_max]
    numbers = dict.fromkeys(waiting.values_list("incident_id", flat=True))
    return sum(_relay_safely(number) for number in numbers)


def publish_job(team_id: int, row: JobRow) -> None:
    """Tell the team's stream what a job looks like now. Lost when nobody can hear: the next look says it again."""
    _publish_hint(team_stream(team_id), "job.changed", row)


def publish_ingest(team_id: int, row: IngestRow) -> None:
    _publish_hint(team_stream(team_id), "ingest.changed", row)


def publish_dumps(row: DumpsRow) -> None:
    """Tell the incident's stream that dumps have come; pages then read them."""
    _publish_hint(incident_stream(row.incident), "dumps", row)


def _relay_apart(number: int) -> None:
    assert _APART is not None
    _APART.submit(_relay_and_let_go, number)


def _relay_and_let_go(number: int) -> None:
    """Relay, and keep no connection: nobody ends this thread's requests."""
    try:
        _relay_safely(number)
    except DatabaseError as error:
        UNPUBLISHED.inc()
        log.warning("not announced now, but later: %s", error, extra={"incident": number})
    except Exception:
        UNPUBLISHED.inc()
        log.exception("could not be announced", extra={"incident": number})
    finally:
        connection.close()


def _relay_safely(number: int) -> bool:
    try:
        _relay(number)
    except UNREACHABLE as error:
        UNPUBLISHED.inc()
        log.warning("live stream away, announced later: %s", error, extra={"incident": number})
        return False
    return True


def _relay(number: int) -> None:
    """Append this incident's waiting messages to its streams."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [RELAY_LOCK, number])
        waiting = list(
            OutboxRow.objects.filter(incident=number, relayed_at=None).select_related("entry").order_by("id")
        )
        if not waiting:
            return
        incident = Incident.objects.select_related("job", "attempt").get(pk=number)
        messages = [message for row in waiting for message in _messages(row, incident)]
        append(*messages)
        for message in messages:
            PUBLISHED.labels(message.kind).inc()
        OutboxRow.objects.filter(pk__in=[row.pk for row in waiting]).update(relayed_at=timezone.now())


def _messages(row: OutboxRow, incident: Incident) -> list[Message]:
    messages: list[Message] = []
    if row.entry is not None:
        messages.append(_message(incident_stream(incident.pk), "timeline.appended", timeline_row(row.entry)))
    if row.type != "timeline.appended":
        kind: MessageType = "incident.opened" if row.type == "incident.opened" else "incident.changed"
        said = incident_row(incident)
        messages.append(_message(incident_stream(incident.pk), "incident.changed", said))
        messages.append(_message(team_stream(incident.team_id), kind, said))
    return messages


def _message(stream: str, kind: MessageType, row: Row) -> Message:
    return Message(stream, kind, iso(timezone.now()) or "", dataclasses.asdict(row))


def _publish_hint(stream: str, kind: MessageType, row: Row) -> None:
    try:
        append(_message(stream, kind, row))
    except UNREACHABLE:
        UNPUBLISHED.inc()
        return
    PUBLISHED.labels(kind).inc()
