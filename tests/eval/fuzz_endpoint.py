"""Hostile requests by the thousand over real sockets: mutated batches of a good agent's token, and broken HTTP.

Every request has to end in an answer below 500 or a closed connection, soon. Eight threads keep connections as agents
do; broken HTTP gets a connection of its own. Everything is drawn from a seed.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nccl_instrument.wire import encode_batch
from tests.builders import FakeJob
from tests.eval.fuzz_bytes import EXTREMES, mutate
from tests.rawhttp import Heard, batch_request, head, hear

THREADS: Final = 8
JOBS: Final = 24
NODES: Final = 4
HEARD_WITHIN_S: Final = 20.0
BROKEN_SHARE: Final = 0.35


@dataclass
class Tally:
    """What was sent and heard. hung: requests without any answer or end; unanswered: well-formed ones that ended without a
    word, cut_off: others that did. slowest_s: of those that ended.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    hung: int = 0
    unanswered: int = 0
    cut_off: int = 0
    slowest_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def n_inputs(self) -> int:
        return sum(self.statuses.values())

    @property
    def n_server_errors(self) -> int:
        return sum(n for status, n in self.statuses.items() if status >= 500)

    def note(self, sent: bytes, heard: Heard, took_s: float, *, is_broken: bool = False) -> None:
        with self.lock:
            self.statuses[heard.status] += 1
            self.slowest_s = max(self.slowest_s, took_s)
            self.hung += heard.status == -1
            self.unanswered += heard.status == 0 and not is_broken
            self.cut_off += heard.status == 0 and is_broken and bool(sent)
            if (heard.status >= 500 or heard.status == -1 or (heard.status == 0 and sent)) and len(self.errors) < 50:
                self.errors.append(f"{heard.status} {heard.body[:200]!r} to {len(sent)} bytes: {sent[:120]!r}")


def batch_bodies(draw: random.Random, fleet: Sequence[FakeJob], numbers: dict[tuple[str, int], int]) -> bytes:
    """A batch of some node of the fleet, its times now, mutated in most cases."""
    job, node = draw.choice(fleet), draw.randrange(NODES)
    number = numbers[job.name, node] = numbers.get((job.name, node), -1) + 1
    made = replace(job.batch(node, number % 600), number=number)
    if draw.random() < 0.8:
        made = replace(made, wall_ns=time.time_ns())
    raw = encode_batch(made)
    return raw if draw.random() < 0.15 else mutate(raw, draw, raw)


def fleet(n_jobs: int = JOBS) -> list[FakeJob]:
    """Jobs of several shapes."""
    shapes = ({}, {"declared": False}, {"restart": 2}, {"ranks": 16}, {"coordinates": {0: (0, 0, 0), 5: (1, 0, 1)}})
    return [FakeJob(f"hostile-{k}", nodes=NODES, **shapes[k % len(shapes)]) for k in range(n_jobs)]  # type: ignore[arg-type]


def broken_http(draw: random.Random, good: bytes) -> bytes:
    """A request that is not quite HTTP, or HTTP that nobody sends."""
    top, _, body = good.partition(b"\r\n\r\n")
    lines = top.split(b"\r\n")
    what = draw.randrange(12)
    if what == 0:
        lines.pop(draw.randrange(len(lines)))
    elif what == 1:
        lines.insert(draw.randint(0, len(lines)), draw.choice(lines))
    elif what == 2:
        lines[0] = b" ".join((draw.choice(_METHODS), draw.choice(_PATHS), draw.choice(_VERSIONS)))
    elif what == 3:
        lines.append(draw.choice(_FIELDS))
    elif what == 4:
        lines = [line if not line.startswith(b"Content-Length") else _length(draw) for line in lines]
    elif what == 5:
        lines += [b"X-%d: %s" % (k, b"y" * draw.randint(0, 400)) for k in range(draw.randint(0, 150))]
    elif what == 6:
        lines.append(b"Transfer-Encoding: chunked")
        lines = [line for line in lines if not line.startswith(b"Content-Length") or draw.random() < 0.3]
        body = b"".join(b"%x\r\n%s\r\n" % (draw.choice((len(part), 0, 2**40)), part) for part in (body[:50], body[50:]))
    elif what == 7:
        return good[: draw.randrange(len(good))]
    elif what == 8:
        return draw.randbytes(draw.randint(0, 3000))
    elif what == 9:
        return good * draw.randint(2, 12)
    elif what == 10:
        body = body[: draw.randrange(len(body) + 1)] if draw.random() < 0.5 else body + draw.randbytes(20)
    else:
        changed = bytearray(top)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        return bytes(changed) + b"\r\n\r\n" + body
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _length(draw: random.Random) -> bytes:
    return b"Content-Length: %s" % draw.choice(
        (b"-1", b"", b"0x10", b"1e3", b"+5", b"5, 5", str(draw.choice(EXTREMES)).encode())
    )


