"""Reads the steps that stage recorders leave in shared memory (nccl_instrument/stage_ring.py), once a second.

What was written over before it was read is counted, as is what makes no sense; a file of which the head makes none is left
alone and never ends the agent. A file whose process has died is removed once its last steps are read. The process itself
is declared by its segment or its status.
"""

from __future__ import annotations

import logging
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.processes.follow import TRAINERS_MAX
from nccl_instrument.agent.processes.named_files import open_named
from nccl_instrument.agent.processes.segment import is_alive
from nccl_instrument.agent.processes.trainer import Bookmark
from nccl_instrument.agent.sending.jobs import name_problem
from nccl_instrument.agent.stages.declared import (
    HEAD_BYTES,
    BadRing,
    Declaration,
    NotWhole,
    counts_in,
    declaration_of,
    declared_in,
    n_slots_of,
    written_in,
)
from nccl_instrument.agent.stages.rows import (
    NO_COUNTS,
    RAW,
    are_sensible,
    recorder_rows,
    schema_rows,
    slot_rows,
)
from nccl_instrument.stage_ring import SLOT, SLOT_BYTES, SLOTS_AT
from nccl_instrument.wire import Rows

LOG = logging.getLogger("diogenes.agent")

_NAME: Final = re.compile(r"diogenes-stages\.(\d+)\.(\d+)\.(\d+)")
_LOST: Final = "stage_records"
_SENSELESS: Final = (ValueError, TypeError, ArithmeticError, LookupError, OSError, struct.error)
"""What reading another process's memory may raise, foreseen or not."""


@dataclass
class _Ring:
    path: Path
    inode: int
    file: int
    n_slots: int
    said: Declaration
    raw_said: bytes
    schemas: dict[int, Rows]
    n_read: int = 0
    n_lost: int = 0
    counts: tuple[int, ...] = NO_COUNTS
    is_dead: bool = False
    is_final: bool = False
    slots: list[npt.NDArray[np.void]] = field(default_factory=list)


