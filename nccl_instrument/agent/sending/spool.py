"""The folder where batches wait while the server cannot be reached.

One file per batch, written aside and renamed, so that a kill at any moment leaves whole batches only; names sort by
age, so that the batches of an earlier agent come out first. Bounded: the oldest batch goes when there is no room,
and the caller is handed it to be counted. One agent per folder, held by a lock; its threads may share the object.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

BATCH: Final = ".batch"
_ASIDE: Final = ".part"


class SpoolTaken(RuntimeError):
    """Another agent uses this folder, or it belongs to somebody else."""


class Spool:
    """Batches on disk, oldest first, at most `bytes_max` of them together.

    `settled` is the number of the last batch whose bookmarks were saved: what an earlier agent had written aside up to
    there belongs to the spool, what it had written aside after that will be read from the segments again.
    """

    def __init__(self, folder: Path, bytes_max: int, settled: int = 0) -> None:
        self.folder, self.bytes_max = folder, bytes_max
        self._guard = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise SpoolTaken(f"the spool {folder} belongs to another user")
        self._lock = self._take_lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._find_batches(settled)
        self.size_bytes = sum(self._sizes.values())
        self.number = max((_number(name) for name in self._sizes), default=settled)
        self.number = max(self.number, settled)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def put(self, encoded: bytes) -> list[bytes]:
        """Store a batch; returns the batches that had to go for it (itself, when the disk refuses it)."""
        name, gone = self.set_aside(encoded)
        if not name or not self.settle(name, len(encoded)):
            gone.append(encoded)
        return gone

    def set_aside(self, encoded: bytes) -> tuple[str, list[bytes]]:
        """Write a batch without making it part of the spool yet: its name, '' when the disk refuses it; what had to go.

        A batch that had to go and could not be read is b"".
        """
        gone = []
        while self._sizes and self.size_bytes + len(encoded) > self.bytes_max:
            oldest = self.oldest()
            if oldest is not None:
                gone.append(self.read(oldest) or b"")
                self.remove(oldest)
        self.number += 1
        name = f"{self.number:016d}{BATCH}"
        aside = self.folder / (name + _ASIDE)
        if len(encoded) > self.bytes_max:
            return "", gone
        try:
            aside.write_bytes(encoded)
        except OSError:
            _unlink(aside)
            return "", gone
        return name, gone

    def settle(self, name: str, size_bytes: int) -> bool:
        """Make the batch set aside as `name` part of the spool; whether that worked."""
        aside = self.folder / (name + _ASIDE)
        try:
            aside.rename(self.folder / name)
        except OSError:
            _unlink(aside)
            return False
        with self._guard:
            self._sizes[name] = size_bytes
            self.size_bytes += size_bytes
        return True

    def oldest(self) -> str | None:
        """The name of the batch that waits longest."""
        with self._guard:
            return next(iter(self._sizes), None)

    def newest(self) -> str | None:
        with self._guard:
            return next(reversed(self._sizes), None)

    def read(self, name: str) -> bytes | None:
        """The bytes of a batch, None when it cannot be read any more."""
        try:
            return (self.folder / name).read_bytes()
        except OSError:
            return None

    def remove(self, name: str) -> None:
        """Forget a batch; one that cannot be unlinked comes back with the next agent, and the server knows it then."""
        with self._guard:
            self.size_bytes -= self._sizes.pop(name, 0)
        _unlink(self.folder / name)

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

    def _find_batches(self, settled: int) -> None:
        for path in sorted(self.folder.iterdir()):
            if path.suffix == _ASIDE and path.stem.endswith(BATCH):
                path = self._resolve(path, settled)
            if path.suffix == BATCH and path.stem.isdigit() and path.exists():
                self._sizes[path.name] = path.stat().st_size

    def _resolve(self, aside: Path, settled: int) -> Path:
        """A batch a killed agent had set aside: part of the spool when its bookmarks were saved, else gone."""
        batch = aside.with_suffix("")
        if batch.stem.isdigit() and _number(batch.name) <= settled:
            with contextlib.suppress(OSError):
                return aside.rename(batch)
        _unlink(aside)
        return batch


def _number(name: str) -> int:
    return int(name.removesuffix(BATCH))


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
