"""Follows the status files that training processes write (nccl_instrument/status.py): jobs that nobody traces are watched too.

Once a second each is read again. The file's lock tells whether its process lives; what a process that died in the middle
wrote last is evidence and is sent on for as long as a dead process's segment is, unless it said that it ends. A process
that is also followed by a segment is declared by that; its status is sent beside it.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from nccl_instrument.agent.dumps.sight import look_at
from nccl_instrument.agent.processes.follow import DEAD_MAX, KEEP_NS, TRAINERS_MAX
from nccl_instrument.agent.processes.named_files import open_named
from nccl_instrument.agent.processes.proc import GONE, Living, ProcessFiles, ProcessState
from nccl_instrument.agent.processes.segment import is_alive
from nccl_instrument.agent.sending.jobs import ADVICE, name_problem
from nccl_instrument.recorder import leftovers
from nccl_instrument.status import BY_ITSELF, FILE_BYTES_MAX, STEPS, BadStatus, Status, decode_status
from nccl_instrument.tables import DTYPE, SOURCE_RECORDER, SOURCE_STEPS, empty_rows
from nccl_instrument.wire import Rows

LOG = logging.getLogger("diogenes.agent")

_NAME: Final = re.compile(r"diogenes-status\.(\d+)\.(\d+)")
_COPIED: Final = ("world_size", "local_rank", "restart_count")
GROUPS_COUNTED_MAX: Final = 10_000
_AXES: Final = ("tp", "pp", "dp", "ep")


@dataclass
class Told:
    """One process by its status file. died_ns: monotonic, 0 while it lives. is_new: its comm row was not sent yet."""

    path: Path
    inode: int
    file: int
    status: Status
    files: ProcessFiles
    died_ns: int = 0
    is_final: bool = False
    is_new: bool = True
    n_left_out: int = 0  # process groups of it that were counted as left out

    @property
    def job(self) -> str:
        return str(self.status.identity["job"])

    @property
    def rank(self) -> int:
        return int(self.status.identity["rank"])

    def close(self) -> None:
        self.files.close()
        os.close(self.file)


class Statuses:
    """The status files of this node. `count(kind, pid)` is called for each process that cannot be sent."""

    def __init__(self, folders: Sequence[Path], ip: str, count: Callable[[str, int], None]) -> None:
        self._folders, self._ip, self._count = folders, ip, count
        self._told: dict[Path, Told] = {}
        self._passed_over: set[tuple[Path, int]] = set()

    def look(self) -> None:
        """Read what is there; follow what has appeared, let go of what is over."""
        for told in list(self._told.values()):
            self._read(told)
        there = self._there()
        self._passed_over &= set(there)
        for path, inode in there:
            known = self._told.get(path)
            if known is not None and known.inode != inode:
                self._told.pop(path).close()  # the process has called exec, or its file was taken away
                known = None
            if known is None and (path, inode) not in self._passed_over:
                self._follow(path, inode)

    def retire(self) -> None:
        """Let go of the dead whose last rows were cut and who are no longer evidence."""
        now = time.monotonic_ns()
        dead = sorted((one.died_ns, path) for path, one in self._told.items() if one.is_final)
        too_many = {path for _, path in dead[: max(0, len(dead) - DEAD_MAX)]}
        for died_ns, path in dead:
            told = self._told[path]
            is_over = told.status.ending == BY_ITSELF or now - died_ns > KEEP_NS or self._is_followed_by_another(told)
            if is_over or path in too_many or not path.exists():
                self._let_go(path)

    def jobs(self) -> set[str]:
        return {one.job for one in self._told.values()}

    def tables(self, job: str, tick_ns: int, traced: Collection[int], *, all_comms: bool) -> dict[str, Rows]:
        """The rows of `status`, and those of `process` and `comm` of processes that are not `traced` (process ids)."""
        ours = [one for one in self._told.values() if one.job == job]
        untraced = [one for one in ours if one.status.pid not in traced]
        declared = [one for one in untraced if all_comms or one.is_new]
        tables = {
            "status": _status_rows(ours, tick_ns),
            "process": np.array([_process_row(one, tick_ns) for one in untraced], DTYPE["process"]),
            "comm": _comm_rows(declared, self._ip),
        }
        for one in ours:
            one.is_new, one.is_final = False, bool(one.died_ns)
        return tables

    def living(self, job: str, traced: Collection[int]) -> list[Living]:
        """Those of the job that are not `traced`, for who takes dumps; the dead among them, whose silence is evidence."""
        return [
            Living(one.rank, one.status.pid, one.status.started, one.path.parent, _uid_of(one.path))
            for one in self._told.values()
            if one.job == job and one.status.pid not in traced
        ]

    def close(self) -> None:
        """Leave every file as it is, for the next agent."""
        for told in self._told.values():
            told.close()
        self._told.clear()

    def _there(self) -> list[tuple[Path, int]]:
        found = []
        for folder in self._folders:
            try:
                with os.scandir(folder) as entries:
                    found += [(folder / one.name, one.inode()) for one in entries if _NAME.fullmatch(one.name)]
            except OSError:
                continue  # the folder may be made by the first trainer
        return found

    def _follow(self, path: Path, inode: int) -> None:
        file = open_named(path, _NAME)
        if file < 0 or len(self._told) >= TRAINERS_MAX:
            self._pass_over(path, inode, "it is not a status file of the user in its name, or one too many")
            if file >= 0:
                os.close(file)
            return
        status = _status_of(file)
        is_living = is_alive(file)
        if status is None or (not is_living and _is_over(status)):
            if not is_living:
                path.unlink(missing_ok=True)
            os.close(file)  # of an earlier boot, ended, or being made: another look will tell
            return
        if problem := name_problem(str(status.identity["job"]), "job"):
            os.close(file)
            LOG.warning("process %d is not watched: %s; %s", status.pid, problem, ADVICE)
            self._pass_over(path, inode, problem, "unnamed_processes")
            return
        self._told[path] = Told(path, inode, file, status, _files_of(path, status))
        self._count_left_out(self._told[path])
        LOG.info("watching rank %d of job %s (process %d) by its status", *self._named(path), status.pid)

    def _named(self, path: Path) -> tuple[int, str]:
        return self._told[path].rank, self._told[path].job

    def _read(self, told: Told) -> None:
        if not told.died_ns and not is_alive(told.file):
            told.died_ns = time.monotonic_ns()
        elif told.died_ns:
            return
        status = _status_of(told.file)
        if status is not None and (status.pid, status.started) == (told.status.pid, told.status.started):
            told.is_new |= status.identity != told.status.identity and status.identity["job"] == told.job
            told.status = status if status.identity["job"] == told.job else told.status
            self._count_left_out(told)

    def _count_left_out(self, told: Told) -> None:
        """Its process groups beyond what a status holds, each once."""
        for _ in range(min(told.status.n_left_out, GROUPS_COUNTED_MAX) - told.n_left_out):
            self._count("rows_over_limit", told.status.pid)
            told.n_left_out += 1

    def _is_followed_by_another(self, dead: Told) -> bool:
        return dead.rank >= 0 and any(
            one.job == dead.job and one.rank == dead.rank and one.status.started > dead.status.started
            for one in self._told.values()
        )

    def _let_go(self, path: Path) -> None:
        told = self._told.pop(path)
        told.close()
        try:
            for one in (path, *leftovers(path.parent, told.status.pid, _uid_of(path))):
                one.unlink(missing_ok=True)
        except OSError as error:
            self._pass_over(path, told.inode, f"it cannot be removed: {error}")

    def _pass_over(self, path: Path, inode: int, why: str, kind: str = "segments_unreadable") -> None:
        LOG.warning("status %s is left alone: %s", path.name, why)
        self._passed_over.add((path, inode))
        parts = _NAME.fullmatch(path.name)
        self._count(kind, int(parts[2]) if parts else -1)


def _is_over(status: Status) -> bool:
    """Of a dead process: whether it ended by itself, or too long ago. One that lives and is silent is what we are here for."""
    return status.ending == BY_ITSELF or not 0 <= time.monotonic_ns() - status.written_ns <= KEEP_NS


def _files_of(path: Path, status: Status) -> ProcessFiles:
    """In /proc, by the number the process has here."""
    living = Living(int(status.identity["rank"]), status.pid, status.started, path.parent, _uid_of(path))
    return ProcessFiles(look_at(living).number or status.pid)


def _uid_of(path: Path) -> int:
    parts = _NAME.fullmatch(path.name)
    return int(parts[1]) if parts else -1


def _status_of(file: int) -> Status | None:
    """What the file holds; read again when it was just being written."""
    for _ in range(3):
        try:
            return decode_status(os.pread(file, FILE_BYTES_MAX, 0))
        except (BadStatus, OSError):
            continue
    return None


def _status_rows(told: Sequence[Told], tick_ns: int) -> Rows:
    rows = empty_rows("status", sum(len(one.status.progress) for one in told))
    of = [(one, progress) for one in told for progress in one.status.progress]
    for row, (one, progress) in zip(rows, of, strict=True):
        row["tick_ns"], row["pid"], row["global_rank"] = tick_ns, one.status.pid, one.rank
        row["source"] = SOURCE_STEPS if progress.name == STEPS else SOURCE_RECORDER
        row["group"] = progress.name.encode("ascii", "replace")
        row["n_enqueued"], row["n_started"], row["n_done"] = progress.enqueued, progress.started, progress.done
        row["ending"] = one.status.ending
        row["written_ns"] = min(one.status.written_ns, tick_ns)
        row["changed_ns"] = min(progress.changed_ns, tick_ns)
    return rows


def _process_row(told: Told, tick_ns: int) -> tuple[int, ...]:
    """In the order of the table's columns."""
    state: ProcessState = GONE if told.died_ns else told.files.read(told.status.started)
    changed_ns = max((one.changed_ns for one in told.status.progress), default=0)
    who = (tick_ns, told.status.pid, told.rank, state.state, int(not told.died_ns))
    return (*who, state.n_threads, state.cpu_ns, min(changed_ns, tick_ns), state.io_bytes)


def _comm_rows(told: Sequence[Told], ip: str) -> Rows:
    """A row per process, in no communicator."""
    rows = empty_rows("comm", len(told))
    for row, one in zip(rows, told, strict=True):
        row["n_ranks"], row["pid"], row["process_started"] = 0, one.status.pid, one.status.started
        row["global_rank"], row["ip"] = one.rank, ip.encode()
        for name in _COPIED:
            row[name] = one.status.identity[name]
        for name in _AXES:
            coordinate = one.status.identity[name]
            row[name] = coordinate if 0 <= coordinate < 2**15 else -1
    return rows
