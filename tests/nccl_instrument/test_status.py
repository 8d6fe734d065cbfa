"""The status a training process leaves: read back, told from a torn one, silent when it cannot be written."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument.agent.processes.segment import is_alive
from nccl_instrument.status import GROUPS_MAX, BadStatus, Progress, StatusWriter, decode_status, pg_status, status_path
from nccl_instrument.tables import ENDINGS

SAID = {
    "job": "llama", "rank": 3, "world_size": 8, "local_rank": 1, "restart_count": -1, "tp": 0, "pp": 1, "dp": 2, "ep": -1,
    "pid": 41, "started": 7, "written_ns": 9, "ending": 0, "n_left_out": 2, "progress": [["0", 5, -1, 4, 8]],
}  # fmt: skip
DUMP = b'{"pg_status": {"0": {"last_enqueued_collective": "5", "last_completed_collective": 4}}, "version": "2.10"}'


def sealed(said: object) -> bytes:
    raw = json.dumps(said).encode()
    return struct.pack("<4sII", b"DGST", len(raw), zlib.crc32(raw)) + raw


def written(folder: Path) -> bytes:
    return status_path(folder, os.getpid(), os.getuid()).read_bytes()


def test_a_status_is_these_bytes() -> None:
    found = decode_status(sealed(SAID) + bytes(100))
    assert (found.pid, found.started, found.written_ns, found.ending) == (41, 7, 9, 0)
    assert (found.identity["job"], found.identity["rank"], found.identity["pp"]) == ("llama", 3, 1)
    assert (found.progress, found.n_left_out) == ((Progress("0", 5, -1, 4, 8),), 2)
    assert decode_status(sealed({**SAID, "job": "a\ud800"})).identity["job"] == "a?"


@pytest.mark.parametrize(
    "raw",
    [b"", b"DGST", sealed(SAID)[:-1], b"DGTB" + sealed(SAID)[4:], sealed([]), sealed({**SAID, "rank": "3"}),
     sealed({**SAID, "progress": [["0", 5, 4]]}), sealed({**SAID, "progress": 5}), sealed({**SAID, "pid": 2**40}),
     sealed({key: SAID[key] for key in SAID if key != "job"})],
)  # fmt: skip
def test_what_is_no_whole_status_is_refused(raw: bytes) -> None:
    with pytest.raises(BadStatus):
        decode_status(raw)


@given(st.binary(max_size=100), st.integers(0, 60), st.integers(0, 255))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_a_status_or_refused(raw: bytes, at: int, byte: int) -> None:
    changed = bytearray(json.dumps(SAID).encode())
    changed[at] = byte
    for body in (raw, struct.pack("<4sII", b"DGST", len(changed), zlib.crc32(changed)) + changed):
        with contextlib.suppress(BadStatus):
            decode_status(body)


def test_what_torch_counts_is_read_with_what_it_does_not_know() -> None:
    assert pg_status(DUMP) == {"0": (5, -1, 4)}
    assert pg_status(b"{}") == {}


def test_a_writer_says_when_each_count_last_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIOGENES_JOB", "llama")
    monkeypatch.setenv("RANK", "3")
    steps = iter([1, 2, 2])
    writer = StatusWriter(tmp_path, lambda: next(steps), (("nccl ", lambda: DUMP),))
    seen = []
    for _ in range(3):
        writer.write()
        seen.append({one.name: one for one in decode_status(written(tmp_path)).progress})
    assert [one[""].done for one in seen] == [1, 2, 2]
    assert seen[0][""].changed_ns < seen[1][""].changed_ns == seen[2][""].changed_ns
    assert seen[0]["nccl 0"] == seen[2]["nccl 0"] == Progress("nccl 0", 5, -1, 4, seen[0]["nccl 0"].changed_ns)
    identity = decode_status(written(tmp_path)).identity
    assert (identity["job"], identity["rank"], identity["world_size"]) == ("llama", 3, -1)


def test_groups_beyond_what_a_status_holds_are_counted(tmp_path: Path) -> None:
    groups = {str(at): {"last_enqueued_collective": at} for at in range(GROUPS_MAX + 5)}
    StatusWriter(tmp_path, None, (("", lambda: json.dumps({"pg_status": groups}).encode()),)).write()
    found = decode_status(written(tmp_path))
    assert (len(found.progress), found.n_left_out) == (GROUPS_MAX, 5)


def test_what_cannot_be_asked_or_written_is_left_out(tmp_path: Path) -> None:
    def broken() -> int:
        raise RuntimeError("no step")

    writer = StatusWriter(tmp_path / "absent", broken, (("", lambda: b"no json"),))
    writer.write()
    writer.folder = tmp_path
    writer.write()
    assert decode_status(written(tmp_path)).progress == ()
    status_path(tmp_path, os.getpid(), os.getuid()).unlink()
    writer.write()  # whoever cleans up the folder does not silence it
    assert decode_status(written(tmp_path)).pid == os.getpid()


def test_a_recorder_that_never_answers_does_not_hold_up_the_end_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nccl_instrument.status.LOCK_SECONDS", 0.05)
    is_asked, may_answer = threading.Event(), threading.Event()

    def stuck() -> bytes:
        is_asked.set()
        may_answer.wait(60)
        return DUMP

    writer = StatusWriter(tmp_path, None, (("", stuck),))
    thread = threading.Thread(target=writer.write)
    thread.start()
    assert is_asked.wait(30)
    writer.write(1)
    assert not list(tmp_path.iterdir()) or not written(tmp_path).startswith(b"DGST")
    may_answer.set()
    thread.join(30)
    assert decode_status(written(tmp_path)).ending == 0


PROGRAM = """
import sys
from pathlib import Path
from nccl_instrument.status import StatusWriter, start
start(Path(sys.argv[1]), lambda: 5, 0.01)
print("ready", flush=True)
sys.stdin.readline()
{last}
"""


@pytest.mark.parametrize(
    ("last", "ending"),
    [("", "by itself"), ("raise RuntimeError('oom')", "by an exception"), ("import os; os._exit(1)", "unknown")],
)
def test_a_program_that_ends_says_so_unless_something_ended_it(tmp_path: Path, last: str, ending: str) -> None:
    argv = [sys.executable, "-c", PROGRAM.format(last=last), str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        path = status_path(tmp_path, process.pid, os.getuid())
        while not path.exists() or not path.read_bytes().startswith(b"DGST"):
            time.sleep(0.01)
        with path.open("rb") as file:
            assert is_alive(file.fileno())
            process.communicate(b"\n")
            assert not is_alive(file.fileno())
            assert decode_status(file.read()).ending == ENDINGS.index(ending)
