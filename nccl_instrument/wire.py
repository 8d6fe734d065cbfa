"""TraceBatch: what an agent sends at once, as bytes and back.

A frozen dataclass, `encode_batch`, `decode_batch`, and one exception; no I/O. The agent and ingest share this module
and nothing else, so the byte table here is the whole contract between node and server. Anything wrong with the bytes is
BadBatch; a row that is well-formed but cannot be true is the receiver's to drop.

Byte table (little-endian), MAJOR.MINOR = 2.6:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | magic b"DGTB" |
| 4 | 1 | major: another major is refused |
| 5 | 1 | minor: a newer minor may append columns and add tables and sections; all are skipped |
| 6 | 2 | number of sections |
| 8 | 4 | bytes of all rows together, once decoded |
| 12 | 4 | crc32 of everything from byte 16 on |
| 16 | 16 | boot id: random, made anew each time an agent starts |
| 32 | 8 | batch number, counted from 0 in that boot |
| 40 | 8 | clock anchor: wall time, unix ns |
| 48 | 8 | clock anchor: CLOCK_MONOTONIC ns, read together with it |
| 56 | 2 | length of the job name |
| 58 | 2 | length of the node name |
| 60 | … | job name, node name (utf-8) |
| … | … | sections, one after the other: tables.GROUPS that have rows |

A section is compressed by itself, so that whoever keeps batches can keep its sections as they came and later read one
without the others (`PackedBatch.alone`):

| bytes | field |
|---|---|
| 8 | name of the group, zero-padded |
| 4 | size of the compressed body |
| 2 | number of tables |
| 14 + … each | directory: table name (8, zero-padded), bytes per row b (2), rows (4), unless by rows b bits: the planes sent |
| … | body, zlib: per table, byte plane k of all its rows, for each k whose bit is set; the other planes are zero |

The highest bit of the bytes per row says that a table has no such bits and is sent as it is, row after row; who writes
does so where there are few. In all others, columns marked `delta` in tables.py hold the difference to the row above
(modulo their width). The planes put equal bytes beside each other; leaving out those of zeros makes the body smaller and
halves the time to inflate it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nccl_instrument.planes import PlaneTable, PlaneTables, Sent, planes_of, to_planes
from nccl_instrument.tables import DTYPE, GROUPS, TABLES, empty_rows

try:
    from zlib_ng import zlib_ng
except ImportError:  # a training node has numpy alone
    zlib_ng = None  # type: ignore[assignment]

_INFLATING: Final[Any] = zlib_ng or zlib
"""A server inflates tens of thousands of sections for one diagnosis, and zlib-ng is more than twice as fast."""
MAGIC: Final = b"DGTB"
MAJOR: Final = 2
MINOR: Final = 6
BATCH_BYTES_MAX: Final = 4 * 2**20
ROWS_BYTES_MAX: Final = 64 * 2**20
ROWS_MAX: Final = 500_000
ROW_BYTES_MAX: Final = 1024
BY_ROWS: Final = 0x8000  # beside the bytes per row, which never need this bit
BY_ROWS_MAX: Final = 31  # the writer's choice: planes of so few rows save little and cost both ends most
WIDENED_MAX: Final = 2  # an older writer's rows lack a few columns, not most of them
NAME_BYTES_MAX: Final = 128
SECTIONS_MAX: Final = 16
TABLES_MAX: Final = 16
DIRECTORY_KEPT_MAX: Final = 256  # bytes; agents' have up to 100, and what others make up is not to fill the memory
COMPRESSION: Final = 6
"""A fifth smaller than level 1 for 0.3 ms a second of the agent's time."""

Rows = npt.NDArray[np.void]
_HEAD = struct.Struct("<4sBBHII16sQqqHH")
_SECTION = struct.Struct("<8sIH")
_ENTRY = struct.Struct("<8sHI")
_CRC_FROM = 16
_EMPTY: Final = {table: empty_rows(table) for table in TABLES}


class BadBatch(ValueError):
    """The bytes are not a trace batch this version can read; the message says why and is safe to show."""


@dataclass(frozen=True, slots=True)
class TraceBatch:
    """One second (or so) of one job on one node.

    job, node: names, at most NAME_BYTES_MAX bytes of utf-8. boot_id: 16 bytes. number: ≥ 0, unique in its boot.
    wall_ns, mono_ns: the node's two clocks, read together when the batch was cut. tables: name → (n,) structured array
    of tables.DTYPE[name]; a missing table is an empty one.
    """

    job: str
    node: str
    boot_id: bytes
    number: int
    wall_ns: int
    mono_ns: int
    tables: Mapping[str, Rows]

    def rows(self, table: str) -> Rows:
        """(n,) rows of `table`, empty when the batch has none."""
        found = self.tables.get(table)
        return _EMPTY[table] if found is None else found


