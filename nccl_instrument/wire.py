"""TraceBatch: what an agent sends at once, as bytes and back.

A frozen dataclass, `encode_batch`, `decode_batch`, and one exception; no I/O. The agent and ingest share this module
and nothing else, so the byte table here is the whole contract between node and server. Anything wrong with the bytes is
BadBatch; a row that is well-formed but cannot be true is found by `impossible_rows` and dropped by the receiver alone.

Byte table (little-endian), MAJOR.MINOR = 1.0:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | magic b"DGTB" |
| 4 | 1 | major: another major is refused |
| 5 | 1 | minor: a newer minor may append columns and add tables; both are skipped |
| 6 | 2 | number of tables |
| 8 | 4 | size of the compressed body |
| 12 | 4 | size of the inflated body |
| 16 | 4 | crc32 of everything from byte 20 on |
| 20 | 16 | boot id: random, made anew each time an agent starts |
| 36 | 8 | batch number, counted from 0 in that boot |
| 44 | 8 | clock anchor: wall time, unix ns |
| 52 | 8 | clock anchor: CLOCK_MONOTONIC ns, read together with it |
| 60 | 2 | length of the job name |
| 62 | 2 | length of the node name |
| 64 | … | job name, node name (utf-8) |
| … | 14 each | directory: table name (8, zero-padded), bytes per row (2), rows (4) |
| … | … | body, zlib: per table, byte plane k of all rows for k = 0 … bytes per row − 1 |

Columns marked `delta` in tables.py hold the difference to the row above (modulo their width). The planes put equal bytes
beside each other, which is what makes zlib level 1 enough.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import (
    ALGOS,
    DIRECTIONS,
    DTYPE,
    DTYPES,
    FUNCS,
    LOSSES,
    PORT_STATES,
    PROTOS,
    TABLES,
    TRANSPORTS,
    Column,
    empty_rows,
)

MAGIC: Final = b"DGTB"
MAJOR: Final = 1
MINOR: Final = 0
BATCH_BYTES_MAX: Final = 4 * 2**20
BODY_BYTES_MAX: Final = 64 * 2**20
ROWS_MAX: Final = 500_000
NAME_BYTES_MAX: Final = 128
TABLES_MAX: Final = 64

Rows = npt.NDArray[np.void]
_HEAD = struct.Struct("<4sBBHIII16sQqqHH")
_ENTRY = struct.Struct("<8sHI")
_CRC_FROM = 20


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
        return empty_rows(table) if found is None else found


def encode_batch(batch: TraceBatch) -> bytes:
    """The bytes of `batch`; ValueError when it breaks a limit a decoder would refuse."""
    job, node = _name_bytes(batch.job, "job"), _name_bytes(batch.node, "node")
    filled = {name: rows for name, rows in batch.tables.items() if len(rows)}
    directory = b"".join(_ENTRY.pack(name.encode(), DTYPE[name].itemsize, len(rows)) for name, rows in filled.items())
    planes = b"".join(_to_planes(name, rows) for name, rows in filled.items())
    if len(planes) > BODY_BYTES_MAX or any(len(rows) > ROWS_MAX for rows in filled.values()):
        raise ValueError(f"trace batch too large: {len(planes)} bytes inflated")
    body = zlib.compress(planes, 1)
    head = _HEAD.pack(
        MAGIC, MAJOR, MINOR, len(filled), len(body), len(planes), 0,
        batch.boot_id, batch.number, batch.wall_ns, batch.mono_ns, len(job), len(node),
    )  # fmt: skip
    rest = head[_CRC_FROM:] + job + node + directory + body
    return head[:16] + struct.pack("<I", zlib.crc32(rest)) + rest


def decode_batch(data: bytes) -> TraceBatch:
    """The batch in `data`. Raises BadBatch with the reason, whatever the bytes; inflates no more than it was promised."""
    if len(data) > BATCH_BYTES_MAX:
        raise BadBatch(f"too large: {len(data)} bytes, at most {BATCH_BYTES_MAX}")
    head = _decode_head(data)
    n_tables, body_bytes, planes_bytes, boot_id, number, wall_ns, mono_ns, n_job, n_node = head
    at = _HEAD.size
    job, node = _decode_name(data[at : at + n_job], "job"), _decode_name(data[at + n_job : at + n_job + n_node], "node")
    at += n_job + n_node
    entries = _decode_directory(data[at : at + n_tables * _ENTRY.size], n_tables)
    at += n_tables * _ENTRY.size
    if len(data) - at != body_bytes:
        raise BadBatch(f"truncated or padded: body of {len(data) - at} bytes, header says {body_bytes}")
    if sum(row_bytes * n_rows for _, row_bytes, n_rows in entries) != planes_bytes:
        raise BadBatch("directory and inflated size disagree")
    tables = _decode_tables(entries, _inflate(data[at:], planes_bytes))
    return TraceBatch(job, node, boot_id, number, wall_ns, mono_ns, tables)


def impossible_rows(table: str, rows: Rows) -> npt.NDArray[np.bool_]:
    """(n,) mask of rows that cannot be true: codes out of range, counters out of order, more chunks than the op has."""
    bad = np.zeros(len(rows), np.bool_)
    for name, codes in _CODES.get(table, {}).items():
        bad |= rows[name] >= len(codes)
    for name in ("comm_rank", "stuck_ns"):
        if name in (rows.dtype.names or ()):
            bad |= rows[name] < 0
    if table == "comm":
        known = rows["n_ranks"] > 0  # interface v3 does not tell the size
        bad |= (rows["n_ranks"] < -1) | (known & (rows["comm_rank"] >= rows["n_ranks"]))
    if table == "flow":
        counters = rows["counters"].astype(np.int64)
        bad |= (np.diff(counters, axis=1) > 0).any(axis=1) | (counters[:, 0] > rows["total_chunks"])
    if table in ("op", "live_op"):
        bad |= (rows["done_ns"] != 0) & (rows["done_ns"] < rows["enqueued_ns"])
    return bad


_OP_CODES = {
    "func": FUNCS, "dtype": DTYPES, "algo": ALGOS, "proto": PROTOS, "slowest_direction": DIRECTIONS,
}  # fmt: skip
_CODES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "comm": {"transport": TRANSPORTS},
    "op": _OP_CODES,
    "live_op": _OP_CODES,
    "flow": {"func": FUNCS, "direction": DIRECTIONS, "transport": TRANSPORTS},
    "nic": {"port_state": PORT_STATES},
    "loss": {"kind": LOSSES},
}


def _name_bytes(name: str, what: str) -> bytes:
    encoded = name.encode()
    if not 0 < len(encoded) <= NAME_BYTES_MAX:
        raise ValueError(f"{what} name must be 1 to {NAME_BYTES_MAX} bytes")
    return encoded


def _decode_head(data: bytes) -> tuple[Any, ...]:
    if len(data) < _HEAD.size:
        raise BadBatch(f"truncated: {len(data)} bytes, the header alone has {_HEAD.size}")
    magic, major, _minor, n_tables, body_bytes, planes_bytes, crc, *rest = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BadBatch("not a trace batch (magic)")
    if major != MAJOR:
        raise BadBatch(f"version {major}.x is not supported, this server reads {MAJOR}.x")
    if zlib.crc32(memoryview(data)[_CRC_FROM:]) != crc:
        raise BadBatch("checksum mismatch")
    if planes_bytes > BODY_BYTES_MAX:
        raise BadBatch(f"too large: {planes_bytes} bytes inflated, at most {BODY_BYTES_MAX}")
    if n_tables > TABLES_MAX:
        raise BadBatch(f"too many tables: {n_tables}, at most {TABLES_MAX}")
    return (n_tables, body_bytes, planes_bytes, *rest)


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


def _decode_directory(raw: bytes, n_tables: int) -> list[tuple[str, int, int]]:
    if len(raw) != n_tables * _ENTRY.size:
        raise BadBatch("truncated: directory")
    entries = []
    for padded, row_bytes, n_rows in _ENTRY.iter_unpack(raw):
        name = padded.rstrip(b"\0").decode("ascii", "replace")
        if row_bytes == 0 or n_rows > ROWS_MAX:
            raise BadBatch(f"table {name!r}: {n_rows} rows of {row_bytes} bytes")
        entries.append((name, row_bytes, n_rows))
    if len({name for name, _, _ in entries}) != n_tables:
        raise BadBatch("a table appears twice")
    return entries


def _inflate(body: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        planes = inflater.decompress(body, size + 1)
    except zlib.error as error:
        raise BadBatch("body does not inflate") from error
    if len(planes) != size or not inflater.eof or inflater.unused_data:
        raise BadBatch("inflated size is not what the header says")
    return planes


def _decode_tables(entries: list[tuple[str, int, int]], planes: bytes) -> dict[str, Rows]:
    tables, at = {}, 0
    for name, row_bytes, n_rows in entries:
        if name in TABLES:
            tables[name] = _from_planes(name, planes[at : at + row_bytes * n_rows], row_bytes, n_rows)
        at += row_bytes * n_rows
    return tables


def _to_planes(table: str, rows: Rows) -> bytes:
    packed = np.array(rows, DTYPE[table])  # a copy: deltas must not touch the caller's rows
    for column, _ in _delta_columns(TABLES[table], DTYPE[table]):
        values = packed[column.name].view(_unsigned(column))
        packed[column.name][1:] = np.diff(values).view(column.kind)
    return packed.view(np.uint8).reshape(len(packed), -1).T.tobytes()


def _from_planes(table: str, planes: bytes, row_bytes: int, n_rows: int) -> Rows:
    known, rows = DTYPE[table].itemsize, empty_rows(table, n_rows)
    width = _whole_columns(DTYPE[table], min(known, row_bytes))
    flat = rows.view(np.uint8).reshape(n_rows, known)
    flat[:, :width] = np.frombuffer(planes, np.uint8).reshape(row_bytes, n_rows)[:width].T
    for column, offset in _delta_columns(TABLES[table], DTYPE[table]):
        if offset < width:
            values = np.cumsum(rows[column.name].view(_unsigned(column)), dtype=_unsigned(column))
            rows[column.name] = values.view(column.kind)
    return rows


@functools.cache
def _whole_columns(dtype: np.dtype[np.void], limit: int) -> int:
    """Bytes of the longest run of leading columns that fits in `limit`: what an older writer sent of this table."""
    ends = [offset + field.itemsize for field, offset, *_ in (dtype.fields or {}).values()]
    return max((end for end in ends if end <= limit), default=0)


@functools.cache
def _delta_columns(columns: tuple[Column, ...], dtype: np.dtype[np.void]) -> tuple[tuple[Column, int], ...]:
    """The columns sent as differences, each with its offset in the row."""
    fields: Mapping[str, Any] = dtype.fields or {}
    return tuple((column, int(fields[column.name][1])) for column in columns if column.delta)


def _unsigned(column: Column) -> str:
    return column.kind.replace("i", "u")
