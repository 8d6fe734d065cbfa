"""Nothing is left behind: not by a job that ends, not by one that is killed, not even when its guard dies too."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_instrument.testbed.leftovers import records_folder, start_ticks_of
from tests.nccl_instrument.testbed.jobs import IS_ROOT, QUICK, REPO, RunningJob, run_job, running_job, wait_until

SETPRIV = shutil.which("setpriv")
SYSTEM_PYTHON = Path("/usr/bin/python3")


def traces_of(pid: int) -> list[str]:
    """Everything on this machine that carries the testbed's process id in its name."""
    places = [Path("/run/netns"), Path("/sys/class/net"), Path("/dev/shm"), records_folder()]
    names = [path for place in places if place.exists() for path in place.iterdir()]
    marks = (f"dg{pid}n", f"dg{pid}br", f"-{pid}")
    return [str(path) for path in names if path.name.startswith(marks[:2]) or path.name in (f"{pid}.json",)] + [
        str(path) for path in names if path.name.startswith("diogenes-") and path.name.endswith(marks[2])
    ]


def rank_pids(job: RunningJob) -> list[int]:
    return [rank["pid"] for rank in job.status()["ranks"]]


def guard_of(pid: int) -> int:
    """The testbed's child that is no rank: it still has the orchestrator's command line."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        child = int(path.parent.name)
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and b"nccl_instrument.testbed" in words:
            return child
    raise AssertionError(f"testbed {pid} has no guard")


def test_a_job_that_ends_leaves_only_its_run_folder(engine: Path, tmp_path: Path) -> None:
    done = run_job(tmp_path / "run", "--iterations", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {"manifest.json", "job.conf", *(f"rank{rank}.log" for rank in range(8))}


def test_data_was_checked_in_every_rank(engine: Path, tmp_path: Path) -> None:
    with running_job(tmp_path / "run") as job:
        assert all(rank["n_elements_checked"] > 100_000 for rank in job.status()["ranks"])


def test_a_running_job_is_seen_and_a_stopped_one_is_gone(engine: Path, tmp_path: Path) -> None:
    with running_job(tmp_path / "run") as job:
        pid, ranks = job.process.pid, rank_pids(job)
        assert traces_of(pid)
    assert traces_of(pid) == []
    assert [rank for rank in ranks if start_ticks_of(rank) is not None] == []


def test_a_killed_testbed_leaves_nothing(engine: Path, tmp_path: Path) -> None:
    with running_job(tmp_path / "run") as job:
        pid, ranks = job.process.pid, rank_pids(job)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: traces_of(pid) == [], f"left behind: {traces_of(pid)}")
    assert [rank for rank in ranks if start_ticks_of(rank) is not None] == []


def test_a_sweep_clears_up_after_a_testbed_whose_guard_was_killed_too(engine: Path, tmp_path: Path) -> None:
    with running_job(tmp_path / "run") as job, running_job(tmp_path / "other") as other:
        pid = job.process.pid
        os.kill(guard_of(pid), signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        job.process.wait()
        assert traces_of(pid)
        words = [sys.executable, "-m", "nccl_instrument.testbed", "sweep"]
        swept = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=True)
        assert f"testbed {pid}" in swept.stdout
        assert traces_of(pid) == []
        other.trains()  # two testbeds do not meet, and a sweep spares the living


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tp", "3", "--pp", "1", "--dp", "1"], "do not fill nodes of 2"),
        (["--plugin", "/nowhere/plugin.so"], "no profiler plugin at /nowhere/plugin.so"),
        (["--channels", "7"], "--channels must lie between"),
    ],
)
def test_what_cannot_be_run_is_refused_with_one_sentence(
    engine: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = run_job(tmp_path / "run", *words)
    assert done.returncode == 2
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1


def test_control_of_a_job_that_does_not_run_says_so(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "nccl_instrument.testbed", "control", str(tmp_path), "status"]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no testbed answers" in done.stderr


@pytest.mark.skipif(
    not (IS_ROOT and SETPRIV and SYSTEM_PYTHON.exists()), reason="needs root, setpriv and a system Python"
)
def test_somebody_who_is_not_root_gets_paced_links(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With the system's Python and without numpy, from a copy that nobody may read."""
    home = Path(subprocess.check_output(["mktemp", "-d", "/tmp/testbed-nobody-XXXX"], text=True).strip())
    try:
        shutil.copytree(REPO / "nccl_instrument" / "testbed", home / "nccl_instrument" / "testbed")
        for name in ("__init__.py", "command_line.py", "sizes.py", "stage_schema.py"):
            shutil.copy(REPO / "nccl_instrument" / name, home / "nccl_instrument" / name)
        subprocess.run(["chown", "-R", "nobody", str(home)], check=True)
        words = [SETPRIV, "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", str(SYSTEM_PYTHON), "-m"]
        words += ["nccl_instrument.testbed", "--run-dir", str(home / "run"), "--iterations", "3", "--plugin", "none"]
        done = subprocess.run([*words, *QUICK], cwd=home, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "paced sockets" in done.stdout and "iteration 3," in done.stdout
    finally:
        shutil.rmtree(home)
