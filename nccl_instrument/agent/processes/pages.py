"""The bytes of a segment file, mapped or copied.

Mapping is nearly free, but whoever owns a file can truncate it, and the next touch of a mapped page is then a SIGBUS: a
user could end a root agent, and with it everybody's traces. So the files of other users are copied into memory of our
own, piece by piece as the pieces are wanted; a copy of what is not there any more is an error like any other. Copying
costs twice the time, so a file of our own user is mapped, and looked at before each reading: a truncation by ourselves
in the microseconds of that reading still ends the agent.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt


class Mapped:
    """The file itself: always fresh."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self.view = mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        self._size_bytes = size_bytes

    def check(self) -> None:
        """Raises ValueError when the file has become shorter."""
        if self.view.size() < self._size_bytes:  # the file's, asked of the kernel: half the price of os.fstat
            raise ValueError("the file was truncated")

    def fetch(self, part: npt.NDArray[Any]) -> None:
        """Make `part`, an array over `view`, as new as the file."""


class Copied:
    """Memory of our own that holds what was fetched last. `fetch` raises ValueError when the file has become shorter."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self.view = mmap.mmap(-1, size_bytes)
        self._descriptor = descriptor
        self._address = _address(np.frombuffer(self.view, np.uint8, 1))

    def check(self) -> None:
        """Nothing here can fault: `fetch` notices what is missing."""

    def fetch(self, part: npt.NDArray[Any]) -> None:
        """Make `part`, an array over `view`, as new as the file."""
        if not len(part):
            return
        offset = _address(part) - self._address
        size_bytes = (len(part) - 1) * part.strides[0] + part.itemsize
        with memoryview(self.view) as view, view[offset : offset + size_bytes] as target:
            if os.preadv(self._descriptor, [target], offset) != size_bytes:
                raise ValueError("the file was truncated")


def _address(part: npt.NDArray[Any]) -> int:
    return int(part.__array_interface__["data"][0])
