"""`manage.py reseal_secrets`: seals the secrets of all destinations with the newest key, so that older ones can go."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.accounts.audit import note_command
from console.tickets.acts import reseal_all


class Command(BaseCommand):
    help = "Seal the secrets of destinations with the newest key; then older keys can be taken away."

    def handle(self, *args: Any, **options: Any) -> None:
        n_sealed, n_newest, unreadable = reseal_all()
        if n_sealed:
            note_command("sealed the secrets of destinations anew", f"{n_sealed} destinations")
        self.stdout.write(
            f"{n_sealed} sealed anew, {n_newest} were by the newest key, {len(unreadable)} cannot be read"
        )
        if unreadable:
            raise CommandError(f"No key opens the secrets of {', '.join(unreadable)}: name it in "
                               "DIOGENES_TICKETS_KEYS_OLD, or enter them again.")  # fmt: skip
