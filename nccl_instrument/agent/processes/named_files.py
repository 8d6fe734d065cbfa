"""Opening what training processes leave in shared memory, where every user of the node may put files of any name.

A name says whose the file is (its first group is the user's number); one that says so wrongly, a link, a pipe or a folder is
not opened, so that an agent that runs as root reads nothing for somebody who could not.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path


def open_named(path: Path, pattern: re.Pattern[str]) -> int:
    """A regular file of the user its name says, which we may read; -1 else."""
    parts = pattern.fullmatch(path.name)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1
    found = os.fstat(file)
    if parts and stat.S_ISREG(found.st_mode) and int(parts[1]) == found.st_uid and os.geteuid() in (0, found.st_uid):
        return file
    os.close(file)
    return -1
