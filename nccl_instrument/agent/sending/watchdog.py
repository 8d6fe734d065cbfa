"""Cuts off what takes too long: one thread for many exchanges, where a timer would be one for each.

It ends when it looks and nothing is under way, so that an agent which sends once a second starts one every few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Watchdog:
    """`bite` is called once in another thread when a guarded block takes longer than allowed_s, at most look_s later. It must
    not wait for anything.
    """

    def __init__(self, allowed_s: float, look_s: float, bite: Callable[[], None]) -> None:
        self._allowed_s, self._look_s, self._bite = allowed_s, look_s, bite
        self._guard = threading.Lock()
        self._due: float | None = None  # monotonic
        self._is_looking = False

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """One block at a time."""
        with self._guard:
            self._due = time.monotonic() + self._allowed_s
            if not self._is_looking:
                threading.Thread(target=self._look, name="watchdog", daemon=True).start()
                self._is_looking = True
        try:
            yield
        finally:
            with self._guard:
                self._due = None

    def _look(self) -> None:
        while True:
            time.sleep(self._look_s)
            with self._guard:
                if self._due is None:
                    self._is_looking = False
                    return
                if time.monotonic() >= self._due:
                    self._due = float("inf")  # once
                    self._bite()  # with the lock held: never in the block after this one
