"""The data folder: one supervisor at a time, and nothing a killed one left may stop the next."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from console.supervisor import folder as folders
from console.supervisor.children import Recipe, start
from console.supervisor.folder import FolderInUse, claim, start_time


def test_a_second_claim_is_refused_and_names_the_first(tmp_path: Path) -> None:
    first = claim(tmp_path)
    with pytest.raises(FolderInUse, match=rf"already running on {tmp_path} \(process {os.getpid()}\)"):
        claim(tmp_path)
    first.release()
    claim(tmp_path).release()


def test_the_secret_key_is_kept_and_private(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    key = folder.secret_key()
    assert folder.secret_key() == key
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    folder.release()


def test_an_empty_secret_key_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "secret_key").touch(mode=0o644)
    folder = claim(tmp_path)
    assert len(folder.secret_key()) > 40
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    folder.release()


def test_a_noted_child_that_leads_no_group_does_not_stop_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "GRACE_SECONDS", 0.0)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (tmp_path / "children").write_text(f"{stranger.pid} {start_time(stranger.pid)}\n")
        claim(tmp_path).release()
        stranger.kill()


def test_release_takes_the_runtime_folder_away(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    assert folder.runtime.is_dir()
    folder.release()
    assert not folder.runtime.exists()


def test_children_that_outlived_a_killed_supervisor_are_ended_before_their_files_are_used(tmp_path: Path) -> None:
    # A supervisor that notes a child without a parent-death signal and is then killed.
    script = f"""
import subprocess, sys, time
from pathlib import Path
from console.supervisor.folder import claim, start_time
folder = claim(Path({str(tmp_path)!r}))
left = subprocess.Popen(["sleep", "600"], start_new_session=True)
(folder.path / "children").write_text(f"{{left.pid}} {{start_time(left.pid)}}\\n")
print(left.pid, folder.runtime, flush=True)
time.sleep(600)
"""
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout
    pid, stale_runtime = supervisor.stdout.readline().split()
    supervisor.kill()
    supervisor.wait()
    os.kill(int(pid), signal.SIGTERM)  # it dies within the grace: claim waits for it, no more
    folder = claim(tmp_path)
    assert start_time(int(pid)) is None
    assert not Path(stale_runtime).exists()
    folder.release()


@pytest.mark.parametrize("content", ["1\n/elsewhere\n", "999999999\n", "nonsense"])
def test_a_postgres_pid_file_of_another_process_is_removed(tmp_path: Path, content: str) -> None:
    (tmp_path / "postgres").mkdir()
    pid_file = tmp_path / "postgres" / "postmaster.pid"
    pid_file.write_text(content)
    claim(tmp_path).release()
    assert not pid_file.exists()


def test_a_child_dies_with_a_killed_supervisor(tmp_path: Path) -> None:
    script = f"""
import time
from pathlib import Path
from console.supervisor.children import Recipe, start
print(start(Recipe("sleeper", ["sleep", "600"]), Path({str(tmp_path)!r}) / "log").pid, flush=True)
time.sleep(600)
"""
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout
    pid = int(supervisor.stdout.readline())
    assert start_time(pid) is not None
    supervisor.kill()
    supervisor.wait()
    give_up_at = time.monotonic() + 10
    while start_time(pid) is not None and time.monotonic() < give_up_at:
        time.sleep(0.02)
    assert start_time(pid) is None


def test_a_child_that_ignores_its_stop_signal_is_killed(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(99)"
    )
    child = start(Recipe("deaf", [sys.executable, "-c", deaf], stop_seconds=0.2), tmp_path / "deaf.log")
    while "deaf" not in child.log_text():
        time.sleep(0.02)
    child.stop()
    assert child.process.returncode == -signal.SIGKILL
