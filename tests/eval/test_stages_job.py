"""The live job of the suite `stages` puts its delays where it says, and its ranks wait for each other as DDP does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.stage_schema import BACKWARD, DATA, FORWARD
from tests.eval.stages_job import PYTHON, JobFailed, Recorded, run_job

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="torch is not installed")
SMALL = ("--ranks", "3", "--steps", "8", "--warmup", "3", "--base-ms", "40", "--hidden-rank", "1", "--delay-ms", "80")


def median_ms(made: Recorded, stage: str) -> list[float]:
    at = made.schema.stages.index(stage)
    return [float(ms) for ms in np.median(made.durations_s[:, :, at], axis=0) * 1e3]


def test_a_data_delay_of_one_rank_is_backward_of_the_others(tmp_path: Path) -> None:
    made = run_job(tmp_path, "--scenario", "data", *SMALL)
    data, backward = median_ms(made, DATA), median_ms(made, BACKWARD)
    assert data[1] - data[0] > 60 and data[1] - data[2] > 60
    assert backward[0] - backward[1] > 40 and backward[2] - backward[1] > 40
    assert np.abs(made.durations_s.sum(axis=2) - made.overlap_s - made.wall_s).max() < 1e-8


def test_device_work_of_the_forward_shows_in_the_backward_and_in_the_events(tmp_path: Path) -> None:
    made = run_job(tmp_path, "--scenario", "forward_device", "--event-share", "0.5", *SMALL)
    forward = median_ms(made, FORWARD)
    assert max(forward) - min(forward) < 40
    of = {rank: made.sides[made.sides[:, 0] == rank][:, 3] / 1e6 for rank in range(3)}
    assert np.median(of[1]) > 80 > np.median(of[0])


@pytest.mark.parametrize("wrapper", ["--fsdp", "--zero"])
def test_sharded_jobs_meet_in_the_span_of_the_fault(tmp_path: Path, wrapper: str) -> None:
    made = run_job(tmp_path, "--scenario", "backward", wrapper, "--sync", *SMALL)
    backward = median_ms(made, BACKWARD)
    assert min(backward) > 80 and max(backward) - min(backward) < 40


def test_turns_of_every_kind_are_timed_in_each_block(tmp_path: Path) -> None:
    made = run_job(tmp_path, *SMALL[:2], "--steps", "2", "--warmup", "1", "--base-ms", "5", "--blocks", "3")
    assert sorted((block, kind) for block, kind, _ in made.blocks[0]) == [(b, k) for b in range(3) for k in range(4)]


def test_accumulation_has_stages_of_every_micro_step(tmp_path: Path) -> None:
    made = run_job(tmp_path, "--scenario", "forward_host", "--accumulation", "2", "--micro", "1", *SMALL)
    assert made.schema.micro_steps == 2
    first, second = median_ms(made, f"{FORWARD}[0]"), median_ms(made, f"{FORWARD}[1]")
    assert second[1] - second[0] > 60 > first[1] - first[0] + 40


def test_a_job_that_cannot_run_says_why(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="invalid choice"):
        run_job(tmp_path, "--scenario", "made-up")
