"""Stacks of living, stopped, hung and dead processes and their children, without py-spy and without the right to look."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_instrument.agent.dumps import stacks
from nccl_instrument.agent.dumps.stacks import find_py_spy, python_children, take_stacks
from nccl_instrument.dumps import INFLATED_BYTES_MAX
from rca.stacks.process import OTHER, TRAINER
from rca.stacks.reading import read_stacks

JOB = """
import multiprocessing, time
def load_batch():
    print("ready", flush=True)
    time.sleep(600)
def train():
    worker = multiprocessing.get_context("fork").Process(target=load_batch, daemon=True)
    worker.start()
    time.sleep(600)
train()
"""


@pytest.fixture
def trainer() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", JOB], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        children = python_children(process.pid)
        yield process
        for pid in [process.pid, *children]:
            os.kill(pid, signal.SIGKILL)


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_trainer_and_its_worker_are_seen_with_what_they_are_doing(trainer: subprocess.Popen[bytes]) -> None:
    main, worker = take_stacks([(3, trainer.pid)])
    assert (main.rank, main.parent, worker.rank, worker.parent) == (3, 0, 3, trainer.pid)
    processes = [read_stacks(one.raw, one.rank, one.pid, one.command) for one in (main, worker)]
    assert [one.kind for one in processes] == [TRAINER, OTHER]
    assert [one.main[0].name for one in processes] == ["train", "load_batch"]
    assert "python" in main.command


def test_a_stopped_process_is_seen_too_and_stays_stopped(trainer: subprocess.Popen[bytes]) -> None:
    trainer.send_signal(signal.SIGSTOP)
    main = take_stacks([(0, trainer.pid)])[0]
    assert main.silent == ""
    assert Path(f"/proc/{trainer.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_process_that_is_gone_says_so() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    (only,) = take_stacks([(5, process.pid)])
    assert (only.rank, only.raw, only.silent) == (5, b"", "the process is gone")


def test_without_py_spy_everybody_is_named_with_the_cure(
    trainer: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nccl_instrument.agent.dumps.stacks.find_py_spy", lambda: None)
    found = take_stacks([(0, trainer.pid)])
    assert len(found) == 2
    assert all("pip install py-spy" in one.silent for one in found)


def test_without_py_spy_nobody_is_told_to_install_it_for_a_process_that_is_no_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stacks, "find_py_spy", lambda: None)
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            found = take_stacks([(0, other.pid), (1, os.getpid())])
        finally:
            other.kill()
    assert [one.silent for one in found[:2]] == [stacks.NO_PYTHON, stacks.NO_PY_SPY]
    assert stacks.may_be_python(2**22 + 1), "of a process that nobody may look into it is not known"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1", "not permitted"),
        ("echo 'Error: Failed to find python version from target process' >&2; exit 1", "no Python process"),
        ("echo 'Error: something else' >&2; exit 1", "py-spy failed: Error: something else"),
        ("exec cat /dev/zero", "at most"),
        ("exec cat /dev/zero >&2", "py-spy failed"),
    ],
)
def test_what_py_spy_complains_of_is_one_sentence(tmp_path: Path, body: str, why: str) -> None:
    (only,) = take_stacks([(0, os.getpid())], py_spy=script(tmp_path / "py-spy", body))[:1]
    assert only.raw == b""
    assert why in only.silent


def test_a_dump_that_hangs_holds_up_nobody_for_long(tmp_path: Path) -> None:
    found = take_stacks([(0, os.getpid())] * 6, py_spy=script(tmp_path / "py-spy", "exec sleep infinity"), seconds=1.0)
    assert all("did not finish" in one.silent or "no time left" in one.silent for one in found)


def test_beyond_what_a_body_holds_stacks_are_let_go_of_and_say_so(tmp_path: Path) -> None:
    program = script(tmp_path / "py-spy", "head -c 4000000 /dev/zero")
    found = [
        one
        for one in take_stacks([(rank, os.getpid()) for rank in range(20)], py_spy=program, seconds=300)
        if not one.parent
    ]
    kept = [one for one in found if one.length]
    assert len(kept) == INFLATED_BYTES_MAX // 4_000_000
    assert all("left out: the node's dumps take more than 64 MiB" in one.silent for one in found if not one.length)


def test_py_spy_is_found_beside_the_interpreter() -> None:
    assert find_py_spy() is not None
