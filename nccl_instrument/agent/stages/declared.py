"""What the head of a stage recorder's file says, read without trust: who records, its schemas, its counts.

The file is the training program's memory: any byte of it may be anything, and it may change or be cut while it is read.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from typing import Any, Final

from nccl_instrument.stage_ring import (
    CHECK,
    COUNTS,
    COUNTS_AT,
    DECLARED,
    DECLARED_AT,
    DECLARED_BYTES_MAX,
    HEAD,
    MAGIC,
    MEMBER_RUNS_MAX,
    SCHEMAS_MAX,
    SLOT_BYTES,
    SLOTS_AT,
    SLOTS_MAX,
    VERSION,
)
from nccl_instrument.stage_schema import Schema
from nccl_instrument.tables import ROADS

RANKS_MAX: Final = 2**20
STEPS_MAX: Final = 2**53
MEMBERS_MAX: Final = 4096
"""Ranks whose role one process may tell: a row a second each."""
HEAD_BYTES: Final = COUNTS_AT + COUNTS.size + CHECK.size


class BadRing(ValueError):
    """The file is no ring of steps; the message says why."""


class NotWhole(BadRing):
    """It is being made, or was being written: worth a second look."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Who records. rank, world_size: -1 unknown. schemas: id → schema; now: the id in use. members: (role, flags, first rank,
    last rank) of others whose steps a gather brings."""

    job: str
    pid: int
    rank: int
    world_size: int
    role: bytes
    road: int
    flags: int
    event_permille: int
    now: int
    schemas: dict[int, Schema]
    members: tuple[tuple[bytes, int, int, int], ...] = ()


def n_slots_of(file: int) -> int:
    """How many slots the file has. Raises BadRing."""
    head = os.pread(file, HEAD.size, 0)
    if len(head) < HEAD.size or head[:4] == b"\0" * 4:
        raise NotWhole("not whole yet")
    magic, version, slot_bytes, n_slots, _ = HEAD.unpack(head)
    if magic != MAGIC or version != VERSION or slot_bytes != SLOT_BYTES or not 0 < n_slots <= SLOTS_MAX:
        raise BadRing("it is of another version, or no ring of steps")
    if os.fstat(file).st_size < SLOTS_AT + n_slots * SLOT_BYTES:
        raise BadRing("it is cut short")
    return int(n_slots)


def declared_in(file: int) -> bytes:
    """The declaration, whole. Raises BadRing."""
    for _ in range(3):
        raw = os.pread(file, DECLARED.size + DECLARED_BYTES_MAX, DECLARED_AT)
        if len(raw) < DECLARED.size:
            raise BadRing("it is cut short")
        length, check = DECLARED.unpack_from(raw)
        said = raw[DECLARED.size : DECLARED.size + length]
        if len(said) == length > 0 and zlib.crc32(said) == check:
            return said
    raise NotWhole("not whole: its declaration was being written")


def declaration_of(raw: bytes) -> Declaration:
    """What it says. Raises BadRing."""
    try:
        said = json.loads(raw)
        schemas = [_schema(one) for one in said["schemas"][-SCHEMAS_MAX:]]
        rank, world_size = (_within(said[name], -1, RANKS_MAX) for name in ("rank", "world_size"))
        return Declaration(
            job=str(said["job"])[:512].encode("utf-8", "replace").decode(), pid=_within(said["pid"], 1, 2**31),
            rank=rank, world_size=world_size, role=str(said["role"]).encode("ascii", "replace")[:32],
            road=_within(said["road"], 0, len(ROADS)), flags=_within(said["flags"], 0, 256),
            event_permille=_within(said["event_permille"], 0, 1001), now=schemas[-1].schema_id,
            schemas={one.schema_id: one for one in schemas}, members=_members(said.get("members", [])),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise BadRing("its declaration makes no sense") from error


def _members(said: Any) -> tuple[tuple[bytes, int, int, int], ...]:
    """As a gathering rank declared them: a bounded number of ranks in all."""
    found, left = list[tuple[bytes, int, int, int]](), MEMBERS_MAX
    for role, flags, first, last in said[:MEMBER_RUNS_MAX]:
        _within(first, 0, RANKS_MAX)
        left -= _within(last, first, RANKS_MAX) - first + 1
        if left < 0:
            raise ValueError("more ranks than a gather brings")
        found.append((str(role).encode("ascii", "replace")[:32], _within(flags, 0, 256), first, last))
    return tuple(found)


def _schema(said: Any) -> Schema:
    """As a recorder declared it; its own checks refuse what cannot be."""
    parents = tuple((str(part), str(parent)) for part, parent in said["parents"])
    stages, sides = (tuple(str(one) for one in said[name]) for name in ("stages", "sides"))
    return Schema(stages, _within(said["micro_steps"], 1, 65536), parents, sides, _within(said["version"], 1, 256))


def _within(number: Any, least: int, beyond: int) -> int:
    if type(number) is not int or not least <= number < beyond:
        raise ValueError("a number that cannot be")
    return number


def written_in(head: bytes) -> int:
    """How many slots were written so far. Raises BadRing."""
    if len(head) < HEAD_BYTES:
        raise BadRing("it is cut short")
    return int(HEAD.unpack_from(head)[4])


def counts_in(head: bytes) -> tuple[int, ...] | None:
    """COUNTS; None when they were being written or cannot be."""
    raw = head[COUNTS_AT : COUNTS_AT + COUNTS.size]
    (check,) = CHECK.unpack_from(head, COUNTS_AT + COUNTS.size)
    counts = COUNTS.unpack(raw)
    return counts if zlib.crc32(raw) == check and 0 <= counts[0] <= STEPS_MAX else None
