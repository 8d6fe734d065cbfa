"""A thousand agents in one thread: keep-alive connections over raw sockets, batches prepared beforehand.

Each node sends one batch a period at its own moment, as agents do, and keeps what is not answered until it is: a node
has one request under way, later batches wait behind it. Latency counts from the moment a batch was due, so that a server
that stalls cannot hide it. Small on purpose: what the client uses of the machine, the server lacks.
"""

from __future__ import annotations

import gc
import heapq
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench.ingest_batches import MONO_NS, Prepared, patch

ANSWER_BYTES = 4096


@dataclass(slots=True)
class Node:
    """An agent. due: moments of the batches it has not sent yet; lap: how many it had sent or begun to.

    is_busy: a batch is not answered with 200 yet; is_waiting: it was turned away and is to be sent again.
    """

    job: int
    node: int
    link: socket.socket | None = None
    lap: int = 0
    due: deque[float] = field(default_factory=deque)
    sent_due: float = 0.0
    body: tuple[bytes, bytes] = (b"", b"")
    is_busy: bool = False
    is_waiting: bool = False
    heard: bytes = b""


@dataclass
class Told:
    """What came of a stretch: latencies in seconds of batches that were stored, answers by status."""

    latencies: list[float] = field(default_factory=list)
    answers: Counter[int] = field(default_factory=Counter)
    resends: int = 0
    broken: int = 0
    body_bytes: int = 0


class Load:
    """All nodes of `n_jobs` jobs, connected to one port."""

    def __init__(self, port: int, token: str, prepared: list[list[Prepared]], n_jobs: int, step_ns: int) -> None:
        self._prepared, self._step_ns, self._address = prepared, step_ns, ("127.0.0.1", port)
        self._head = (
            f"POST /ingest/batches HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/vnd.diogenes.batch\r\nDiogenes-Batch-Age-Ns: 1000000\r\nContent-Length: "
        ).encode()
        self._poll = select.epoll()
        self._by_fd: dict[int, Node] = {}
        self._again: list[tuple[float, int, Node]] = []
        n_nodes = len(prepared[0])
        self.nodes = [Node(place % n_jobs, place // n_jobs) for place in range(n_jobs * n_nodes)]
        self.told = Told()

    def introduce(self, at_once: int) -> float:
        """Every node's first batch, `at_once` under way at a time; returns how long it took."""
        began, waiting = time.monotonic(), deque(self.nodes)
        while waiting or any(node.is_busy for node in self.nodes):
            n_busy = sum(node.is_busy for node in self.nodes)
            for _ in range(min(at_once - n_busy, len(waiting))):
                self._give(waiting.popleft(), time.monotonic())
            while self._again and self._again[0][0] <= time.monotonic():
                self._again_now(heapq.heappop(self._again)[2])
            self._hear(0.05)
        return time.monotonic() - began

    def send(self, rate: float, seconds: float, say: Callable[[Told, float], None]) -> float:
        """Offer `rate` batches a second, spread evenly over the nodes; returns the seconds until the last answer."""
        self.told, k, n_all = Told(), 0, int(rate * seconds)
        began = said = time.monotonic()
        gc.disable()
        while k < n_all or any(node.is_busy for node in self.nodes):
            now = time.monotonic()
            while k < n_all and began + k / rate <= now:
                self._give(self.nodes[k % len(self.nodes)], began + k / rate)
                k += 1
            while self._again and self._again[0][0] <= now:
                self._again_now(heapq.heappop(self._again)[2])
            self._hear(max(0.0, min(began + k / rate - time.monotonic(), 0.05)) if k < n_all else 0.05)
            if now - said >= 5:
                said = now
                say(self.told, now - began)
        gc.enable()
        return time.monotonic() - began

    def close(self) -> None:
        for node in self._by_fd.values():
            assert node.link is not None
            node.link.close()
        self._poll.close()

    def _connect(self, node: Node) -> socket.socket:
        link = node.link = socket.create_connection(self._address)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
        self._by_fd[link.fileno()] = node
        self._poll.register(link, select.EPOLLIN)
        return link

    def _closed(self, node: Node, fd: int) -> None:
        """Ingest closes connections that stay idle; a node that was waiting for its answer asks again."""
        assert node.link is not None
        self._poll.unregister(fd)
        node.link.close()
        node.link, node.heard = None, b""
        del self._by_fd[fd]
        if node.is_busy and not node.is_waiting:
            self.told.broken += 1
            self._write(node)

    def _again_now(self, node: Node) -> None:
        node.is_waiting = False
        self._write(node)

    def _give(self, node: Node, due: float) -> None:
        node.due.append(due)
        if not node.is_busy:
            self._next(node)

    def _next(self, node: Node) -> None:
        prepared = self._prepared[node.lap % len(self._prepared)][node.node]
        clocks = (time.time_ns() - 10**6, MONO_NS + (node.lap + 1) * self._step_ns)
        node.body = patch(prepared, node.job, node.node, node.lap, clocks)
        node.sent_due, node.is_busy, node.lap = node.due.popleft(), True, node.lap + 1
        self._write(node)

    def _write(self, node: Node) -> None:
        n_bytes = len(node.body[0]) + len(node.body[1])
        head = b"%b%d\r\n\r\n" % (self._head, n_bytes)
        link = node.link or self._connect(node)
        if link.sendmsg((head, *node.body)) != len(head) + n_bytes:
            raise RuntimeError("the socket's buffer is smaller than a batch")

    def _hear(self, seconds: float) -> None:
        for fd, _ in self._poll.poll(seconds):
            node = self._by_fd[fd]
            said = _recv(node)
            if not said:
                self._closed(node, fd)
                continue
            node.heard += said
            head, end, body = node.heard.partition(b"\r\n\r\n")
            if end and len(body) >= _length(head):
                node.heard = b""
                self._answered(node, int(head[9:12]), body)

    def _answered(self, node: Node, status: int, body: bytes) -> None:
        self.told.answers[status] += 1
        if status != 200:
            if status not in (429, 503):
                raise RuntimeError(f"ingest answers {status}: {body.decode()}")
            node.is_waiting = (
                True  # if its connection is closed meanwhile, it must not send twice: the answers would not fit
            )
            heapq.heappush(self._again, (time.monotonic() + 1, id(node), node))
            return
        self.told.latencies.append(time.monotonic() - node.sent_due)
        self.told.body_bytes += len(node.body[0]) + len(node.body[1])
        self.told.resends += b"resend" in body
        node.is_busy = False
        if node.due:
            self._next(node)


def _recv(node: Node) -> bytes:
    assert node.link is not None
    try:
        return node.link.recv(ANSWER_BYTES)
    except ConnectionResetError:
        return b""


def _length(head: bytes) -> int:
    at = head.lower().find(b"content-length:")
    return int(head[at + 15 :].split(b"\r\n", 1)[0])
