"""Reads the shared-memory segment that the NCCL profiler plugin writes in a training process.

Its layout is in segment_layout.py. The segment is only read and nothing is ever asked of the trainer: rows that are being
rewritten while they are copied are recognised, retried, and at last skipped and counted. Never use this inside the training
process: closing any descriptor of the file there drops the lock by which the agent knows that the process lives.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.plain import all_set, pick
from nccl_instrument.agent.processes.pages import Copied, Mapped
from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment_layout import (
    BYTE_ORDER,
    COMM,
    COUNTERS,
    FLOW,
    HEADER,
    HEADER_BYTES,
    IDENTITY,
    MAGIC,
    MAJOR,
    OP,
    OP_FOREIGN,
    ROW_CLOSING,
    ROW_DONE,
    ROW_LIVE,
    TRANSFER,
)

TRIES: Final = 4
ALL_MOVE_NS: Final = 10**8  # flows that all moved within the last sweep belong to ops in progress
FLOWS_AT_FIRST: Final = 256  # flow rows the plugin uses before it doubles its reach

Rows = npt.NDArray[np.void]

_STATE: Final = np.dtype("u4")
_ROW_SHIFT: Final = np.uint64(24)  # of an op's handle; its generation, eight bits up, is that of its state word
_STATE_SHIFT: Final = np.uint64(32)
_STATE_MASK: Final = np.uint64(0xFFFFF00)
_SECTIONS: Final = {"comm": COMM, "opstate": _STATE, "op": OP, "flwstate": _STATE, "flow": FLOW, "ring": OP}
_FILE_NAME: Final = re.compile(r"diogenes\.(\d+)\.(\d+)\.(\d+)")
_FLOCK: Final = struct.Struct("hhqqi4x")


class SegmentError(ValueError):
    """This file is not a segment this version can read; the message says why."""


class SegmentNotReady(SegmentError):
    """The plugin has made the file but not finished it; worth another look soon."""


def is_alive(descriptor: int) -> bool:
    """Whether a process holds the segment's lock. `descriptor` is of the segment file, opened outside the trainer."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)


