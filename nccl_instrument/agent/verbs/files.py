"""Collects, once a second, what shims in front of libibverbs leave on this node (docs/verbs.md): which queue pair serves which
flow, failed completions of each network card, and bytes per queue pair and epoch.

A file is written by a training process: what makes no sense in it ends the reading of this file alone, and is counted; so does
a file of another user than its name says. It is read on from where the last look ended, also when the shim has begun the
next one, and removed when its process has died.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from nccl_instrument.agent.plain import stack
from nccl_instrument.agent.processes.follow import TRAINERS_MAX
from nccl_instrument.agent.processes.named_files import open_named
from nccl_instrument.agent.processes.rows import Taken
from nccl_instrument.agent.processes.segment import is_alive
from nccl_instrument.agent.traffic.iterations import PERIOD_UNKNOWN
from nccl_instrument.agent.traffic.sampling import Cost, Sampling
from nccl_instrument.agent.verbs.traffic import VerbsTraffic
from nccl_instrument.tables import NO_OP, empty_rows
from nccl_instrument.verbs.reading import (
    BLOCK,
    NAME,
    NAMED,
    SEVERAL_FLOWS,
    BadVerbsFile,
    Block,
    block_bytes,
    block_of,
)
from nccl_instrument.wire import Rows

LOG = logging.getLogger("diogenes.agent")

READ_BYTES_MAX: Final = 64 * 2**20
"""Of all files in one look; a block is never larger."""
ENDED_KEPT_NS: Final = 15 * 60 * 10**9
"""A process that ends because its queue pair failed is what one wants to know of."""
FIRST_NS: Final = 10**9
"""What a process's first rows are of."""
UNKNOWN_COUNT: Final = 2**64 - 1
_SENSELESS: Final = (ValueError, OverflowError, LookupError, ArithmeticError, OSError)

Errors = dict[str, tuple[int, int]]
"""Card → failed completions, status of the last one."""
Flow = tuple[int, int, int, int, int]
"""comm_id, comm_rank, peer, channel, direction."""


@dataclass
class VerbsFile:
    """pid, started: of its process. newest: device → last block. fresh: blocks since the last look."""

    path: Path
    inode: int
    descriptor: int
    pid: int
    started: int
    at: int = 0
    is_dead: bool = False
    is_rotated: bool = False
    is_read: bool = False
    newest: dict[int, Block] = field(default_factory=dict)
    fresh: list[Block] = field(default_factory=list)


