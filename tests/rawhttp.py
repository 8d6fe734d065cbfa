"""A client that says exactly what it is told to, byte by byte, and reports what came back.

Libraries refuse to send what a hostile client sends. Used by the tests of hostile HTTP and by the fuzz suite.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

BATCHES = "/ingest/batches"


@dataclass(frozen=True, slots=True)
class Heard:
    """What the server said first. status: 0 when it closed without a word, -1 when it said nothing in time."""

    status: int
    head: bytes = b""
    body: bytes = b""
    is_closed: bool = False

    def field(self, name: str) -> str | None:
        """One header field, None when it is absent."""
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name.lower().encode():
                return value.strip().decode("latin-1")
        return None


def head(method: str = "POST", path: str = BATCHES, **fields: object) -> bytes:
    """A request's head; underscores in the names of fields become hyphens."""
    lines = [f"{method} {path} HTTP/1.1", "Host: ingest"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def batch_request(token: str, body: bytes, **fields: object) -> bytes:
    """A whole, well-formed request with that body."""
    return head(Authorization=f"Bearer {token}", **{"Content_Length": len(body), **fields}) + body


@contextlib.contextmanager
def connected(port: int, seconds: float = 30.0) -> Iterator[socket.socket]:
    """A connection to the server, closed at the end."""
    with socket.create_connection(("127.0.0.1", port), seconds) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield link


def ask(port: int, *pieces: bytes, pause_s: float = 0.0, ends: bool = False, seconds: float = 45.0) -> Heard:
    """Send the pieces on a connection of their own and hear the first answer. ends: close our side before listening."""
    with connected(port, seconds) as link:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer may come before the last piece
            for piece in pieces:
                link.sendall(piece)
                time.sleep(pause_s)
            if ends:
                link.shutdown(socket.SHUT_WR)
        return hear(link)


def hear(link: socket.socket, already: bytes = b"") -> Heard:
    """The next answer on a connection, whatever becomes of it."""
    said = already
    try:
        while b"\r\n\r\n" not in said:
            part = link.recv(65536)
            if not part:
                return Heard(0, is_closed=True)
            said += part
        top, _, body = said.partition(b"\r\n\r\n")
        heard = Heard(int(top.split(b" ", 2)[1]), top)
        if heard.status == 100:
            return hear(link, body)
        n_bytes = int(heard.field("content-length") or 0)
        while len(body) < n_bytes:
            part = link.recv(65536)
            if not part:
                break
            body += part
        return Heard(heard.status, top, body, _is_closed(link, heard))
    except TimeoutError:
        return Heard(-1)
    except (ConnectionResetError, BrokenPipeError):
        return Heard(0, is_closed=True)


def _is_closed(link: socket.socket, heard: Heard) -> bool:
    if heard.field("connection") != "close":
        return False
    try:
        return link.recv(1) == b""
    except OSError:
        return False