@dataclass(frozen=True, slots=True)
class _Directory:
    """What a section says that it holds. body_bytes, rows_bytes, widened_bytes: of all its tables, inflated, as rows, and as
    rows with the columns that their writer did not have."""

    entries: tuple[Sent, ...]
    body_bytes: int
    rows_bytes: int
    widened_bytes: int


class _Section(NamedTuple):
    """Where a section lies in the batch: packed is all of it, body its compressed part."""

    name: str
    held: _Directory
    packed: memoryview
    body: memoryview


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch whose structure is sound and whose sections are still compressed. head: of the batch, without tables."""

    head: TraceBatch
    sections: tuple[_Section, ...]

    def n_rows(self, table: str) -> int:
        """Rows of that table, as its section promises."""
        for section in self.sections:
            for entry in section.held.entries:
                if entry.table == table:  # it is in one section alone, and there once
                    return entry.n_rows
        return 0

    def inflate(self) -> dict[str, PlaneTable]:
        """Table → its planes. Raises BadBatch; inflates no more than was promised."""
        return {
            table: planes
            for section in self.sections
            if section.name in GROUPS
            for table, planes in _inflate_section(section)
        }

    def unpack(self) -> TraceBatch:
        """The batch with its tables, each made into rows when it is asked for. Raises BadBatch."""
        return self.with_tables(PlaneTables(self.inflate()))

    def with_tables(self, tables: Mapping[str, Rows]) -> TraceBatch:
        head = self.head
        return TraceBatch(head.job, head.node, head.boot_id, head.number, head.wall_ns, head.mono_ns, tables)

    def alone(self, group: str) -> bytes | None:
        """A batch of this group's section only, its bytes as they came; None when there is no such section."""
        found = [section for section in self.sections if section.name == group]
        return _seal(self.head, found[0].held.rows_bytes, [found[0].packed]) if found else None


def encode_batch(batch: TraceBatch) -> bytes:
    """The bytes of `batch`; ValueError when it breaks a limit a decoder would refuse."""
    rows_bytes = sum(DTYPE[table].itemsize * len(rows) for table, rows in batch.tables.items())
    if rows_bytes > ROWS_BYTES_MAX or any(len(rows) > ROWS_MAX for rows in batch.tables.values()):
        raise ValueError(f"trace batch too large: {rows_bytes} bytes of rows")
    filled = {name: [table for table in held if len(batch.rows(table))] for name, held in GROUPS.items()}
    return _seal(batch, rows_bytes, [_pack_section(batch, name, held) for name, held in filled.items() if held])


def decode_batch(raw: bytes) -> TraceBatch:
    """The batch in `raw`. Raises BadBatch with the reason, whatever the bytes; inflates no more than it was promised."""
    return open_batch(raw).unpack()


def open_batch(raw: bytes) -> PackedBatch:
    """The batch in `raw` with its structure checked and nothing inflated. Raises BadBatch with the reason."""
    if len(raw) > BATCH_BYTES_MAX:
        raise BadBatch(f"too large: {len(raw)} bytes, at most {BATCH_BYTES_MAX}")
    n_sections, rows_bytes, boot_id, number, wall_ns, mono_ns, n_job, n_node = _decode_head(raw)
    at = _HEAD.size
    job, node = _decode_name(raw[at : at + n_job], "job"), _decode_name(raw[at + n_job : at + n_job + n_node], "node")
    sections = tuple(_decode_sections(memoryview(raw)[at + n_job + n_node :], n_sections))
    if len({section.name for section in sections}) != n_sections:
        raise BadBatch("a section appears twice")
    found_bytes, widened_bytes = 0, 0
    for section in sections:  # a loop: this is done for every stored group, tens of thousands for one diagnosis
        held = section.held
        found_bytes += held.rows_bytes
        widened_bytes += held.widened_bytes
        if held.widened_bytes > WIDENED_MAX * held.rows_bytes:
            raise BadBatch("rows have less than half of their columns")
    if found_bytes != rows_bytes:
        raise BadBatch("directory and promised size disagree")
    if widened_bytes > ROWS_BYTES_MAX:
        raise BadBatch(f"too large: {rows_bytes} bytes of rows become more than {ROWS_BYTES_MAX}")
    return PackedBatch(TraceBatch(job, node, boot_id, number, wall_ns, mono_ns, {}), sections)


