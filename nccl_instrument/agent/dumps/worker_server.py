"""Asks torch's worker server (torch.distributed.elastic.control_plane) in a rank for its Flight Recorder, through its socket.

The server answers in a C++ thread of the rank, so also while the rank hangs. It is asked in a thread here, with an end to
how long and how much is read, and by a descriptor of the socket that was found: its path comes from the process's environment.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from typing import Final

SOCKET: Final = "TORCH_WORKER_SERVER_SOCKET"
HANDLERS: Final = ("dump_nccl_trace_pickle", "fr_trace_json")
_OP: Final = b"profiling_name"
"""Without this a dump has no entry, and the next recorder may know more."""
PIECE_BYTES: Final = 2**20


class WorkerServer(threading.Thread):
    """One question; `raw` is the dump once there is one. Never raises. server: descriptor of the socket, closed at the end."""

    def __init__(self, server: int, seconds: float, bytes_max: int) -> None:
        super().__init__(name="worker-server", daemon=True)
        self._server, self._give_up_at, self._bytes_max = server, time.monotonic() + seconds, bytes_max
        self.raw = b""

    def run(self) -> None:
        try:
            self.raw = next((found for name in HANDLERS if _OP in (found := self._answer(name))), b"")
        finally:
            os.close(self._server)

    def _answer(self, name: str) -> bytes:
        try:
            return self._ask(name)
        except Exception:  # whatever it answers, the agent goes on
            return b""

    def _ask(self, name: str) -> bytes:
        connection = http.client.HTTPConnection("localhost")
        link = connection.sock = socket.socket(socket.AF_UNIX)
        try:
            link.settimeout(self._left())
            link.connect(f"/proc/self/fd/{self._server}")
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
