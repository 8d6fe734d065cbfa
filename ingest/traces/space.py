"""Room on the database's disk: traces are refused before the console has none left to write incidents.

Two ways to notice. Beforehand: the free space of the folders PostgreSQL writes to, where those are on this machine,
against a reserve that traces may not touch. Afterwards: PostgreSQL itself says that its disk is full. Either way ingest
answers 507 until there is room again; agents keep their batches meanwhile, and everything else goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from django.conf import settings
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict

from ingest.traces.database import connect, conninfo

RESERVE_BYTES_MAX: Final = 2**30
RESERVE_SHARE: Final = 0.05
AGAIN_SHARE: Final = 1.1  # of the reserve: resume a little above it, or the answer would flicker
FULL_SECONDS: Final = 5.0
"""After PostgreSQL said that its disk is full, nothing is tried for so long."""
ASK_AGAIN_SECONDS: Final = 60.0
RETRY_AFTER_SECONDS: Final = 15
WHAT_TO_DO: Final = (
    "New traces are refused until there is room; agents keep theirs meanwhile, incidents and the console go on. "
    "Make room on that disk, or keep traces for a shorter time (DIOGENES_TRACE_DAYS) and run `manage.py keep_house`."
)


@dataclass(frozen=True, slots=True)
class Space:
    """How much room there is. free_bytes, size_bytes: None where the database is on another machine.

    says: one sentence on what is wrong and what to do, empty while nothing is.
    """

    is_short: bool
    free_bytes: int | None
    size_bytes: int | None
    reserve_bytes: int | None
    says: str


UNKNOWN: Final = Space(False, None, None, None, "")


class SpaceWatch:
    """Whether traces may be stored, of one process. `look` may block and belongs in a thread; the rest does not."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._folders: tuple[Path, ...] = ()
        self._asked_at = float("-inf")
        self._full_until = float("-inf")
        self._measured = UNKNOWN
        self.times_full = 0

    def look(self) -> None:
        """Measure; the database need not be up, it may be down for want of room."""
        if not self._folders and self._now() - self._asked_at > ASK_AGAIN_SECONDS:
            self._asked_at, self._folders = self._now(), data_folders()
        self._measured = measure(self._folders, was_short=self._measured.is_short)

    def note_full(self) -> None:
        """PostgreSQL refused to write for want of room."""
        self.times_full += 1
        self._full_until = self._now() + FULL_SECONDS

    @property
    def space(self) -> Space:
        measured = self._measured
        if measured.is_short or self._now() >= self._full_until:
            return measured
        says = f"PostgreSQL says that its disk is full. {WHAT_TO_DO}"
        return Space(True, measured.free_bytes, measured.size_bytes, measured.reserve_bytes, says)


def measure(folders: Sequence[Path], *, was_short: bool = False) -> Space:
    """The room of the fullest disk of these folders; UNKNOWN when none can be asked."""
    spaces = [found for folder in folders if (found := _measure(folder, was_short)) is not None]
    return min(spaces, key=lambda space: (space.free_bytes or 0) - (space.reserve_bytes or 0), default=UNKNOWN)


def data_folders() -> tuple[Path, ...]:
    """The folders PostgreSQL writes to, empty when it is on another machine or does not tell."""
    host = str(conninfo_to_dict(conninfo()).get("host") or "/")
    if host not in ("localhost", "127.0.0.1", "::1") and not host.startswith("/"):
        return ()
    try:
        with connect() as connection:
            folder = _data_folder(connection)
    except psycopg.Error:
        folder = settings.DATA_FOLDER / "postgres"  # that of `manage.py up`
    return tuple(path for path in (folder, folder / "pg_wal") if _is_there(path))


def _data_folder(connection: Connection[Any]) -> Path:
    (folder,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    return Path(folder)


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # somebody else's folder, which we may not look into
        return False


def _measure(folder: Path, was_short: bool) -> Space | None:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    reserve = reserve_bytes(size)
    is_short = free < reserve * (AGAIN_SHARE if was_short else 1)
    left, whole, kept = size_words(free), size_words(size), size_words(reserve)
    says = f"The database's disk has {left} left of {whole}, less than the {kept} kept free."
    return Space(is_short, free, size, reserve, f"{says} {WHAT_TO_DO}" if is_short else "")


def reserve_bytes(size_bytes: int) -> int:
    """DIOGENES_DISK_RESERVE_BYTES, or 5 % of the disk and at most 1 GiB."""
    set_bytes = os.environ.get("DIOGENES_DISK_RESERVE_BYTES", "")
    return int(set_bytes) if set_bytes.isdigit() else min(RESERVE_BYTES_MAX, int(size_bytes * RESERVE_SHARE))


def size_words(n_bytes: int) -> str:
    """As people say it; never `0.0 GiB`."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"
