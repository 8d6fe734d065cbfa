"""Local servers that answer as the originals do: real HTTP on a port of their own, each request kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Said = tuple[int, dict[str, str], Any]
Answerer = Callable[[Asked], Said]


@dataclass
class Place:
    """A server. answer: what it says to a request; sleep_s: how long it takes."""

    answer: Answerer
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    sleep_s: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"


def fine(asked: Asked) -> Said:
    return 202, {}, {"status": "success"}


@contextmanager
def place(answer: Answerer = fine) -> Iterator[Place]:
    """A server until the end of the block."""
    here = Place(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            here.asked.append(asked)
            time.sleep(here.sleep_s)
            status, headers, said = here.answer(asked)
            sent = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(sent)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # whoever asked has gone
                self.wfile.write(sent)

        do_GET = do_PATCH = do_PUT = do_POST

        def log_message(self, *_: Any) -> None:
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    here.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()


class Tracker:
    """Issues of a ticket system, for the three that keep them: what was created, and what was said about it."""

    def __init__(self) -> None:
        self.issues: list[dict[str, Any]] = []
        self.said: list[tuple[str, Any]] = []

    def github(self, asked: Asked) -> Said:
        if asked.method == "GET":
            return 200, {}, self.issues
        if asked.path.endswith("/issues"):
            number = len(self.issues) + 1
            self.issues.append({"number": number, "html_url": f"https://g/{number}", **asked.json})
            return 201, {}, self.issues[-1]
        self.said.append((asked.path, asked.json))
        return 200, {}, {}

    def gitlab(self, asked: Asked) -> Said:
        if asked.method == "GET":
            return 200, {}, self.issues
        if asked.path.endswith("/issues"):
            number = len(self.issues) + 1
            self.issues.append({"iid": number, "web_url": f"https://l/{number}", **asked.json})
            return 201, {}, self.issues[-1]
        self.said.append((asked.path, asked.json))
        return 200, {}, {}

    def jira(self, asked: Asked) -> Said:
        if "/search/jql" in asked.path:
            found = [one for one in self.issues if one["fields"]["labels"][1] in asked.path]
            return 200, {}, {"issues": found}
        if asked.path.endswith("/transitions") and asked.method == "GET":
            to = {"statusCategory": {"key": "done"}}
            return (
                200,
                {},
                {"transitions": [{"id": "11", "name": "Start", "to": {}}, {"id": "31", "name": "Done", "to": to}]},
            )
        if asked.path.endswith("/issue"):
            self.issues.append({"key": f"OPS-{len(self.issues) + 1}", **asked.json})
            return 201, {}, {"key": self.issues[-1]["key"]}
        self.said.append((asked.path, asked.json))
        return 200, {}, {}

    def servicenow(self, asked: Asked) -> Said:
        if asked.method == "GET":
            return 200, {}, {"result": [one for one in self.issues if one["correlation_id"] in asked.path]}
        if asked.method == "POST":
            self.issues.append({"sys_id": f"s{len(self.issues) + 1}", **asked.json})
            return 201, {}, {"result": self.issues[-1]}
        self.said.append((asked.path, asked.json))
        return 200, {}, {}
