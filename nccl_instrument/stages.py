"""StageFrontier's recorder: how long each stage of a training step took, by the host's clock, on every rank.

    stages = Stages()
    for batch in stages.batches(loader):
        with stages.step():
            with stages.stage(FORWARD): loss = model(batch)
            with stages.stage(BACKWARD): loss.backward()
            with stages.stage(OPTIMIZER): optimizer.step()

It never synchronises the GPU, never waits for other ranks, and never fails the training loop: what breaks the contract (a
nested or unknown stage, a clock that goes back, a wait that is no number) is counted and left out. Time in no stage is the
residual; time in two is the overlap error. Where the steps go is the business of sinks (stage_ring.py, stage_gather.py);
hooks for whole frameworks are in stage_hooks.py. Nothing here needs torch.
"""

from __future__ import annotations

import contextlib
import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from nccl_instrument.stage_contexts import DeviceContext, NoContext, SideContext, StageContext, StepContext, known
from nccl_instrument.stage_events import Events
from nccl_instrument.stage_records import (
    NESTED_REFUSED,
    OUT_OF_ORDER,
    WAIT_UNSURE,
    Counts,
    SideRecord,
    Sink,
    StepRecord,
    take,
)
from nccl_instrument.stage_schema import DATA, DEFAULT, FORWARD, FORWARD_EVENTS, OTHER, Schema
from nccl_instrument.stage_waits import Waits

STEPS_KEPT: Final = 4096
NUMBER_MAX: Final = 2**53
T = TypeVar("T")


@dataclass(slots=True)
class _Current:
    """The step that is being recorded. charged_ns: of its wall time, before it began; elsewhere_ns: inside it, of others."""

    thread: int
    began_ns: int
    charged_ns: int
    durations: list[int]
    entered: list[int]
    flags: int = 0
    elsewhere_ns: int = 0
    opened: int = -1
    opened_ns: int = 0
    depth: int = 0
    furthest: int = -1
    is_broken: bool = False


