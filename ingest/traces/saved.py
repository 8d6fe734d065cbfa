"""Reading the arrays of a saved window from a file that nobody vouches for.

A window travels: from an incident to a laptop, by mail, into a ticket. So nothing in it is believed before it is checked:
what an array takes is compared with what the archive says it holds before any memory is taken, the whole is capped, the
columns must be the expected ones, and Python objects are refused unread, so that no pickle is ever loaded.
"""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

BYTES_MAX: Final = 4 * 2**30
HEAD_BYTES_MAX: Final = 2**20
ARRAYS_MAX: Final = 64
HEAD: Final = "head"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_EVER: Final = {"rank", "node", "comm_id", "comm_rank", "op", "tick_ns", "name", "kind", "pid"}
"""Columns without which a row is about nothing; every version has had those of its tables."""
_DAMAGE: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeError, MemoryError,
)  # fmt: skip
_HEADERS: Final = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

Array = npt.NDArray[Any]


class BadArrays(ValueError):
    """The file does not hold what it should; the message says why, in one sentence without the file's name."""


def read_arrays(path: Path, blank: Mapping[str, Array], bytes_max: int = BYTES_MAX) -> tuple[str, dict[str, Array]]:
    """The text in `head`, and the other arrays by name. Raises BadArrays; OSError when the file cannot be read.

    blank: (1,) of each array a row of which nothing is known: it may hold such rows. bytes_max: memory all of them may take.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, bytes_max)
            if HEAD not in members:
                raise BadArrays("it has no head")
            head, found, left = _read_head(archive, members.pop(HEAD)), dict[str, Array](), bytes_max
            for name, entry in members.items():
                found[name] = _read(archive, name, entry, blank, left)
                left -= found[name].nbytes
            return head, found
    except _DAMAGE as error:
        raise BadArrays(f"it is damaged or no archive ({_in_a_line(error)})") from error


def _members(archive: zipfile.ZipFile, bytes_max: int) -> dict[str, zipfile.ZipInfo]:
    """Name → entry of every array, all together within the limits."""
    listed = archive.infolist()
    if len(listed) > ARRAYS_MAX:
        raise BadArrays(f"it holds {len(listed)} arrays, more than {ARRAYS_MAX}")
    if (total := sum(entry.file_size for entry in listed)) > bytes_max:
        raise _takes_too_much(total, bytes_max)
    members = {entry.filename.removesuffix(".npy"): entry for entry in listed}
    if len(members) < len(listed):
        raise BadArrays("it holds an array twice")
    if any(entry.compress_type not in _METHODS or entry.flag_bits & 1 for entry in listed):
        raise BadArrays("it is compressed or encrypted in a way that windows are not")
    return members


def _read_head(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> str:
    if entry.file_size > HEAD_BYTES_MAX:
        raise BadArrays(f"its head has {entry.file_size} bytes")
    with archive.open(entry) as stream:
        shape, dtype = _header(stream, HEAD)
        if shape != () or dtype.kind != "U":
            raise BadArrays("its head is no text")
        left = stream.read()
    if len(left) != dtype.itemsize:
        raise BadArrays("its head is cut off")
    return str(np.frombuffer(left, dtype)[0]) if left else ""


def _takes_too_much(n_bytes: int, bytes_max: int) -> BadArrays:
    return BadArrays(
        f"it would take {n_bytes / 2**30:.1f} GiB of memory, more than the {bytes_max / 2**30:.1f} allowed"
    )


def _read(
    archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo, blank: Mapping[str, Array], bytes_max: int
) -> Array:
    with archive.open(entry) as stream:
        shape, dtype = _header(stream, name)
        if name not in blank or not _is_part_of(dtype, blank[name].dtype) or len(shape) != 1:
            raise BadArrays(f"array {name[:40]!r} is none of a window's, or has other columns than this version's")
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes != entry.file_size - stream.tell():
            raise BadArrays(f"array {name[:40]!r} says that it has {n_bytes} bytes, and has other")
        widened_bytes = 0 if dtype == blank[name].dtype else math.prod(shape) * blank[name].dtype.itemsize
        if n_bytes + widened_bytes > bytes_max:  # an older version's rows are held twice for a moment
            raise _takes_too_much(n_bytes + widened_bytes, bytes_max)
        found = np.empty(shape, dtype)
        raw = memoryview(found.view(np.uint8).data)
        at = 0
        while at < n_bytes and (n := stream.readinto(raw[at : at + 2**20])):  # type: ignore[attr-defined]
            at += n
    if at < n_bytes:
        raise BadArrays(f"array {name[:40]!r} is cut off")
    return found if dtype == blank[name].dtype else _widened(found, blank[name])


def _is_part_of(dtype: np.dtype[Any], whole: np.dtype[Any]) -> bool:
    """Whether an older version, which had fewer columns, may have written this."""
    if not dtype.names or not whole.names:
        return dtype == whole
    had, has = set(dtype.names), set(whole.names)
    return _EVER & has <= had <= has and all(dtype[name] == whole[name] for name in had)


def _widened(rows: Array, blank: Array) -> Array:
    """`rows` with today's columns; a later one is unknown, as if an old agent had not known it."""
    found = np.repeat(blank, len(rows))
    for name in rows.dtype.names or ():
        found[name] = rows[name]
    return found


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        shape, _, dtype = _HEADERS[version](stream)
    except (ValueError, KeyError, TypeError, SyntaxError, tokenize.TokenError) as error:
        raise BadArrays(f"array {name[:40]!r} has no readable header ({_in_a_line(error)})") from error
    if dtype.hasobject:
        raise BadArrays(f"array {name[:40]!r} holds Python objects, which are never loaded")
    return shape, dtype


def _in_a_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