def checked_batch(raw: bytes) -> bytes:
    """`raw`, when its version is read and its checksum is right; what the sections hold is for `open_batch` to say."""
    _decode_head(raw)
    return raw


def promised_bytes(raw: bytes) -> int:
    """Bytes of rows the header promises, before anything is checked; decoding holds it to that."""
    return min(int(struct.unpack_from("<I", raw, 8)[0]), ROWS_BYTES_MAX) if len(raw) >= _HEAD.size else 0


def claimed_names(raw: bytes) -> tuple[str, str]:
    """Job and node name that refused bytes claim, for the count alone; empty where they cannot be read."""
    try:
        *_, n_job, n_node = _HEAD.unpack_from(raw)
        job = _decode_name(raw[_HEAD.size : _HEAD.size + n_job], "job")
        return job, _decode_name(raw[_HEAD.size + n_job : _HEAD.size + n_job + n_node], "node")
    except (struct.error, BadBatch):
        return "", ""


def _seal(head: TraceBatch, rows_bytes: int, sections: list[bytes] | list[memoryview]) -> bytes:
    """Header, names and packed sections as one batch."""
    job, node = _name_bytes(head.job, "job"), _name_bytes(head.node, "node")
    start = _HEAD.pack(
        MAGIC, MAJOR, MINOR, len(sections), rows_bytes, 0,
        head.boot_id, head.number, head.wall_ns, head.mono_ns, len(job), len(node),
    )  # fmt: skip
    rest = b"".join((start[_CRC_FROM:], job, node, *sections))
    return start[: _CRC_FROM - 4] + struct.pack("<I", zlib.crc32(rest)) + rest


def _name_bytes(name: str, what: str) -> bytes:
    encoded = name.encode()
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise ValueError(f"{what} name must be 1 to {NAME_BYTES_MAX} bytes")
    return encoded


def _pack_section(batch: TraceBatch, name: str, held: list[str]) -> bytes:
    directory, planes = [], []
    for table in held:
        rows = np.array(batch.tables[table], DTYPE[table])
        if len(rows) <= BY_ROWS_MAX:
            directory.append(_ENTRY.pack(table.encode(), rows.itemsize | BY_ROWS, len(rows)))
            planes.append(rows.tobytes())
            continue
        every = to_planes(table, rows)
        is_sent = every.any(axis=1)
        entry = _ENTRY.pack(table.encode(), rows.itemsize, len(rows))
        directory.append(entry + np.packbits(is_sent, bitorder="little").tobytes())
        planes.append(every[is_sent].tobytes())
    body = zlib.compress(b"".join(planes), COMPRESSION)
    return _SECTION.pack(name.encode(), len(body), len(held)) + b"".join(directory) + body


def _decode_head(raw: bytes) -> tuple[Any, ...]:
    if len(raw) < _HEAD.size:
        raise BadBatch(f"truncated: {len(raw)} bytes, the header alone has {_HEAD.size}")
    magic, major, _minor, n_sections, rows_bytes, crc, *rest = _HEAD.unpack_from(raw)
    if magic != MAGIC:
        raise BadBatch("not a trace batch (magic)")
    if major != MAJOR:
        raise BadBatch(f"version {major}.x is not supported, this server reads {MAJOR}.x")
    if zlib.crc32(memoryview(raw)[_CRC_FROM:]) != crc:
        raise BadBatch("checksum mismatch")
    if rows_bytes > ROWS_BYTES_MAX:
        raise BadBatch(f"too large: {rows_bytes} bytes of rows, at most {ROWS_BYTES_MAX}")
    if n_sections > SECTIONS_MAX:
        raise BadBatch(f"too many sections: {n_sections}, at most {SECTIONS_MAX}")
    return (n_sections, rows_bytes, *rest)


@lru_cache(maxsize=4096)
def _decode_name(raw: bytes, what: str) -> str:
    if not 0 < len(raw) <= NAME_BYTES_MAX:
        raise BadBatch(f"{what} name must be 1 to {NAME_BYTES_MAX} bytes")
    try:
        name = raw.decode()
    except UnicodeDecodeError as error:
        raise BadBatch(f"{what} name is not utf-8") from error
    if not name.isprintable():
        raise BadBatch(f"{what} name has unprintable characters")
    return name


