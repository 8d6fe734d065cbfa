"""A modelled device of the live jobs: a thread with a queue, as a CUDA stream is one, and events that time what is on it."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import torch


class Event:
    """As torch.cuda.Event with timing, of the modelled device."""

    def __init__(self, device: Device) -> None:
        self._device, self._at = device, 0.0

    def record(self) -> None:
        self._at = 0.0
        self._device.launch(self._reached)

    def query(self) -> bool:
        return self._at > 0

    def elapsed_time(self, end: Event) -> float:
        return (end._at - self._at) * 1e3

    def _reached(self) -> None:
        self._at = time.perf_counter()


class Device:
    """A stream: does what was launched in order, in a thread of its own."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def launch(self, work: Any) -> None:
        self._queue.put(work)

    def synchronize(self) -> None:
        done = threading.Event()
        self.launch(done.set)
        done.wait()

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            if callable(work):
                work()
            else:
                spend(work)


def spend(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


def compute(seconds: float) -> None:
    """Work of torch's own for so long."""
    until = time.perf_counter() + seconds
    some = torch.ones(64, 64)
    while time.perf_counter() < until:
        some = torch.mm(some, some).clamp_(0, 1)
