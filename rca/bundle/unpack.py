"""The files of a folder or zip archive that somebody collected from a job, capped before they are read.

Only regular files inside are taken: no links, no paths that lead elsewhere. A zip says how large its members will be, and
may lie, so what is inflated is counted. Everything left out is said with its reason.
"""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

FILES_MAX: Final = 50_000
FILE_BYTES_MAX: Final = 256 * 2**20
ALL_BYTES_MAX: Final = 4 * 2**30
_CHUNK: Final = 2**20

DAMAGE: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What an archive that is damaged, encrypted or packed in another way raises, beside OSError."""

File = tuple[str, bytes]


class BadBundle(Exception):
    """Nothing can be read of it; the message says why in one sentence."""


class Unpacked:
    """Iterates over (name, bytes); afterwards `refused` says of each file that was left out why.

    under: of names that begin otherwise nothing is read or said. share: how much of an archive has been gone through, 0 to 1; of
    a folder it stays 0.
    """

    def __init__(self, path: Path, under: str = "") -> None:
        self.refused: dict[str, str] = {}
        self.share = 0.0
        self._path, self._under, self._left = path, under, ALL_BYTES_MAX

    def __iter__(self) -> Iterator[File]:
        """Raises BadBundle when it is neither a folder nor a zip archive, or has too many files."""
        if self._path.is_dir():
            yield from self._folder()
        elif not self._path.exists():
            raise BadBundle(f"{self._path}: no such file or folder")
        elif zipfile.is_zipfile(self._path):
            yield from self._zip()
        else:
            raise BadBundle(f"{self._path} is no zip archive that can be read")

    def _folder(self) -> Iterator[File]:
        n_files = 0
        for path in sorted(self._path.rglob("*")):
            name = str(path.relative_to(self._path))
            if not name.startswith(self._under):
                continue
            if path.is_symlink():
                self.refused[name] = "it is a link"
            elif path.is_file():
                n_files = self._count(n_files)
                try:
                    size = path.stat().st_size
                    raw = None if self._is_too_large(name, size) else path.read_bytes()
                except OSError as error:
                    self.refused[name] = str(error.strerror or error)
                    continue
                if raw is not None:
                    yield name, raw

    def _zip(self) -> Iterator[File]:
        try:
            with zipfile.ZipFile(self._path) as archive:
                members = archive.infolist()
                self._count(len(members) - 1)
                for number, member in enumerate(members):
                    self.share = number / len(members)
                    is_asked = member.filename.startswith(self._under) and not member.is_dir()
                    if is_asked and (raw := self._inflated(archive, member)) is not None:
                        yield member.filename, raw
        except (zipfile.BadZipFile, OSError) as error:
            raise BadBundle(f"{self._path} is a broken zip archive: {error}") from error

    def _inflated(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes | None:
        name = member.filename
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
            self.refused[name] = "its path leads out of the archive"
        elif stat.S_ISLNK(member.external_attr >> 16):
            self.refused[name] = "it is a link"
        elif member.flag_bits & 1:
            self.refused[name] = "it is encrypted"
        elif not self._is_too_large(name, member.file_size):
            try:
                with archive.open(member) as file:
                    return file.read(member.file_size + 1)
            except (*DAMAGE, OSError) as error:
                self.refused[name] = f"it cannot be inflated: {error}"
        return None

    def _is_too_large(self, name: str, size: int) -> bool:
        if size > FILE_BYTES_MAX:
            self.refused[name] = f"{size} bytes, at most {FILE_BYTES_MAX} are read of a file"
        elif size > self._left:
            self.refused[name] = f"with it the files would have more than {ALL_BYTES_MAX} bytes"
        else:
            self._left -= size
            return False
        return True

    def _count(self, n_before: int) -> int:
        if n_before + 1 > FILES_MAX:
            raise BadBundle(f"more than {FILES_MAX} files")
        return n_before + 1
