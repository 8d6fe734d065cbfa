"""Child processes that cannot outlive the supervisor.

Every child asks the kernel for a signal when its parent dies, so a SIGKILLed supervisor leaves nothing running. The
kernel sends it when the *thread* that forked ends: start children from the main thread only. Each child leads its own
session, so Ctrl-C reaches the supervisor alone and it can stop the others in order.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

PR_SET_PDEATHSIG: Final = 1
LOG_BYTES_MAX: Final = 20 * 1024 * 1024
STOP_SECONDS: Final = 10.0

_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be imported between fork and exec


def die_with_parent(signum: signal.Signals) -> Callable[[], None]:
    """A function to run in a new child: it gets `signum` when we die, however we die."""
    parent = os.getpid()

    def in_child() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, int(signum))
        if os.getppid() != parent:  # we died before the request was in place
            os._exit(1)

    return in_child


@dataclass(frozen=True)
class Recipe:
    """How to run one child. `run_as` is a uid and gid to change to; None keeps ours.

    `answers`: whether it does its work, asked without waiting long. `is_ending`: whether it is on its way out though it
    still runs. None where nobody can tell.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    stop_seconds: float = STOP_SECONDS
    run_as: tuple[int, int] | None = None
    answers: Callable[[Child], bool] | None = None
    is_ending: Callable[[], bool] | None = None


@dataclass
class Child:
    """One running child."""

    recipe: Recipe
    process: subprocess.Popen[bytes]
    log_path: Path
    log_start: int
    started_at: float
    is_asked: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        """Asked of the kernel, not by Popen.poll(): a stop signal that raises inside poll() leaves Popen's lock taken, and
        whoever then waits for this child waits for ever.
        """
        if self.process.returncode is not None:
            return False
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:  # waited for, when a signal raised before its code was noted
            return False

    def exit_code(self) -> int:
        """Of a child that has ended."""
        return self.process.wait()

    def log_tail(self, lines: int = 5) -> str:
        """The last lines this child wrote, not those of an earlier start."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def log_text(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(self.log_start)
            return log.read(1024 * 1024).decode(errors="replace")

    def stop(self) -> None:
        """Ask, wait, then insist. Returns when the child is gone."""
        self.ask_to_stop()
        try:
            self.process.wait(self.recipe.stop_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.wait()

    def ask_to_stop(self) -> None:
        """Once: to many programs a second signal means `at once`."""
        if self.is_running() and not self.is_asked:
            self.is_asked = True
            os.kill(self.pid, self.recipe.stop_signal)  # whoever is not waited for keeps its number

    def kill(self) -> None:
        """The child leads its own session: the group takes whatever it started along."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def start(recipe: Recipe, log_path: Path) -> Child:
    """Start a child from the main thread, its output appended to `log_path`."""
    log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    cap_log(log_path)
    with log_path.open("ab") as log:
        log_start = log.tell()
        process = _popen(recipe, log)
    return Child(recipe, process, log_path, log_start, time.monotonic())


def _popen(recipe: Recipe, log: IO[bytes]) -> subprocess.Popen[bytes]:
    uid, gid = recipe.run_as or (None, None)
    return subprocess.Popen(
        list(recipe.argv),
        env={**os.environ, **recipe.env},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent(recipe.death_signal),
        user=uid,
        group=gid,
        extra_groups=None if gid is None else [],
    )


def cap_log(log_path: Path) -> bool:
    """Copy a log that has grown too long aside and cut it to zero in place: the writer appends, and keeps its file.

    What is written between the last look for more and the cut is lost: a few lines at most, as docs/operations.md says.
    A copy that finds no room leaves the log as it is; a full disk must not end us.
    """
    try:
        if log_path.stat().st_size < LOG_BYTES_MAX:
            return False
        with log_path.open("rb") as log, log_path.with_suffix(".log.1").open("wb") as aside:
            shutil.copyfileobj(log, aside)
            aside.flush()
            shutil.copyfileobj(log, aside)  # what came while the bulk was copied
            os.truncate(log_path, 0)
        return True
    except OSError:
        return False
