"""A real HTTP server on loopback that answers what the test's script says and keeps every batch and dump it accepted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from nccl_instrument.agent.sending.post import DUMPS_PATH
from nccl_instrument.dumps import Dumps, decode_dumps
from nccl_instrument.wire import TraceBatch, decode_batch


@dataclass(frozen=True)
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    said: object = field(default_factory=dict)
    hang_up: bool = False


class ScriptedServer:
    """`script` holds the next replies, first come first; when it is empty `rule` decides, by default 200.

    Dumps are answered by `dumps_rule`.
    """

    def __init__(self, port: int = 0) -> None:
        self.script: list[Reply] = []
        self.rule: Callable[[TraceBatch], Reply] = lambda _batch: Reply()
        self.dumps_rule: Callable[[Dumps], Reply] = lambda _dumps: Reply()
        self.accepted: list[TraceBatch] = []
        self.dumps: list[Dumps] = []
        self.asked: list[tuple[float, dict[str, str], str]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", port), self._door())
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self._connections: set[object] = set()
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def numbers(self) -> list[int]:
        return [batch.number for batch in self.accepted]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _door(server) -> type[BaseHTTPRequestHandler]:
        class Door(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.asked.append((time.monotonic(), dict(self.headers), self.path))
                if self.path == DUMPS_PATH:
                    return self._take_dumps(decode_dumps(body))
                batch = decode_batch(body)
                reply = server.script.pop(0) if server.script else server.rule(batch)
                if reply.hang_up:
                    self.close_connection = True
                    return
                if reply.status < 300:
                    server.accepted.append(batch)
                self._answer(reply)

            def _take_dumps(self, dumps: Dumps) -> None:
                reply = server.dumps_rule(dumps)
                if reply.status < 300:
                    server.dumps.append(dumps)
                self._answer(reply)

            def _answer(self, reply: Reply) -> None:
                body = json.dumps(reply.said).encode()
                self.send_response(reply.status)
                for name, text in reply.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Door


def wait_until(is_true: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Poll until `is_true`; AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
