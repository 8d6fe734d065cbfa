"""One line in a training program, and every stage is where its time is: real torch, DDP, FSDP, frameworks that are installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_instrument import stage_hooks
from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, FORWARD, FORWARD_BACKWARD, OPTIMIZER, OTHER, PREPARE
from nccl_instrument.stages import Stages
from tests.eval.stages_job import PYTHON, surroundings

PROGRAM = Path(__file__).with_name("hooked.py")
needs_torch = pytest.mark.skipif(not PYTHON.exists(), reason="torch is not installed")
PER_STEP_MS = {DATA: 20.0, FORWARD: 30.0, BACKWARD: 40.0, OPTIMIZER: 10.0, CALLBACKS: 15.0}


def run(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(PYTHON), str(PROGRAM), name], env=surroundings(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def each_ms(found: dict[str, Any]) -> dict[str, set[float]]:
    """Of every stage what it took in the steps."""
    return {name: {record[at] / 1e6 for record in found["records"]} for at, name in enumerate(found["stages"])}


def nothing_refused(found: dict[str, Any]) -> bool:
    return not any(found["counts"][name] for name in ("nested", "unknown", "outside", "broken", "bad_waits"))


def exactly(expected: dict[str, float], *, prepare_ms: float | None = 0.0) -> dict[str, set[float]]:
    """prepare_ms: None where the schema has no such stage."""
    prepared = {} if prepare_ms is None else {PREPARE: prepare_ms}
    return {name: {ms} for name, ms in {**prepared, **expected, OTHER: 0.0}.items()}


@needs_torch
@pytest.mark.parametrize("name", ["plain", "ddp", "fsdp"])
def test_every_stage_of_a_loop_is_told_apart(name: str) -> None:
    found = run(name)
    assert len(found["records"]) == 6 and nothing_refused(found)
    assert each_ms(found) == exactly(PER_STEP_MS)


@needs_torch
def test_micro_steps_are_one_step_and_show_in_the_repeats() -> None:
    found = run("accumulate")
    assert len(found["records"]) == 3
    assert {record[-2] for record in found["records"]} == {2}
    twice = {name: 2 * PER_STEP_MS[name] for name in (DATA, FORWARD, BACKWARD)}
    assert each_ms(found) == exactly(PER_STEP_MS | twice)


@needs_torch
def test_a_step_that_the_gradient_scaler_leaves_out_is_a_step_of_its_own() -> None:
    found = run("scaled")
    assert len(found["records"]) == 6 and nothing_refused(found)
    optimizer = found["stages"].index(OPTIMIZER)
    assert [record[optimizer] / 1e6 for record in found["records"]] == [10.0, 10.0, 0.0, 10.0, 10.0, 10.0]
    assert each_ms(found) == exactly(PER_STEP_MS) | {OPTIMIZER: {0.0, 10.0}}


@needs_torch
def test_what_is_done_with_a_batch_before_its_forward_is_a_stage() -> None:
    found = run("prepared")
    assert len(found["records"]) == 6 and nothing_refused(found)
    assert each_ms(found) == exactly(PER_STEP_MS, prepare_ms=5.0)


@needs_torch
def test_what_a_checkpoint_computes_again_inside_backward_is_backward() -> None:
    found = run("checkpointed")
    assert len(found["records"]) == 6 and nothing_refused(found)
    assert each_ms(found) == exactly({**PER_STEP_MS, BACKWARD: 70.0})
    assert {record[-2] for record in found["records"]} == {1}


@needs_torch
def test_forward_and_backward_of_a_closure_are_not_the_optimizers() -> None:
    found = run("closure")
    assert len(found["records"]) == 6 and nothing_refused(found)
    assert each_ms(found) == exactly(PER_STEP_MS) and found["counts"]["out_of_order"] == 0


@needs_torch
def test_a_step_that_an_exception_left_is_none_and_the_next_is_whole() -> None:
    found = run("failing")
    assert (len(found["records"]), found["counts"]["broken"]) == (5, 1)
    assert each_ms(found) == exactly(PER_STEP_MS)


@needs_torch
def test_watching_again_replaces_and_can_be_undone() -> None:
    found = run("again")
    assert len(found["records"]) == 18 and nothing_refused(found)
    assert each_ms(found) == exactly(PER_STEP_MS)


@needs_torch
def test_an_evaluation_after_the_step_is_callbacks() -> None:
    found = run("evaluate")
    assert each_ms(found) == exactly(PER_STEP_MS | {CALLBACKS: 15.0 + 30.0})


@needs_torch
def test_a_megatron_like_loop_has_forward_and_backward_in_one_stage_without_its_waits() -> None:
    found = run("megatron")
    assert nothing_refused(found)
    assert each_ms(found) == exactly(
        {DATA: 40.0, FORWARD_BACKWARD: 140.0, OPTIMIZER: 10.0, CALLBACKS: 15.0}, prepare_ms=None
    )


@needs_torch
@pytest.mark.parametrize(("name", "package"), [("lightning", "lightning"), ("trainer", "transformers")])
def test_frameworks(name: str, package: str) -> None:
    there = subprocess.run(
        [str(PYTHON), "-c", f"import {package}"], env=surroundings(), capture_output=True, check=False
    )
    if there.returncode:
        pytest.skip(f"{package} is not installed")
    found = run(name)
    assert len(found["records"]) == 6
    each = each_ms(found)
    expected = PER_STEP_MS
    if name == "trainer":  # its loader fetches one batch ahead: two at first, none for the second step
        assert [record[0] / 1e6 for record in found["records"]] == [40.0, 0.0, 20.0, 20.0, 20.0, 20.0]
        each[DATA], expected = {20.0}, PER_STEP_MS | {CALLBACKS: 0.0}
    assert each == exactly(expected)


def test_what_cannot_be_watched_is_given_back() -> None:
    loader = [1, 2, 3]
    assert stage_hooks.watch(loader, object(), object(), stages=Stages()) is loader
    other = SimpleNamespace()
    assert stage_hooks.watch_trainer(other, stages=Stages()) is other
    assert stage_hooks.watch_megatron(None, print, object(), stages=Stages())[1] is print


@needs_torch
def test_one_group_of_everybody_is_known_by_the_model(tmp_path: Path) -> None:
    """DDP and FSDP over the world are; a group of fewer ranks, or a bare model, is not."""
    program = Path(__file__).with_name("grouped.py")
    done = subprocess.run(
        [str(PYTHON), str(program), str(tmp_path)],
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {
        "bare": False, "ddp": True, "ddp of one": False, "fsdp": True, "fsdp2": True,
    }  # fmt: skip
