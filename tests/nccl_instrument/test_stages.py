"""Stages add up to the step, data waits belong to the step that uses the batch, and nothing ever fails the loop."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice

import pytest

from nccl_instrument.stage_records import OUT_OF_ORDER, WAIT_UNSURE
from nccl_instrument.stage_schema import (
    BACKWARD,
    DATA,
    DEFAULT,
    FORWARD,
    OPTIMIZER,
    OTHER,
    BadSchema,
    Schema,
)
from nccl_instrument.stages import Stages

MS = 1_000_000


class Clock:
    """A clock that stands still until it is told how long something took."""

    def __init__(self) -> None:
        self.now_ns = 5 * MS

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, ms: float) -> None:
        self.now_ns += int(ms * MS)


def recorder(schema: Schema = DEFAULT, **options: int) -> tuple[Stages, Clock]:
    clock = Clock()
    return Stages(schema, clock=clock, **options), clock


def by_stage(stages: Stages) -> dict[str, float]:
    (record,) = stages.take()
    assert sum(record.durations_ns) - record.overlap_ns == record.wall_ns
    return {name: ns / MS for name, ns in zip(stages.schema.stages, record.durations_ns, strict=True) if ns}


def test_time_in_no_stage_is_the_residual() -> None:
    stages, clock = recorder()
    with stages.step():
        clock.spend(1)
        with stages.stage(FORWARD):
            clock.spend(20)
        with stages.stage(BACKWARD):
            clock.spend(30)
        clock.spend(4)
    assert by_stage(stages) == {FORWARD: 20, BACKWARD: 30, OTHER: 5}


def test_the_wait_for_a_batch_belongs_to_the_step_that_uses_it() -> None:
    stages, clock = recorder()

    def loader() -> object:
        for wait in (7, 50):
            clock.spend(wait)
            yield wait

    for _ in stages.batches(loader()):  # type: ignore[arg-type]
        with stages.step(), stages.stage(FORWARD):
            clock.spend(10)
    first, second = stages.take()
    assert (first.durations_ns[0], second.durations_ns[0]) == (7 * MS, 50 * MS)
    assert (first.wall_ns, second.wall_ns) == (17 * MS, 60 * MS)


def test_a_wait_inside_the_step_is_a_stage_like_any_other() -> None:
    stages, clock = recorder()
    with stages.step(), stages.stage(DATA):
        clock.spend(3)
    assert by_stage(stages) == {DATA: 3}


def test_a_nested_stage_is_refused_and_counted_and_its_time_stays_with_the_outer() -> None:
    stages, clock = recorder()
    with stages.step(), stages.stage(FORWARD):
        clock.spend(5)
        with stages.stage(BACKWARD):
            clock.spend(5)
    assert by_stage(stages) == {FORWARD: 10}
    assert stages.counts.nested == 1


def test_more_waited_than_the_step_lasted_is_overlap() -> None:
    stages, clock = recorder()
    with stages.step():
        with stages.stage(FORWARD):
            clock.spend(5)
        stages.charge(DATA, 8 * MS)
    (record,) = stages.take()
    assert (record.wall_ns, record.overlap_ns) == (5 * MS, 8 * MS)


def test_unknown_stages_and_stages_outside_a_step_are_counted() -> None:
    stages, clock = recorder()
    with stages.stage(FORWARD):
        clock.spend(5)
    with stages.step(), stages.stage("made.up"):
        clock.spend(2)
    assert by_stage(stages) == {OTHER: 2}
    assert (stages.counts.outside, stages.counts.unknown) == (1, 1)


def test_another_thread_changes_nothing() -> None:
    stages, clock = recorder()

    def elsewhere() -> None:
        with stages.stage(BACKWARD):
            clock.spend(1)

    with stages.step(), stages.stage(FORWARD):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert by_stage(stages) == {FORWARD: 1}
    assert stages.counts.outside == 1


def test_a_step_that_fails_is_not_recorded_and_its_error_goes_on() -> None:
    stages, clock = recorder()
    with pytest.raises(KeyError), stages.step(), stages.stage(FORWARD):
        raise KeyError
    with stages.step(), stages.stage(FORWARD):
        clock.spend(1)
    (record,) = stages.take()
    assert (record.step, stages.counts.broken) == (1, 1)


def test_a_clock_that_goes_back_breaks_the_step_and_not_the_loop() -> None:
    stages, clock = recorder()
    with stages.step(), stages.stage(FORWARD):
        clock.spend(-1)
    assert stages.take() == []
    assert stages.counts.broken == 1


def test_micro_steps_have_stages_of_their_own() -> None:
    schema = DEFAULT.accumulated(2)
    stages, clock = recorder(schema)
    with stages.step():
        for micro in range(2):
            with stages.stage(FORWARD, micro):
                clock.spend(10 + micro)
            with stages.stage(BACKWARD, micro):
                clock.spend(20 + micro)
        with stages.stage(OPTIMIZER):
            clock.spend(3)
    assert by_stage(stages) == {
        f"{FORWARD}[0]": 10, f"{BACKWARD}[0]": 20, f"{FORWARD}[1]": 11, f"{BACKWARD}[1]": 21, OPTIMIZER: 3,
    }  # fmt: skip
    assert schema.micro_steps == 2


def test_collapsed_micro_steps_show_in_the_repeats() -> None:
    stages, clock = recorder()
    with stages.step():
        for _ in range(4):
            with stages.stage(FORWARD):
                clock.spend(1)
            with stages.stage(BACKWARD):
                clock.spend(1)
    (record,) = stages.take()
    assert record.repeats == 4
    assert stages.counts.out_of_order == 0  # they are repeats, not disorder


def test_records_that_nobody_takes_make_room_counted() -> None:
    stages, clock = recorder(keep=3)
    for _ in range(5):
        with stages.step():
            clock.spend(1)
    assert [record.step for record in stages.take(2)] == [2, 3]
    assert [record.step for record in stages.take()] == [4]
    assert stages.counts.dropped == 2


def test_equal_schemas_have_equal_hashes_and_order_counts() -> None:
    assert Schema(("a", "b")).order_hash == Schema(("a", "b", OTHER)).order_hash
    assert Schema(("a", "b")).order_hash != Schema(("b", "a")).order_hash
    refined = DEFAULT.refined(DATA, "data.worker_wait", "data.post_ops")
    assert refined.stages[:3] == ("data.worker_wait", "data.post_ops", FORWARD)
    assert refined.order_hash != DEFAULT.order_hash


@pytest.mark.parametrize(
    "stages", [(), ("a", "a"), ("",), ("x" * 99,), tuple(map(str, range(99))), ("a\nb",), ("a[4096]",)]
)
def test_a_schema_that_cannot_be_is_refused(stages: tuple[str, ...]) -> None:
    with pytest.raises(BadSchema):
        Schema(stages)


def test_only_a_known_stage_can_be_refined_or_repeated() -> None:
    for make in (
        lambda: DEFAULT.refined("x", "y"),
        lambda: DEFAULT.refined(OTHER, "y"),
        lambda: DEFAULT.accumulated(2, ("x",)),
    ):
        with pytest.raises(BadSchema):
            make()


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_batch_fetched_ahead_is_waited_for_by_the_step_that_uses_it(ahead: int) -> None:
    """The loop fetches while an earlier step computes: that step must not pay for it."""
    stages, clock = recorder()
    waits = [10, 20, 30, 40, 50, 60]

    def loader() -> Iterator[int]:
        for wait in waits:
            clock.spend(wait)
            yield wait

    batches, fetched = stages.batches(loader(), ahead=ahead), deque[int]()
    fetched.extend(next(batches) for _ in range(ahead))
    for used in waits:
        with stages.step(), stages.stage(FORWARD):
            clock.spend(5)
            fetched.extend(islice(batches, 1))
            assert fetched.popleft() == used
            clock.spend(2)
    records = stages.take()
    assert [one.durations_ns[0] / MS for one in records] == waits
    assert [(one.durations_ns[1] / MS, one.wall_ns / MS, one.flags) for one in records] == [
        (7, 7 + w, 0) for w in waits
    ]


def test_whose_wait_it_is_may_not_be_known_and_is_said() -> None:
    """A loop that takes two batches in a step whose schema says one."""
    stages, _ = recorder()
    batches = stages.batches(iter(range(20)), ahead=1)
    next(batches)
    for _ in range(4):
        with stages.step():
            next(batches), next(batches)
    with stages.step():
        pass
    flags = [one.flags for one in stages.take()]
    assert flags[-1] == WAIT_UNSURE and flags[0] == 0
    assert stages.counts.bad_waits > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1, None, "soon"])
def test_a_wait_that_is_no_duration_is_refused(bad: object) -> None:
    stages, clock = recorder()
    stages.charge(DATA, bad)  # type: ignore[arg-type]
    stages.fetched(DATA, bad)  # type: ignore[arg-type]
    with stages.step():
        clock.spend(1)
    assert by_stage(stages) == {OTHER: 1}
    assert stages.counts.bad_waits == 2


@pytest.mark.parametrize("name", [None, 3, ["a"], {}, "", FORWARD + "[9]"])
def test_no_name_of_a_stage_breaks_the_loop(name: object) -> None:
    stages, clock = recorder()
    with stages.step(), stages.stage(name), stages.side(str(name)), stages.device_time(str(name)):  # type: ignore[arg-type]
        clock.spend(2)
    stages.charge(name, 5)  # type: ignore[arg-type]
    assert by_stage(stages) == {OTHER: 2}
    assert stages.counts.unknown == 4


def test_micro_steps_are_numbered_as_they_come_and_their_waits_too() -> None:
    stages, clock = recorder(DEFAULT.accumulated(2))

    def loader() -> Iterator[int]:
        for wait in (3, 4, 5, 6):
            clock.spend(wait)
            yield wait

    batches = stages.batches(loader())
    for _ in range(2):
        with stages.step():
            for micro in range(2):
                next(batches)
                with stages.stage(FORWARD):
                    clock.spend(10 + micro)
    first, second = stages.take()
    found = [
        dict(zip(stages.schema.stages, (ns / MS for ns in one.durations_ns), strict=True)) for one in (first, second)
    ]
    assert [(one["data.next_wait[0]"], one["data.next_wait[1]"]) for one in found] == [(3, 4), (5, 6)]
    assert [(one[f"{FORWARD}[0]"], one[f"{FORWARD}[1]"]) for one in found] == [(10, 11), (10, 11)]
    assert (first.repeats, first.flags, first.overlap_ns) == (1, 0, 0)


def test_a_micro_step_too_many_shows_in_the_repeats() -> None:
    stages, clock = recorder(DEFAULT.accumulated(2))
    with stages.step():
        for _ in range(3):
            with stages.stage(BACKWARD):
                clock.spend(1)
    (record,) = stages.take()
    assert record.repeats == 2


def test_stages_out_of_order_are_marked() -> None:
    stages, clock = recorder()
    with stages.step():
        for name in (BACKWARD, FORWARD):
            with stages.stage(name):
                clock.spend(1)
    (record,) = stages.take()
    assert (record.flags, stages.counts.out_of_order) == (OUT_OF_ORDER, 1)


def test_a_side_channel_may_be_nested_and_is_no_part_of_the_sum() -> None:
    stages, clock = recorder(DEFAULT.with_side("data.h2d", DATA))
    with stages.step(), stages.stage(DATA):
        clock.spend(2)
        with stages.side("data.h2d"):
            clock.spend(3)
    assert by_stage(stages) == {DATA: 5}
    (side,) = stages.take_sides()
    assert (side.step, side.channel, side.value_ns, stages.counts.nested) == (0, 0, 3 * MS, 0)


def test_another_schema_begins_with_the_next_step_and_keeps_its_waits() -> None:
    stages, clock = recorder()
    refined = DEFAULT.refined(FORWARD, "model.embed", "model.layers")
    with stages.step():
        stages.use(refined)
        with stages.stage(FORWARD):
            clock.spend(1)
    stages.charge(DATA, 4 * MS)
    with stages.step(), stages.stage("model.layers"):
        clock.spend(2)
    old, new = stages.take()
    assert (len(old.durations_ns), len(new.durations_ns)) == (6, 7)
    assert stages.schema is refined
    assert [ns / MS for ns in new.durations_ns[:3]] == [4, 0, 2]


def test_a_stage_left_open_by_a_hook_ends_where_the_next_begins_or_the_step_does() -> None:
    stages, clock = recorder()
    stages.begin()
    stages.switch(FORWARD)
    clock.spend(3)
    stages.switch(BACKWARD)
    clock.spend(4)
    with stages.stage(OPTIMIZER):  # written by somebody: it goes before
        clock.spend(5)
        stages.switch(FORWARD)
        clock.spend(1)
    stages.end()
    assert by_stage(stages) == {FORWARD: 3, BACKWARD: 4, OPTIMIZER: 6}


def test_the_recorder_needs_neither_torch_nor_numpy() -> None:
    code = "import sys, nccl_instrument.stages; print('numpy' in sys.modules or 'torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )
