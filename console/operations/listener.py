"""The loopback door of a server process: a thread that answers /healthz, /readyz and /metrics, and calls the roll.

Worker and beat have no port; several ingest processes may share one. So each process opens a door of its own, by
default on a free port of 127.0.0.1, and notes it on the roll (alive.py), where Prometheus finds it. The thread answers
also while the main loop is stuck, and says so. It never holds up the process: everything it asks for has a time limit.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from django.conf import settings

from console.operations.alive import NOTE_SECONDS, note_alive, note_of, take_off
from console.operations.metrics import DOOR_REFUSED
from console.operations.needs import needs_of
from ingest import process
from ingest.door.metrics import REQUESTS
from ingest.operations import PATHS, Operations

REQUEST_SECONDS_MAX: Final = 10.0
CONNECTIONS_MAX: Final = 16
LOOPBACK: Final = ("127.", "::1", "localhost")
log = logging.getLogger(__name__)


class Listener(ThreadingHTTPServer):
    """A door and its roll call. `pid`: it is not inherited by a forked child, which opens its own."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, host: str, port: int, operations: Operations, is_child: bool) -> None:
        super().__init__((host, port), _Request)
        self.operations, self.is_child, self.pid = operations, is_child, os.getpid()
        self.is_private = host.startswith(LOOPBACK)
        self.address = f"{host}:{self.server_address[1]}"
        self._noted_at = float("-inf")
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="operations", daemon=True).start()
        atexit.register(self.leave)

    def leave(self) -> None:
        if self.pid == os.getpid():
            take_off(note_of(self.address, self.is_child, {}))

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own; beyond CONNECTIONS_MAX the connection is closed and counted."""
        if self._room.acquire(blocking=False):
            return super().process_request(request, client_address)
        DOOR_REFUSED.inc()
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def service_actions(self) -> None:
        """Called twice a second between requests."""
        if time.monotonic() - self._noted_at >= NOTE_SECONDS:
            self._noted_at = time.monotonic()
            note_alive(note_of(self.address, self.is_child, _refused()))


class _Request(BaseHTTPRequestHandler):
    server: Listener
    timeout = REQUEST_SECONDS_MAX
    server_version, sys_version = "Diogenes", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in PATHS:
            return self.send_error(404)
        said = self.server.operations.answer(path, self.headers.get("Authorization", ""), self.server.is_private)
        self.send_response(said.status)
        self.send_header("Content-Type", said.kind)
        self.send_header("Content-Length", str(len(said.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        log.debug(format, *arguments)


_current: Listener | None = None


def listen(is_child: bool = False) -> Listener | None:
    """Open this process' door once; None when it is switched off or cannot be opened, which is logged."""
    global _current
    if _current is not None and _current.pid == os.getpid():
        return _current
    if _current is not None:
        _current.socket.close()  # the parent's door: a copy kept open here would hold its port beyond its death
    if settings.OPERATIONS == "off":
        return None
    host, _, port = settings.OPERATIONS.rpartition(":")
    has_loop = process.NAME in ("web", "ingest")
    needs = () if is_child else needs_of(process.NAME)
    try:
        _current = Listener(host, 0 if is_child else int(port), Operations(needs, ticks=has_loop), is_child)
    except (OSError, ValueError) as error:
        log.error("DIOGENES_OPERATIONS=%s cannot be listened on: %s", settings.OPERATIONS, error)
        return None
    _current.start()
    return _current


def _refused() -> dict[str, int]:
    """Requests that ingest refused in this process, by status."""
    samples = [sample for metric in REQUESTS.collect() for sample in metric.samples if sample.name.endswith("_total")]
    return {s.labels["status"]: int(s.value) for s in samples if s.labels["status"] != "200" and s.value}
