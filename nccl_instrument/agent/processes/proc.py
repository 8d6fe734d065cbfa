"""What the kernel says of a trainer's process: one `process` row per process and second.

Reads /proc only, never the process itself. Whether it lives is known from the segment's record lock, which is right in
every pid namespace; /proc adds the state letter, where the pid can be seen at all. Unknown stays 0.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nccl_instrument.tables import PROCESS_GONE

_TICK_NS: Final = 10**9 // os.sysconf("SC_CLK_TCK")
_STATE, _UTIME, _STIME, _THREADS, _STARTED = 0, 11, 12, 17, 19  # fields of /proc/<pid>/stat behind the name


@dataclass(frozen=True, slots=True)
class Living:
    """A process of a job, as far as the agent knows it. started: field 22 of its stat; folder: where it has its files.

    uid: whose files they are. A process of another user is never looked at, whatever such a file says.
    """

    rank: int
    pid: int
    started: int
    folder: Path
    uid: int

    @property
    def began_s(self) -> float:
        """When it began, unix seconds."""
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + self.started * _TICK_NS / 1e9


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State letter (0 unknown), threads, CPU time and bytes read and written so far."""

    state: int = 0
    n_threads: int = 0
    cpu_ns: int = 0
    io_bytes: int = 0


UNKNOWN: Final = ProcessState()
GONE: Final = ProcessState(state=PROCESS_GONE)


class ProcessFiles:
    """A process's files in /proc, held open: opening them costs several times what reading them does.

    Once the process is gone they read as nothing, whoever has its pid then.
    """

    def __init__(self, pid: int) -> None:
        self._stat, self._io = _open(f"/proc/{pid}/stat"), _open(f"/proc/{pid}/io")

    def read(self, started: int) -> ProcessState:
        """The process that began at `started` (field 22 of its stat), UNKNOWN when this is not what the pid means here."""
        raw = _read(self._stat)
        fields = raw[raw.rfind(b")") + 2 :].split()
        if len(fields) <= _STARTED or int(fields[_STARTED]) != started:
            return UNKNOWN
        cpu_ns = (int(fields[_UTIME]) + int(fields[_STIME])) * _TICK_NS
        return ProcessState(fields[_STATE][0], min(int(fields[_THREADS]), 0xFFFF), cpu_ns, self._io_bytes())

    def _io_bytes(self) -> int:
        """rchar + wchar; 0 (unknown) for processes of other users, whose counters are not shown to us."""
        lines = _read(self._io).split(b"\n")
        return sum(int(line[7:]) for line in lines[:2] if line[1:7] == b"char: ")

    def close(self) -> None:
        for file in (self._stat, self._io):
            if file >= 0:
                os.close(file)
        self._stat = self._io = -1


def started_at(pid: int) -> int | None:
    """When the process of this number began, in clock ticks since the machine did; None when there is none to be seen."""
    file = _open(f"/proc/{pid}/stat")
    raw = _read(file)
    if file >= 0:
        os.close(file)
    fields = raw[raw.rfind(b")") + 2 :].split()
    return int(fields[_STARTED]) if len(fields) > _STARTED else None


def read_process(pid: int, started: int) -> ProcessState:
    """One look at a process."""
    files = ProcessFiles(pid)
    try:
        return files.read(started)
    finally:
        files.close()


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _read(file: int) -> bytes:
    try:
        return os.pread(file, 4096, 0)
    except OSError:
        return b""
