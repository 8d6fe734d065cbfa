"""The folder where batches wait while the server cannot be reached.

One file per batch, written aside and renamed, so that a kill at any moment leaves whole batches only; names sort by
age, so that the batches of an earlier agent come out first. Bounded: the oldest batch goes when there is no room,
and the caller is handed it to be counted. One agent per folder, held by a lock.
"""

from __future__ import annotations

import fcntl
import os
from collections import OrderedDict
from pathlib import Path
from typing import Final

BATCH: Final = ".batch"
_ASIDE: Final = ".part"


class SpoolTaken(RuntimeError):
    """Another agent uses this folder, or it belongs to somebody else."""


class Spool:
    """Batches on disk, oldest first, at most `bytes_max` of them together."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self.folder, self.bytes_max = folder, bytes_max
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise SpoolTaken(f"the spool {folder} belongs to another user")
        self._lock = self._take_lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._find_batches()
        self.size_bytes = sum(self._sizes.values())
        self._number = max((_number(name) for name in self._sizes), default=0)

    def __len__(self) -> int:
        return len(self._sizes)

    def put(self, encoded: bytes) -> list[bytes]:
        """Store a batch; returns the batches that had to go for it (itself, when the disk refuses it)."""
        gone = []
        while self._sizes and self.size_bytes + len(encoded) > self.bytes_max:
            oldest = next(iter(self._sizes))
            gone.append(self.read(oldest) or b"")
            self.remove(oldest)
        if len(encoded) > self.bytes_max or not self._write(encoded):
            gone.append(encoded)
        return gone

    def oldest(self) -> str | None:
        """The name of the batch that waits longest."""
        return next(iter(self._sizes), None)

    def newest(self) -> str | None:
        return next(reversed(self._sizes), None)

    def read(self, name: str) -> bytes | None:
        """The bytes of a batch, None when it cannot be read any more."""
        try:
            return (self.folder / name).read_bytes()
        except OSError:
            return None

    def remove(self, name: str) -> None:
        self.size_bytes -= self._sizes.pop(name)
        (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._lock)

    def _take_lock(self) -> int:
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise SpoolTaken(f"another agent uses the spool {self.folder}") from error
        return lock

    def _find_batches(self) -> None:
        for path in sorted(self.folder.iterdir()):
            if path.suffix == _ASIDE:
                path.unlink(missing_ok=True)
            elif path.suffix == BATCH and path.stem.isdigit():
                self._sizes[path.name] = path.stat().st_size

    def _write(self, encoded: bytes) -> bool:
        self._number += 1
        name = f"{self._number:016d}{BATCH}"
        aside = self.folder / (name + _ASIDE)
        try:
            aside.write_bytes(encoded)
            aside.rename(self.folder / name)
        except OSError:
            aside.unlink(missing_ok=True)
            return False
        self._sizes[name] = len(encoded)
        self.size_bytes += len(encoded)
        return True


def _number(name: str) -> int:
    return int(name.removesuffix(BATCH))