_METHODS: Final = (
    b"GET",
    b"PUT",
    b"HEAD",
    b"OPTIONS",
    b"TRACE",
    b"DELETE",
    b"PROPFIND",
    b"CONNECT",
    b"post",
    b"",
    b"P" * 999,
)
_PATHS: Final = (
    b"/ingest/batches", b"/ingest/health", b"/", b"*", b"//", b"/%00", b"/%ff%fe", b"/../../etc/passwd", b"/ingest/batches/",
    b"/ingest/batches?x=" + b"y" * 3000, b"http://elsewhere/ingest/batches", b"/" + b"a" * 30_000, b"\xff", b"/metrics",
    b"/healthz",
    b"/readyz", b"/ingest/%62atches", b"",
)  # fmt: skip
_VERSIONS: Final = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.10", b"FTP/1.1", b"")
_FIELDS: Final = (
    b"Expect: 100-continue", b"Expect: the unexpected", b"Upgrade: websocket\r\nConnection: Upgrade", b"Connection: close",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings", b"Content-Encoding: gzip", b"Transfer-Encoding: gzip, chunked",
    b"Authorization: Basic eDp5", b"Authorization: Bearer \xff\xfe", b"Authorization: Bearer " + b"a" * 5000, b"Host: other",
    b"Diogenes-Batch-Age-Ns: -5", b"Diogenes-Batch-Age-Ns: 99999999999999999999", b"X-Request-Id: \x7f\x01", b"A: \x00",
    b"X-Request-Id: " + b"z" * 2000, b"Trailer: X", b"Content-Type: text/html", b"Range: bytes=0-", b"Cookie: a=b; ;;=",
)  # fmt: skip


class Attack:
    """Sends n_inputs from THREADS threads. `guess` is a token nobody has; some requests carry it."""

    def __init__(self, port: int, token: str, seed: int, n_inputs: int) -> None:
        self.port, self.token, self.seed, self.n_inputs = port, token, seed, n_inputs
        self.tally = Tally()
        self.fleet = fleet()

    def run(self) -> Tally:
        share = [self.n_inputs // THREADS + (k < self.n_inputs % THREADS) for k in range(THREADS)]
        threads = [threading.Thread(target=self._send, args=(k, n), daemon=True) for k, n in enumerate(share)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.tally

    def _send(self, k: int, n_inputs: int) -> None:
        draw, numbers = random.Random(self.seed * 1000 + k), {}  # type: ignore[var-annotated]
        mine = self.fleet[k::THREADS]
        link = self._connect()
        for _ in range(n_inputs):
            body = batch_bodies(draw, mine, numbers)
            fields = {"Diogenes_Batch_Age_Ns": draw.choice((0, 10**9, 2**62))} if draw.random() < 0.2 else {}
            good = batch_request(self.token if draw.random() < 0.99 else "dga_guess", body, **fields)
            if draw.random() < BROKEN_SHARE:
                self._alone(broken_http(draw, good))
                continue
            began = time.monotonic()
            heard = self._on(link, good)
            if heard.status == 0:  # closed after an earlier answer: as agents do, once more
                link.close()
                link = self._connect()
                heard = self._on(link, good)
            self.tally.note(good, heard, time.monotonic() - began)
            if heard.status <= 0 or heard.field("connection") == "close":
                link.close()
                link = self._connect()

    def _on(self, link: socket.socket, request: bytes) -> Heard:
        with contextlib.suppress(OSError):  # it may have answered before it closed
            link.sendall(request)
        return hear(link)

    def _alone(self, request: bytes) -> None:
        """Say it, end our side, and hear what comes until the server closes."""
        began = time.monotonic()
        with self._connect() as link:
            with contextlib.suppress(OSError):
                link.sendall(request)
                link.shutdown(socket.SHUT_WR)
            heard = hear(link)
            self.tally.note(request, heard, time.monotonic() - began, is_broken=True)

    def _connect(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), HEARD_WITHIN_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link


def is_alive(port: int) -> bool:
    """Whether the health answer still comes."""
    with socket.create_connection(("127.0.0.1", port), HEARD_WITHIN_S) as link:
        link.sendall(head("GET", "/ingest/health"))
        return hear(link).status == 200
