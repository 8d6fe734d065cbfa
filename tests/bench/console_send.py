"""Sends the job's batches over as many connections as a small fleet has, each node always over the same one."""

from __future__ import annotations

import http.client
import queue
import threading
import time
from collections.abc import Iterable

from nccl_instrument.agent.sending.post import AGE_HEADER

CONNECTIONS = 48
WAITING_MAX = 8
TRIES_MAX = (
    5  # ingest closes connections that are silent for some seconds, and says 503 while it is full: agents try again
)


class Senders:
    """`with Senders(port, token) as senders: senders.send(batches)`. A batch that is refused ends the benchmark."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._queues: list[queue.Queue[tuple[bytes, float] | None]] = [
            queue.Queue(WAITING_MAX) for _ in range(CONNECTIONS)
        ]
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in self._queues]
        self.refused: list[str] = []

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._queues:
            one.put(None)
        for thread in self._threads:
            thread.join(30)

    def send(self, batches: Iterable[tuple[int, bytes]]) -> None:
        """Returns once all are acknowledged."""
        for node, encoded in batches:
            self.send_one(node, encoded)
        self.settle()

    def send_one(self, node: int, encoded: bytes, cut_at: float | None = None) -> None:
        """cut_at: monotonic seconds, now when left out. Each batch says how old it is, as an agent's does."""
        self._queues[node % CONNECTIONS].put((encoded, time.monotonic() if cut_at is None else cut_at))

    def settle(self) -> None:
        """Returns once all are acknowledged."""
        for one in self._queues:
            one.join()
        if self.refused:
            raise SystemExit(f"ingest refused a batch: {self.refused[0]}")

    def _run(self, waiting: queue.Queue[tuple[bytes, float] | None]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        while (batch := waiting.get()) is not None:
            if said := self._refusal(connection, *batch):
                self.refused.append(said)
            waiting.task_done()
        connection.close()

    def _refusal(self, connection: http.client.HTTPConnection, encoded: bytes, cut_at: float) -> str:
        said = ""
        for again in range(TRIES_MAX):
            time.sleep(again)
            try:
                status, said = self._post(connection, encoded, cut_at)
            except (OSError, http.client.HTTPException) as error:
                connection.close()  # the next request opens it again
                said = repr(error)
                continue
            if status == 200:
                return ""
            if status not in (429, 503):
                break
        return said

    def _post(self, connection: http.client.HTTPConnection, encoded: bytes, cut_at: float) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self._token}", AGE_HEADER: str(int((time.monotonic() - cut_at) * 1e9))}
        connection.request("POST", "/ingest/batches", encoded, headers)
        answer = connection.getresponse()
        return answer.status, f"{answer.status} {answer.read()[:200]!r}"
