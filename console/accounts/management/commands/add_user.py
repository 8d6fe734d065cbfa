"""`manage.py add_user`: gives a person a role in a team. New people get no password: they come in by a link."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from console.accounts.audit import note_command
from console.accounts.models import Membership, Role
from console.accounts.teams import no_such_team
from ingest.models import Team


class Command(BaseCommand):
    help = "Give a person a role in a team; makes the person when there is none of that name."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--role", choices=Role.values, default=Role.VIEWER.value)
        parser.add_argument("--team", default="default")

    @transaction.atomic
    def handle(self, *args: Any, name: str, role: str, team: str, **options: Any) -> None:
        owner = Team.objects.filter(name=team).first()
        if owner is None:
            raise CommandError(no_such_team(team))
        person, is_new = User.objects.get_or_create(username=name)
        if is_new:
            person.set_unusable_password()
            person.save()
        Membership.objects.update_or_create(user=person, team=owner, defaults={"role": role})
        note_command("gave a role", f"{name}: {role} of {team}", [owner.pk])
        self.stdout.write(f"{name} is {role} of {team}. Let them in with: manage.py signin_link --user {name}")
