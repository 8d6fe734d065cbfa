"""What a stage recorder makes of a step, what it counts, and who may be told. Needs neither torch nor numpy."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nccl_instrument.stage_schema import Schema

WAIT_UNSURE, NESTED_REFUSED, OUT_OF_ORDER = 1, 2, 4  # bits of tables.stage.flags, which would bring numpy
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of one rank. durations_ns: (S,) in the schema's order, the residual last; they add up to wall_ns, unless
    overlap_ns, the time counted in two stages, says otherwise.

    repeats: how often backward was entered (without it forward, without both any stage), which is how many micro-steps the
    step had. ended_ns: monotonic.
    """

    step: int
    wall_ns: int
    durations_ns: tuple[int, ...]
    overlap_ns: int
    flags: int
    repeats: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class SideRecord:
    """A measurement beside the stages. channel: its place in schema.sides. value_ns: -1 when it did not come in time."""

    step: int
    channel: int
    value_ns: int
    ended_ns: int


@dataclass(slots=True)
class Counts:
    """What was done and what was left out, since the recorder was made; the columns of the `recorder` table."""

    steps: int = 0  # that were recorded
    broken: int = 0  # steps an exception left, or in which the clock went back
    nested: int = 0  # ordered stages opened inside another
    unknown: int = 0  # stages the schema does not have
    outside: int = 0  # stages opened outside a step, or by another thread than the step's
    out_of_order: int = 0
    bad_waits: int = 0  # waits, probes and step numbers that were negative or no number, and waits that no step used
    dropped: int = 0  # records that nobody took in time
    events_asked: int = 0
    events_lost: int = 0
    gathers: int = 0
    gathers_failed: int = 0


class Sink(Protocol):
    """Where steps go. Called in the trainer's thread: it may not wait for anybody; what it raises is counted."""

    def step(self, record: StepRecord, schema: Schema) -> None: ...
    def side(self, record: SideRecord, schema: Schema) -> None: ...
    def ended(self, step: int) -> None:
        """The step is over, recorded or broken; after `step`, if that was called."""
        ...


def take(records: deque[T], limit: int | None) -> list[T]:
    """Up to `limit` of the oldest, removed; another thread may be adding some."""
    found: list[T] = []
    while records and (limit is None or len(found) < limit):
        try:
            found.append(records.popleft())
        except IndexError:
            break
    return found
