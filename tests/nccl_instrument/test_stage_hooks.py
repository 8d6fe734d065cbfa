"""One line in a training program, and every stage is where its time is: real torch, DDP, FSDP, frameworks that are installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_instrument import stage_hooks
from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, FORWARD, FORWARD_BACKWARD, OPTIMIZER, OTHER
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


def exactly(expected: dict[str, float]) -> dict[str, set[float]]:
    return {name: {ms} for name, ms in {**expected, OTHER: 0.0}.items()}


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
def test_an_evaluation_after_the_step_is_callbacks() -> None:
    found = run("evaluate")
    assert each_ms(found) == exactly(PER_STEP_MS | {CALLBACKS: 15.0 + 30.0})


@needs_torch
def test_a_megatron_like_loop_has_forward_and_backward_in_one_stage_without_its_waits() -> None:
    found = run("megatron")
    assert nothing_refused(found)
    assert each_ms(found) == exactly({DATA: 40.0, FORWARD_BACKWARD: 140.0, OPTIMIZER: 10.0, CALLBACKS: 15.0})


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
