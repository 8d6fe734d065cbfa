"""What the kernel says of a trainer's process: one `process` row per process and second.

Reads /proc only, never the process itself. Whether it lives is known from the segment's record lock, which is right in
every pid namespace; /proc adds the state letter, where the pid can be seen at all. Unknown stays 0.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from nccl_instrument.tables import PROCESS_GONE

_TICK_NS: Final = 10**9 // os.sysconf("SC_CLK_TCK")
_STATE, _UTIME, _STIME, _THREADS, _STARTED = 0, 11, 12, 17, 19  # fields of /proc/<pid>/stat behind the name


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State letter (0 unknown), threads, CPU time and bytes read and written so far."""

    state: int = 0
    n_threads: int = 0
    cpu_ns: int = 0
    io_bytes: int = 0


UNKNOWN: Final = ProcessState()
GONE: Final = ProcessState(state=PROCESS_GONE)


def read_process(pid: int, started: int) -> ProcessState:
    """The process `pid` that began at `started` (field 22 of its stat), UNKNOWN when this is not what the pid means here."""
    raw = _read(f"/proc/{pid}/stat")
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) <= _STARTED or int(fields[_STARTED]) != started:
        return UNKNOWN
    cpu_ns = (int(fields[_UTIME]) + int(fields[_STIME])) * _TICK_NS
    return ProcessState(fields[_STATE][0], min(int(fields[_THREADS]), 0xFFFF), cpu_ns, _read_io_bytes(pid))


def _read_io_bytes(pid: int) -> int:
    """rchar + wchar of /proc/<pid>/io; 0 (unknown) for processes of other users, whose counters are not shown to us."""
    lines = _read(f"/proc/{pid}/io").split(b"\n")
    return sum(int(line[7:]) for line in lines[:2] if line[1:7] == b"char: ")


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)
