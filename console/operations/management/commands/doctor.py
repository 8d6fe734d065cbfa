"""`manage.py doctor`: looks at everything and says, line by line, what is wrong and what to do.

Beside a running stack it needs no arguments. It exits with 1 when something is wrong, with 0 when at most something is
doubtful; `--json` is for scripts.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import BaseCommand

from console.accounts.management.commands.signin_link import noted_url
from console.operations.doctor import Finding, Places, examine

SIGNS: Final = {"ok": "✓", "warning": "!", "bad": "✗"}
NAME_WIDTH: Final = 16


class Command(BaseCommand):
    help = "Look at everything, say what is wrong and what to do."
    requires_system_checks: Any = []  # they are part of what it says

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--web", default=noted_url(), help="where the pages are reached")
        parser.add_argument("--ingest", default="", help="where agents send; by default the port above the pages'")
        parser.add_argument("--token-file", type=Path, default=settings.DATA_FOLDER / "agent_token")
        parser.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, web: str, ingest: str, token_file: Path, as_json: bool, **options: Any) -> None:
        found = []
        for finding in examine(Places(web.rstrip("/"), ingest.rstrip("/") or _above(web), _token(token_file))):
            found.append(finding)
            if not as_json:
                self.stdout.write(_line(finding))
        n_bad, n_doubtful = (sum(one.mark == mark for one in found) for mark in ("bad", "warning"))
        if as_json:
            rows = [dataclasses.asdict(one) for one in found]
            self.stdout.write(json.dumps({"ok": n_bad == 0, "findings": rows}, indent=2))
        else:
            self.stdout.write(f"\n{len(found)} looked at: {n_bad} wrong, {n_doubtful} doubtful.")
        if n_bad:
            sys.exit(1)


def _line(finding: Finding) -> str:
    advice = f"\n{'':{NAME_WIDTH + 3}}→ {finding.advice}" if finding.advice else ""
    return f"{SIGNS[finding.mark]} {finding.name:<{NAME_WIDTH}} {finding.found}{advice}"


def _above(web: str) -> str:
    parts = urlsplit(web)
    return f"{parts.scheme}://{parts.hostname}:{parts.port + 1}" if parts.port else web.rstrip("/")


def _token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
