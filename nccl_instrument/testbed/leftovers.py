"""Nothing is left behind: a record of what a testbed made, a guard that clears it when the testbed dies, and a sweep.

Ranks die with their parent (a parent-death signal). The rest (namespaces, links, segment folders) needs somebody who
outlives a SIGKILL: the guard, a forked child that sleeps on a pipe and clears up when it closes. Should the guard be
killed too, `python -m nccl_instrument.testbed sweep` finds the record, sees that its process is gone and does the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from .namespaces import remove_links

NAMESPACES = Path("/run/netns")
RANK_EXIT_LIMIT_S = 3.0


@dataclass
class Record:
    pid: int
    start_ticks: int  # tells the process from a later one with the same pid
    n_nodes: int
    n_nics_per_node: int
    has_namespaces: bool
    folders: list[str]
    rank_pids: list[int]

    @property
    def path(self) -> Path:
        return records_folder() / f"{self.pid}.json"

    def save(self) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.rename(self.path)


def records_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"diogenes-testbed-{os.getuid()}"


def start_ticks_of(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat, or None when there is no such process (a zombie counts as none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def clear(record: Record) -> None:
    """Removes everything in the record; safe to repeat."""
    _wait_for_ranks(record.rank_pids)
    if record.has_namespaces:
        remove_links(record.pid, record.n_nodes, record.n_nics_per_node)
    for folder in record.folders:
        shutil.rmtree(folder, ignore_errors=True)
    record.path.unlink(missing_ok=True)


def _wait_for_ranks(pids: list[int]) -> None:
    """Ranks got their death signal already; a namespace and a segment are only free once they are gone."""
    deadline = time.monotonic() + RANK_EXIT_LIMIT_S
    while time.monotonic() < deadline and any(start_ticks_of(pid) is not None for pid in pids):
        time.sleep(0.02)


def start_guard(pid: int) -> int:
    """Forks the guard; returns the pipe end whose closing (also by death) wakes it. Call before any thread exists."""
    wakes, stays_open = os.pipe()
    if os.fork() != 0:
        os.close(wakes)
        return stays_open
    try:
        os.close(stays_open)
        _guard(pid, wakes)
    finally:
        os._exit(0)


def _guard(pid: int, wakes: int) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.read(wakes, 1)
    record = read_record(records_folder() / f"{pid}.json")
    if record is not None:
        clear(record)


def read_record(path: Path) -> Record | None:
    try:
        return Record(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def sweep() -> list[str]:
    """Clears up after every testbed of this user that is gone; returns one sentence per find."""
    found = []
    for path in sorted(records_folder().glob("*.json")):
        record = read_record(path)
        if record is None:
            path.unlink(missing_ok=True)
        elif start_ticks_of(record.pid) != record.start_ticks:
            clear(record)
            found.append(f"cleared what testbed {record.pid} left behind")
    return found + _sweep_unrecorded()


def _sweep_unrecorded() -> list[str]:
    """Namespaces that carry our name and the number of a process that does not exist."""
    found = []
    names = [path.name for path in NAMESPACES.glob("dg*n*")] if NAMESPACES.exists() and os.getuid() == 0 else []
    dead: dict[int, int] = {}
    for name in names:
        match = re.fullmatch(r"dg(\d+)n(\d+)", name)
        if match and start_ticks_of(int(match[1])) is None:
            dead[int(match[1])] = max(dead.get(int(match[1]), 0), int(match[2]) + 1)
    for pid, n_nodes in dead.items():
        remove_links(pid, n_nodes, n_nics_per_node=16)
        found.append(f"removed {n_nodes} unrecorded namespaces of process {pid}")
    return found
