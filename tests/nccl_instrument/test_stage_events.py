"""Sampled device time is asked after steps later, and whatever the device does costs no more than a count.

There is no GPU here: the events stand in for torch.cuda.Event, whose calls they have.
"""

from __future__ import annotations

from nccl_instrument.stage_events import Events
from nccl_instrument.stage_schema import FORWARD, FORWARD_EVENTS
from nccl_instrument.stages import Stages

from .test_stages import MS, Clock


class Event:
    """As torch.cuda.Event of a device that is `behind` asks of readiness late."""

    behind = 0

    def __init__(self, clock: Clock) -> None:
        self.clock, self.at_ns, self.asked = clock, 0, 0

    def record(self) -> None:
        self.at_ns, self.asked = self.clock.now_ns, 0

    def query(self) -> bool:
        self.asked += 1
        return self.asked > self.behind

    def elapsed_time(self, end: Event) -> float:
        return (end.at_ns - self.at_ns) / MS


def with_events(share: float, behind: int = 0) -> tuple[Stages, Clock]:
    clock = Clock()

    class Late(Event):
        pass

    Late.behind = behind
    return Stages(clock=clock, events=Events(share, lambda: Late(clock))), clock


def train(stages: Stages, clock: Clock, n_steps: int) -> None:
    for _ in range(n_steps):
        with stages.step(), stages.stage(FORWARD), stages.device_time():
            clock.spend(7)


def test_device_time_is_sampled_in_a_fixed_share_of_the_steps() -> None:
    stages, clock = with_events(0.1)
    train(stages, clock, 100)
    sides = stages.take_sides()
    assert [one.step for one in sides] == list(range(9, 100, 10))
    assert {one.value_ns for one in sides} == {7 * MS}
    assert stages.schema.sides == (FORWARD_EVENTS,)
    assert (stages.counts.events_asked, stages.counts.events_lost) == (10, 0)


def test_an_event_that_is_late_is_asked_after_and_one_that_never_comes_is_given_up() -> None:
    stages, clock = with_events(0.02, behind=20)
    train(stages, clock, 80)
    assert [(one.step, one.value_ns) for one in stages.take_sides()] == [(49, 7 * MS)]
    stages, clock = with_events(1.0, behind=10**9)
    train(stages, clock, 300)
    sides = stages.take_sides()
    assert {one.value_ns for one in sides} == {-1}
    assert stages.counts.events_lost == len(sides) > 200


def test_events_that_fail_or_are_not_there_cost_nothing_but_a_count() -> None:
    def broken() -> Event:
        raise RuntimeError("CUDA error")

    for events in (Events(1.0, broken), Events(1.0)):
        stages, clock = Stages(events=events), Clock()
        train(stages, clock, 3)
        assert stages.counts.steps == stages.counts.events_lost == 3
    assert Events(float("nan")).permille == 0
