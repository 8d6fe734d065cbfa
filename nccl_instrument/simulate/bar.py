"""A progress bar in plain text: how far, how fast, how long still. On a terminal one line that changes, else a line now
and then; nothing when told to be quiet."""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

WIDTH: Final = 30
TERMINAL_PERIOD_S: Final = 0.2
LOG_PERIOD_S: Final = 10.0


class Bar:
    """Tell it how much of `total` is done; it writes when something is worth saying."""

    def __init__(self, total: float, unit: str, out: TextIO | None = None, is_quiet: bool = False) -> None:
        self.total, self.unit, self.out, self.is_quiet = total, unit, out or sys.stderr, is_quiet
        self._is_terminal = self.out.isatty()
        self._began_s = self._told_s = time.monotonic()

    def tell(self, done: float, more: str = "") -> None:
        """`done` of the total, and what else is worth knowing."""
        now_s = time.monotonic()
        period_s = TERMINAL_PERIOD_S if self._is_terminal else LOG_PERIOD_S
        if not self.is_quiet and now_s - self._told_s >= period_s:
            self._told_s = now_s
            self._write(
                line(done, self.total, self.unit, now_s - self._began_s, more), "\r" if self._is_terminal else "\n"
            )

    def end(self, more: str = "") -> None:
        """Everything is done."""
        if not self.is_quiet:
            self._write(line(self.total, self.total, self.unit, time.monotonic() - self._began_s, more), "\n")

    def _write(self, text: str, ending: str) -> None:
        self.out.write(text.ljust(100 if self._is_terminal else 0) + ending)
        self.out.flush()


def line(done: float, total: float, unit: str, took_s: float, more: str = "") -> str:
    """One line; the time left is what the rate so far says."""
    share = min(done / total, 1.0) if total > 0 else 1.0
    filled = int(share * WIDTH)
    left = (
        "" if share >= 1 else f", {_duration(took_s * (1 - share) / share)} left" if share > 0 else ", no estimate yet"
    )
    tail = f" {more}" if more else ""
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done:.1f} of {total:g} {unit} in {_duration(took_s)}{left}{tail}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
