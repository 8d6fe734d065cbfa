"""The data folder of one running stack: its lock, its secret key, and what an earlier, killed start left in it.

The lock is the kernel's (flock), so it cannot go stale. Children are noted with their start times: after a SIGKILL of
the supervisor they are given a moment to follow it, before their files are used again.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from console.supervisor.children import Child
from console.supervisor.preflight import in_use_problem

GRACE_SECONDS: Final = 8.0


class FolderInUse(Exception):
    """Another supervisor holds this data folder; the message says which."""


@dataclass
class DataFolder:
    """A locked data folder. `runtime` holds the sockets: it lies outside, because their paths must be short."""

    path: Path
    runtime: Path
    lock_fd: int

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def agent_token_file(self) -> Path:
        return self.path / "agent_token"

    def secret_key(self) -> str:
        return self._secret("secret_key")

    def metrics_token(self) -> str:
        return self._secret("metrics_token")

    def _secret(self, name: str) -> str:
        """Made on the first start, readable by us alone, kept for all later ones; an empty one is made anew."""
        file = self.path / name
        if not file.exists() or not file.read_text().strip():
            aside = self.path / f"{name}.new"  # a kill or a full disk must not leave half a key in its place
            with os.fdopen(os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as new:
                new.write(secrets.token_urlsafe(48))
            aside.replace(file)
        return file.read_text()

    def note_base_url(self, url: str) -> None:
        """Remember where the pages are reached, for `manage.py signin_link`."""
        (self.path / "base_url").write_text(url)

    def note_children(self, children: list[Child]) -> None:
        """Remember who runs: pid, start time, name; for the next start should we be killed, and for who looks from outside."""
        alive = [(child, started) for child in children if (started := start_time(child.pid))]
        lines = [f"{child.pid} {started} {child.recipe.name}\n" for child, started in alive]
        noted = self.path / "children.new"
        noted.write_text("".join(lines))
        noted.replace(self.path / "children")

    def note_restarts(self, restarts: Mapping[str, Mapping[str, float]]) -> None:
        """Remember how often each child was started again and when last, for who looks; a full disk must not matter."""
        with suppress(OSError):
            noted = self.path / "restarts.new"
            noted.write_text(json.dumps(restarts))
            noted.replace(self.path / "restarts")

    def hold_of(self, name: str) -> Path:
        """The file by which somebody says that this child is to stay down, until they remove it."""
        return self.path / "held" / name

    def holds(self) -> set[str]:
        try:
            return set(os.listdir(self.path / "held"))
        except OSError:
            return set()

    def is_held(self, name: str) -> bool:
        return self.hold_of(name).exists()

    def release(self) -> None:
        (self.path / "children").unlink(missing_ok=True)
        shutil.rmtree(self.runtime, ignore_errors=True)
        os.close(self.lock_fd)


def claim(path: Path) -> DataFolder:
    """Lock the folder for us and clear what a killed start left. Raises FolderInUse."""
    path.mkdir(parents=True, exist_ok=True)
    lock_fd = _lock(path)
    _outlast_children(path / "children")
    _remove_stale_pid_file(path / "postgres")
    noted = path / "runtime"
    if noted.exists():
        shutil.rmtree(noted.read_text(), ignore_errors=True)
    runtime = Path(tempfile.mkdtemp(prefix="diogenes-", dir=_short_folder()))
    noted.write_text(str(runtime))
    return DataFolder(path, runtime, lock_fd)


def _lock(path: Path) -> int:
    lock_fd = os.open(path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock_fd)
        raise FolderInUse(in_use_problem(path)) from None
    os.ftruncate(lock_fd, 0)
    os.write(lock_fd, str(os.getpid()).encode())
    return lock_fd


def _short_folder() -> Path:
    """Where sockets get short paths. Root's own folder is no place: the account that runs postgres may not enter it."""
    choices = [Path(tempfile.gettempdir()), Path("/tmp")]
    if os.getuid() != 0:
        choices.insert(0, Path(f"/run/user/{os.getuid()}"))
    fitting = [choice for choice in choices if len(str(choice)) < 70 and os.access(choice, os.W_OK | os.X_OK)]
    return fitting[0] if fitting else Path("/tmp")


def start_time(pid: int) -> str | None:
    """The kernel's start time of a live process: with the pid it names the process for good. None for the dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def _outlast_children(noted: Path) -> None:
    """Wait for the children of a killed supervisor to follow it; end those that do not."""
    if not noted.exists():
        return
    before = [line.split()[:2] for line in noted.read_text().splitlines()]
    give_up_at = time.monotonic() + GRACE_SECONDS
    while alive := [int(pid) for pid, started in before if start_time(int(pid)) == started]:
        if time.monotonic() > give_up_at:
            for pid in alive:
                with suppress(ProcessLookupError, PermissionError):  # gone this moment, or another user's by now
                    os.killpg(pid, signal.SIGKILL)
            time.sleep(0.5)
            break
        time.sleep(0.05)
    noted.unlink()


def _remove_stale_pid_file(cluster: Path) -> None:
    """PostgreSQL believes a pid file whose number is some other process's by now; its own would work in `cluster`."""
    pid_file = cluster / "postmaster.pid"
    if not pid_file.exists():
        return
    first_line = pid_file.read_text().partition("\n")[0].strip()
    try:
        runs_here = Path(f"/proc/{int(first_line)}/cwd").resolve(strict=True) == cluster.resolve()
    except (OSError, ValueError):
        runs_here = False
    if not runs_here:
        pid_file.unlink()
