"""Refused batches in the log: which batch, of whom, and why; at most a few a second, and how many were left out.

A cluster with a broken agent sends a thousand a second. The counts are exact all the same (ledger.py, metrics.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from nccl_instrument.wire import TraceBatch

LINES_MAX: Final = 10
LINES_SECONDS: Final = 10.0
log = logging.getLogger(__name__)


def batch_words(batch: TraceBatch) -> dict[str, Any]:
    """What names a batch in every log line about it."""
    return {"job": batch.job, "node": batch.node, "boot": batch.boot_id.hex(), "number": batch.number}


class RefusalLog:
    """At most LINES_MAX lines in LINES_SECONDS; the next line says how many there would have been more."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since = float("-inf")
        self._n_lines = self._n_left_out = 0

    def note(self, status: int, reason: str, batch: dict[str, Any]) -> None:
        if self._now() - self._since >= LINES_SECONDS:
            self._since, self._n_lines = self._now(), 0
        self._n_lines += 1
        if self._n_lines > LINES_MAX:
            self._n_left_out += 1
            return
        extra = {"batch": batch, "not_logged": self._n_left_out or None}
        self._n_left_out = 0
        log.warning("a batch was refused (%d): %s", status, reason, extra=extra)


REFUSALS: Final = RefusalLog()
"""Of this process."""
