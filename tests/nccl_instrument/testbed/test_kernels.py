"""Kernels of the live job as its plugin hears of them, inside nodes too: counted while it trains, open where it hangs."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.wire import Rows
from tests.nccl_instrument.testbed.jobs import REPO, RunningJob, read_recording, run_job, running_job, wait_until

FROZEN, CHANNELS = 5, 2
COLL, P2P, KERNEL_CH, KERNEL_STOP = 2, 4, 64, 22


def told(job: RunningJob) -> dict[int, Rows]:
    """Global rank → the rows of its communicators."""
    found = {}
    for node in job.manifest()["nodes"]:
        for path in Path(node["segment_dir"]).glob("diogenes.*"):
            segment = Segment.open(path)
            found[int(segment.identity()["global_rank"])] = segment.comms().copy()
            segment.close()
    return found


@pytest.mark.parametrize("version", ["3", "7"])
def test_ranks_are_inside_a_kernel_where_they_wait_and_every_op_is_begun_once(
    engine: Path, tmp_path: Path, version: str
) -> None:
    plugin = REPO / "nccl_instrument" / "plugin"
    subprocess.run(["make", "-s", "-C", plugin, "all"], check=True)
    words = ("--plugin", str(plugin / "build" / "libnccl-profiler-diogenes.so"), "--profiler-version", version)
    with running_job(tmp_path / "run", *words, "--segment-root", str(tmp_path), DIOGENES_PROFILER_MASK="94") as job:
        job.trains()
        assert job.ask("inject", fault="rank_frozen", rank=FROZEN)["ok"]
        job.hangs()
        found = told(job)
        assert sorted(found) == list(range(8))
        for rank, rows in found.items():
            given = rows["n_enqueued"] + rows["n_p2p_enqueued"]
            assert (rows["kernels_begun"] > 0).all() and (rows["kernels_begun"] <= given).all()
            assert rank == FROZEN or (rows["kernels_open"] > 0).any(), "a living rank waits inside a kernel"
        assert job.ask("heal", fault="rank_frozen", rank=FROZEN)["ok"]
        job.trains()
        before = {rank: int(rows["kernels_begun"].sum()) for rank, rows in found.items()}
        wait_until(
            lambda: all(int(rows["kernels_begun"].sum()) > before[rank] for rank, rows in told(job).items()),
            "kernels are not counted any more",
        )


@pytest.mark.parametrize("version", ["3", "5"])
def test_every_op_has_its_kernel_begun_and_ended_once_on_every_channel(
    engine: Path, recorder: Path, tmp_path: Path, version: str
) -> None:
    words = ("--plugin", str(recorder), "--iterations", "2", "--profiler-version", version)
    done = run_job(tmp_path / "run", *words, RECORDER_FOLDER=str(tmp_path), RECORDER_MASK="94")
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(8):
        recording = read_recording(tmp_path / f"{rank}.calls")
        kernels = recording.of_type(KERNEL_CH)
        ops = {one.handle for one in recording.of_type(COLL) + recording.of_type(P2P)}
        assert Counter(one.parent for one in kernels) == dict.fromkeys(ops, CHANNELS)
        assert all(one.is_stopped for one in kernels)
        assert {state for one in kernels for state, _ in one.states} == (set() if version == "3" else {KERNEL_STOP})
