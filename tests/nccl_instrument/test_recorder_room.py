"""What a recorder leaves in the node's memory has a limit, and nothing of a failed write stays there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_instrument import recorder
from nccl_instrument.agent.dumps.recordings import take_recordings
from nccl_instrument.agent.processes.proc import Living, started_at

LIMITED = """
import os, resource, sys
from pathlib import Path
from nccl_instrument import recorder
path = recorder.seen_path(Path(sys.argv[1]), os.getpid(), os.getuid())
resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
try:
    recorder._leave(path, bytes(2**22))
except OSError:
    print("no room")
"""


def test_of_a_write_that_fails_in_the_middle_nothing_stays(tmp_path: Path) -> None:
    said = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert said.stdout == "no room\n"
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_half_written_is_among_its_leftovers(tmp_path: Path) -> None:
    for make in (recorder.answer_path, recorder.last_words_path, recorder.seen_path):
        path = make(tmp_path, 7, 0)
        assert {path, path.with_name(path.name + ".part")} <= set(recorder.leftovers(tmp_path, 7, 0))


def test_a_dump_beyond_its_limit_leaves_the_reason(tmp_path: Path) -> None:
    path = recorder.last_words_path(tmp_path, os.getpid(), os.getuid())
    recorder._leave(path, bytes(recorder.DUMP_BYTES_MAX + 1))
    left = path.read_bytes()
    assert left.startswith(recorder.REFUSED) and str(recorder.DUMP_BYTES_MAX + 1).encode() in left


def test_the_files_of_a_process_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "ALL_BYTES_MAX", 1000)
    answer, last, seen = (
        make(tmp_path, os.getpid(), os.getuid())
        for make in (recorder.answer_path, recorder.last_words_path, recorder.seen_path)
    )
    for path in (answer, last, seen):
        recorder._leave(path, bytes(400))
    recorder._leave(last, bytes(401))  # in the place of its older one
    assert [path.stat().st_size for path in (answer,)] == [400]
    assert last.read_bytes() == bytes(401)
    assert seen.read_bytes().startswith(recorder.REFUSED)


def test_a_folder_that_is_nearly_full_is_left_to_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = os.statvfs(tmp_path)
    monkeypatch.setattr(recorder, "FREE_SHARE", 500 / (there.f_bavail * there.f_frsize))
    path = recorder.seen_path(tmp_path, os.getpid(), os.getuid())
    recorder._leave(path, bytes(4000))
    assert path.read_bytes().startswith(recorder.REFUSED)


ANSWERS = """
import sys, threading
from pathlib import Path
from nccl_instrument import recorder
recorder.FREE_SHARE = 0.0
recorder.start(lambda: b"a dump", Path(sys.argv[1]))
print("ready", flush=True)
threading.Event().wait()
"""


def test_the_agent_says_why_there_was_no_room(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", ANSWERS, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        of = Living(1, process.pid, started_at(process.pid) or 0, tmp_path, os.getuid())
        (found,) = take_recordings([of], seconds=3)
        process.kill()
    assert (found.raw, found.silent) == (b"", "its recorder thread: it has 6 bytes, and its folder has room for 0")
