"""Finds the segments of training processes in their folders, follows each, and lets go of those that have ended.

A closed segment goes at once after its last rows were cut. That of a process that died in the middle is kept for
KEEP_NS, because what a killed rank was doing is evidence while the others wait for it; a newer process of the same job
and rank ends that earlier, as does the limit of DEAD_MAX. Only the agent removes segments, the plugin never does.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from nccl_instrument.agent.processes.rows import Owner, single_nic
from nccl_instrument.agent.processes.segment import Segment, SegmentNotReady, is_alive
from nccl_instrument.agent.processes.trainer import Bookmark, Trainer
from nccl_instrument.agent.sending.jobs import ADVICE, name_problem
from nccl_instrument.agent.traffic.sampling import Sampling

LOG = logging.getLogger("diogenes.agent")

KEEP_NS: Final = 600 * 10**9
DEAD_MAX: Final = 32  # of 16 MiB each: the node's memory is the job's, not ours
TRAINERS_MAX: Final = 256
_UNREADY_NS: Final = 5 * 10**9  # what a plugin needs at most to make its segment; longer: there was no room for it
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NAME: Final = re.compile(r"diogenes\.(\d+)\.(\d+)\.(\d+)")


class Followed:
    """The trainers of this node. `count(kind, pid)` is called for each process that cannot be sent."""

    def __init__(
        self,
        folders: Sequence[Path],
        nic_names: Sequence[str],
        ip: str,
        bookmarks: Mapping[str, Bookmark],
        count: Callable[[str, int], None],
        sampling: Sampling | None = None,
    ) -> None:
        self._sampling = sampling
        self.folders, self.trainers = folders, dict[Path, Trainer]()
        self._nic_names, self._ip, self._count = tuple(nic_names), ip, count
        self._bookmarks = dict(bookmarks)
        self._inodes: dict[Path, int] = {}
        self._passed_over: set[tuple[Path, int]] = set()  # segment files (path, inode) that are not to be opened again
        self._unready: dict[tuple[Path, int], int] = {}  # since when (monotonic); 0 once it was counted

    def of_job(self, job: str) -> list[Trainer]:
        return [trainer for trainer in self.trainers.values() if trainer.job == job]

    def jobs(self) -> set[str]:
        """Names of the jobs that have a process here which is not final yet; nameless processes are not among them."""
        return {trainer.job for trainer in self.trainers.values() if trainer.job}

    def bookmarks(self) -> dict[str, Bookmark]:
        return {path.name: trainer.bookmark() for path, trainer in self.trainers.items()}

    def look(self) -> None:
        """Follow segments that have appeared."""
        seen = set()
        for path in self._strangers():
            inode = _own_inode(path)
            seen.add((path, inode))
            if inode and (path, inode) not in self._passed_over:
                self._open(path, inode)
        self._passed_over &= seen
        self._unready = {file: since for file, since in self._unready.items() if file in seen}

    def retire(self) -> None:
        """Let go of trainers whose last rows were cut and who are no longer evidence."""
        now = time.monotonic_ns()
        dead = sorted((t.died_ns, path) for path, t in self.trainers.items() if t.is_final)
        too_many = {path for _, path in dead[: max(0, len(dead) - DEAD_MAX)]}
        for died_ns, path in dead:
            trainer = self.trainers[path]
            is_evidence = trainer.job and not trainer.is_clean and not self._follows(trainer)
            if not is_evidence or path in too_many or now - died_ns > KEEP_NS or not path.exists():
                self._let_go(path)

    def abandon(self, trainer: Trainer, why: str) -> None:
        """Stop following a segment whose content makes no sense; the others must not suffer from it."""
        path = trainer.segment.path
        del self.trainers[path]
        trainer.close()
        self._pass_over(path, _own_inode(path), why)

    def close(self) -> None:
        """Leave every segment as it is, for the next agent."""
        for trainer in self.trainers.values():
            trainer.close()
        self.trainers.clear()

    def _strangers(self) -> list[Path]:
        """Segment files that are not followed."""
        found = []
        for folder in self.folders:
            try:
                with os.scandir(folder) as entries:
                    there = [(folder / entry.name, entry.inode()) for entry in entries if _NAME.fullmatch(entry.name)]
            except OSError:
                continue  # the folder may be made by the first trainer
            for path, inode in there:
                if path in self.trainers and self._inodes[path] != inode:
                    self._give_way(path)
                if path not in self.trainers:
                    found.append(path)
        return found

    def _give_way(self, path: Path) -> None:
        """The process has called exec: it is another program now, with a segment of its own in the same place."""
        trainer = self.trainers.pop(path)
        LOG.info("process %d (rank %d) has become another program", trainer.owner.pid, trainer.rank)
        trainer.close()

    def _open(self, path: Path, inode: int) -> None:
        if len(self.trainers) >= TRAINERS_MAX:
            self._pass_over(path, inode, f"more than {TRAINERS_MAX} processes")
            return
        try:
            self._follow(path, inode, Segment.open(path))
        except SegmentNotReady:
            self._wait_for(path, inode)
        except (ValueError, OverflowError, OSError) as error:
            self._pass_over(path, inode, str(error))

    def _follow(self, path: Path, inode: int, segment: Segment) -> None:
        if not segment.is_alive() and _has_aged(segment):
            segment.close()
            self._unlink(path, inode, "left by a process of long ago")
            return
        trainer = Trainer(segment, self._owner(segment), self._bookmarks.pop(path.name, Bookmark()), self._sampling)
        problem = name_problem(trainer.job, "job")
        if problem:
            LOG.warning("process %d is not traced: %s; %s", trainer.owner.pid, problem, ADVICE)
            trainer.job = ""
            self._count("unnamed_processes", trainer.owner.pid)
        else:
            LOG.info("following rank %d of job %s (process %d)", trainer.rank, trainer.job, trainer.owner.pid)
        self.trainers[path], self._inodes[path] = trainer, inode

    def _owner(self, segment: Segment) -> Owner:
        identity = segment.identity()
        nic = single_nic(identity)
        nic_index = self._nic_names.index(nic) if nic in self._nic_names else -1
        version = segment.header()["library_version"]
        started = min(segment.starttime, 2**63 - 1)
        return Owner(segment.pid, started, version, self._ip, nic_index, identity)

    def _follows(self, dead: Trainer) -> bool:
        """Whether a newer process has taken the place of this dead one."""
        return dead.rank >= 0 and any(
            other.rank == dead.rank and other.owner.started > dead.owner.started for other in self.of_job(dead.job)
        )

    def _let_go(self, path: Path) -> None:
        trainer = self.trainers.pop(path)
        LOG.info("process %d (rank %d) has ended, its segment is removed", trainer.owner.pid, trainer.rank)
        trainer.close()
        self._unlink(path, _own_inode(path), "")

    def _wait_for(self, path: Path, inode: int) -> None:
        """A file without a segment: its process is about to make one, found no room for it, or died meanwhile."""
        now = time.monotonic_ns()
        since = self._unready.setdefault((path, inode), now)
        if now - since < _UNREADY_NS:
            return
        if not _is_held(path):
            self._unlink(path, inode, "never finished by its process")
        elif since:
            self._unready[path, inode] = 0
            parts = _NAME.fullmatch(path.name)
            LOG.warning("process %s is not traced: there was no room for its segment", parts[2] if parts else "?")
            self._count("segments_unreadable", int(parts[2]) if parts else -1)

    def _unlink(self, path: Path, inode: int, why: str) -> None:
        if why:
            LOG.info("removing segment %s: %s", path.name, why)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._pass_over(path, inode, f"it cannot be removed: {error}")

    def _pass_over(self, path: Path, inode: int, why: str) -> None:
        LOG.warning("segment %s is left alone: %s", path.name, why)
        self._passed_over.add((path, inode))
        parts = _NAME.fullmatch(path.name)
        self._count("segments_unreadable", int(parts[2]) if parts else -1)


def uid_of(path: Path) -> int:
    """The user in the name of a segment that is followed."""
    parts = _NAME.fullmatch(path.name)
    return int(parts[1]) if parts else -1


def _own_inode(path: Path) -> int:
    """Inode of a regular file that belongs to the user its name says and that we may read; else 0."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    parts = _NAME.fullmatch(path.name)
    is_theirs = parts is not None and int(parts[1]) == found.st_uid
    is_ours = os.geteuid() in (0, found.st_uid)
    return found.st_ino if stat.S_ISREG(found.st_mode) and is_theirs and is_ours else 0


def _is_held(path: Path) -> bool:
    """Whether a process holds the lock of the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return True  # gone, or not ours to judge
    try:
        return is_alive(descriptor)
    finally:
        os.close(descriptor)


def _has_aged(segment: Segment) -> bool:
    """Whether a dead process's segment is from another boot of this machine, or older than we keep evidence."""
    if segment.boot_id and segment.boot_id != _boot_id():
        return True
    age_ns = time.monotonic_ns() - max(segment.last_callback_ns, segment.header()["mono_ns"])
    return not 0 <= age_ns <= KEEP_NS


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
