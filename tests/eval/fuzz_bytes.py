"""Trace batches taken apart, changed and sealed again, so that a fuzzer gets beyond the checksum.

Bytes changed at random are refused at the first check and teach nothing. Here a batch is a tree of parts; a mutation
changes one of them, and sizes, compression and checksum are made right again, unless lying about them is the mutation.
Everything is drawn from the generator given, so that a seed repeats a run.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from nccl_instrument.tables import DTYPE, GROUPS
from nccl_instrument.wire import BY_ROWS

HEAD: Final = struct.Struct("<4sBBHII16sQqqHH")
SECTION: Final = struct.Struct("<8sIH")
ENTRY: Final = struct.Struct("<8sHI")
CRC_AT: Final = 12
CRC_FROM: Final = 16
GROW_BYTES_MAX: Final = 200_000
MUTABLE_ROWS_MAX: Final = 5_000  # a table of half a million rows is made for itself, not to be changed further
BOMB: Final = zlib.compress(bytes(10**6), 9)

EXTREMES: Final = (
    0, 1, 2, -1, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**50, 2**50 + 1, 2**53,
    2**58 - 1, 2**58, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63), 10**18, 500_000, 500_001,
)  # fmt: skip
NAMES: Final = (
    b"", b"\0", b"a\0b", b"x" * 128, b"x" * 129, b"\xff\xfe", b"\xed\xa0\x80", "ü".encode() * 64, b"'; DROP TABLE x",
    "\u202egpj.exe".encode(), b"a\nb", b"%s%n{}", "\U0001f525".encode() * 32, b"../../etc/passwd", b" ", "\u00a0".encode(),
)  # fmt: skip


@dataclass(slots=True)
class Table:
    """A table as it is sent. planes: which byte planes are there; sent: those, end to end; by_rows: as the writer chose."""

    name: bytes
    row_bytes: int
    n_rows: int
    planes: list[bool]
    sent: bytes
    by_rows: bool = False


@dataclass(slots=True)
class Section:
    """tables and how they are packed. spoil: what becomes of the compressed body."""

    name: bytes
    tables: list[Table]
    spoil: Callable[[bytes], bytes] | None = None


@dataclass(slots=True)
class Parts:
    """A batch taken apart. lies: header fields that are not what they should be, by name."""

    boot_id: bytes
    number: int
    wall_ns: int
    mono_ns: int
    job: bytes
    node: bytes
    sections: list[Section]
    minor: int = 0
    lies: dict[str, int] = field(default_factory=dict)


def take_apart(raw: bytes) -> Parts | None:
    """The parts of well-formed bytes; None when they are not."""
    try:
        *_, boot_id, number, wall_ns, mono_ns, n_job, n_node = HEAD.unpack_from(raw)
        at = HEAD.size
        job, node = raw[at : at + n_job], raw[at + n_job : at + n_job + n_node]
        sections, at = [], at + n_job + n_node
        while at < len(raw):
            section, at = _take_section(raw, at)
            sections.append(section)
        return Parts(boot_id, number, wall_ns, mono_ns, job, node, sections)
    except (struct.error, zlib.error, ValueError):
        return None


def _take_section(raw: bytes, at: int) -> tuple[Section, int]:
    name, body_bytes, n_tables = SECTION.unpack_from(raw, at)
    at += SECTION.size
    tables = []
    for _ in range(min(n_tables, 16)):
        table, row_bytes, n_rows = ENTRY.unpack_from(raw, at)
        at += ENTRY.size
        by_rows, row_bytes = bool(row_bytes & BY_ROWS), row_bytes & ~BY_ROWS
        bits = np.frombuffer(raw[at : at + (row_bytes + 7) // 8], np.uint8)
        planes = np.unpackbits(bits, count=row_bytes, bitorder="little").astype(bool).tolist()
        tables.append(Table(table, row_bytes, n_rows, [True] * row_bytes if by_rows else planes, b"", by_rows))
        at += 0 if by_rows else len(bits)
    size = sum(sum(table.planes) * table.n_rows for table in tables)
    if size > GROW_BYTES_MAX:
        raise ValueError("too large to be of use")
    body, begins = zlib.decompressobj().decompress(raw[at : at + body_bytes], size + 1), 0
    for table in tables:
        n_bytes = sum(table.planes) * table.n_rows
        table.sent, begins = body[begins : begins + n_bytes], begins + n_bytes
        if table.by_rows and n_bytes:
            table.sent = np.frombuffer(table.sent, np.uint8).reshape(table.n_rows, -1).T.tobytes()
    return Section(name, tables), at + body_bytes


def seal(parts: Parts) -> bytes:
    """The bytes of the parts, as right as `lies` lets them be."""
    packed = b"".join(_pack(section, parts.lies) for section in parts.sections)
    rows_bytes = sum(table.row_bytes * table.n_rows for section in parts.sections for table in section.tables)
    head = HEAD.pack(
        b"DGTB", parts.lies.get("major", 2) % 256, parts.minor % 256,
        parts.lies.get("n_sections", len(parts.sections)) % 2**16, parts.lies.get("rows_bytes", rows_bytes) % 2**32, 0,
        (parts.boot_id + bytes(16))[:16], parts.number % 2**64, _signed(parts.wall_ns), _signed(parts.mono_ns),
        parts.lies.get("n_job", len(parts.job)) % 2**16, parts.lies.get("n_node", len(parts.node)) % 2**16,
    )  # fmt: skip
    return with_checksum(head + parts.job + parts.node + packed)


def with_checksum(raw: bytes) -> bytes:
    """The bytes with the checksum they should have."""
    if len(raw) < CRC_FROM:
        return raw
    return raw[:CRC_AT] + struct.pack("<I", zlib.crc32(raw[CRC_FROM:])) + raw[CRC_FROM:]


def _pack(section: Section, lies: dict[str, int]) -> bytes:
    body = zlib.compress(b"".join(_as_sent(table) for table in section.tables), 1)
    if section.spoil is not None:
        body = section.spoil(body)
    directory = b"".join(_entry(table) for table in section.tables)
    n_tables = lies.get("n_tables", len(section.tables))
    head = SECTION.pack(section.name, lies.get("body_bytes", len(body)) % 2**32, n_tables % 2**16)
    return head + directory + body


def _as_sent(table: Table) -> bytes:
    """The planes, or the rows."""
    if not table.by_rows or len(table.sent) != sum(table.planes) * table.n_rows:
        return table.sent
    every = np.zeros((table.row_bytes, table.n_rows), np.uint8)
    every[np.array(table.planes, bool)] = np.frombuffer(table.sent, np.uint8).reshape(sum(table.planes), table.n_rows)
    return every.T.tobytes()


def _entry(table: Table) -> bytes:
    if table.by_rows:
        return ENTRY.pack(table.name, (table.row_bytes | BY_ROWS) % 2**16, table.n_rows % 2**32)
    bits = np.packbits(np.array(table.planes, bool), bitorder="little").tobytes()
    return ENTRY.pack(table.name, table.row_bytes % 2**16, table.n_rows % 2**32) + bits


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


# ---- mutations ------------------------------------------------------------------------------------------------------


def mutate(raw: bytes, draw: random.Random, other: bytes | None = None) -> bytes:
    """Another batch made from this one. other: one to take sections from."""
    parts = take_apart(raw)
    if parts is None or draw.random() < 0.05:
        return _mutate_raw(raw, draw)
    for _ in range(draw.choice((1, 1, 2, 3, 5))):
        draw.choice(_MUTATIONS)(parts, draw)
    donor = take_apart(other) if other is not None and draw.random() < 0.1 else None
    if donor is not None and donor.sections:
        parts.sections.append(draw.choice(donor.sections))
    return seal(parts)


def _mutate_raw(raw: bytes, draw: random.Random) -> bytes:
    """Bytes changed, cut or added anywhere; the checksum is right in half of the cases."""
    changed = bytearray(raw or b"\0")
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed))
        what = draw.randrange(4)
        if what == 0:
            changed[at] = draw.randrange(256)
        elif what == 1:
            del changed[at : at + draw.randint(1, 16)]
        elif what == 2:
            changed[at:at] = draw.randbytes(draw.randint(1, 16))
        else:
            changed[at : at + 4] = struct.pack("<I", draw.choice(EXTREMES) % 2**32)
        changed = changed or bytearray(1)
    return with_checksum(bytes(changed)) if draw.random() < 0.5 else bytes(changed)


def _cell(parts: Parts, draw: random.Random) -> None:
    """One column of one row, or of all rows, takes an extreme or random value."""
    table = _some_table(parts, draw)
    name = table.name.rstrip(b"\0").decode("ascii", "replace") if table else ""
    if table is None or name not in DTYPE or not table.n_rows:
        return
    fields = DTYPE[name].fields or {}
    dtype, offset = draw.choice(list(fields.values()))[:2]
    value = draw.choice(EXTREMES) if draw.random() < 0.7 else draw.getrandbits(64)
    size = dtype.base.itemsize if dtype.subdtype else dtype.itemsize
    raw = (value % 2 ** (8 * size)).to_bytes(size, "little")
    _need_planes(table, offset + size)
    rows = range(min(table.n_rows, 64)) if draw.random() < 0.3 else [draw.randrange(table.n_rows)]
    sent = bytearray(table.sent)
    for k, byte in enumerate(raw):
        if offset + k < table.row_bytes:
            plane = sum(table.planes[: offset + k])
            for row in rows:
                sent[plane * table.n_rows + row : plane * table.n_rows + row + 1] = bytes([byte])
    table.sent = bytes(sent)


def _need_planes(table: Table, until: int) -> None:
    """Send the planes before byte `until`, zeros where they were left out."""
    planes, at = [], 0
    for k, is_sent in enumerate(table.planes):
        if is_sent or k < until:
            planes.append(table.sent[at : at + table.n_rows] if is_sent else bytes(table.n_rows))
        at += table.n_rows if is_sent else 0
    table.planes = [is_sent or k < until for k, is_sent in enumerate(table.planes)]
    table.sent = b"".join(planes)


def _bytes_of_rows(parts: Parts, draw: random.Random) -> None:
    table = _some_table(parts, draw)
    if table and table.sent:
        sent = bytearray(table.sent)
        for _ in range(draw.randint(1, 8)):
            sent[draw.randrange(len(sent))] = draw.randrange(256)
        table.sent = bytes(sent)


def _n_rows(parts: Parts, draw: random.Random) -> None:
    """More or fewer rows, the planes cut or repeated to fit; or none of the planes and very many rows."""
    table = _some_table(parts, draw)
    if table is None:
        return
    if draw.random() < 0.1:
        table.planes, table.sent, table.by_rows = [False] * table.row_bytes, b"", False
        table.n_rows = draw.choice((0, 1, 1, 100, 1000)) if draw.random() < 0.98 else draw.choice((500_000, 500_001))
        return
    n_rows = draw.choice((0, 1, 2, 3, table.n_rows + 1, 2 * table.n_rows, 64))
    if sum(table.planes) * n_rows < GROW_BYTES_MAX and table.n_rows:
        planes = [table.sent[at : at + table.n_rows] for at in range(0, len(table.sent), table.n_rows)]
        table.sent = b"".join((plane * (n_rows // table.n_rows + 1))[:n_rows] for plane in planes)
        table.n_rows = n_rows


def _row_bytes(parts: Parts, draw: random.Random) -> None:
    """An older or a newer writer: fewer or more bytes per row."""
    table = _some_table(parts, draw)
    if table is None:
        return
    row_bytes = draw.choice((1, 2, 7, 8, 9, table.row_bytes - 1, table.row_bytes + 1, table.row_bytes + 8, 300))
    row_bytes = max(row_bytes, 0)
    kept = sum(table.planes[:row_bytes])
    more = max(row_bytes - table.row_bytes, 0)
    table.planes = table.planes[:row_bytes] + [draw.random() < 0.5 for _ in range(more)]
    table.sent = table.sent[: kept * table.n_rows]
    table.sent += draw.randbytes((sum(table.planes) - kept) * table.n_rows)
    table.row_bytes = row_bytes


def _planes(parts: Parts, draw: random.Random) -> None:
    """A plane is left out, or the directory says so of one that is there; or rows are sent as few or many are not."""
    table = _some_table(parts, draw)
    if table is None or not table.planes:
        return
    if draw.random() < 0.2:
        table.by_rows = not table.by_rows
        return
    k = draw.randrange(len(table.planes))
    if table.planes[k] and draw.random() < 0.7:
        at = sum(table.planes[:k]) * table.n_rows
        table.sent = table.sent[:at] + table.sent[at + table.n_rows :]
    table.planes[k] = not table.planes[k]


def _structure(parts: Parts, draw: random.Random) -> None:
    """Tables and sections twice, gone, renamed, in another's place."""
    if not parts.sections:
        return
    section = draw.choice(parts.sections)
    what = draw.randrange(7)
    if what == 0:
        parts.sections.remove(section)
    elif what == 1:
        parts.sections.append(draw.choice(parts.sections))
    elif what == 2:
        section.name = draw.choice([name.encode() for name in GROUPS] + [b"", b"new", b"\xff" * 8]).ljust(8, b"\0")[:8]
    elif what == 3 and section.tables:
        section.tables.append(replace(draw.choice(section.tables)))
    elif what == 4 and section.tables:
        section.tables.remove(draw.choice(section.tables))
    elif what == 5 and section.tables:
        name = draw.choice([name.encode() for name in DTYPE] + [b"", b"later", b"op\0x"])
        draw.choice(section.tables).name = name.ljust(8, b"\0")[:8]
    else:
        draw.shuffle(parts.sections)