class VerbsFiles:
    """The verbs files of this node. `count(kind, pid)` is told what cannot be read."""

    def __init__(
        self, folders: Sequence[Path], count: Callable[[str, int], None], sampling: Sampling | None = None
    ) -> None:
        self._folders, self._count, self._sampling = folders, count, sampling or Sampling()
        self.files: dict[tuple[Path, int], VerbsFile] = {}
        self._passed_over: set[tuple[Path, int]] = set()
        self._cutters: dict[tuple[int, int], VerbsTraffic] = {}
        self._refused: dict[int, int] = {}
        self._unowned: dict[int, int] = {}
        self._ended: list[tuple[int, Errors]] = []  # of processes that are gone, and when they were last seen

    def look(self) -> None:
        """Follow what has appeared, and read on in what is followed."""
        there = set(self._there())
        self._passed_over &= there
        for path, inode in there - set(self.files) - self._passed_over:
            self._follow(path, inode)
        room = READ_BYTES_MAX
        for key, file in list(self.files.items()):
            file.is_rotated = key not in there
            with self._guarding(file):
                room -= self._read(file, room)

    def retire(self) -> None:
        """Let go of files that are read to their end and will not grow; remove those of dead processes."""
        for key, file in list(self.files.items()):
            file.fresh = []
            if file.is_dead or (file.is_rotated and file.is_read):
                self._close(key)
            if file.is_dead:
                _unlink(file.path)
                _unlink(file.path.with_name(f"{file.path.name}.old"))

    def close(self) -> None:
        """Leave every file as it is, for the next agent."""
        for key in list(self.files):
            self._close(key)

    def with_errors(self, nics: Rows) -> Rows:
        """`nics` with failed completions of processes that live or ended a while ago; unknown where no shim is."""
        self._ended = [one for one in self._ended if time.monotonic_ns() - one[0] < ENDED_KEPT_NS]
        found: Errors = {}
        for errors in [*(one for _, one in self._ended), *(_errors(file) for file in self.files.values())]:
            for card, (n_errors, status) in errors.items():
                before = found.get(card, (0, 0))
                found[card] = min(before[0] + n_errors, UNKNOWN_COUNT - 1), status or before[1]
        rows = nics.copy()
        for row in rows:
            n_errors, status = found.get(row["name"].decode(errors="replace"), (UNKNOWN_COUNT, 0))
            row["completion_errors"], row["completion_status"] = n_errors, status
        return rows

    def named(self, rows: Rows) -> Rows:
        """Rows of `traffic` with queue pair and card, where the plugin told the shim which flow a queue pair serves."""
        flows = self.flows() if len(rows) else {}
        if not flows:
            return rows
        rows = rows.copy()
        names = ("comm_id", "comm_rank", "peer", "channel", "direction")
        for at, key in enumerate(zip(*(rows[name].tolist() for name in names), strict=True)):
            qpn, card = flows.get(key, (0, ""))
            if qpn:
                rows[at]["queue_pair"], rows[at]["nic"] = qpn, card.encode()[:16]
        return rows

    def moved(self, taken: Sequence[Taken]) -> Rows:
        """Rows of `traffic` of processes whose NCCL no profiler sees."""
        found = [empty_rows("traffic")]
        for one in taken:
            for file in self.files.values():
                if (file.pid, file.started) == (one.owner.pid, one.owner.started):
                    with self._guarding(file):
                        found.append(self._moved(file, one))
        return np.concatenate(found)

    def _moved(self, file: VerbsFile, one: Taken) -> Rows:
        epochs_ns = {int(block.head["epoch_ns"]) for block in file.fresh}
        if len(epochs_ns) > 1:
            raise BadVerbsFile("its epochs differ in length")
        key = file.pid, file.started
        if epochs_ns and key not in self._cutters and self._sampling.is_on:
            self._cutters[key] = VerbsTraffic(epochs_ns.pop())
        if key not in self._cutters:
            return empty_rows("traffic")
        before_ns = self._cutters[key].pairs.until_ns
        rows = self._cutters[key].rows(file.fresh, one.comms, stack([one.ops, one.live_ops]))
        rows = self._within_budget(rows, file.pid, self._cutters[key].pairs.until_ns - before_ns if before_ns else 0)
        self._refused[file.pid] = self._refused.get(file.pid, 0) + self._cutters[key].refused()
        self._unowned[file.pid] = self._unowned.get(file.pid, 0) + self._cutters[key].pairs.unowned_bytes()
        return rows

    def _within_budget(self, rows: Rows, pid: int, took_ns: int) -> Rows:
        """Rows of blocks of calls that are measured, the same on all nodes by the calls' numbers; rows without an op as many as
        may be sent in that time, the others are counted.
        """
        if took_ns > 0:
            self._sampling.told(pid, Cost(len(rows), 0, 0, took_ns))
        every = self._sampling.every
        has_op, block = rows["op"] != NO_OP, (rows["op"] - 1) // PERIOD_UNKNOWN
        most = max(int(self._sampling.rows_per_s * (took_ns or FIRST_NS) / 1e9), 1)
        is_kept = np.where(has_op, block % every == 0, np.cumsum(~has_op) <= most)
        left_out = int((~has_op & ~is_kept).sum())
        self._refused[pid] = self._refused.get(pid, 0) + left_out
        return rows[is_kept]

    def refused(self) -> dict[int, int]:
        """Process → epochs and ops for which there was no room since this was last asked."""
        found, self._refused = self._refused, {}
        return {pid: count for pid, count in found.items() if count}

    def unowned(self) -> dict[int, int]:
        """Process → bytes of which nobody knows whose they are, found so since this was last asked."""
        found, self._unowned = self._unowned, {}
        return {pid: count for pid, count in found.items() if count}

    def flows(self) -> dict[Flow, tuple[int, str]]:
        """Flow → the queue pair that serves it, and its card."""
        found: dict[Flow, tuple[int, str]] = {}
        for file in self.files.values():
            for block in file.newest.values():
                pairs, card = block.queue_pairs, block.head["name"].decode(errors="replace")
                for row in pairs[(pairs["named"] & (NAMED | SEVERAL_FLOWS)) == NAMED]:
                    key = (row["comm_id"], row["comm_rank"], row["peer"], row["channel"], row["direction"])
                    found[tuple(int(one) for one in key)] = int(row["qpn"]), card  # type: ignore[index]
        return found

    def _there(self) -> Iterator[tuple[Path, int]]:
        for folder in self._folders:
            try:
                with os.scandir(folder) as entries:
                    found = [(folder / one.name, one.inode()) for one in entries if NAME.fullmatch(one.name)]
            except OSError:
                continue
            yield from (one for one in found if one[0].suffix != ".old")

    def _follow(self, path: Path, inode: int) -> None:
        descriptor = open_named(path, NAME)
        parts = NAME.fullmatch(path.name)
        if descriptor < 0 or parts is None or len(self.files) >= TRAINERS_MAX:
            if descriptor >= 0:
                os.close(descriptor)
            self._pass_over(path, inode, "it is no file of the user in its name, or one too many")
            return
        self.files[path, inode] = VerbsFile(path, inode, descriptor, int(parts[2]), int(parts[3]))
        LOG.info("reading the queue pairs of process %s", parts[2])

    def _read(self, file: VerbsFile, room: int) -> int:
        """Take the blocks that are whole; how many bytes that were."""
        is_dead, begin = not is_alive(file.descriptor), file.at
        file.is_read = False
        while True:
            head = os.pread(file.descriptor, BLOCK.itemsize, file.at)
            length = block_bytes(head, file.at) + BLOCK.itemsize
            if file.at + length - begin > room:
                return file.at - begin  # the rest at the next look
            block = block_of(
                head + os.pread(file.descriptor, length - BLOCK.itemsize, file.at + BLOCK.itemsize), file.at
            )
            if block is None:
                # Asked before: what it wrote until then has been read. A rotated file has no lock, and its name is another's.
                file.is_dead, file.is_read = is_dead and not file.is_rotated, True
                return file.at - begin
            file.at += length
            file.fresh.append(block)
            file.newest[int(block.head["device"])] = block

    @contextmanager
    def _guarding(self, file: VerbsFile) -> Iterator[None]:
        try:
            yield
        except _SENSELESS as error:
            self._close((file.path, file.inode))
            self._pass_over(file.path, file.inode, str(error))

    def _close(self, key: tuple[Path, int]) -> None:
        file = self.files.pop(key)
        if file.is_dead and any(n for n, _ in _errors(file).values()):
            self._ended.append((time.monotonic_ns(), _errors(file)))
        if not file.is_rotated:
            self._cutters.pop((file.pid, file.started), None)
            self._sampling.forget(file.pid)
        os.close(file.descriptor)

    def _pass_over(self, path: Path, inode: int, why: str) -> None:
        LOG.warning("queue pairs %s are left alone: %s", path.name, why)
        self._passed_over.add((path, inode))
        parts = NAME.fullmatch(path.name)
        self._count("segments_unreadable", int(parts[2]) if parts else -1)


def _errors(file: VerbsFile) -> Errors:
    """Of the file's process; of one that is rotated the next file goes on counting."""
    found: Errors = {}
    for block in file.newest.values() if not file.is_rotated else ():
        card, pairs = block.head["name"].decode(errors="replace"), block.queue_pairs
        failed = pairs[pairs["errors"] > 0]
        status = int(failed["last_status"][failed["last_error_ns"].argmax()]) & 0xFF if len(failed) else 0
        found[card] = min(int(failed["errors"].astype(np.float64).sum()), 2**62), status
    return found


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        LOG.warning("queue pairs %s cannot be removed: %s", path.name, error)
