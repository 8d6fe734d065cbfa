"""`manage.py bootstrap`: a first team, its administrator and an agent's token. Running it again changes nothing.

The administrator gets no password: they come in by a sign-in link (`manage.py signin_link`) and may set one later.
Prints one JSON object as its last line.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction

from console.accounts.audit import note_command
from console.accounts.models import Membership, Role
from ingest.door.tokens import hash_token, make_agent_token
from ingest.models import AgentToken, Team

TEAM, USER, LABEL = "default", "admin", "bootstrap"


class Command(BaseCommand):
    help = "Make sure that a team, an administrator and an agent's token exist."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agent-token-file", type=Path, help="keep the agent's token here, readable by us alone")

    def handle(self, *args: Any, agent_token_file: Path | None = None, **options: Any) -> None:
        with transaction.atomic():
            team, _ = Team.objects.get_or_create(name=TEAM)
            user, is_new = User.objects.get_or_create(username=USER)
            if is_new:
                user.set_unusable_password()
                user.save()
            Membership.objects.get_or_create(user=user, team=team, defaults={"role": Role.ADMIN})
            made = {"team": team.name, "team_id": team.pk, "user": user.get_username()}
            made |= _keep_token(team, agent_token_file) if agent_token_file else _first_token(team)
        note_command("made sure of a team, an administrator and a token", team.name, [team.pk])
        self.stdout.write(json.dumps(made))


def _first_token(team: Team) -> dict[str, str]:
    """A token, shown this once, unless the team has one already."""
    if AgentToken.objects.filter(team=team, revoked_at=None).exists():
        return {}
    return {"agent_token": make_agent_token(team, LABEL)}


def _keep_token(team: Team, file: Path) -> dict[str, str]:
    """The token in `file`, made anew when the file is missing or what it holds is no longer good."""
    if not (file.exists() and _is_alive(team, file.read_text().strip())):
        AgentToken.objects.filter(team=team, label=LABEL).delete()
        _write_secret(file, make_agent_token(team, LABEL))
    return {"agent_token_file": str(file)}


def _is_alive(team: Team, secret: str) -> bool:
    return AgentToken.objects.filter(team=team, token_sha256=hash_token(secret), revoked_at=None).exists()


def _write_secret(file: Path, secret: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(file.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as out:
        out.write(secret + "\n")
    new.replace(file)