class Stages:
    """Records the stages of one rank's training loop.

    role: what part this rank plays, where ranks play several (a pipeline's stage, say). synchronous: all ranks of the job are
    one data-parallel group, whose backward ends in a reduction over all of them. event_share: of the steps whose
    `device_time` is sampled. Without a sink `take` hands over what was recorded; what nobody takes makes room for newer
    records, counted.
    """

    def __init__(
        self,
        schema: Schema = DEFAULT,
        *,
        role: str = "",
        synchronous: bool = False,
        event_share: float = 0.0,
        keep: int = STEPS_KEPT,
        clock: Callable[[], int] = time.monotonic_ns,
        events: Events | None = None,
    ) -> None:
        """clock: nanoseconds, of a clock that does not go back."""
        self.counts, self.role, self.ahead, self.synchronous = Counts(), role, 0, synchronous
        self.clock, self._keep = clock, max(keep, 1)
        self.events = events or Events(event_share)
        self.use(schema)
        self.schema = self._next_schema
        self._step = StepContext(self.begin, self.end)
        self._sinks: list[Sink] = []
        self._records: deque[StepRecord] = deque()
        self._sides: deque[SideRecord] = deque(maxlen=self._keep)
        self._current: _Current | None = None
        self._waits = Waits()
        self._number = 0
        self._lay_out()

    # ---- what a training loop calls -------------------------------------------------------------------------------------

    def step(self) -> StepContext:
        """The context of one optimizer step."""
        return self._step

    def stage(self, name: str, micro: int | None = None) -> StageContext:
        """The context of one stage of the current step. micro: which micro-step, where the schema tells them apart; left
        out, they are counted as they come.
        """
        try:
            return self._contexts.get(name if micro is None else f"{name}[{micro}]", self._unknown)
        except TypeError:  # no name at all
            return self._unknown

    def side(self, name: str) -> SideContext | NoContext:
        """The context of a side channel of the schema: it may be nested in a stage, and is never part of the step's sum."""
        return known(self._side_contexts, name) or self._no_side

    def device_time(self, name: str = FORWARD_EVENTS) -> DeviceContext | NoContext:
        """The context of a region whose time on the device is sampled, by CUDA events that are looked at later."""
        return known(self._device_contexts, name) or self._no_side

    def batches(self, loader: Iterable[T], stage: str = DATA, *, ahead: int = 0) -> Iterator[T]:
        """Iterate `loader`; the wait for a batch is charged to the step that uses it.

        ahead: how many batches the loop fetches before the step that uses the first of them begins: 0 where a batch is
        used by the step that follows, or by the one it is fetched in.
        """
        batches, self.ahead = iter(loader), ahead
        while True:
            began_ns = self.clock()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.fetched(stage, self.clock() - began_ns) if ahead else self.charge(stage, self.clock() - began_ns)
            yield batch

    def charge(self, stage: str, waited_ns: int) -> None:
        """Add a wait for data to the current step, or to the next one that begins."""
        waited_ns = self._number_of(waited_ns)
        if self._position(stage) is None:
            self.counts.unknown += 1
        elif waited_ns >= 0:
            current = self._current
            if current is None:
                self._waits.charge(stage, waited_ns, self._next_schema.micro_steps)
            else:
                self._add(current, stage, waited_ns)

    def fetched(self, stage: str, waited_ns: int) -> None:
        """A batch for a later step was waited for until now: `ahead` says for which."""
        waited_ns, current = self._number_of(waited_ns), self._current
        if self._position(stage) is None:
            self.counts.unknown += 1
        if waited_ns < 0 or self._position(stage) is None:
            return
        self._waits.fetched(stage, waited_ns, self.ahead, self._next_schema.micro_steps)
        if current is not None:
            current.elsewhere_ns += waited_ns
            current.opened_ns += waited_ns

    def use(self, schema: Schema) -> None:
        """From the next step on the stages are those of `schema`: windows end there."""
        self._next_schema = schema.with_side(FORWARD_EVENTS, FORWARD) if self.events.permille else schema

    def send_to(self, sink: Sink) -> None:
        """Hand every step to `sink` from now on."""
        self._sinks.append(sink)

    def take(self, limit: int | None = None) -> list[StepRecord]:
        """Up to `limit` of the oldest records that were not taken yet, of a recorder without sinks. Any thread may ask."""
        return take(self._records, limit)

    def take_sides(self, limit: int | None = None) -> list[SideRecord]:
        """As `take`, of the side channels."""
        return take(self._sides, limit)

    @property
    def n_done(self) -> int:
        """Steps that ended so far, broken ones among them: `recorder.start(steps=lambda: stages.n_done)`."""
        return self._number

    def restart(self, step: int) -> None:
        """The next step has this number: after a checkpoint was loaded. What is no number of a step is refused, counted."""
        try:
            number = operator.index(step)
        except TypeError:
            number = -1
        if 0 <= number <= NUMBER_MAX:
            self._number = number
        else:
            self.counts.bad_waits += 1

    # ---- what hooks call ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A step begins."""
        if self._current is not None:
            self.counts.broken += 1
        if self._next_schema is not self.schema:
            self.schema = self._next_schema
            self._lay_out()
        n = len(self.schema.stages)
        current = _Current(threading.get_ident(), 0, 0, [0] * n, [0] * n)
        charged, n_dropped, is_sure = self._waits.of_next(self.ahead, self.schema.micro_steps)
        self.counts.bad_waits += n_dropped
        if not is_sure:
            current.flags |= WAIT_UNSURE
        for stage, waited_ns in charged:
            self._add(current, stage, waited_ns)
            current.charged_ns += waited_ns
        current.began_ns = self.clock()
        self._current = current

    def end(self, *, is_broken: bool = False) -> None:
        """The step ends."""
        current, self._current = self._current, None
        ended_ns = self.clock()
        if current is not None and current.opened >= 0:
            self._close(current, ended_ns)
        number, self._number = self._number, self._number + 1
        self._poll(number, ended_ns)
        if current is None or is_broken or current.is_broken or ended_ns < current.began_ns + current.elsewhere_ns:
            self.counts.broken += 1
        else:
            self._record(current, number, ended_ns)
        for sink in self._sinks:
            with contextlib.suppress(Exception):
                sink.ended(number)

    def switch(self, name: str | None) -> None:
        """The open stage ends and `name` begins; None: no stage. For hooks that see where stages meet, not where they end.

        A stage opened by a context goes on: whoever wrote it knows better.
        """
        current = self._current
        if current is None or current.thread != threading.get_ident():
            self.counts.outside += name is not None
            return
        if current.depth:
            return
        now_ns = self.clock()
        if current.opened >= 0:
            self._close(current, now_ns)
        if name is not None:
            self._open(current, self._at.get(name, -1), now_ns)

    @property
    def is_in_step(self) -> bool:
        return self._current is not None

    # ---- inside ---------------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Positions and contexts of the schema's stages. A stage that comes once per micro-step is also known by its
        broad name, numbered from -2 downwards."""
        parents = dict(self.schema.parents)
        self._at = {stage: at for at, stage in enumerate(self.schema.stages)}
        self._repeated: list[list[int]] = []
        for one in self.schema.declared():
            broad = parents.get(one.name, "")
            if one.micro >= 0 and broad not in self.schema.stages and not one.kind:
                if broad not in self._at:
                    self._at[broad] = -2 - len(self._repeated)
                    self._repeated.append([])
                self._repeated[-2 - self._at[broad]].append(one.position)
        self._contexts = {
            stage: StageContext(self._enter, self._leave, at) for stage, at in self._at.items() if stage != OTHER
        }
        sides = dict(enumerate(self.schema.sides))
        self._side_contexts = {name: SideContext(self.clock, self._tell_own, at) for at, name in sides.items()}
        self._device_contexts = {
            name: DeviceContext(self._start_event, self.events.stop, at) for at, name in sides.items()
        }
        self._unknown, self._no_side = StageContext(self._enter, self._leave, -1), NoContext(self._count_unknown)

    def _record(self, current: _Current, number: int, ended_ns: int) -> None:
        wall_ns = ended_ns - current.began_ns + current.charged_ns - current.elsewhere_ns
        rest = wall_ns - sum(current.durations)
        current.durations[-1] += max(rest, 0)
        self.counts.steps += 1
        repeats = max([1, *[current.entered[at] for at in self.schema.once_a_micro_step]])
        said = (tuple(current.durations), max(-rest, 0), current.flags, repeats, ended_ns)
        self._tell(StepRecord(number, wall_ns, *said))

    def _start_event(self) -> tuple[int, Any] | None:
        return self.events.start(self._number) if self._current is not None else None

    def _count_unknown(self) -> None:
        self.counts.unknown += 1

    def _tell_own(self, channel: int, value_ns: int) -> None:
        self._tell_side(self._number, channel, value_ns)

    def _position(self, stage: Any) -> int | None:
        try:
            return self._at.get(stage)
        except TypeError:
            return None

    def _resolved(self, current: _Current, at: int) -> int:
        """The position of a stage; of one that comes once per micro-step, that of the first that was not entered yet."""
        if at >= -1:
            return at
        positions = self._repeated[-2 - at]
        return next((one for one in positions if not current.entered[one]), positions[-1])

    def _add(self, current: _Current, stage: str, waited_ns: int) -> None:
        at = self._resolved(current, self._at.get(stage, -1))
        if at >= 0:
            current.durations[at] += waited_ns
            current.entered[at] += 1
            current.furthest = max(current.furthest, at)
        else:
            self.counts.unknown += 1

    def _enter(self, at: int) -> None:
        current = self._current
        if current is None or current.thread != threading.get_ident():
            self.counts.outside += 1
            return
        current.depth += 1
        if current.depth > 1:
            self.counts.unknown += at == -1
            self.counts.nested += 1
            current.flags |= NESTED_REFUSED
            return
        now_ns = self.clock()
        if current.opened >= 0:  # left open by a hook
            self._close(current, now_ns)
        self._open(current, at, now_ns)

    def _open(self, current: _Current, at: int, now_ns: int) -> None:
        at = self._resolved(current, at)
        if at < 0:
            self.counts.unknown += 1
            return
        if at < current.furthest and not current.entered[at]:
            self.counts.out_of_order += 1
            current.flags |= OUT_OF_ORDER
        current.entered[at] += 1
        current.furthest = max(current.furthest, at)
        current.opened, current.opened_ns = at, now_ns

    def _leave(self) -> None:
        current = self._current
        if current is None or not current.depth or current.thread != threading.get_ident():
            return
        current.depth -= 1
        if current.depth == 0 and current.opened >= 0:
            self._close(current, self.clock())

    def _close(self, current: _Current, now_ns: int) -> None:
        spent = now_ns - current.opened_ns
        current.is_broken |= spent < 0
        current.durations[current.opened] += max(spent, 0)
        current.opened = -1

    def _poll(self, step: int, now_ns: int) -> None:
        events = self.events
        if events.permille:
            for of, channel, value_ns in events.poll(step):
                self._tell_side(of, channel, value_ns, now_ns)
            self.counts.events_asked, self.counts.events_lost = events.n_asked, events.n_lost

    def _number_of(self, waited_ns: Any) -> int:
        """A duration; -1, counted, for what is none."""
        try:
            if waited_ns >= 0:
                return int(waited_ns)
        except (TypeError, ValueError, OverflowError):
            pass
        self.counts.bad_waits += 1
        return -1

    def _tell(self, record: StepRecord) -> None:
        for sink in self._sinks:
            try:
                sink.step(record, self.schema)
            except Exception:
                self.counts.dropped += 1
        if not self._sinks:
            if len(self._records) >= self._keep:
                self._records.popleft()
                self.counts.dropped += 1
            self._records.append(record)

    def _tell_side(self, step: int, channel: int, value_ns: int, now_ns: int | None = None) -> None:
        if value_ns < -1:
            self.counts.bad_waits += 1
            return
        record = SideRecord(step, channel, value_ns, self.clock() if now_ns is None else now_ns)
        for sink in self._sinks:
            try:
                sink.side(record, self.schema)
            except Exception:
                self.counts.dropped += 1
        if not self._sinks:
            self._sides.append(record)
