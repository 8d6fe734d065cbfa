"""Who enters the ops last settles what durations cannot: on the model's mechanism, not on made-up rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nccl_instrument.stage_schema import BACKWARD, FORWARD
from rca.frontier.cutting import Cursor, Cut, after, cut
from rca.frontier.entered import Last, entered, last_of, settled_stage
from rca.frontier.steps import schemas_of, steps_of
from rca.settings import Settings
from tests.eval.stages_model import Fault, Job, Run, run, window_of

SHORT = Settings(stage_steps=30, stage_warm_up=0)


def seen(fault: Fault, **job: object) -> tuple[Cut, Last | None, Run]:
    made = run(Job(**job), fault, 30, np.random.default_rng(4))  # type: ignore[arg-type]
    window = window_of(made)
    steps, _ = after(steps_of(window), Cursor(), SHORT)
    (found,) = cut(steps, schemas_of(window), range(8), window.end_ns, SHORT, is_last=False).cuts
    told = entered(found, window)
    assert told is not None
    return found, last_of(told, 0.2), made


def test_nobody_is_last_in_a_healthy_job() -> None:
    assert seen(Fault())[1] is None


def test_without_ops_nobody_is_known_to_be_last() -> None:
    made = run(Job(), Fault("data", 3, 0.12), 30, np.random.default_rng(4))
    window = window_of(made)
    steps, _ = after(steps_of(window), Cursor(), SHORT)
    (found,) = cut(steps, schemas_of(window), range(8), window.end_ns, SHORT, is_last=False).cuts
    without_ops = replace(window, tables={**window.tables, "op": window.rows("op")[:0]})
    assert entered(found, without_ops) is None
    assert len(without_ops.rows("op")) == 0


@pytest.mark.parametrize("where", ["data", "forward_host", "forward_device", "backward", "comm"])
def test_the_rank_the_others_wait_for_is_the_last(where: str) -> None:
    _, last, _ = seen(Fault(where, 5, 0.12))
    assert last is not None
    assert last.rank == 5
    assert last.late_s == pytest.approx(0.12, rel=0.25)


@pytest.mark.parametrize(("where", "stage"), [("forward_device", FORWARD), ("backward", BACKWARD), ("comm", BACKWARD)])
def test_forward_that_spills_into_backward_is_told_from_backward(where: str, stage: str) -> None:
    found, last, made = seen(Fault(where, 5, 0.12))
    assert last is not None
    assert np.ptp(made.durations[:, :, 2].mean(axis=0)) < 0.03  # by durations all ranks are alike in backward
    assert settled_stage(found, last, BACKWARD) == stage
