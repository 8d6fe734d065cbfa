"""`manage.py add_team`: makes a team. Running it again changes nothing."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.accounts.audit import note_command
from ingest.models import Team

NAME_CHARS_MAX = 128


class Command(BaseCommand):
    help = "Make a team, which owns jobs and their incidents."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        name = name.strip()
        if not 0 < len(name) <= NAME_CHARS_MAX:
            raise CommandError(f"A team's name has 1 to {NAME_CHARS_MAX} characters.")
        team, is_new = Team.objects.get_or_create(name=name)
        if is_new:
            note_command("made the team", name, [team.pk])
        said = "is a team now" if is_new else "is a team already"
        self.stdout.write(f"{name} {said}. Let people in with: manage.py add_user WHO --team {name}")
