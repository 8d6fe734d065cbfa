"""What was lost on this node and not yet told to the server, per job.

Every limit of the agent counts what it refused here; the next batch of that job carries the sums in its `loss` table. A
batch that is itself lost hands its own loss rows back, so that a count never disappears together with its messenger.
What belongs to no job that can be named is told by whichever job's batch comes next.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from nccl_instrument.tables import LOSSES, empty_rows
from nccl_instrument.wire import BadBatch, Rows, decode_batch

_CODE: Final = {name: code for code, name in enumerate(LOSSES)}
ANY_JOB: Final = ""
NODE: Final = -1  # the `pid` of a loss that belongs to no single process


class Losses:
    """Counts of one agent; safe to use from the sweeping and the sending thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[tuple[int, int]]] = {}

    def add(self, job: str, kind: str, count: int = 1, pid: int = NODE) -> None:
        """Count `count` more of `kind` (a name of tables.LOSSES) for `job`."""
        self.add_code(job, _CODE[kind], pid, count)

    def add_code(self, job: str, code: int, pid: int, count: int) -> None:
        """Count a row of a `loss` table again, because the batch that carried it did not get through."""
        if count > 0:
            with self._lock:
                self._counts.setdefault(job, Counter())[code, pid] += count

    def add_batch(self, encoded: bytes, kind: str) -> str:
        """Count an encoded batch as lost, and what it would have reported; its job, ANY_JOB when it cannot be read."""
        try:
            batch = decode_batch(encoded)
        except BadBatch:
            self.add(ANY_JOB, kind)
            return ANY_JOB
        self.add(batch.job, kind)
        for code, pid, count in batch.rows("loss").tolist():
            self.add_code(batch.job, code, pid, count)
        return batch.job

    def take(self, job: str) -> Rows:
        """(n,) rows of the `loss` table for `job`; what they count is considered told."""
        with self._lock:
            counts = self._counts.pop(job, Counter()) + self._counts.pop(ANY_JOB, Counter())
        rows = empty_rows("loss", len(counts))
        for row, ((kind, pid), count) in zip(rows, sorted(counts.items()), strict=True):
            row["kind"], row["pid"], row["count"] = kind, pid, count
        return rows
