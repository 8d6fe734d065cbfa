"""Dumps: what an agent found in the processes of a job when it was asked, as bytes and back.

One body per node, request and look: Python stacks and Flight Recorder dumps as their tools wrote them, raw epochs of what was
sent (epochs.py), and of each process that gave none the reason. Frozen dataclasses, `encode_dumps`, `decode_dumps` and one
exception, no I/O. Every part is compressed by itself, so that whoever keeps it keeps its bytes as they came. Nothing is
inflated beyond what was promised.

Byte table (little-endian), version 1:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | magic b"DGDP" |
| 4 | 1 | version: another one is refused |
| 5 | 3 | 0 |
| 8 | 4 | bytes of the head, once inflated |
| 12 | 4 | bytes of the head as sent |
| 16 | 4 | crc32 of everything from byte 20 on |
| 20 | … | head: JSON, zlib |
| … | … | the parts that hold something, one after the other, each zlib |
"""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from nccl_instrument.epochs import BYTES_MAX as EPOCHS_BYTES_MAX

MAGIC: Final = b"DGDP"
VERSION: Final = 1
STACKS: Final = "stacks"
RECORDER: Final = "recorder"
EPOCHS: Final = "epochs"
KINDS: Final = (STACKS, RECORDER)
"""What every diagnosis reads of the processes."""
ALL_KINDS: Final = (*KINDS, EPOCHS)
"""What may be asked for."""
NO_PYTHON: Final = "it is no Python process"  # how the reason begins why there are no stacks of it
BODY_BYTES_MAX: Final = 16 * 2**20
INFLATED_BYTES_MAX: Final = 64 * 2**20
PART_BYTES_MAX: Final = {STACKS: 4 * 2**20, RECORDER: 32 * 2**20, EPOCHS: EPOCHS_BYTES_MAX}
HEAD_BYTES_MAX: Final = 4 * 2**20
PARTS_MAX: Final = 4096
NAME_CHARS_MAX: Final = 128
TEXT_CHARS_MAX: Final = 300
LOOKS_MAX: Final = 2
NUMBER_MAX: Final = 2**62
_START: Final = struct.Struct("<4sB3sIII")
_CRC_FROM: Final = 20
_LEVEL: Final = 3


class BadDump(ValueError):
    """The bytes are no dumps this version can read; the message says why and is safe to show."""


@dataclass(frozen=True, slots=True)
class Part:
    """One dump of one process. packed: zlib of `length` bytes; b"" and 0 when there is none, and `silent` says why.

    kind: of ALL_KINDS. rank: -1 unknown. parent: the process it is a child of, 0 for the trainer itself. taken_ns: unix ns. by:
    how the dump came, in words.
    """

    kind: str
    rank: int
    pid: int
    parent: int
    command: str
    taken_ns: int
    silent: str
    by: str
    length: int = 0
    packed: bytes = b""

    def holding(self, raw: bytes) -> Part:
        """This part with `raw` in it; without, and saying so, when there may not be as much in a part."""
        most = PART_BYTES_MAX[self.kind]
        if len(raw) > most:
            return replace(self, silent=f"left out: {len(raw)} bytes, at most {most} are sent")
        return replace(self, length=len(raw), packed=zlib.compress(raw, _LEVEL)) if raw else self

    @property
    def raw(self) -> bytes:
        """What was dumped. Raises BadDump when it does not inflate to what was promised."""
        return inflated(self.packed, self.length) if self.length else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived(Part):
    """A part with the node it came from and the look it is of, counted from 1."""

    node: str
    look: int


@dataclass(frozen=True, slots=True)
class Silent:
    """A process, or rank, of which nothing could be read, and why. kind: of dump."""

    rank: int
    node: str
    kind: str
    why: str


class Room:
    """What one body may hold. A part that does not fit any more lets go of its bytes at once. Any thread may ask."""

    def __init__(self) -> None:
        self._packed, self._length = BODY_BYTES_MAX - HEAD_BYTES_MAX // 2, INFLATED_BYTES_MAX
        self._lock = threading.Lock()

    def admit(self, part: Part) -> Part:
        """The part; without what it holds, and saying so, when there is no room for it."""
        with self._lock:
            if len(part.packed) > self._packed or part.length > self._length:
                why = f"left out: the node's dumps take more than {INFLATED_BYTES_MAX >> 20} MiB"
                return replace(part, silent=why, length=0, packed=b"")
            self._packed, self._length = self._packed - len(part.packed), self._length - part.length
        return part


@dataclass(frozen=True, slots=True)
class Dumps:
    """What a node answers to one look of a request. boot: 16 bytes of hex, one life of its agent. look: from 1."""

    job: str
    node: str
    boot: str
    request: int
    look: int
    parts: tuple[Part, ...]


def encode_dumps(dumps: Dumps) -> bytes:
    """The bytes of `dumps`; parts for which there is no room stay as ones that say so."""
    parts = _fitting([_worded(part) for part in dumps.parts[:PARTS_MAX]])
    head = {name: getattr(dumps, name) for name in _HEAD} | {"parts": [_said(part) for part in parts]}
    said = json.dumps(head, separators=(",", ":")).encode()
    packed_head = zlib.compress(said, _LEVEL)
    rest = b"".join((packed_head, *(part.packed for part in parts)))
    return _START.pack(MAGIC, VERSION, bytes(3), len(said), len(packed_head), zlib.crc32(rest)) + rest


