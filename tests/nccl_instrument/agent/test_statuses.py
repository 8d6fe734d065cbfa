"""Jobs that nobody traces: a real process with the recorder's thread alone is declared, watched, and remembered when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nccl_instrument.agent.processes.follow import KEEP_NS
from nccl_instrument.agent.processes.statuses import Statuses
from nccl_instrument.recorder import seen_path
from nccl_instrument.status import GROUPS_MAX, StatusWriter, status_path
from nccl_instrument.tables import SOURCES

from .conftest import Node
from .scripted_server import wait_until

PROGRAM = """
import sys
from pathlib import Path
from nccl_instrument import recorder
steps = [0]
recorder.start(lambda: b"dump profiling_name", Path(sys.argv[1]), steps=lambda: steps[0])
print("ready", flush=True)
for line in sys.stdin:
    steps[0] += int(line)
"""


class Process:
    """A training program with the recorder alone."""

    def __init__(self, folder: Path, job: str = "job", rank: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        surroundings = {
            **os.environ,
            "DIOGENES_JOB": job,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "DIOGENES_TP_RANK": "1",
        }
        argv, pipe = [sys.executable, "-c", PROGRAM, str(folder)], subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=surroundings, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def step(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("1\n")
        self.process.stdin.flush()

    def end(self, number: int = 0) -> None:
        if number:
            self.process.send_signal(number)
        if self.process.poll() is None:
            self.process.communicate()


def newest(node: Node, table: str) -> Any:
    rows = node.rows(table)
    return rows[-1] if len(rows) else None


def test_a_process_without_a_segment_is_declared_and_watched(node: Node) -> None:
    process = Process(node.segments, rank=1)
    node.start_agent()
    batch = node.next_batches(1)[0]
    (comm,), (row,) = batch.rows("comm"), batch.rows("process")
    named = ("comm_id", "pid", "global_rank", "world_size", "tp", "dp", "n_ranks")
    assert comm[list(named)].tolist() == (0, process.pid, 1, 2, 1, -1, 0)
    assert (row["pid"], row["global_rank"], row["alive"]) == (process.pid, 1, 1)
    process.step()
    wait_until(lambda: newest(node, "status") is not None and newest(node, "status")["n_done"] == 1, 20)
    status = newest(node, "status")
    assert (SOURCES[status["source"]], status["group"], status["n_enqueued"], status["global_rank"]) == (
        "steps",
        b"",
        -1,
        1,
    )
    assert status["changed_ns"] <= status["written_ns"] <= status["tick_ns"]
    process.end()


def test_what_a_killed_process_said_last_goes_on_and_a_stopped_one_does_not_write(node: Node) -> None:
    process = Process(node.segments)
    node.start_agent()
    process.step()
    wait_until(lambda: newest(node, "status") is not None and newest(node, "status")["n_done"] == 1, 20)
    process.process.send_signal(signal.SIGSTOP)
    node.next_batches(2)
    stopped = node.next_batches(2)[-1]
    assert chr(stopped.rows("process")[0]["state"]) == "T"
    assert np.ptp([one.rows("status")[0]["written_ns"] for one in node.batches()[-2:]]) == 0
    process.end(signal.SIGKILL)
    last = node.next_batches(3)[-1]
    assert last.rows("process")[["pid", "alive", "state"]].tolist() == [(process.pid, 0, ord("X"))]
    assert last.rows("status")[["pid", "n_done"]].tolist() == [(process.pid, 1)]


def test_a_process_that_ends_well_has_one_last_row_and_leaves_nothing_behind(node: Node) -> None:
    process, witness = Process(node.segments), Process(node.segments, rank=1)
    node.start_agent()
    wait_until(lambda: alive(node, process.pid) and alive(node, witness.pid), 20)
    seen_path(node.segments, process.pid, os.getuid()).write_bytes(b"old")
    process.end()
    wait_until(lambda: alive(node, process.pid)[-1] == 0, 20)
    wait_until(lambda: not [one for one in node.segments.iterdir() if str(process.pid) in one.name], 20)
    node.next_batches(2)  # of the witness
    assert alive(node, process.pid).count(0) == 1
    witness.end()
    wait_until(lambda: not list(node.segments.iterdir()), 20)


def alive(node: Node, pid: int) -> list[int]:
    """What every row so far said of the process, in order."""
    rows = node.rows("process")
    said: list[int] = rows["alive"][rows["pid"] == pid].tolist() if len(rows) else []
    return said


def test_a_traced_process_is_declared_once(node: Node) -> None:
    """Its segment says more than its status."""
    trainer = node.trainer("job", 0, code=TRACED)
    trainer.do("comm", 0, 77, 0, 2)
    node.start_agent()
    wait_until(lambda: newest(node, "status") is not None, 20)
    batch = node.batches()[-1]
    assert batch.rows("process")["pid"].tolist() == [trainer.pid]
    assert set(node.rows("comm")["comm_id"].tolist()) == {77}
    assert batch.rows("status")["n_done"].tolist() == [5]


TRACED = """
import os, sys
from pathlib import Path
from nccl_instrument import status
from tests.nccl_instrument.agent import scripted_trainer
os.environ["DIOGENES_JOB"] = "job"
status.start(Path(sys.argv[1]), lambda: 5)
scripted_trainer.main()
"""


@pytest.fixture
def counted() -> list[tuple[str, int]]:
    return []


def test_files_that_are_no_status_are_left_alone_and_counted(tmp_path: Path, counted: list[tuple[str, int]]) -> None:
    statuses = Statuses([tmp_path, tmp_path / "absent"], "", lambda kind, pid: counted.append((kind, pid)))
    status_path(tmp_path, 1, os.getuid()).symlink_to("/etc/passwd")
    status_path(tmp_path, 2, os.getuid() + 1).write_bytes(b"of somebody else")
    os.mkfifo(status_path(tmp_path, 3, os.getuid()))
    for _ in range(3):
        statuses.look()
    assert sorted(counted) == [("segments_unreadable", pid) for pid in (1, 2, 3)]
    assert statuses.jobs() == set()
    statuses.close()


def test_what_an_earlier_boot_or_a_process_without_a_job_left_is_not_sent(
    tmp_path: Path, counted: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless, old = Process(tmp_path, job=""), Process(tmp_path)
    wait_until(lambda: len(list(tmp_path.glob("diogenes-status.*"))) == 2)
    statuses = Statuses([tmp_path], "", lambda kind, pid: counted.append((kind, pid)))
    old.end(signal.SIGKILL)
    monkeypatch.setattr("nccl_instrument.agent.processes.statuses.KEEP_NS", -KEEP_NS)
    statuses.look()
    assert not status_path(tmp_path, old.pid, os.getuid()).exists()
    monkeypatch.undo()
    statuses.look()
    assert counted == [("unnamed_processes", nameless.pid)]
    nameless.end()
    statuses.close()


def test_a_living_process_is_followed_however_long_ago_it_wrote(
    tmp_path: Path, counted: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is stuck with the GIL held or is stopped does not write, also not while the agent was started again."""
    process = Process(tmp_path, rank=1)
    path = status_path(tmp_path, process.pid, os.getuid())
    wait_until(lambda: path.exists() and path.read_bytes().startswith(b"DGST"), 30)
    process.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr("nccl_instrument.agent.processes.statuses.KEEP_NS", -KEEP_NS)
    statuses = Statuses([tmp_path], "", lambda kind, pid: counted.append((kind, pid)))
    statuses.look()
    assert statuses.jobs() == {"job"}
    assert [one.pid for one in statuses.living("job", ())] == [process.pid]
    process.end(signal.SIGKILL)
    statuses.close()


def test_process_groups_a_status_has_no_room_for_are_counted_once(
    tmp_path: Path, counted: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIOGENES_JOB", "job")
    groups = b'{"pg_status": {%s}}' % b",".join(b'"%d": {}' % at for at in range(GROUPS_MAX + 2))
    writer = StatusWriter(tmp_path, None, (("", lambda: groups),))
    writer.write()
    statuses = Statuses([tmp_path], "", lambda kind, pid: counted.append((kind, pid)))
    for _ in range(3):
        statuses.look()
    assert counted == [("rows_over_limit", os.getpid())] * 2
    statuses.close()
