"""Telling browsers: the one door through which rows reach the live streams, always after the commit.

An act writes an outbox row in its own transaction; the row is relayed right after the commit and, when the live stream
was away, by a task later. Relays of one incident wait for each other and always send the newest row, so the last
message of a stream never shows an older state than the database. The channel layer only rings the doorbell.
"""

from __future__ import annotations

import dataclasses
import logging
from functools import partial
from typing import Final

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import connection, transaction
from django.utils import timezone

from console.incidents.live import DumpsRow, IngestRow, JobRow, MessageType, Row
from console.incidents.models import Incident, OutboxRow
from console.incidents.rows import incident_row, iso, timeline_row
from console.incidents.streams import UNREACHABLE, append, incident_stream, team_stream
from console.operations.metrics import PUBLISHED, UNPUBLISHED

log = logging.getLogger(__name__)
RELAY_LOCK: Final = 0x44474F42  # first key of the advisory locks that relays take; the second is the incident


def relay_on_commit(row: OutboxRow) -> None:
    """Relay once the surrounding transaction is committed; a failure leaves the row for `relay_waiting`."""
    transaction.on_commit(partial(_relay_safely, row.incident_id), robust=True)


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


def group_of(stream: str) -> str:
    """The channel layer's group that is rung when the stream grew."""
    return "stream." + stream.replace(":", ".")


def _relay_safely(number: int) -> bool:
    try:
        streams = _relay(number)
    except UNREACHABLE as error:
        UNPUBLISHED.inc()
        log.warning("live stream away, announced later: %s", error, extra={"incident": number})
        return False
    for stream in streams:
        ring(stream)
    return True


def _relay(number: int) -> list[str]:
    """Append this incident's waiting messages to its streams; returns the streams that grew."""
    grown: dict[str, None] = {}
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [RELAY_LOCK, number])
        waiting = list(
            OutboxRow.objects.filter(incident=number, relayed_at=None).select_related("entry").order_by("id")
        )
        incident = Incident.objects.select_related("job", "attempt").get(pk=number)
        for row in waiting:
            for stream, kind, what in _messages(row, incident):
                append(stream, kind, iso(timezone.now()) or "", dataclasses.asdict(what))
                PUBLISHED.labels(kind).inc()
                grown[stream] = None
        OutboxRow.objects.filter(pk__in=[row.pk for row in waiting]).update(relayed_at=timezone.now())
    return list(grown)


def _messages(row: OutboxRow, incident: Incident) -> list[tuple[str, MessageType, Row]]:
    messages: list[tuple[str, MessageType, Row]] = []
    if row.entry is not None:
        messages.append((incident_stream(incident.pk), "timeline.appended", timeline_row(row.entry)))
    if row.type != "timeline.appended":
        kind: MessageType = "incident.opened" if row.type == "incident.opened" else "incident.changed"
        messages.append((incident_stream(incident.pk), "incident.changed", incident_row(incident)))
        messages.append((team_stream(incident.team_id), kind, incident_row(incident)))
    return messages


def _publish_hint(stream: str, kind: MessageType, row: Row) -> None:
    try:
        append(stream, kind, iso(timezone.now()) or "", dataclasses.asdict(row))
    except UNREACHABLE:
        UNPUBLISHED.inc()
        return
    PUBLISHED.labels(kind).inc()
    ring(stream)


def ring(stream: str) -> None:
    """Wake the sockets that follow this stream. Those that miss it read the stream within a second anyway."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(layer.group_send)(group_of(stream), {"type": "stream.rang", "stream": stream})
    except UNREACHABLE as error:
        log.info("doorbell of %s failed: %s", stream, error)
