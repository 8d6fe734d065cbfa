"""A process is found by the number it has here, also from outside its pid namespace, or it is said that it cannot be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nccl_instrument.agent.dumps import sight
from nccl_instrument.agent.dumps.dumper import Dumper, Here
from nccl_instrument.agent.dumps.sight import look_at
from nccl_instrument.agent.processes.proc import Living, started_at
from nccl_instrument.agent.processes.statuses import Statuses
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.post import DUMPS_PATH, Door, Order
from nccl_instrument.dumps import RECORDER, STACKS, Part
from nccl_instrument.status import decode_status, status_path
from rca.stacks.reading import read_stacks

from .scripted_server import ScriptedServer, wait_until

IN_CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
HUNG = """
import os, sys, threading
from pathlib import Path
from nccl_instrument import recorder
recorder.start(lambda: b"dump of a rank in a container", Path(sys.argv[1]))
def hang():
    lock = threading.Lock(); lock.acquire(); print("ready", flush=True); lock.acquire()
hang()
"""


def can_unshare() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*IN_CONTAINER, "true"], check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="pid namespaces need root")


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[Living]:
    """A hung rank that is number 1 of its own pid namespace, as its status file tells of it."""
    argv = [*IN_CONTAINER, sys.executable, "-c", HUNG, str(tmp_path)]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, env={**os.environ, "RANK": "5", "DIOGENES_JOB": "sleepers"}
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            path = status_path(tmp_path, 1, os.getuid())
            wait_until(lambda: is_told(path), 20)
            told = decode_status(path.read_bytes())
            yield Living(5, told.pid, told.started, tmp_path, os.getuid())
        finally:
            process.send_signal(signal.SIGKILL)


def is_told(path: Path) -> bool:
    """The file is there, and empty for a moment, before the first status is in it."""
    try:
        return bool(decode_status(path.read_bytes()))
    except (OSError, ValueError):
        return False


def send(signal_: signal.Signals, living: Living) -> None:
    """To the process as it is seen here; number 0 would mean everybody in our own group."""
    number = look_at(living).number
    assert number > 1
    os.kill(number, signal_)


def dumps_of(living: Living, tmp_path: Path) -> dict[str, Part]:
    """What an agent takes of it."""
    server = ScriptedServer()
    (tmp_path / "token").write_text("token")
    door = Door(server.url, tmp_path / "token", timeout_s=5, path=DUMPS_PATH)
    dumper = Dumper(door, "node-a", Losses(), lambda _job: Here(bytes(16), (living,)))
    dumper.start()
    try:
        dumper.ask("job", (Order(1, (STACKS, RECORDER), None, 1, 0.1),))
        wait_until(lambda: bool(server.dumps), 30)
        return {part.kind: part for part in server.dumps[0].parts}
    finally:
        dumper.stop()
        server.close()


@needs_namespaces
def test_a_rank_in_a_container_is_found_by_the_lock_it_holds(contained: Living, tmp_path: Path) -> None:
    found = look_at(contained)
    assert contained.pid == 1
    assert (found.number > 1, found.is_alive, found.is_another) == (True, True, False)
    parts = dumps_of(contained, tmp_path)
    assert [frame.name for frame in read_stacks(parts[STACKS].raw, 5).main] == ["hang", "<module>"]
    assert parts[STACKS].pid == found.number
    assert (parts[RECORDER].raw, parts[RECORDER].by) == (b"dump of a rank in a container", "its recorder thread")


@needs_namespaces
def test_one_whose_processes_cannot_be_seen_says_so_and_its_recorder_answers_all_the_same(
    contained: Living, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sight, "lock_holder", lambda path: 0)  # as the kernel says in a namespace that does not hold it
    parts = dumps_of(contained, tmp_path)
    assert parts[STACKS].silent.startswith("it runs in a container whose processes cannot be seen from here")
    assert parts[RECORDER].raw == b"dump of a rank in a container"


@needs_namespaces
def test_the_agents_own_namespace_may_be_another_one_than_the_ranks(contained: Living, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from nccl_instrument.agent.processes.proc import Living;"
        " from nccl_instrument.agent.dumps.sight import look_at;"
        f" print(look_at(Living(5, {contained.pid}, {contained.started}, Path(sys.argv[1]), {contained.uid})))"
    )
    argv = [*IN_CONTAINER, sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "number=0, is_alive=True, is_another=True" in said


@needs_namespaces
def test_a_rank_that_ended_in_its_container_is_gone(contained: Living) -> None:
    send(signal.SIGKILL, contained)
    wait_until(lambda: not look_at(contained).is_alive, 10)
    wait_until(lambda: look_at(contained).number == 0, 10)  # a zombie for a moment


@needs_namespaces
def test_the_state_of_a_process_in_a_container_is_known(contained: Living) -> None:
    statuses = Statuses([contained.folder], "", lambda kind, pid: None)
    statuses.look()
    send(signal.SIGSTOP, contained)
    wait_until(
        lambda: statuses.tables("sleepers", 1, [], all_comms=True)["process"]["state"].tolist() == [ord("T")], 10
    )
    statuses.close()


def test_a_lock_held_by_somebody_who_is_not_that_process_leads_to_nobody(tmp_path: Path) -> None:
    hold = "f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 1)"
    code = f"import sys, fcntl, time; {hold}; print(flush=True); time.sleep(60)"
    path = status_path(tmp_path, 2**22 - 1, os.getuid())
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        theirs = Living(0, 2**22 - 1, started_at(process.pid) or 0, tmp_path, os.getuid())
        found = look_at(theirs)  # it calls itself by another number
        assert (found.number, found.is_alive) == (0, True)
        assert look_at(replace(theirs, uid=theirs.uid + 1)).is_alive is False
        process.kill()
    time.sleep(0.1)
    assert look_at(theirs).is_alive is False
