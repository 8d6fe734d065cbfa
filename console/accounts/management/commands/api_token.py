"""`manage.py api_token`: prints a new token for scripts that use the REST API. Only its hash is kept."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.accounts.audit import note_command
from console.accounts.models import Role
from console.accounts.secrets import make_api_token
from console.accounts.teams import no_such_team
from ingest.models import Team


class Command(BaseCommand):
    help = "Print a new API token."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--label", required=True, help="what it is for; shown in timelines as the actor")
        parser.add_argument("--role", choices=Role.values, default=Role.VIEWER.value)
        parser.add_argument("--team", default="default")
        parser.add_argument("--days", type=int, default=90, help="0: never expires")

    def handle(self, *args: Any, label: str, role: str, team: str, days: int, **options: Any) -> None:
        owner = Team.objects.filter(name=team).first()
        if owner is None:
            raise CommandError(no_such_team(team))
        lifetime = timedelta(days=days) if days else None
        _, secret = make_api_token(owner, label, Role(role), lifetime)
        note_command("made an API token", f"{label}: {role} of {team}, {days} days", [owner.pk])
        self.stdout.write(secret)
