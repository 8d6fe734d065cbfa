"""`manage.py up`: the whole of Diogenes in one command, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, NoReturn

from django.core.management.base import BaseCommand

from console.supervisor.folder import DataFolder, FolderInUse, claim
from console.supervisor.preflight import run_problems
from console.supervisor.servers import ServerFailed
from console.supervisor.stack import Stack
from console.supervisor.watch import Stopped, Watch, kill_on_signals, stop_on_signals


class Command(BaseCommand):
    help = "Start the database, Valkey, web, ingest, worker and beat, and the demo job; stop them all on Ctrl-C."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="of the pages; ingest listens on the one above it")
        parser.add_argument("--data", type=Path, default=Path("var"), help="folder for everything that is kept")
        parser.add_argument("--demo", type=int, choices=(0, 1), default=1, help="0 starts without the demo job")

    def handle(self, *args: Any, port: int, data: Path, demo: int, **options: Any) -> None:
        stop_on_signals()
        try:
            folder = self._claim(data.absolute(), port)
        except Stopped:
            return
        stack = Stack(folder, port, Progress().say)
        try:
            link = stack.start(with_demo=bool(demo))
            stack.say(f"Diogenes is running at {stack.base_url} - sign in once with {link} (Ctrl-C stops everything)")
            Watch(stack).forever()
        except ServerFailed as failure:
            self._fail(str(failure))
        except Stopped as stopped:
            stack.say(f"{stopped}: stopping everything")
        finally:
            kill_on_signals(stack)
            stack.stop()
            folder.release()

    def _claim(self, data: Path, port: int) -> DataFolder:
        problems = run_problems(data, [port, port + 1])
        if problems:
            self._fail("\n".join(problems))
        try:
            return claim(data)
        except FolderInUse as reason:
            self._fail(str(reason))

    def _fail(self, reason: str) -> NoReturn:
        self.stderr.write(reason)
        sys.exit(1)


class Progress:
    """Lines for the person who waits, with the seconds since the start."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started_at:5.1f} s] {text}", flush=True)