def decode_dumps(raw: bytes) -> Dumps:
    """The dumps in `raw`, every part of which inflates to what it promises. Raises BadDump, whatever the bytes."""
    if len(raw) > BODY_BYTES_MAX:
        raise BadDump(f"too large: {len(raw)} bytes, at most {BODY_BYTES_MAX}")
    if len(raw) < _START.size:
        raise BadDump(f"truncated: {len(raw)} bytes, the start alone has {_START.size}")
    magic, version, _, head_bytes, packed_bytes, crc = _START.unpack_from(raw)
    if magic != MAGIC:
        raise BadDump("not dumps (magic)")
    if version != VERSION:
        raise BadDump(f"version {version} is not supported, this server reads {VERSION}")
    if zlib.crc32(memoryview(raw)[_CRC_FROM:]) != crc:
        raise BadDump("checksum mismatch")
    if head_bytes > HEAD_BYTES_MAX or _START.size + packed_bytes > len(raw):
        raise BadDump("the head is too large")
    head = _head_of(inflated(raw[_START.size : _START.size + packed_bytes], head_bytes))
    return _with_parts(head, memoryview(raw)[_START.size + packed_bytes :])


def inflated(packed: bytes, length: int) -> bytes:
    """What `packed` holds, exactly `length` bytes. Raises BadDump."""
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(packed, length + 1)
    except zlib.error as error:
        raise BadDump("something does not inflate") from error
    if len(found) != length or not inflater.eof or inflater.unused_data:
        raise BadDump("inflated size is not what was promised")
    return found


def plain(text: str) -> str:
    """Printable text of at most TEXT_CHARS_MAX characters: it may end in a database and on a page."""
    return "".join(one if one.isprintable() else " " for one in text[:TEXT_CHARS_MAX])


def _worded(part: Part) -> Part:
    return replace(part, command=plain(part.command), silent=plain(part.silent), by=plain(part.by))


_HEAD: Final = ("job", "node", "boot", "request", "look")
_SAID: Final[dict[str, type]] = {
    "kind": str, "rank": int, "pid": int, "parent": int, "command": str, "taken_ns": int, "silent": str, "by": str,
    "length": int,
}  # fmt: skip


def _said(part: Part) -> dict[str, Any]:
    return {name: getattr(part, name) for name in _SAID} | {"packed": len(part.packed)}


def _fitting(parts: list[Part]) -> list[Part]:
    """Without what is beyond the limits of a body: the largest dumps go first, the reason stays in their place."""
    room, kept = Room(), list(parts)
    for at in sorted(range(len(parts)), key=lambda at: len(parts[at].packed)):
        kept[at] = room.admit(parts[at])
    return kept


def _head_of(said: bytes) -> dict[str, Any]:
    try:
        head = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise BadDump("the head is not JSON") from error
    if not isinstance(head, dict):
        raise BadDump("the head is no object")
    for name in ("job", "node"):
        _check_name(head.get(name), name)
    boot = head.get("boot")
    if not isinstance(boot, str) or len(boot) != 32 or not set(boot) <= set("0123456789abcdef"):
        raise BadDump("no boot id")
    if not _is_number(head.get("request"), 1, NUMBER_MAX) or not _is_number(head.get("look"), 1, LOOKS_MAX):
        raise BadDump("no request or no look")
    parts = head.get("parts")
    if not isinstance(parts, list) or len(parts) > PARTS_MAX:
        raise BadDump(f"no list of parts, or more than {PARTS_MAX}")
    return head


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise BadDump(f"no printable {what} name of at most {NAME_CHARS_MAX} characters")


def _is_number(found: Any, least: int, most: int) -> bool:
    return type(found) is int and least <= found <= most


def _with_parts(head: Mapping[str, Any], rest: memoryview) -> Dumps:
    parts, at, total = [], 0, 0
    for said in head["parts"]:
        part, n_packed = _part_of(said)
        total += part.length
        if at + n_packed > len(rest) or total > INFLATED_BYTES_MAX:
            raise BadDump("the parts are larger than they may be, or than what came")
        parts.append(replace(part, packed=bytes(rest[at : at + n_packed])))
        at += n_packed
    if at != len(rest):
        raise BadDump(f"padded: {len(rest) - at} bytes after the last part")
    _check_inflate(parts)
    return Dumps(**{name: head[name] for name in _HEAD}, parts=tuple(parts))


def _check_inflate(parts: Iterable[Part]) -> None:
    for part in parts:
        if part.length:
            inflated(part.packed, part.length)


def _part_of(said: Any) -> tuple[Part, int]:
    """The part without its bytes, and how many they are."""
    if not isinstance(said, dict) or any(type(said.get(name)) is not kind for name, kind in _SAID.items()):
        raise BadDump("a part lacks something, or has it of another type")
    n_packed, length = said.get("packed", -1), said["length"]
    if said["kind"] not in ALL_KINDS:
        raise BadDump("a part is of no known kind")
    if not _is_number(n_packed, 0, BODY_BYTES_MAX) or not _is_number(length, 0, PART_BYTES_MAX[said["kind"]]):
        raise BadDump("a part is too large")
    if bool(n_packed) != bool(length):
        raise BadDump("a part promises bytes it has not, or has some it does not promise")
    numbers = (("rank", -1, 2**31 - 1), ("pid", 0, 2**31 - 1), ("parent", 0, 2**31 - 1), ("taken_ns", 0, NUMBER_MAX))
    if not all(_is_number(said[name], least, most) for name, least, most in numbers):
        raise BadDump("a part has a number that cannot be")
    return _worded(Part(**{name: said[name] for name in _SAID})), n_packed
