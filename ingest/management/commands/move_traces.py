"""`manage.py move_traces`: moves traces and roll-ups into TimescaleDB's hypertables, or back, while everything runs.

For an installation that gained the extension after it began to store, or is about to lose it. Interrupted, it goes on
when called again.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from ingest.traces.database import connect
from ingest.traces.hypertables import why_not
from ingest.traces.moving import MoveFailed, Progress, move, needed
from ingest.traces.stores import HYPERTABLES, NATIVE

LINE_SECONDS: Final = 5.0
TTY_SECONDS: Final = 0.5
BAR_CELLS: Final = 24


class Command(BaseCommand):
    help = "Move traces and roll-ups into TimescaleDB's hypertables, or back, while everything runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        to = "where to move: hypertables (the default) or native partitions"
        parser.add_argument("--to", choices=("hypertables", "native"), default="hypertables", help=to)

    def handle(self, *args: Any, **options: Any) -> None:
        store = HYPERTABLES if options["to"] == "hypertables" else NATIVE
        if store is HYPERTABLES and (reason := why_not()):
            raise CommandError(f"TimescaleDB cannot be used here: {reason}")
        bar = ProgressBar(self.stdout)
        with connect() as connection:
            if not needed(connection, store):
                self.stdout.write(f"Everything is in {store.name} already.")
                return
            try:
                moved = move(connection, store, bar.show)
            except MoveFailed as error:
                raise CommandError(f"{error}. Nothing is lost: call move_traces again.") from error
        for one in moved:
            waited = f"writers and readers waited {one.locked_seconds:.2f} s for it"
            self.stdout.write(f"{one.table}: {one.rows:,} rows are in {store.name} and were found again; {waited}")


class ProgressBar:
    """One line that is rewritten on a terminal; elsewhere a line every few seconds, and the last of each step."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._is_tty = bool(out.isatty())
        self._step = ("", "")
        self._began = self._shown = 0.0

    def show(self, progress: Progress) -> None:
        now, step = time.monotonic(), (progress.table, progress.step)
        if step != self._step:
            self._step, self._began, self._shown = step, now, 0.0
        is_last = progress.rows >= progress.rows_total
        if not is_last and now - self._shown < (TTY_SECONDS if self._is_tty else LINE_SECONDS):
            return
        self._shown = now
        end = "" if self._is_tty and not is_last else "\n"
        start = "\r" if self._is_tty else ""
        self._out.write(start + line_of(progress, now - self._began), ending=end)
        self._out.flush()


def line_of(progress: Progress, seconds: float) -> str:
    """What, how much of it, how fast, how long still. seconds: since this step began."""
    share = progress.rows / progress.rows_total if progress.rows_total else 1.0
    filled = round(share * BAR_CELLS)
    bar = "█" * filled + "░" * (BAR_CELLS - filled)
    speed = progress.rows * progress.row_bytes / max(seconds, 1e-3) / 1e6
    left = f"{_clock(seconds * (1 - share) / share)} left" if share else ""
    rows = f"{progress.rows:,} of {progress.rows_total:,} rows"
    what = f"{progress.table} {progress.step}"
    return f"{what:<28} {bar} {share:6.1%}  {rows}  {speed:,.1f} MB/s  {left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
