"""Where a process of the job is seen from here, when dumps are to be taken of it.

Its own number means nothing in another pid namespace: in a container a trainer may be number 1. But it holds the lock of its
status file or segment, and the kernel says who holds a lock in the numbers of whoever asks. What it says is checked
against when the process began and what it calls itself, so that nobody else is ever looked at. A process that holds its
lock and has no number here lives where we cannot look: its recorder thread can still be asked, through the folder.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nccl_instrument.agent.processes.proc import Living, read_process, started_at
from nccl_instrument.status import status_path

_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux
_ENDED: Final = (0, ord("Z"), ord("X"))
LOCKED_MAX: Final = 8
STATUS_BYTES_MAX: Final = 8192


@dataclass(frozen=True, slots=True)
class Seen:
    """A process now. number: by which it goes here, 0 when it has none. is_another: its own number means somebody else here."""

    of: Living
    number: int
    is_alive: bool
    is_another: bool = False

    @property
    def root(self) -> Path:
        """Of its files: a container has its own."""
        return Path(f"/proc/{self.number}/root") if self.number and self.number != self.of.pid else Path("/")


def look_at(one: Living) -> Seen:
    """Find it by its own number, else by the lock it holds."""
    if is_that(one, one.pid):
        return _seen_as(one, one.pid)
    holders = [holder for path in _locked_files(one) if (holder := lock_holder(path)) is not None]
    for number in holders:
        if number and is_that(one, number):
            return _seen_as(one, number)
    return Seen(one, 0, bool(holders), is_another=os.path.exists(f"/proc/{one.pid}"))


def _seen_as(one: Living, number: int) -> Seen:
    return Seen(one, number, read_process(number, one.started).state not in _ENDED)


def lock_holder(path: Path) -> int | None:
    """Number of the process that holds the file's lock, 0 when it has none here; None when nobody does."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, holder = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(file)
    return max(holder, 0) if kind != fcntl.F_UNLCK else None


def is_that(one: Living, number: int) -> bool:
    """Whether this number means the process here: of its user, begun when it did, and called so by itself."""
    try:
        is_theirs = os.stat(f"/proc/{number}").st_uid == one.uid
    except OSError:
        return False
    return is_theirs and started_at(number) == one.started and _own_number(number) in (one.pid, 0)


def _own_number(number: int) -> int:
    """What the process calls itself; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{number}/status", "rb") as file:
            lines = file.read(STATUS_BYTES_MAX).split(b"\n")
    except OSError:
        return 0
    said = next((line.split() for line in lines if line.startswith(b"NSpid:")), [])
    return int(said[-1]) if len(said) > 1 else 0


def _locked_files(one: Living) -> list[Path]:
    """Its status file and its segments."""
    segments = f"diogenes.{one.uid}.{one.pid}."
    try:
        with os.scandir(one.folder) as entries:
            found = [one.folder / entry.name for entry in entries if entry.name.startswith(segments)]
    except OSError:
        return []
    return [status_path(one.folder, one.pid, one.uid), *found[:LOCKED_MAX]]
