"""The supervisor's loop: keep the children of a stack running until somebody asks us to stop.

A child that dies is started again at once; when it dies again within a minute, after a pause that doubles each time. A
quiet minute forgets. A child that somebody holds (a file of its name in the data folder's `held`) stays down till then.
Stopping is asked for by SIGINT, SIGTERM or SIGHUP; a second one while we stop kills at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from types import FrameType
from typing import Final, NoReturn

from console.supervisor.children import PR_SET_PDEATHSIG, Child, cap_log
from console.supervisor.stack import Stack

LOOK_SECONDS: Final = 0.25
PAUSE_SECONDS_MAX: Final = 10.0  # whoever waits for a flapping part must have it back within half a minute
QUIET_SECONDS: Final = 60.0
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOT_RESTARTED: Final = {"demo"}


class Stopped(BaseException):
    """Somebody asked us to stop. Like KeyboardInterrupt no `except Exception` may swallow it."""


def stop_on_signals() -> None:
    """From now on a stop signal raises Stopped in the main thread."""

    def raise_stopped(signum: int, frame: FrameType | None) -> NoReturn:
        raise Stopped(signal.Signals(signum).name)

    for signum in STOP_SIGNALS:
        signal.signal(signum, raise_stopped)
    if os.environ.get("DIOGENES_DIE_WITH_PARENT"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))  # `make` may be killed without passing it on


def kill_on_signals(stack: Stack) -> None:
    """While stopping, a further stop signal means now."""

    def kill_all(signum: int, frame: FrameType | None) -> None:
        for child in stack.children:
            child.kill()

    for signum in STOP_SIGNALS:
        signal.signal(signum, kill_all)


@dataclass
class Deaths:
    """How often one child died lately, and when it may be started again."""

    count: int = 0
    restart_at: float | None = None

    def note(self, now: float, lived_seconds: float) -> float:
        """Count a death; returns the pause before the next start."""
        self.count = 1 if lived_seconds > QUIET_SECONDS else self.count + 1
        pause = min(2.0 ** (self.count - 2), PAUSE_SECONDS_MAX) if self.count > 1 else 0.0
        self.restart_at = now + pause
        return pause


@dataclass
class Watch:
    """Looks at every child a few times a second."""

    stack: Stack
    deaths: dict[str, Deaths] = field(default_factory=dict)
    relayed: int = 0  # lines of the demo
    restarts: Counter[str] = field(default_factory=Counter)

    def forever(self) -> NoReturn:
        self.stack.folder.note_restarts(self.restarts)
        while True:
            self.relay_demo()
            for child in list(self.stack.children):
                self.look(child, time.monotonic())
                cap_log(child.log_path)
            time.sleep(LOOK_SECONDS)

    def relay_demo(self) -> None:
        """Say what the demo says: it is the one child with a story for the person who watches."""
        demo = next((child for child in self.stack.children if child.recipe.name == "demo"), None)
        if demo:
            lines = [line for line in demo.log_text().splitlines() if line.startswith("demo: ")]
            for line in lines[self.relayed :]:
                self.stack.say(line)
            self.relayed = len(lines)

    def look(self, child: Child, now: float) -> None:
        """Say that a child died, once, and start it again when its pause is over."""
        if child.is_running():
            return
        name = child.recipe.name
        if name in NOT_RESTARTED:
            self.relay_demo()  # its last words may have come since the last look
            self.stack.say(f"the {name} is over, the console goes on; `make run` again for a new one; "
                           f"see {child.log_path}")  # fmt: skip
            self.stack.children.remove(child)
            return
        deaths = self.deaths.setdefault(name, Deaths())
        if deaths.restart_at is None:
            pause = deaths.note(now, now - child.started_at)
            then = f"in {pause:.0f} s" if pause else "now"
            if self.stack.folder.is_held(name):
                then = f"when {self.stack.folder.path / 'held' / name} is removed"
            self.stack.say(f"{name} died (exit {child.process.returncode}); starting it again {then}; "
                           f"see {child.log_path}")  # fmt: skip
        if now >= (deaths.restart_at or now) and not self.stack.folder.is_held(name):
            self._start_again(child, deaths, now)

    def _start_again(self, dead: Child, deaths: Deaths, now: float) -> None:
        """A full disk or a full process table must not end us, and with us all that still runs."""
        try:
            self.stack.replace(dead)
            deaths.restart_at = None
            self.restarts[dead.recipe.name] += 1
            self.stack.folder.note_restarts(self.restarts)
        except OSError as error:
            pause = deaths.note(now, 0.0)
            self.stack.say(f"{dead.recipe.name} cannot be started: {error}; trying again in {pause:.0f} s")
