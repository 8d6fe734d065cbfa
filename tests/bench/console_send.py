"""Sends the job's batches over as many connections as a small fleet has, each node always over the same one."""

from __future__ import annotations

import http.client
import queue
import threading
from collections.abc import Iterable

CONNECTIONS = 48
WAITING_MAX = 8


class Senders:
    """`with Senders(port, token) as senders: senders.send(batches)`. A batch that is refused ends the benchmark."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._queues: list[queue.Queue[bytes | None]] = [queue.Queue(WAITING_MAX) for _ in range(CONNECTIONS)]
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

    def send_one(self, node: int, encoded: bytes) -> None:
        self._queues[node % CONNECTIONS].put(encoded)

    def settle(self) -> None:
        """Returns once all are acknowledged."""
        for one in self._queues:
            one.join()
        if self.refused:
            raise SystemExit(f"ingest refused a batch: {self.refused[0]}")

    def _run(self, waiting: queue.Queue[bytes | None]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        while (encoded := waiting.get()) is not None:
            try:
                self._post(connection, encoded)
            except (OSError, http.client.HTTPException) as error:
                self.refused.append(repr(error))
            waiting.task_done()
        connection.close()

    def _post(self, connection: http.client.HTTPConnection, encoded: bytes) -> None:
        connection.request("POST", "/ingest/batches", encoded, {"Authorization": f"Bearer {self._token}"})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            self.refused.append(f"{answer.status} {said[:200]!r}")