class Segment:
    """One process's segment, mapped read-only when it is our own user's, else read (see pages.py).

    `torn_rows` counts rows that changed owner during every one of TRIES copies and were left out.
    """

    def __init__(self, path: Path, descriptor: int, pages: Mapped | Copied) -> None:
        self.path = path
        self.torn_rows = 0
        self._reach = FLOWS_AT_FIRST
        self._descriptor = descriptor
        self._pages, self._view = pages, pages.view
        self._is_copied = isinstance(pages, Copied)
        self._header = np.frombuffer(pages.view, HEADER, 1)
        pages.fetch(self._header)
        _check_header(self._header[0], len(pages.view))
        self._tables = {name: self._section(name, dtype) for name, dtype in _SECTIONS.items()}
        self._flows = self._tables["flwstate"][:0], self._tables["flow"][:0]  # those within reach
        for states, rows in (("opstate", "op"), ("flwstate", "flow")):
            if len(self._tables[states]) != len(self._tables[rows]):
                raise SegmentError(f"sections {states} and {rows} differ in length")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Segment:
        """Open the segment at `path`. Raises SegmentError with the reason, or OSError."""
        named = Path(path)
        parts = _FILE_NAME.fullmatch(named.name)
        if parts is not None and int(parts[2]) == os.getpid():
            raise SegmentError("a process must not open its own segment: that would drop its lock")
        descriptor = os.open(named, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            found = os.fstat(descriptor)
            size = found.st_size
            if size < HEADER_BYTES:
                raise SegmentNotReady(f"truncated: {size} bytes, the header alone has {HEADER_BYTES}")
            pages = Mapped if found.st_uid == os.geteuid() else Copied
            return cls(named, descriptor, pages(descriptor, size))
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Let go of the mapping and the descriptor; rows already returned stay valid, they are copies."""
        self._tables.clear()
        self._flows = np.zeros(0, _STATE), np.zeros(0, FLOW)
        self._header = np.zeros(1, HEADER)
        with suppress(BufferError):  # an OpRing still holds it: unmapped when that goes
            self._view.close()
        os.close(self._descriptor)

    def is_alive(self) -> bool:
        """Whether the process that writes the segment still runs (stopped counts as running)."""
        return is_alive(self._descriptor)

    @property
    def pid(self) -> int:
        return int(self._header["pid"][0])

    @property
    def starttime(self) -> int:
        """Field 22 of /proc/<pid>/stat: with the pid it names the process for ever."""
        return int(self._header["starttime"][0])

    @property
    def is_closed(self) -> bool:
        """Whether every communicator was finalized; a later one opens the segment again."""
        self._pages.fetch(self._header)
        return bool(self._header["closed"][0])

    @property
    def last_callback_ns(self) -> int:
        """When an op or flow last started or stopped (monotonic); steps show in their flow's last_progress_ns."""
        self._pages.fetch(self._header)
        return int(self._header["last_callback_ns"][0])

    def header(self) -> dict[str, int]:
        """The header's plain numbers: versions, mask, transport, clock anchors (wall_ns, mono_ns), uid."""
        names = ("major", "minor", "library_version", "abi", "mask", "transport", "wall_ns", "mono_ns", "uid")
        return {name: int(self._header[name][0]) for name in names}

    @property
    def boot_id(self) -> str:  # "" when the plugin could not know it
        return str(_plain(self._header["boot_id"][0]))

    def identity(self) -> dict[str, int | str]:
        """Who the process says it is; -1 and "" are unknown."""
        row = self._header["identity"][0]
        names = [name for name in IDENTITY.names or () if name != "reserved"]
        return {name: _plain(row[name]) for name in names}

    def counters(self) -> dict[str, int]:
        """Everything the plugin counted, by the names of record.h; a newer plugin's further counters are left out."""
        self._pages.fetch(self._header)
        return dict(zip(COUNTERS, self._header["counters"][0].tolist(), strict=False))

    def counters_at(self, places: npt.NDArray[np.intp]) -> bytes:
        """Some of the counters as they lie there: whether they changed is told without taking all of them apart."""
        self._pages.fetch(self._header)
        return bytes(self._header["counters"][0][places].tobytes())

    def comm_generations(self) -> npt.NDArray[np.uint32]:
        """How often each row of the communicator table was taken, counted from an arbitrary number."""
        stamps: npt.NDArray[np.uint32] = self._tables["comm"]["stamp"]
        self._pages.fetch(stamps)
        return stamps >> np.uint32(8)

    def comms(self) -> Rows:
        """(n,) COMM rows of communicators, finalized ones too while their row was not needed again."""
        self._pages.check()
        table = self._tables["comm"]
        return self._copy_rows(table["stamp"], table, _joined)

    def live_ops(self) -> Rows:
        """(n,) OP rows of ops enqueued and not complete, including those whose network part is not visible."""
        return self._copy_rows(self._tables["opstate"], self._tables["op"], _live)

    def live_flows(self) -> Rows:
        """(n,) FLOW rows of flows queued or in progress; counters never show a later stage ahead of an earlier one.

        ProxyOps that use no network are never stopped by NCCL: those whose op is over are left out.
        """
        self._pages.check()
        reach = self._reach_of_flows()
        if len(self._flows[0]) != reach:
            self._flows = self._tables["flwstate"][:reach], self._tables["flow"][:reach]
        flows = self._copy_rows(*self._flows, _live)
        if not len(flows):
            return flows
        still_before = time.monotonic_ns() - ALL_MOVE_NS
        do_all_move = int(np.minimum.reduce(flows["last_progress_ns"])) > still_before and all_set(flows["started_ns"])
        return flows if do_all_move else pick(flows, self._has_open_op(flows))

    def _reach_of_flows(self) -> int:
        """Rows from 0 that may be in use: the plugin doubles its reach when they are, all others are still zero."""
        states = self._tables["flwstate"]
        while self._reach < len(states):
            further = states[self._reach : 2 * self._reach]
            self._pages.fetch(further)
            if not np.count_nonzero(further):
                break
            self._reach *= 2
        return self._reach

    def _has_open_op(self, flows: Rows) -> Any:
        handles, states = flows["op_handle"], self._tables["opstate"]
        self._pages.fetch(states)
        open_word = (handles >> _STATE_SHIFT) & _STATE_MASK | np.uint64(ROW_CLOSING)  # ROW_LIVE but for its lowest bit
        is_open = states[handles >> _ROW_SHIFT & np.uint64(len(states) - 1)] | 1 == open_word
        return is_open | (handles == 0) | ((flows["flags"] & OP_FOREIGN) != 0)  # these cannot be joined: shown

    def op_ring(self, position: int | None = None) -> OpRing:
        """A reader of the completion records, from record `position` on, by default the oldest still there."""
        return OpRing(self._header["ring_head"], self._tables["ring"], position, self._pages.fetch)

    def transfer_ring(self, position: int | None = None) -> OpRing | None:
        """A reader of the chunks sent, as `op_ring`; None where the plugin records none."""
        try:
            rows = self._section("transfer", TRANSFER)
        except SegmentError:
            return None  # an older plugin, or a segment without room for it
        return OpRing(self._header["transfer_head"], rows, position, self._pages.fetch)

    def _copy_rows(self, states: Any, table: Rows, wanted: Callable[[Any], Any]) -> Rows:
        self._pages.fetch(states)
        seen = states.copy()
        pending = wanted(seen).nonzero()[0]
        before = seen[pending]
        copies: list[Rows] = []
        for _ in range(TRIES):
            if not len(pending):
                break
            if self._is_copied:
                self._pages.fetch(table[pending[0] : pending[-1] + 1])
            rows = _copy_in_order(table, pending)
            self._pages.fetch(states)
            after = states[pending]
            whole = after == before
            if not copies and all_set(whole):
                return rows  # the usual case, ten times a second and process: no further copy
            copies.append(pick(rows, whole))
            again = ~whole & wanted(after)
            pending, before = pending[again], after[again]
        self.torn_rows += len(pending)
        return np.concatenate(copies) if copies else np.zeros(0, table.dtype)

    def _section(self, name: str, dtype: np.dtype[Any]) -> Any:
        for entry in self._header["sections"][0][: int(self._header["n_sections"][0])]:
            if entry["name"] == name.encode():
                return _section_view(self._view, name, entry, dtype)
        raise SegmentError(f"no section {name!r}")


def _live(states: npt.NDArray[np.uint32]) -> Any:
    return (states & 0xFF) == ROW_LIVE


def _joined(states: npt.NDArray[np.uint32]) -> Any:
    return ((states & 0xFF) == ROW_LIVE) | ((states & 0xFF) == ROW_DONE)


def _copy_in_order(table: Rows, at: npt.NDArray[np.intp]) -> Rows:
    """The rows `at`; a later stage seen ahead of an earlier one, which was then read a moment before, is held back."""
    rows = pick(table, at)
    if table.dtype.names and "counters" in table.dtype.names:
        np.minimum.accumulate(rows["counters"], axis=1, out=rows["counters"])
    return rows


def _check_header(header: Any, size: int) -> None:
    magic = header["magic"].tobytes()
    if magic == bytes(8):
        raise SegmentNotReady("the header is not written yet")
    if magic != MAGIC:
        raise SegmentError("not a segment (magic)")
    if header["byte_order"] != BYTE_ORDER:
        raise SegmentError("written on a machine of the other byte order")
    if header["major"] != MAJOR:
        raise SegmentError(f"segment version {header['major']}.x is not supported, this agent reads {MAJOR}.x")
    if header["segment_bytes"] > size:
        raise SegmentError(f"truncated: {size} bytes, header says {header['segment_bytes']}")
    if header["n_sections"] > len(header["sections"]):
        raise SegmentError(f"{header['n_sections']} sections, at most {len(header['sections'])}")


def _section_view(view: mmap.mmap, name: str, entry: Any, dtype: np.dtype[Any]) -> Any:
    offset, row_bytes, n_rows = int(entry["offset"]), int(entry["row_bytes"]), int(entry["n_rows"])
    if row_bytes < dtype.itemsize or n_rows == 0 or offset < HEADER_BYTES or offset + row_bytes * n_rows > len(view):
        raise SegmentError(f"section {name!r}: {n_rows} rows of {row_bytes} bytes at {offset} do not fit")
    return np.ndarray((n_rows,), dtype, view, offset, (row_bytes,))


def _plain(value: Any) -> int | str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else int(value)
