"""The supervisor's loop: keep the children of a stack running until somebody asks us to stop.

A child that dies is started again at once; when it dies again within a minute, after a pause that doubles each time. A
quiet minute forgets. A child that somebody holds (a file of its name in the data folder's `held`) is ended and stays
down until that file goes. What happens is said, and when a part that was away answers again.
Stopping is asked for by SIGINT, SIGTERM or SIGHUP; a second one while we stop kills at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
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
ENDING_SECONDS_MAX: Final = 5.0  # somebody told it to stop when it likes: with our own sessions open that is never


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

    def expect(self, now: float) -> None:
        """It died because we asked it to: that counts for nothing."""
        self.restart_at = now

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
    restarts: dict[str, dict[str, float]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)  # started again, and not yet seen to answer
    ending_since: dict[str, float] = field(default_factory=dict)
    strange: set[str] = field(default_factory=set)  # files in `held` that name no part, as far as said

    def forever(self) -> NoReturn:
        self.stack.folder.note_restarts(self.restarts)
        while True:
            self.relay_demo()
            self.name_strange_holds()
            for child in list(self.stack.children):
                self.look(child, time.monotonic())
                if cap_log(child.log_path):
                    child.log_start = 0
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
        name = child.recipe.name
        if child.is_running():
            self.look_at_living(child, now)
            return
        self.ending_since.pop(name, None)
        if name in NOT_RESTARTED:
            self.relay_demo()  # its last words may have come since the last look
            self.stack.say(f"{_how_over(name, child.exit_code())}, the console goes on; `make run` again for a new "
                           f"one; see {child.log_path}")  # fmt: skip
            self.stack.children.remove(child)
            return
        deaths = self.deaths.setdefault(name, Deaths())
        if deaths.restart_at is None:
            self._say_death(child, deaths, now)
        if now >= (deaths.restart_at or now) and not self.stack.folder.is_held(name):
            self._start_again(child, deaths, now)

    def look_at_living(self, child: Child, now: float) -> None:
        """End a child that is held, or that will not end by itself; say when one that was away answers again."""
        name, recipe = child.recipe.name, child.recipe
        is_ending = bool(recipe.is_ending and recipe.is_ending())
        since = self.ending_since.setdefault(name, now) if child.is_asked or is_ending else now
        if child.is_asked:
            if now - since > recipe.stop_seconds:
                child.kill()
        elif name not in NOT_RESTARTED and self.stack.folder.is_held(name):
            self.stack.say(f"{name} is held by {self.stack.folder.hold_of(name)}: ending it")
            child.ask_to_stop()
        elif now - since > ENDING_SECONDS_MAX:
            self.stack.say(f"{name} was told to stop and waits for its sessions: ending them")
            child.ask_to_stop()
        elif name in self.away and recipe.answers and recipe.answers(child):
            self.away.discard(name)
            self.stack.say(f"{name} is back")

    def name_strange_holds(self) -> None:
        """A slip in a file's name must not look like a hold."""
        parts = sorted({child.recipe.name for child in self.stack.children} - NOT_RESTARTED)
        for name in self.stack.folder.holds() - set(parts) - self.strange:
            self.strange.add(name)
            self.stack.say(f"{self.stack.folder.hold_of(name)} holds nothing: the parts are {', '.join(parts)}")

    def _say_death(self, child: Child, deaths: Deaths, now: float) -> None:
        name, is_held = child.recipe.name, self.stack.folder.is_held(child.recipe.name)
        if child.is_asked:
            deaths.expect(now)
        else:
            deaths.note(now, now - child.started_at)
        pause = (deaths.restart_at or now) - now
        then = f"in {pause:.0f} s" if pause else "now"
        if is_held:
            then = f"when {self.stack.folder.hold_of(name)} is removed"
        how = "ended" if child.is_asked else "died"
        self.stack.say(f"{name} {how} (exit {child.exit_code()}); starting it again {then}; "
                       f"see {child.log_path}")  # fmt: skip

    def _start_again(self, dead: Child, deaths: Deaths, now: float) -> None:
        """A full disk or a full process table must not end us, and with us all that still runs."""
        try:
            self.stack.replace(dead)
            deaths.restart_at = None
            self.away.add(dead.recipe.name)
            count = self.restarts.get(dead.recipe.name, {"count": 0})["count"] + 1
            self.restarts[dead.recipe.name] = {"count": count, "last_at": time.time()}
            self.stack.folder.note_restarts(self.restarts)
        except OSError as error:
            pause = deaths.note(now, 0.0)
            self.stack.say(f"{dead.recipe.name} cannot be started: {error}; trying again in {pause:.0f} s")


def _how_over(name: str, code: int) -> str:
    """That it came to its end, or how it died: whoever killed it by mistake must not read that all is well."""
    if code < 0:
        return f"the {name} was killed (signal {-code})"
    return f"the {name} ended by itself (exit {code})" if code else f"the {name} is over"
