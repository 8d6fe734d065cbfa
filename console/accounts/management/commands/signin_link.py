"""`manage.py signin_link`: prints a link that signs a user in once, within the next quarter of an hour.

Beside a running stack it needs no arguments: `up` notes in the data folder where its pages are reached.
"""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError
from django.urls import reverse

from console.accounts.audit import note_command
from console.accounts.models import Membership
from console.accounts.secrets import make_signin_link

STANDARD_URL: Final = "http://127.0.0.1:8000"


class Command(BaseCommand):
    help = "Print a one-time sign-in link."
    requires_system_checks: Any = []  # they load every page and rule, which takes longer than all the rest

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--base-url", default=noted_url(), help="where the console is reached")
        parser.add_argument("--user", default="admin")

    def handle(self, *args: Any, base_url: str, user: str, **options: Any) -> None:
        try:
            person = User.objects.filter(username=user, is_active=True).first()
        except OperationalError as error:
            reason = str(error).strip().splitlines()[0]
            raise CommandError(f"The database does not answer; is Diogenes running? ({reason})") from None
        if person is None:
            is_first = not User.objects.exists()
            hint = "Run `manage.py bootstrap` first." if is_first else f"Make one with `manage.py add_user {user}`."
            raise CommandError(f"There is no active user named {user}. {hint}")
        secret = make_signin_link(person, timedelta(seconds=settings.SIGNIN_LINK_SECONDS))
        note_command(
            "made a sign-in link", user, Membership.objects.filter(user=person).values_list("team_id", flat=True)
        )
        self.stdout.write(base_url.rstrip("/") + reverse("signin-link", args=[secret]))


def noted_url() -> str:
    """The address the running stack noted in its data folder."""
    try:
        return (settings.DATA_FOLDER / "base_url").read_text().strip() or STANDARD_URL
    except OSError:
        return STANDARD_URL
