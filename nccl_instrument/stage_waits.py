"""Waits for batches that no step has used yet: which step they belong to, and what becomes of those that none can use.

A wait is charged to the step that uses its batch (StageFrontier Appendix A). Outside a step no more waits are kept than the
next step can use, one per micro-step and stage: a loop that evaluates fetches batches for ever, and none is training's.
"""

from __future__ import annotations

from collections import deque
from typing import Final

AHEAD_MAX: Final = 1024


class Waits:
    """(stage, ns) in the order of the batches. n_dropped: waits that no step could have used, since it was last asked."""

    def __init__(self) -> None:
        self._charged: dict[str, deque[int]] = {}
        self._fetched: deque[tuple[str, int]] = deque()
        self._n_dropped = 0

    def charge(self, stage: str, waited_ns: int, micro_steps: int) -> None:
        """A wait for the step that begins next."""
        held = self._charged.setdefault(stage, deque())
        held.append(waited_ns)
        if len(held) > micro_steps:
            held.popleft()
            self._n_dropped += 1

    def fetched(self, stage: str, waited_ns: int, ahead: int, micro_steps: int) -> None:
        """A wait for a later step: `ahead` batches are fetched before the step that uses the first of them begins."""
        self._fetched.append((stage, waited_ns))
        if len(self._fetched) > _room(ahead, micro_steps) + micro_steps:
            self._fetched.popleft()
            self._n_dropped += 1

    def of_next(self, ahead: int, micro_steps: int) -> tuple[list[tuple[str, int]], int, bool]:
        """The waits of the step that begins now, how many were dropped since the last, and whether it is sure whose they are.

        It is not where more or fewer batches were fetched than there can have been.
        """
        found = [(stage, waited_ns) for stage, held in self._charged.items() for waited_ns in held]
        self._charged.clear()
        is_sure = True
        if ahead:
            n = min(micro_steps, len(self._fetched))
            found += [self._fetched.popleft() for _ in range(n)]
            is_sure = n == micro_steps
            while len(self._fetched) > _room(ahead, micro_steps):
                self._fetched.popleft()
                self._n_dropped += 1
        n_dropped, self._n_dropped = self._n_dropped, 0
        return found, n_dropped, is_sure and not n_dropped


def _room(ahead: int, micro_steps: int) -> int:
    return min(ahead * micro_steps, AHEAD_MAX)