def _decode_sections(raw: memoryview, n_sections: int) -> Iterator[_Section]:
    at = 0
    for _ in range(n_sections):
        padded, body_bytes, n_tables = _SECTION.unpack(_slice(raw, at, _SECTION.size))
        if n_tables > TABLES_MAX:
            raise BadBatch(f"too many tables: {n_tables}, at most {TABLES_MAX} in a section")
        directory = _slice_directory(raw, at + _SECTION.size, n_tables)
        body_at = at + _SECTION.size + len(directory)
        name, body = _name_of(padded), _slice(raw, body_at, body_bytes)
        yield _Section(name, _decode_directory(name, directory), raw[at : body_at + body_bytes], body)
        at = body_at + body_bytes
    if at != len(raw):
        raise BadBatch(f"padded: {len(raw) - at} bytes after the last section")


def _slice_directory(raw: memoryview, at: int, n_tables: int) -> bytes:
    """The directory that begins there."""
    end = at
    for _ in range(n_tables):
        row_bytes = int.from_bytes(_slice(raw, end, _ENTRY.size)[8:10], "little")
        end += _ENTRY.size + _n_bit_bytes(row_bytes)
    return bytes(_slice(raw, at, end - at))


def _n_bit_bytes(row_bytes: int) -> int:
    """Bytes of the bits that say which planes are sent."""
    return 0 if row_bytes & BY_ROWS else (row_bytes + 7) // 8


def _decode_directory(name: str, directory: bytes) -> _Directory:
    """What the directory of a section of that name says; most are as in the second before."""
    is_kept = len(directory) <= DIRECTORY_KEPT_MAX
    return _kept_directory(name, directory) if is_kept else _read_directory(name, directory)


def _read_directory(name: str, directory: bytes) -> _Directory:
    entries, at, own = [], 0, GROUPS.get(name, ())
    while at < len(directory):
        padded, row_bytes, n_rows = _ENTRY.unpack_from(directory, at)
        at += _ENTRY.size
        bits = directory[at : at + _n_bit_bytes(row_bytes)]
        at += len(bits)
        entries.append(_decode_entry(_name_of(padded), row_bytes, n_rows, bits))
    if any(entry.table in TABLES and entry.table not in own for entry in entries):
        raise BadBatch(f"section {name!r} holds a table that is not its own")
    if len({entry.table for entry in entries}) != len(entries):
        raise BadBatch(f"section {name!r} holds a table twice")
    return _Directory(
        tuple(entries),
        body_bytes=sum(entry.n_bytes for entry in entries),
        rows_bytes=sum(entry.rows_bytes for entry in entries),
        widened_bytes=sum(entry.widened_bytes for entry in entries),
    )


_kept_directory = lru_cache(maxsize=4096)(_read_directory)


def _decode_entry(table: str, row_bytes: int, n_rows: int, bits: bytes) -> Sent:
    is_by_rows, row_bytes = bool(row_bytes & BY_ROWS), row_bytes & ~BY_ROWS
    if not 0 < row_bytes <= ROW_BYTES_MAX or not 0 < n_rows <= ROWS_MAX:
        raise BadBatch(f"table {table!r}: {n_rows} rows of {row_bytes} bytes")
    planes = () if is_by_rows else planes_of(bits, row_bytes)
    return Sent(table, row_bytes, n_rows, planes, is_by_rows)


def _slice(raw: memoryview, at: int, n_bytes: int) -> memoryview:
    if at + n_bytes > len(raw):
        raise BadBatch(f"truncated: {len(raw)} bytes of sections, {at + n_bytes} or more are announced")
    return raw[at : at + n_bytes]


@lru_cache(maxsize=1024)
def _name_of(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("ascii", "replace")


def _inflate_section(section: _Section) -> Iterator[tuple[str, PlaneTable]]:
    planes, at = _inflate(section.body, section.held.body_bytes), 0
    for entry in section.held.entries:
        end = at + entry.n_bytes
        if entry.table in TABLES:
            yield entry.table, PlaneTable(entry, planes[at:end])
        at = end


def _inflate(body: memoryview, size: int) -> npt.NDArray[np.uint8]:
    inflater = _INFLATING.decompressobj()
    try:
        planes = inflater.decompress(body, size + 1)
    except _INFLATING.error as error:
        raise BadBatch("a section does not inflate") from error
    if len(planes) != size or not inflater.eof or inflater.unused_data:
        raise BadBatch("inflated size is not what the directory says")
    return np.frombuffer(planes, np.uint8)
