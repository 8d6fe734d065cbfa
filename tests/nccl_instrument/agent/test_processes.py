"""Processes through /proc: living, stopped, gone, and a pid that means somebody else."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from nccl_instrument.agent.processes.proc import UNKNOWN, read_process

from .scripted_server import wait_until


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_our_own_process_runs_and_has_used_cpu_and_io() -> None:
    state = read_process(os.getpid(), started(os.getpid()))
    assert chr(state.state) == "R"
    assert state.n_threads >= 1
    assert state.cpu_ns > 0
    assert state.io_bytes > 0


def test_a_stopped_child_is_stopped_and_a_reaped_one_is_unknown() -> None:
    child = subprocess.Popen(["sleep", "60"])
    born = started(child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: chr(read_process(child.pid, born).state) == "T")
    child.kill()
    child.wait()
    assert read_process(child.pid, born) == UNKNOWN


def test_a_pid_that_was_given_to_another_process_is_unknown() -> None:
    assert read_process(os.getpid(), started(os.getpid()) + 1) == UNKNOWN


def test_a_name_with_spaces_and_brackets_does_not_shift_the_fields(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    child = subprocess.Popen([program, "60"])
    wait_until(lambda: "a) R" in Path(f"/proc/{child.pid}/stat").read_text())
    state = read_process(child.pid, started(child.pid))
    child.kill()
    child.wait()
    assert chr(state.state) in "RSD"  # D: the disk is busy
    assert state.n_threads == 1
