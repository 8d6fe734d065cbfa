"""The console's own evidence of an incident, as a zip archive or unpacked: known by its manifest beside a window of traces."""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from ingest.traces.saved import BYTES_MAX
from rca.bundle.unpack import DAMAGE, BadBundle

WINDOW: Final = "window.npz"
MANIFEST: Final = "MANIFEST.json"
DUMPS: Final = "dumps/"
SANDBOXED: Final = "--sandboxed"
_REVISION: Final = re.compile(r"diagnoses/(\d{1,9})\.json")
_REVISION_BYTES_MAX: Final = 64 * 2**20
_CHUNK: Final = 2**20


@dataclass(frozen=True, slots=True)
class Evidence:
    """path: the archive or folder; root: where in an archive the manifest lies, "" or a folder with / at its end."""

    path: Path
    root: str = ""

    def names(self) -> list[str]:
        """The files under the root, as paths with /."""
        if self.path.is_dir():
            return [one.relative_to(self.path).as_posix() for one in self.path.rglob("*") if one.is_file()]
        with zipfile.ZipFile(self.path) as archive:
            return [name[len(self.root) :] for name in archive.namelist() if name.startswith(self.root)]

    @contextmanager
    def file(self, name: str) -> Iterator[IO[bytes]]:
        """Raises OSError and DAMAGE."""
        if self.path.is_dir():
            with (self.path / name).open("rb") as file:
                yield file
            return
        with zipfile.ZipFile(self.path) as archive, archive.open(self.root + name) as packed:
            yield packed


def evidence_at(path: Path) -> Evidence | None:
    """The evidence that this is, or whose dumps these are; None where it is something else."""
    for folder in (path, path.absolute().parent) if path.absolute().name == DUMPS.rstrip("/") else (path,):
        if (folder / MANIFEST).is_file() and (folder / WINDOW).is_file():
            return Evidence(folder)
    if not path.is_file() or not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (*DAMAGE, OSError):
        return None  # whoever reads it says so
    roots = [name.removesuffix(MANIFEST) for name in names if PurePosixPath(name).name == MANIFEST]
    root = min((root for root in roots if root + WINDOW in names), key=len, default=None)
    return None if root is None else Evidence(path, root)


def evidence_among(arguments: Sequence[str]) -> bool:
    """Whether a command line names such evidence. In the sandbox its traces are not read: there its dumps alone are."""
    if SANDBOXED in arguments:
        return False
    return any(evidence_at(Path(one)) is not None for one in arguments if not one.startswith("-"))


@contextmanager
def window_of(evidence: Evidence) -> Iterator[Path]:
    """The file of its window, for as long as the block lasts. Raises BadBundle."""
    with tempfile.TemporaryDirectory() as folder:
        taken = Path(folder) / WINDOW
        try:
            with evidence.file(WINDOW) as packed, taken.open("wb") as file:
                for part in iter(lambda: packed.read(_CHUNK), b""):
                    if file.tell() + len(part) > BYTES_MAX:
                        raise BadBundle(f"{evidence.path}: its {WINDOW} has more than {BYTES_MAX >> 30} GiB")
                    file.write(part)
        except (*DAMAGE, OSError) as error:
            raise BadBundle(f"{evidence.path}: its {WINDOW} cannot be taken out: {error}") from error
        yield taken


def has_joined_dumps(evidence: Evidence) -> bool:
    """Whether the newest diagnosis in it rests on the dumps, too: those of a job that had gone on tell nothing of its stall."""
    found = (_REVISION.fullmatch(name) for name in evidence.names())
    newest = max((int(one[1]) for one in found if one), default=None)
    if newest is None:
        return True
    try:
        with evidence.file(f"diagnoses/{newest}.json") as file:
            said = json.loads(file.read(_REVISION_BYTES_MAX))
        return bool(said["diagnosis"]["agreement"])
    except (*DAMAGE, OSError, ValueError, TypeError, KeyError, RecursionError):
        return False
