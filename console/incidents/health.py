"""Ingest's health, told to every team's live stream."""

from __future__ import annotations

from console.dashboard.ingest_health import read_ingest_row
from console.incidents.publish import publish_ingest
from ingest.models import Team


def publish_health() -> None:
    for team in Team.objects.filter(jobs__isnull=False).distinct():
        publish_ingest(team.pk, read_ingest_row(team))
