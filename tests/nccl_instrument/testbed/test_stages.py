"""The testbed's training loop records its stages as a PyTorch loop would, in the file that the agent reads."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.stages.files import StageFiles
from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, DEFAULT, FORWARD, OPTIMIZER, OTHER
from nccl_instrument.tables import empty_rows
from nccl_instrument.wire import Rows

from .jobs import RunningJob, running_job, wait_until

pytestmark = pytest.mark.live


class Reader:
    """Two agents' readers, of both nodes."""

    def __init__(self, job: RunningJob) -> None:
        folders = [Path(node["segment_dir"]) for node in job.manifest()["nodes"]]
        self.job, self.files = job.manifest()["job"], StageFiles(folders, lambda *_: None)
        self.rows: list[Rows] = []

    def steps(self) -> Rows:
        self.files.look()
        self.rows.append(self.files.tables(self.job, time.monotonic_ns()).get("stage", empty_rows("stage")))
        return np.concatenate([one for one in self.rows if len(one)] or [empty_rows("stage")])


def medians_ms(rows: Rows, stage: str) -> dict[int, float]:
    at = DEFAULT.stages.index(stage)
    return {
        rank: float(np.median(rows["durations_ns"][rows["global_rank"] == rank, at])) / 1e6
        for rank in np.unique(rows["global_rank"]).tolist()
    }


def test_a_live_job_tells_every_step_and_where_its_time_went(tmp_path: Path) -> None:
    with running_job(tmp_path / "run") as job:
        job.trains()
        reader = Reader(job)
        wait_until(lambda: len(reader.steps()) >= 8 * len(job.manifest()["nodes"]), "no steps are recorded")
        rows = reader.steps()
        job.ask("inject", fault="checkpoint", amount=1.5)
        wait_until(
            lambda: (reader.steps()["durations_ns"][:, DEFAULT.stages.index(CALLBACKS)] > 10**9).any(), "no callback"
        )
        late = reader.steps()
        reader.files.close()
    ranks = np.unique(rows["global_rank"]).tolist()
    assert ranks == list(range(job_size(rows)))
    for rank in ranks:
        mine = rows[rows["global_rank"] == rank]
        assert mine["step"].tolist() == list(range(len(mine)))
        lasted = mine["durations_ns"].sum(axis=1)
        assert (np.abs(np.diff(mine["ended_ns"]) - lasted[1:]) < 1_000_000).all()
    assert all(medians_ms(rows, BACKWARD)[rank] > medians_ms(rows, FORWARD)[rank] for rank in ranks), (
        "the host runs ahead"
    )
    assert all(medians_ms(rows, stage)[rank] < 5 for rank in ranks for stage in (DATA, OTHER))
    assert all(medians_ms(rows, OPTIMIZER)[rank] > 0 for rank in ranks)
    saved = late[late["durations_ns"][:, DEFAULT.stages.index(CALLBACKS)] > 10**9]
    assert set(saved["global_rank"].tolist()) == {0}


def job_size(rows: Rows) -> int:
    return int(rows["global_rank"].max()) + 1
