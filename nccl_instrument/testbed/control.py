"""The control interface: a unix socket that takes one JSON object per line and answers with one.

{"do": "inject", "fault": "nic_down", "rank": 3, "amount": 0.3}   {"do": "heal", "fault": "nic_down", "rank": 3}
{"do": "status"}   {"do": "stop"}
Every answer has "ok"; a refusal has "error", one sentence. The server runs in the orchestrator's own loop, without
threads, so that a fault is applied between two looks at the job and never in the middle of one.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUEST_BYTES_MAX = 64 * 1024
SOCKET_PATH_BYTES_MAX = 107
ANSWER_LIMIT_S = 10.0

Answer = dict[str, Any]


class ControlServer:
    def __init__(self, path: Path, answer: Callable[[dict[str, Any]], Answer]) -> None:
        self.path = path
        self.answer = answer
        self.selector = selectors.DefaultSelector()
        self.pending: dict[socket.socket, bytes] = {}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)

    def serve(self, timeout_s: float) -> None:
        """Answers what comes in within timeout_s; returns after the first round."""
        for key, _ in self.selector.select(timeout_s):
            if key.fileobj is self.listener:
                self._accept()
            else:
                self._read(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self.listener.accept()
        client.settimeout(1.0)  # a client that does not take its answer is dropped
        self.pending[client] = b""
        self.selector.register(client, selectors.EVENT_READ)

    def _read(self, client: socket.socket) -> None:
        try:
            chunk = client.recv(REQUEST_BYTES_MAX)
            *lines, rest = (self.pending[client] + chunk).split(b"\n")
            self.pending[client] = rest
            for line in lines:
                client.sendall(json.dumps(self._answer_line(line)).encode() + b"\n")
        except OSError:
            chunk = b""
        if not chunk or len(self.pending[client]) > REQUEST_BYTES_MAX:
            self._drop(client)

    def _answer_line(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
        except ValueError:
            return {"ok": False, "error": "This line is not JSON."}
        if not isinstance(request, dict):
            return {"ok": False, "error": "A request is a JSON object."}
        return self.answer(request)

    def _drop(self, client: socket.socket) -> None:
        self.selector.unregister(client)
        self.pending.pop(client, None)
        client.close()

    def close(self) -> None:
        for client in list(self.pending):
            self._drop(client)
        self.selector.close()
        self.listener.close()
        self.path.unlink(missing_ok=True)


def ask(run_folder: Path, request: dict[str, Any]) -> Answer:
    """Sends one request to the testbed of a run folder; raises OSError when it does not run."""
    manifest = json.loads((run_folder / "manifest.json").read_text())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWER_LIMIT_S)
        client.connect(manifest["control"])
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile("rb") as answers:
            return json.loads(answers.readline())