class StageFiles:
    """The stage recorders of this node. `count(job, kind, n, pid)` is told what was lost. bookmarks: of an earlier agent."""

    def __init__(
        self,
        folders: Sequence[Path],
        count: Callable[[str, str, int, int], None],
        bookmarks: Mapping[str, Bookmark] | None = None,
    ) -> None:
        self._folders, self._count = folders, count
        self._bookmarks = dict(bookmarks or {})
        self._rings: dict[Path, _Ring] = {}
        self._passed_over: set[tuple[Path, int]] = set()

    def look(self) -> None:
        """Follow what has appeared."""
        there = self._there()
        self._passed_over &= set(there)
        for path, inode in there:
            known = self._rings.get(path)
            if known is not None and known.inode != inode:
                self._close(path)  # the process has called exec
                known = None
            if known is None and (path, inode) not in self._passed_over:
                self._follow(path, inode)

    def tables(self, job: str, tick_ns: int) -> dict[str, Rows]:
        """The rows of the job's steps since the last call; {} when it records none."""
        told = []
        for ring in [one for one in self._rings.values() if one.said.job == job and not one.is_final]:
            with self._guarding(ring.path, ring.inode):
                self._read(ring)
                told.append((ring, recorder_rows(ring.said, ring.counts, ring.n_lost, tick_ns)))
        if not told:
            return {}
        ours = [ring for ring, _ in told]
        stage, side = slot_rows([(np.concatenate(one.slots), one.said.pid, one.said.rank) for one in ours if one.slots])
        used = {*stage["schema"].tolist(), *side["schema"].tolist(), *(ring.said.now for ring in ours)}
        known = {key: rows for ring in ours for key, rows in ring.schemas.items() if key in used}
        schema = np.concatenate([known[key] for key in sorted(known)])
        schema["tick_ns"] = tick_ns
        for ring in ours:
            ring.slots, ring.is_final = [], ring.is_dead
        return {"stage": stage, "side": side, "recorder": np.concatenate([row for _, row in told]), "schema": schema}

    def bookmarks(self) -> dict[str, Bookmark]:
        """How far each file was read, for the next agent."""
        return {
            path.name: Bookmark(ring.n_read, {_LOST: ring.n_lost}, ring.inode) for path, ring in self._rings.items()
        }

    def retire(self) -> None:
        """Remove the files of processes that have died, once their last steps were cut."""
        for path, ring in list(self._rings.items()):
            if ring.is_final:
                self._close(path)
                _unlink(path)

    def close(self) -> None:
        """Leave every file as it is, for the next agent."""
        for path in list(self._rings):
            self._close(path)

    @contextmanager
    def _guarding(self, path: Path, inode: int) -> Iterator[None]:
        """What cannot be worked with ends the reading of this file alone, is counted, and is not tried again."""
        try:
            yield
        except _SENSELESS as error:
            if path in self._rings:
                self._close(path)
            self._pass_over(path, inode, f"{error}")

    def _there(self) -> list[tuple[Path, int]]:
        found = []
        for folder in self._folders:
            try:
                with os.scandir(folder) as entries:
                    found += [(folder / one.name, one.inode()) for one in entries if _NAME.fullmatch(one.name)]
            except OSError:
                continue
        return found

    def _follow(self, path: Path, inode: int) -> None:
        file = open_named(path, _NAME)
        if file < 0 or len(self._rings) >= TRAINERS_MAX:
            self._pass_over(path, inode, "it is no file of the user in its name, or one too many")
            if file >= 0:
                os.close(file)
            return
        try:
            ring = self._ring(path, inode, file)
        except _SENSELESS as error:
            self._refuse(path, inode, file, error)
            return
        self._rings[path] = ring
        LOG.info("reading the stages of rank %d of job %s (process %d)", ring.said.rank, ring.said.job, ring.said.pid)

    def _ring(self, path: Path, inode: int, file: int) -> _Ring:
        """From where an earlier agent came to, else from the oldest slot that is there. Raises BadRing and others."""
        n_slots, raw = n_slots_of(file), declared_in(file)
        said = declaration_of(raw)
        if problem := name_problem(said.job, "job"):
            raise BadRing(problem)
        written = written_in(os.pread(file, HEAD_BYTES, 0))
        mark = self._bookmarks.pop(path.name, None)
        oldest = max(0, written - n_slots)
        if mark is None or mark.position is None or mark.inode != inode or not 0 <= mark.position <= written:
            mark = Bookmark(oldest)
        position = oldest if mark.position is None else mark.position
        n_lost = min(max(mark.told.get(_LOST, 0), 0), 2**32 - 1)
        return _Ring(path, inode, file, n_slots, said, raw, _rows_of(said), position, n_lost)

    def _refuse(self, path: Path, inode: int, file: int, error: Exception) -> None:
        """A file that is being made is looked at again, a dead process's removed, any other left alone and counted."""
        try:
            is_dead = not is_alive(file)
        except OSError:
            is_dead = False
        os.close(file)
        if is_dead:
            _unlink(path)
        elif not isinstance(error, NotWhole):
            self._pass_over(path, inode, str(error))

    def _read(self, ring: _Ring) -> None:
        """Take the slots that are new, and the counts and the declaration as they are now."""
        ring.is_dead = not is_alive(ring.file)  # asked first: what it wrote until then is there
        head = os.pread(ring.file, HEAD_BYTES, 0)
        written = written_in(head)
        with suppress(NotWhole):  # the next look will do
            self._hear(ring)
        ring.counts = counts_in(head) or ring.counts
        self._take(ring, written)

    def _hear(self, ring: _Ring) -> None:
        raw = declared_in(ring.file)
        if raw != ring.raw_said:
            said = declaration_of(raw)
            if said.job == ring.said.job:
                ring.schemas, ring.said, ring.raw_said = _rows_of(said), said, raw

    def _take(self, ring: _Ring, written: int) -> None:
        n_new = written - ring.n_read
        if not 0 < n_new < 2**48:
            return
        n_there = min(n_new, ring.n_slots)
        numbers = np.arange(written - n_there + 1, written + 1, dtype=np.uint64)
        first = int(numbers[0] - 1) % ring.n_slots
        n_first = min(n_there, ring.n_slots - first)
        raw = os.pread(ring.file, n_first * SLOT_BYTES, SLOTS_AT + first * SLOT_BYTES)
        raw += os.pread(ring.file, (n_there - n_first) * SLOT_BYTES, SLOTS_AT)
        rows = np.frombuffer(raw[: len(raw) // SLOT_BYTES * SLOT_BYTES], RAW)[:n_there]
        checks = [zlib.crc32(raw[at : at + SLOT.size]) for at in range(0, len(rows) * SLOT_BYTES, SLOT_BYTES)]
        is_whole = rows["check"] == np.array(checks, np.uint32)
        good = (rows["number"] == numbers[: len(rows)]) & is_whole & are_sensible(rows)
        ring.slots.append(rows[good])
        ring.n_read = written
        if n_lost := n_new - int(good.sum()):
            ring.n_lost += n_lost
            self._count(ring.said.job, _LOST, n_lost, ring.said.pid)

    def _close(self, path: Path) -> None:
        os.close(self._rings.pop(path).file)

    def _pass_over(self, path: Path, inode: int, why: str) -> None:
        LOG.warning("stages %s are left alone: %s", path.name, why)
        self._passed_over.add((path, inode))
        parts = _NAME.fullmatch(path.name)
        self._count("", "segments_unreadable", 1, int(parts[2]) if parts else -1)


def _rows_of(said: Declaration) -> dict[int, Rows]:
    """Schema id → its rows, without their time."""
    return {key: schema_rows({key: one}, 0) for key, one in said.schemas.items()}


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        LOG.warning("stages %s cannot be removed: %s", path.name, error)
