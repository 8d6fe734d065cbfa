"""Sends a simulated job's batches to a server, as its agents would: at the pace of the job, or faster.

A few connections stand for all agents. At a pace above 1 the job's clock gains on the server's, and what comes from the
future is a wrong clock: a faster stream is therefore dated into the past (__main__.py), so that it ends now.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nccl_instrument.agent.sending.post import DUMPS_PATH, Answer, Door, Order
from nccl_instrument.simulate.agents import Sent

CONNECTIONS: Final = 4
QUEUE_MAX: Final = 64
TRIES: Final = 5
RETRY_S: Final = 1.0
Answering = Callable[[int, Order], list[bytes]]
"""Node, what it is asked for → bodies of dumps."""


class StreamError(RuntimeError):
    """The server cannot be reached or takes nothing; the message is one sentence."""


@dataclass
class _Counts:
    accepted: int = 0
    refused: int = 0
    reason: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, is_accepted: bool, reason: str) -> None:
        with self.lock:
            self.accepted += is_accepted
            self.refused += not is_accepted
            self.reason = self.reason if is_accepted else reason


@dataclass
class _Way:
    """A connection for batches and one for the dumps that its nodes are asked for. seen: (node, request)."""

    door: Door
    dumps: Door
    answering: Answering
    waiting: queue.Queue[tuple[int, bytes] | None] = field(default_factory=lambda: queue.Queue(QUEUE_MAX))
    seen: set[tuple[int, int]] = field(default_factory=set)

    def answer(self, node: int, orders: Iterable[Order]) -> None:
        """Bring what is asked for, once; who cannot be reached is not waited for."""
        for order in orders:
            if (node, order.request) in self.seen:
                continue
            self.seen.add((node, order.request))
            with contextlib.suppress(OSError):
                for body in self.answering(node, order):
                    self.dumps.post(body)


def stream(
    batches: Iterable[Sent],
    origin_ns: int,
    server: str,
    token_file: Path,
    pace: float,
    answering: Answering = lambda _node, _order: [],
) -> str:
    """Sends everything; says how many batches were accepted. Raises StreamError when none can be."""
    counts, stopped = _Counts(), threading.Event()
    try:
        ways = [
            _Way(Door(server, token_file), Door(server, token_file, path=DUMPS_PATH), answering)
            for _ in range(CONNECTIONS)
        ]
    except ValueError as error:
        raise StreamError(f"--server: {error}.") from error
    threads = [threading.Thread(target=_send, args=(way, counts, stopped), daemon=True) for way in ways]
    for thread in threads:
        thread.start()
    _feed(batches, origin_ns, pace, ways, stopped)
    for way in ways:
        way.waiting.put(None)
    for thread in threads:
        thread.join()
    if stopped.is_set():
        raise StreamError(f"The server takes nothing: {counts.reason}.")
    refused = f", {counts.refused} refused ({counts.reason})" if counts.refused else ""
    return f"{counts.accepted} batches accepted{refused}"


def _feed(
    batches: Iterable[Sent],
    origin_ns: int,
    pace: float,
    ways: list[_Way],
    stopped: threading.Event,
) -> None:
    """Each batch when its time has come; those of a node go through one connection, so that they stay in order."""
    began_s = time.monotonic()
    for batch in batches:
        due_s = began_s + (batch.arrives_ns - origin_ns) / 1e9 / pace
        time.sleep(max(0.0, due_s - time.monotonic()))
        if stopped.is_set():
            return
        ways[batch.node % len(ways)].waiting.put((batch.node, batch.encoded))


def _send(way: _Way, counts: _Counts, stopped: threading.Event) -> None:
    while (one := way.waiting.get()) is not None:
        node, encoded = one
        if not stopped.is_set():
            answer, reason = _post(way.door, encoded)
            counts.add(answer is not None, reason)
            if answer is not None:
                way.answer(node, answer.dumps)
            if counts.accepted == 0 and counts.refused >= TRIES:
                stopped.set()
    way.door.close()
    way.dumps.close()


def _post(door: Door, encoded: bytes) -> tuple[Answer | None, str]:
    """What the server said when it took it, else None and why; asks again where that may help."""
    reason = ""
    for _ in range(TRIES):
        try:
            answer = door.post(encoded)
        except OSError as error:
            reason = f"it cannot be reached ({error})"
        else:
            reason = f"{answer.status}, {answer.reason}"
            if answer.is_accepted or answer.is_refused:
                return answer if answer.is_accepted else None, reason
        time.sleep(RETRY_S)
    return None, reason
