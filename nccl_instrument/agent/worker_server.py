"""Asks torch's worker server (torch.distributed.elastic.control_plane) in a rank for its Flight Recorder, through its socket.

The server answers in a C++ thread of the rank, so also while the rank hangs. It is asked in a thread here, with an end to
how long and how much is read, and only at a socket of the process's own user: the path comes from its environment.
"""

from __future__ import annotations

import http.client
import os
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Final

SOCKET: Final = "TORCH_WORKER_SERVER_SOCKET"
HANDLERS: Final = ("dump_nccl_trace_pickle", "fr_trace_json")
_OP: Final = b"profiling_name"
"""Without this a dump has no entry, and the next recorder may know more."""
PIECE_BYTES: Final = 2**20


class WorkerServer(threading.Thread):
    """One question; `raw` is the dump once there is one. Never raises."""

    def __init__(self, path: Path, seconds: float, bytes_max: int) -> None:
        super().__init__(name="worker-server", daemon=True)
        self._path, self._give_up_at, self._bytes_max = path, time.monotonic() + seconds, bytes_max
        self.raw = b""

    def run(self) -> None:
        for name in HANDLERS:
            try:
                found = self._ask(name)
            except Exception:  # whatever it answers, the agent goes on
                continue
            if _OP in found:
                self.raw = found
                return

    def _ask(self, name: str) -> bytes:
        connection = http.client.HTTPConnection("localhost")
        link = connection.sock = socket.socket(socket.AF_UNIX)
        try:
            link.settimeout(self._left())
            link.connect(str(self._path))
            connection.request("POST", f"/handler/{name}", b"")
            response = connection.getresponse()
            return self._read(response, link) if response.status == 200 else b""
        finally:
            connection.close()
            link.close()

    def _read(self, response: http.client.HTTPResponse, link: socket.socket) -> bytes:
        parts, n_bytes = list[bytes](), 0
        while n_bytes <= self._bytes_max:
            link.settimeout(self._left())
            piece = response.read1(PIECE_BYTES)
            if not piece:
                return b"".join(parts)
            parts.append(piece)
            n_bytes += len(piece)
        return b""

    def _left(self) -> float:
        left = self._give_up_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def has_server(path: Path, uid: int) -> bool:
    """Whether this is a socket of that user."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == uid