def _head(parts: Parts, draw: random.Random) -> None:
    what = draw.randrange(6)
    if what == 0:
        parts.number = draw.choice(EXTREMES)
    elif what == 1:
        parts.wall_ns = draw.choice(EXTREMES)
    elif what == 2:
        parts.mono_ns = draw.choice(EXTREMES)
    elif what == 3:
        parts.boot_id = draw.randbytes(16)
    elif what == 4:
        parts.minor = draw.randrange(256)
    else:
        parts.mono_ns += draw.choice((-1, 1)) * draw.choice((1, 10**9, 3600 * 10**9))


def _names(parts: Parts, draw: random.Random) -> None:
    name = draw.choice(NAMES) if draw.random() < 0.8 else draw.randbytes(draw.randint(0, 130))
    if draw.random() < 0.5:
        parts.job = name
    else:
        parts.node = name


def _spoil(parts: Parts, draw: random.Random) -> None:
    """A compressed body that is cut, longer than said, not compressed, or inflates to much more than promised."""
    if parts.sections:
        at, more = draw.random(), draw.randbytes(3)
        spoilt: tuple[Callable[[bytes], bytes], ...] = (
            lambda body: body[: int(len(body) * at)],
            lambda body: body + more,
            lambda body: zlib.decompress(body),
            lambda body: BOMB,
            lambda body: body + body,
            lambda body: b"",
        )
        draw.choice(parts.sections).spoil = draw.choice(spoilt)


def _lie(parts: Parts, draw: random.Random) -> None:
    what = draw.choice(("major", "n_sections", "rows_bytes", "n_job", "n_node", "n_tables", "body_bytes"))
    parts.lies[what] = draw.choice(EXTREMES) if draw.random() < 0.7 else draw.randrange(300)


def _some_table(parts: Parts, draw: random.Random) -> Table | None:
    tables = [table for section in parts.sections for table in section.tables if table.n_rows < MUTABLE_ROWS_MAX]
    return draw.choice(tables) if tables else None


_MUTATIONS: Final = (
    _cell, _cell, _cell, _cell, _cell, _bytes_of_rows, _bytes_of_rows, _n_rows, _row_bytes, _planes, _structure, _head,
    _names, _spoil, _lie,
)  # fmt: skip
