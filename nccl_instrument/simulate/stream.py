"""Sends a simulated job's batches to a server, as its agents would: at the pace of the job, or faster.

A few connections stand for all agents. At a pace above 1 the job's clock gains on the server's, and what comes from the
future is a wrong clock: a faster stream is therefore dated into the past (__main__.py), so that it ends now.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nccl_instrument.agent.post import Door
from nccl_instrument.simulate.agents import Sent

CONNECTIONS: Final = 4
QUEUE_MAX: Final = 64
TRIES: Final = 5
RETRY_S: Final = 1.0


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


def stream(batches: Iterable[Sent], origin_ns: int, server: str, token_file: Path, pace: float) -> str:
    """Sends everything; says how many batches were accepted. Raises StreamError when none can be."""
    counts, stopped = _Counts(), threading.Event()
    try:
        doors = [Door(server, token_file) for _ in range(CONNECTIONS)]
    except ValueError as error:
        raise StreamError(f"--server: {error}.") from error
    queues: list[queue.Queue[bytes | None]] = [queue.Queue(QUEUE_MAX) for _ in doors]
    pairs = list(zip(doors, queues, strict=True))
    threads = [threading.Thread(target=_send, args=(*pair, counts, stopped), daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    _feed(batches, origin_ns, pace, queues, stopped)
    for waiting in queues:
        waiting.put(None)
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
    queues: list[queue.Queue[bytes | None]],
    stopped: threading.Event,
) -> None:
    """Each batch when its time has come; those of a node go through one connection, so that they stay in order."""
    began_s = time.monotonic()
    for batch in batches:
        due_s = began_s + (batch.arrives_ns - origin_ns) / 1e9 / pace
        time.sleep(max(0.0, due_s - time.monotonic()))
        if stopped.is_set():
            return
        queues[batch.node % len(queues)].put(batch.encoded)


def _send(door: Door, waiting: queue.Queue[bytes | None], counts: _Counts, stopped: threading.Event) -> None:
    while (encoded := waiting.get()) is not None:
        if not stopped.is_set():
            counts.add(*_post(door, encoded))
            if counts.accepted == 0 and counts.refused >= TRIES:
                stopped.set()
    door.close()


def _post(door: Door, encoded: bytes) -> tuple[bool, str]:
    """Whether the server took it, else why not; asks again where that may help."""
    reason = ""
    for _ in range(TRIES):
        try:
            answer = door.post(encoded)
        except OSError as error:
            reason = f"it cannot be reached ({error})"
        else:
            reason = f"{answer.status}, {answer.reason}"
            if answer.is_accepted or answer.is_refused:
                return answer.is_accepted, reason
        time.sleep(RETRY_S)
    return False, reason
