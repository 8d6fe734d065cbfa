"""Opens a path that a process names, as that process sees it, and never anything outside of its own files.

The agent may be root, and a container's files are the container's: a link in them, of a folder too, would lead from
/proc/<number>/root into the node's own files. The kernel resolves links within that root where it can (openat2); where it
cannot, paths that have links are refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OPENAT2: Final = 437
_HOW: Final = struct.Struct("=QQQ")  # struct open_how: flags, mode, resolve
_NO_MAGIC_LINKS, _BENEATH, _IN_ROOT = 0x02, 0x08, 0x10
_KNOWN: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_REFUSED: Final = (errno.ENOSYS, errno.EPERM, errno.E2BIG)
"""What an older kernel, or a filter of calls, answers."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path. root: the process's, through /proc; where the path is relative, its working folder. "" for our own paths."""

    path: str
    root: str = ""

    def __fspath__(self) -> str:
        return self.path

    def open(self) -> int:
        """A descriptor that only says what lies there. Raises OSError, or ValueError of what is no path."""
        return open_within(self.root, self.path) if self.root else os.open(self.path, _KNOWN)


def place_of(number: int, root: Path, path: str) -> Place:
    """What the process of that number, whose files are at `root`, means by `path`."""
    return Place(path, str(root) if path.startswith("/") else f"/proc/{number}/cwd")


def open_of(place: Place, uid: int, kind: int) -> int:
    """A descriptor of a file of this kind (stat.S_IFREG and so on) and user that only says what it is; -1 else."""
    try:
        known = place.open()
    except (OSError, ValueError):
        return -1
    found = os.fstat(known)
    if stat.S_IFMT(found.st_mode) == kind and found.st_uid == uid:
        return known
    os.close(known)
    return -1


def open_within(root: str, path: str) -> int:
    """A descriptor of what lies at `path` below the folder `root`, and nowhere else. Raises OSError, ValueError."""
    start = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _by_kernel(start, path)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        return _step_by_step(start, path)
    finally:
        os.close(start)


def _by_kernel(start: int, path: str) -> int:
    named = os.fsencode(path)
    if b"\0" in named:
        raise ValueError("no path")
    how = _HOW.pack(_KNOWN, 0, _NO_MAGIC_LINKS | (_IN_ROOT if path.startswith("/") else _BENEATH))
    number, size = ctypes.c_long(_OPENAT2), ctypes.c_size_t(len(how))
    found = int(_LIBC.syscall(number, ctypes.c_int(start), ctypes.c_char_p(named), ctypes.c_char_p(how), size))
    if found < 0:
        said = ctypes.get_errno()
        raise OSError(said, os.strerror(said), path)
    return found


def _step_by_step(start: int, path: str) -> int:
    """Folder by folder, none of which may be a link."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if not names or ".." in names:
        raise OSError(errno.ELOOP, "a path that leaves its folder", path)
    at = os.dup(start)
    try:
        for name in names[:-1]:
            below = os.open(name, _KNOWN | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        return os.open(names[-1], _KNOWN, dir_fd=at)
    finally:
        os.close(at)
