"""Reads a ring of a segment that the plugin overwrites (completion records, transfers): every record has its number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.plain import pick

HEAD_MAX: Final = 2**62

Rows = npt.NDArray[np.void]
Fetch = Callable[[npt.NDArray[Any]], None]


class OpRing:
    """Drains an overwrite ring; `position` is the number of the next record to read."""

    def __init__(
        self, head: npt.NDArray[np.uint64], ring: Rows, position: int | None, fetch: Fetch = lambda _: None
    ) -> None:
        self._head, self._ring, self._fetch = head, ring, fetch
        fetch(head)
        self._hole = -1
        oldest = max(0, int(head[0]) - len(ring))
        self.position = oldest if position is None else position

    def drain(self) -> tuple[Rows, int]:
        """New records ((n,) rows of the ring) and how many were lost since the last call.

        A record still being written is left for the next call; one that is not finished then is counted as lost, so a
        writer that died in the middle holds nothing up.
        """
        self._fetch(self._head)
        head, n_rows = int(self._head[0]), len(self._ring)
        if head > HEAD_MAX:
            raise ValueError(f"{head} records in a ring")
        lost = max(0, head - n_rows - self.position)
        numbers = np.arange(self.position + lost, head)
        slots, stamps = numbers % n_rows, (2 * (numbers + 1)).astype(np.uint64)
        self._fetch_slots(slots)
        before = self._ring["stamp"][slots]
        rows = pick(self._ring, slots)
        self._fetch_slots(slots)
        after = self._ring["stamp"][slots]
        whole = (before == stamps) & (after == stamps)
        end = self._first_hole(numbers, after < stamps)
        lost += int((~whole[:end]).sum())
        self.position = int(numbers[0]) + end if len(numbers) else self.position + lost
        return rows if end == len(rows) and whole.all() else pick(rows[:end], whole[:end]), lost

    @property
    def n_waiting(self) -> int:
        """Records written since the last call of `drain`, those overwritten meanwhile among them."""
        self._fetch(self._head)
        return max(0, int(self._head[0]) - self.position)

    @property
    def n_rows(self) -> int:
        return len(self._ring)

    def skip(self) -> None:
        """Leave what was written so far unread: it is not wanted, and not lost."""
        self.position += self.n_waiting

    def _fetch_slots(self, slots: npt.NDArray[np.int64]) -> None:
        if len(slots) and slots[0] <= slots[-1]:
            self._fetch(self._ring[slots[0] : slots[-1] + 1])
        elif len(slots):
            self._fetch(self._ring[slots[0] :])
            self._fetch(self._ring[: slots[-1] + 1])

    def _first_hole(self, numbers: npt.NDArray[np.int64], is_unfinished: npt.NDArray[np.bool_]) -> int:
        """How many of `numbers` can be settled now; holes already seen in the last call are no longer waited for."""
        waited_for, self._hole = self._hole, -1
        for at in np.flatnonzero(is_unfinished):
            if numbers[at] > waited_for:
                self._hole = int(numbers[-1])
                return int(at)
        return len(numbers)
