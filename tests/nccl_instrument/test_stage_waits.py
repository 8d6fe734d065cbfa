"""Waits that are not training's, and options that make no sense, cost neither memory nor a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nccl_instrument.stage_records import WAIT_UNSURE
from nccl_instrument.stages import Stages
from tests.nccl_instrument.test_stages import MS, Clock


def test_waits_of_an_evaluation_are_neither_kept_for_ever_nor_charged_to_training() -> None:
    clock = Clock()
    stages = Stages(clock=clock)
    for ahead in (0, 1):
        before = stages.counts.bad_waits
        for _ in stages.batches(slowly(clock, 100_000, 10), ahead=ahead):
            pass
        with stages.step():
            clock.spend(5)
        kept = 1 if not ahead else 2  # one of the next step's, and of a prefetched batch
        assert stages.counts.bad_waits - before >= 100_000 - kept
    for record in stages.take():
        assert record.flags & WAIT_UNSURE and record.durations_ns[0] <= 2 * 10 * MS


def slowly(clock: Clock, n: int, waited_ms: int) -> Iterator[int]:
    for number in range(n):
        clock.spend(waited_ms)
        yield number


@pytest.mark.parametrize("number", ["a", None, 1.5, -1, 2**60, []])
def test_what_is_no_number_of_a_step_changes_none(number: Any) -> None:
    stages = Stages()
    stages.restart(7)
    stages.restart(number)
    with stages.step():
        pass
    assert [record.step for record in stages.take()] == [7] and stages.counts.bad_waits == 1


def test_odd_options_cost_no_step() -> None:
    for stages in (Stages(keep=0), Stages(event_share=float("inf")), Stages(event_share=float("nan"))):
        for _ in range(3):
            with stages.step(), stages.side([]), stages.device_time({}):  # type: ignore[arg-type]
                pass
        assert len(stages.take()) >= 1 and stages.counts.unknown == 6
