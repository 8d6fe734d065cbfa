"""`manage.py keep_house`: one pass of retention now, for instance to make room on a full disk; says what it did."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ingest.traces.retention import keep_house


class Command(BaseCommand):
    help = "Drop what is older than it is kept, as is done every hour."

    def handle(self, *args: Any, **options: Any) -> None:
        kept = asdict(keep_house())
        failed = kept.pop("failed")
        self.stdout.write(", ".join(f"{name.replace('_', ' ')}: {n}" for name, n in kept.items()))
        if failed:
            raise CommandError("not all could be done: " + "; ".join(failed))
