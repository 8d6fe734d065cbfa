"""The file in shared memory through which a recorder's steps reach the node's agent: one writer, no waiting, no threads.

    stage_ring.open_road(stages)      # once, in the training program

A step is one slot of a ring (more when it has more than eight stages), written by a few stores into memory that was
reserved when the file was made. A reader that is late finds newer steps in the place of older ones and counts what it
missed; the trainer never notices. The file's record lock, which the kernel frees on any death, tells whether the process
lives. Needs neither torch nor numpy.

| offset | bytes | field (little-endian) |
|---|---|---|
| 0 | 4 | magic b"DGSG" |
| 4 | 2 | version |
| 6 | 2 | bytes of a slot |
| 8 | 4 | number of slots |
| 16 | 8 | slots written so far |
| 24 | 52 | COUNTS: steps ended, then stage_records.Counts without its first |
| 76 | 4 | crc32 of the counts |
| 128 | 8 | length and crc32 of the declaration |
| 136 | … | the declaration, JSON: who the process is, its role, road, flags, schemas |
| 32768 | 128 each | slots |

Slot n lies in place (n - 1) mod slots: SLOT, then its crc32. Slots are numbered from 1.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import mmap
import os
import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from nccl_instrument import status
from nccl_instrument.recorder import FOLDER, FOLDER_VARIABLE
from nccl_instrument.stage_records import Counts, SideRecord, StepRecord
from nccl_instrument.stage_schema import Schema
from nccl_instrument.stages import Stages

MAGIC: Final = b"DGSG"
VERSION: Final = 1
STAGES_A_SLOT: Final = 8
SLOT: Final = struct.Struct("<QqQqQ8qiHBBI")
"""number, ended_ns, schema id, step, overlap_ns, durations, rank (-1: its own), repeats, kind, part or channel, flags."""
SLOT_BYTES: Final = 128
COUNTS: Final = struct.Struct("<q11I")
HEAD: Final = struct.Struct("<4sHHI4xQ")
CHECK: Final = struct.Struct("<I")
DECLARED: Final = struct.Struct("<II")
WRITTEN: Final = struct.Struct("<Q")
WRITTEN_AT, COUNTS_AT, DECLARED_AT, SLOTS_AT = 16, 24, 128, 32768
DECLARED_BYTES_MAX: Final = SLOTS_AT - DECLARED_AT - DECLARED.size
SLOTS: Final = 2048
SLOTS_MAX: Final = 2**17
SCHEMAS_MAX: Final = 8
STEP_SLOT, SIDE_SLOT = 1, 2
ROAD_AGENT, ROAD_GATHER = 1, 2  # codes of tables.ROADS
PREFETCHES, EVENT_SCOPE_LIMITED, SYNCHRONOUS = 1, 2, 4  # bits of tables.recorder.flags
ROLE_CHARS_MAX: Final = 32
MEMBER_RUNS_MAX: Final = 256
"""Of neighbouring ranks that play the same part: 16 kB of the declaration at most. With more, their roles are not told."""
LOOK_AGAIN_NS: Final = 10 * 10**9
"""Rank and world size may become known, or change, while the program runs."""
COUNT_MAX: Final = 2**32 - 1
_COUNTED: Final = attrgetter(*(one.name for one in fields(Counts) if one.name != "steps"))
_ROADS = itertools.count()  # of this process


def ring_path(folder: Path, pid: int, uid: int, number: int = 0) -> Path:
    """Where the number-th recorder of a process leaves its steps."""
    return folder / f"diogenes-stages.{uid}.{pid}.{number}"


def open_road(
    stages: Stages, folder: Path | None = None, *, n_slots: int = SLOTS, road: int = ROAD_AGENT
) -> Ring | None:
    """Send the steps of `stages` to the node's agent; None where there is no room or right, which the trainer never notices.

    The process is also made known by its status (status.py), if nobody did that yet.
    """
    into = folder or Path(os.environ.get(FOLDER_VARIABLE, FOLDER).partition(":")[0])
    with contextlib.suppress(Exception):
        ring = Ring(stages, into, min(max(n_slots, 1), SLOTS_MAX), road)
        status.start(into, lambda: stages.n_done)
        if road == ROAD_AGENT:
            stages.send_to(ring)
        return ring
    return None


class Ring:
    """The writing side. Raises OSError where the file cannot be made; used as a sink of `stages` it raises nothing new."""

    def __init__(self, stages: Stages, folder: Path, n_slots: int = SLOTS, road: int = ROAD_AGENT) -> None:
        self._stages, self._road, self._n_slots = stages, road, n_slots
        self._pid, self._n, self._schemas = os.getpid(), 0, dict[int, Schema]()
        self._declared_ns, self._members = 0, list[list[Any]]()
        self.path = ring_path(folder, self._pid, os.getuid(), next(_ROADS))
        self.path.unlink(missing_ok=True)  # of a process that had our number before
        size = SLOTS_AT + n_slots * SLOT_BYTES
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            os.posix_fallocate(file, 0, size)  # a store into a page that cannot be had would kill the trainer
            self._memory = mmap.mmap(file, size)
        except BaseException:
            os.close(file)
            self.path.unlink(missing_ok=True)
            raise
        self._file = file  # never closed: closing any descriptor of the file frees the lock
        self._declare(stages.schema)
        HEAD.pack_into(self._memory, 0, MAGIC, VERSION, SLOT_BYTES, n_slots, 0)

    def step(self, record: StepRecord, schema: Schema, rank: int = -1, flags: int = 0) -> None:
        """Write a step's slots."""
        if schema.schema_id not in self._schemas or record.ended_ns - self._declared_ns > LOOK_AGAIN_NS:
            self._declare(schema)
        durations, schema_id = record.durations_ns, schema.schema_id
        for part in range(0, len(durations), STAGES_A_SLOT):
            eight = durations[part : part + STAGES_A_SLOT]
            eight += (0,) * (STAGES_A_SLOT - len(eight))
            self._write(
                record.ended_ns, schema_id, record.step, record.overlap_ns, *eight, rank, min(record.repeats, 65535),
                STEP_SLOT, part // STAGES_A_SLOT, record.flags | flags,
            )  # fmt: skip

    def side(self, record: SideRecord, schema: Schema, rank: int = -1, flags: int = 0) -> None:
        """Write a side channel's slot."""
        value = (record.value_ns, 0, 0, 0, 0, 0, 0, 0)
        self._write(
            record.ended_ns, schema.schema_id, record.step, 0, *value, rank, 0, SIDE_SLOT, record.channel, flags
        )

    def put(self, slot: bytes, later_ns: int = 0) -> None:
        """Write a slot that another rank made, by a clock that our own is later than by so much."""
        _, ended_ns, *rest = SLOT.unpack(slot)
        self._write(ended_ns + later_ns, *rest)

    def ended(self, step: int) -> None:
        """Tell the counts as they are now."""
        if os.getpid() != self._pid:
            return
        raw = COUNTS.pack(self._stages.n_done, *(count & COUNT_MAX for count in _COUNTED(self._stages.counts)))
        self._memory[COUNTS_AT : COUNTS_AT + len(raw) + CHECK.size] = raw + CHECK.pack(zlib.crc32(raw))

    def knows(self, schema: Schema) -> None:
        """Declare a schema of which slots are put; the one in use stays the newest."""
        if schema.schema_id not in self._schemas:
            self._declare(schema)
            self._declare(self._stages.schema)

    def brings(self, members: Mapping[int, tuple[str, int]]) -> None:
        """Declare the role and the recorder's flags of other ranks whose slots are put."""
        self._members = _runs(members)
        self._declare(self._stages.schema)

    def _write(self, *row: int) -> None:
        if os.getpid() != self._pid:
            return  # a forked child: the memory is its parent's
        number = self._n + 1
        at = SLOTS_AT + self._n % self._n_slots * SLOT_BYTES
        raw = SLOT.pack(number, *row)
        self._memory[at : at + SLOT.size + CHECK.size] = raw + CHECK.pack(zlib.crc32(raw))
        self._n = number
        WRITTEN.pack_into(self._memory, WRITTEN_AT, number)

    def _declare(self, schema: Schema) -> None:
        """Say who we are and what the stages of the newest schemas are; the older ones make room."""
        if os.getpid() != self._pid:
            return
        self._declared_ns = time.monotonic_ns()
        self._schemas = {**{k: v for k, v in self._schemas.items() if k != schema.schema_id}, schema.schema_id: schema}
        schemas = list(self._schemas.values())[-SCHEMAS_MAX:]
        stages = self._stages
        said = {
            **status.identity(), "pid": self._pid, "started": status.started(), "role": stages.role[:ROLE_CHARS_MAX],
            "road": self._road, "flags": recorder_flags(stages), "event_permille": stages.events.permille,
            "members": self._members,
        }  # fmt: skip
        raw = b""
        while schemas:
            raw = json.dumps({**said, "schemas": [said_of(one) for one in schemas]}, separators=(",", ":")).encode()
            if len(raw) <= DECLARED_BYTES_MAX:
                break
            schemas = schemas[1:]
        self._schemas = {one.schema_id: one for one in schemas}
        self._memory[DECLARED_AT : DECLARED_AT + DECLARED.size + len(raw)] = (
            DECLARED.pack(len(raw), zlib.crc32(raw)) + raw
        )


def recorder_flags(stages: Stages) -> int:
    """Bits of tables.recorder.flags."""
    limited = EVENT_SCOPE_LIMITED if stages.events.is_scope_limited else 0
    return (PREFETCHES if stages.ahead else 0) | limited | (SYNCHRONOUS if stages.synchronous else 0)


def _runs(members: Mapping[int, tuple[str, int]]) -> list[list[Any]]:
    """[role, flags, first rank, last rank] of neighbours that are alike; no more than there is room for."""
    found: list[list[Any]] = []
    for rank in sorted(members):
        role, flags = members[rank]
        if found and found[-1][:2] == [role, flags] and found[-1][3] == rank - 1:
            found[-1][3] = rank
        else:
            found.append([role, flags, rank, rank])
    return found if len(found) <= MEMBER_RUNS_MAX else []


def said_of(schema: Schema) -> dict[str, Any]:
    """What a schema is made of again; the newest is the last."""
    return {
        "stages": schema.stages, "micro_steps": schema.micro_steps, "parents": schema.parents, "sides": schema.sides,
        "version": schema.version,
    }  # fmt: skip
