"""Sampled device time of a region, by CUDA events that are recorded on its stream and looked at steps later.

Nothing here waits for the device: two events are recorded around the region in a fixed share of the steps, and at the end
of later steps they are asked whether they are ready. What is not ready in time is given up, counted. torch is looked up
among what the program has already imported; without it, or without a GPU, nothing is sampled.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

PENDING_MAX: Final = 16
STEPS_MAX: Final = 64
"""An event that is not ready after so many steps is given up."""


@dataclass(frozen=True, slots=True)
class _Pair:
    step: int
    channel: int
    began: Any
    ended: Any


class Events:
    """share: of the steps that are sampled, spread evenly, the same ones on every rank. make: makes a timing event.

    is_scope_limited: the trainer says that device work runs on streams these events do not cover.
    """

    def __init__(self, share: float, make: Callable[[], Any] | None = None, *, is_scope_limited: bool = False) -> None:
        self.permille = round(min(max(share, 0.0), 1.0) * 1000) if share == share else 0
        self.n_asked = self.n_lost = 0
        self.is_scope_limited = is_scope_limited
        self._make, self._is_looked_up = make, make is not None
        self._pending: deque[_Pair] = deque()
        self._spare: list[Any] = []
        self._lost: list[tuple[int, int, int]] = []

    def is_sampled(self, step: int) -> bool:
        """Of every 1000 steps `permille` are, evenly spread."""
        return (step + 1) * self.permille // 1000 > step * self.permille // 1000

    def start(self, step: int) -> tuple[int, Any] | None:
        """Record the first event, in a step that is sampled; what `stop` wants to have."""
        if not self.permille or not self.is_sampled(step):
            return None
        self.n_asked += 1
        try:
            return step, self._recorded()
        except Exception:  # no GPU, no torch, an error of another stream that shows here: never the trainer's trouble
            return step, None

    def stop(self, channel: int, started: tuple[int, Any] | None) -> None:
        """Record the second event."""
        if started is None:
            return
        step, began = started
        if began is None or len(self._pending) >= PENDING_MAX:
            self._pending_lost(step, channel, began)
            return
        try:
            self._pending.append(_Pair(step, channel, began, self._recorded()))
        except Exception:
            self._pending_lost(step, channel, began)

    def poll(self, step: int) -> list[tuple[int, int, int]]:
        """(step, channel, ns) of what is ready; -1 ns of what is given up. Asks no more often than there are answers."""
        found = self._lost
        self._lost = []
        while self._pending:
            pair = self._pending[0]
            value_ns = _elapsed_ns(pair)
            if value_ns is None and step - pair.step < STEPS_MAX:
                break  # in order: those behind it are not ready either
            self._pending.popleft()
            if value_ns is None:
                self.n_lost += 1
            else:
                self._spare += [pair.began, pair.ended]
            found.append((pair.step, pair.channel, -1 if value_ns is None else value_ns))
        return found

    def _pending_lost(self, step: int, channel: int, began: Any) -> None:
        self.n_lost += 1
        if began is not None:
            self._spare.append(began)
        if len(self._lost) < PENDING_MAX:
            self._lost.append((step, channel, -1))

    def _recorded(self) -> Any:
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        return event

    def _event(self) -> Any:
        if not self._is_looked_up:
            torch: Any = sys.modules.get("torch")
            has_gpu = torch is not None and torch.cuda.is_available()
            self._make, self._is_looked_up = (lambda: torch.cuda.Event(enable_timing=True)) if has_gpu else None, True
        if self._make is None:
            raise RuntimeError("there is no device to time")
        return self._make()


def _elapsed_ns(pair: _Pair) -> int | None:
    """None while it is not ready, or when the device says something that is no time."""
    try:
        if not pair.ended.query():
            return None
        elapsed = float(pair.began.elapsed_time(pair.ended)) * 1e6
        return int(elapsed) if 0 <= elapsed < 2**62 else None
    except Exception:
        return None
