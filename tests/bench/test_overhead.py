"""The overhead benchmark's jobs: what they compare is what they say, on the real testbed with the real plugin."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nccl_instrument.agent.processes.segment import Segment
from tests.bench.overhead import PLUGIN, TESTBED, compile_empty
from tests.bench.overhead_runs import StepJob, SweepJob, SweepSizes

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> str:
    subprocess.run(["make", "-s", "-C", PLUGIN.parents[1], "all"], check=True)
    subprocess.run(["make", "-s", "-C", TESTBED], check=True)
    return f"{compile_empty(tmp_path_factory.mktemp('empty'))}:{PLUGIN}"


def test_our_plugin_is_called_in_our_stretches_only(plugins: str) -> None:
    with StepJob(plugins) as job:
        job.wait_for_agent()
        ours = job.stretch("plugin", 2)
        assert len(ours.step_ms) == 2 and ours.rank_cpu_s > 0
        job.stretch("empty", 1)
        paths = sorted(job.ranks.segment_folder(0).glob("diogenes.*"))
        segments = [Segment.open(path) for path in paths]
        before = [segment.counters()["ops_enqueued"] for segment in segments]
        job.stretch("empty", 1)
        assert [segment.counters()["ops_enqueued"] for segment in segments] == before
        assert all(segment.counters()["ops_done"] > 0 for segment in segments)
        assert all(segment.counters()["stale_handles"] == 0 for segment in segments)
        job.stretch("agent", 1)
        assert all(segment.counters()["ops_enqueued"] > n for segment, n in zip(segments, before, strict=True))


def test_a_sweep_times_every_collective_at_every_size_for_every_variant(plugins: str) -> None:
    with SweepJob(plugins, SweepSizes(100_000, 200_000, 3)) as sweep:
        for variant in ("empty", "plugin", "agent"):
            assert sweep.run_pass(variant) > 0
        series = sweep.series()
        checked = sweep.page.read_rank(0, "n_elements_checked")
    sizes = [8, 64, 512, 4096, 32768, 100_000]
    names = ["Broadcast", "AllGather", "ReduceScatter", "AllReduce", "SendRecv"]
    for variant in ("empty", "plugin", "agent"):
        ((*measured,),) = series[variant]
        assert [(one.name, one.size_bytes) for one in measured] == [(name, size) for name in names for size in sizes]
        assert all(one.seconds_per_op > 0 for one in measured)
    assert checked >= sum(sizes) // 4 * 3


def test_the_jobs_leave_nothing_behind(plugins: str) -> None:
    with SweepJob(plugins, SweepSizes(8, 8, 1)) as sweep:
        pids, folder = sweep.ranks.pids, sweep.ranks.run_folder
    assert not folder.exists() and not any(Path(f"/proc/{pid}").exists() for pid in pids)
