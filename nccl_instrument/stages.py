"""StageFrontier's recorder: how long each stage of a training step took, by the host's clock, on every rank.

    stages = Stages()
    for batch in stages.batches(loader):
        with stages.step():
            with stages.stage(FORWARD): loss = model(batch)
            with stages.stage(BACKWARD): loss.backward()
            with stages.stage(OPTIMIZER): optimizer.step()

It never synchronises the GPU, never talks to other ranks, and never fails the training loop: what breaks the contract (a
nested or unknown stage, a clock that goes back) is counted and left out. Time in no stage is the residual; time in two is
the overlap error. Nothing here needs torch.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypeVar

from nccl_instrument.stage_schema import DATA, DEFAULT, OTHER, Schema

STEPS_KEPT: Final = 4096
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one rank. durations_ns: (S,) in the schema's order, the residual last; they add up to wall_ns, unless
    overlap_ns, the time counted in two stages, says otherwise.

    device_ns: sampled device time of the forward stage, -1 when it was not sampled or not ready in time. repeats: how
    often the stage that came most often was entered. ended_ns: monotonic.
    """

    step: int
    wall_ns: int
    durations_ns: tuple[int, ...]
    overlap_ns: int
    device_ns: int
    was_sampled: bool
    repeats: int
    ended_ns: int


@dataclass(slots=True)
class Counts:
    """What was left out, since the recorder was made."""

    steps: int = 0
    broken_steps: int = 0  # an exception left them, or the clock went back in them
    nested: int = 0  # ordered stages opened inside another
    unknown: int = 0  # stages the schema does not have
    outside: int = 0  # stages opened outside a step, or by another thread than the step's
    out_of_order: int = 0
    records_dropped: int = 0  # nobody took them in time


class _Stage:
    """Context of one stage; made once, used for every step."""

    __slots__ = ("_at", "_recorder")

    def __init__(self, recorder: Stages, at: int) -> None:
        self._recorder, self._at = recorder, at

    def __enter__(self) -> None:
        self._recorder._enter(self._at)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._recorder._leave(self._at)


class _Step:
    __slots__ = ("_recorder",)

    def __init__(self, recorder: Stages) -> None:
        self._recorder = recorder

    def __enter__(self) -> Stages:
        self._recorder._begin()
        return self._recorder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._recorder._end(is_broken=kind is not None)


@dataclass(slots=True)
class _Current:
    """The step that is being recorded."""

    thread: int
    began_ns: int
    charged_ns: int
    durations: list[int]
    entered: list[int]
    opened: int = -1
    opened_ns: int = 0
    depth: int = 0
    furthest: int = -1
    is_broken: bool = False


class Stages:
    """Records the stages of one rank's training loop. `take` hands over what was recorded; records that nobody takes
    make room for newer ones, counted.
    """

    def __init__(
        self, schema: Schema = DEFAULT, *, keep: int = STEPS_KEPT, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """clock: nanoseconds, of a clock that does not go back."""
        self.schema, self.counts = schema, Counts()
        self._clock, self._keep = clock, keep
        self._at = {stage: at for at, stage in enumerate(schema.stages)}
        self._contexts = {stage: _Stage(self, at) for stage, at in self._at.items() if stage != OTHER}
        self._unknown, self._step = _Stage(self, -1), _Step(self)
        self._records: deque[StepRecord] = deque()
        self._current: _Current | None = None
        self._charged = [0] * len(schema.stages)
        self._number = 0

    # ---- what a training loop calls -------------------------------------------------------------------------------------

    def step(self) -> _Step:
        """The context of one optimizer step."""
        return self._step

    def stage(self, name: str, micro: int | None = None) -> _Stage:
        """The context of one stage of the current step; micro: which micro-step, where the schema tells them apart."""
        named = name if micro is None else f"{name}[{micro}]"
        return self._contexts.get(named, self._unknown)

    def batches(self, loader: Iterable[T], stage: str = DATA) -> Iterator[T]:
        """Iterate `loader`; the wait for a batch is charged to the next step that begins, which is the one that uses it."""
        batches = iter(loader)
        while True:
            began_ns = self._clock()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.charge(stage, self._clock() - began_ns)
            yield batch

    def charge(self, stage: str, waited_ns: int) -> None:
        """Add time spent before the step to a stage of the step that consumes what was waited for."""
        at = self._at.get(stage, self._at.get(f"{stage}[0]", -1))
        if at < 0 or waited_ns < 0:
            self.counts.unknown += 1
        elif self._current is not None:
            self._current.durations[at] += waited_ns
        else:
            self._charged[at] += waited_ns

    def take(self, limit: int | None = None) -> list[StepRecord]:
        """Up to `limit` of the oldest records that were not taken yet. Other threads may call it."""
        found: list[StepRecord] = []
        while self._records and (limit is None or len(found) < limit):
            try:
                found.append(self._records.popleft())
            except IndexError:
                break
        return found

    @property
    def n_done(self) -> int:
        """Steps that ended so far, broken ones among them: `recorder.start(steps=lambda: stages.n_done)`."""
        return self._number

    def restart(self, step: int) -> None:
        """The next step has this number: after a checkpoint was loaded."""
        self._number = step

    # ---- what the contexts call -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._current is not None:
            self.counts.broken_steps += 1
        n = len(self._charged)
        self._current = _Current(threading.get_ident(), self._clock(), sum(self._charged), self._charged, [0] * n)
        self._charged = [0] * n

    def _enter(self, at: int) -> None:
        current = self._current
        if current is None or current.thread != threading.get_ident():
            self.counts.outside += 1
            return
        current.depth += 1
        if at < 0:
            self.counts.unknown += 1
        if current.depth > 1:
            self.counts.nested += 1
        elif at >= 0:
            current.entered[at] += 1
            if at < current.furthest:
                self.counts.out_of_order += 1
            current.furthest = max(current.furthest, at)
            current.opened, current.opened_ns = at, self._clock()

    def _leave(self, at: int) -> None:
        current = self._current
        if current is None or current.thread != threading.get_ident() or not current.depth:
            return
        current.depth -= 1
        if current.depth == 0 and current.opened == at >= 0:
            spent = self._clock() - current.opened_ns
            current.is_broken |= spent < 0
            current.durations[at] += max(spent, 0)
            current.opened = -1

    def _end(self, *, is_broken: bool) -> None:
        current, self._current = self._current, None
        ended_ns = self._clock()
        number, self._number = self._number, self._number + 1
        if current is None or is_broken or current.is_broken or ended_ns < current.began_ns:
            self.counts.broken_steps += 1
            return
        wall_ns = ended_ns - current.began_ns + current.charged_ns
        rest = wall_ns - sum(current.durations)
        current.durations[-1] += max(rest, 0)
        self.counts.steps += 1
        record = StepRecord(
            number,
            wall_ns,
            tuple(current.durations),
            max(-rest, 0),
            -1,
            False,
            max(current.entered, default=0),
            ended_ns,
        )
        if len(self._records) >= self._keep:
            self._records.popleft()
            self.counts.records_dropped += 1
        self._records.append(record)
