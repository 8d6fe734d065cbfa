"""A Flight Recorder dump comes by thread, pipe or file, also from a rank that hangs, and a silent rank says what was tried."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest

from nccl_instrument import recorder, status
from nccl_instrument.agent.dumps.recordings import take_recordings
from nccl_instrument.agent.processes.proc import Living, started_at

HUNG = """
import sys, threading
from pathlib import Path
from nccl_instrument import recorder
recorder.start(lambda: b"dump of a hung rank", Path(sys.argv[1]))
print("ready", flush=True)
lock = threading.Lock(); lock.acquire(); lock.acquire()
"""


def living(rank: int, pid: int, folder: Path) -> Living:
    return Living(rank, pid, started_at(pid) or 0, folder, os.getuid())


def started(tmp_path: Path, code: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **environment}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A rank whose main thread waits for ever for a lock it holds."""
    yield from started(tmp_path, HUNG)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A rank without a recorder, whose dump files go to tmp_path."""
    code = "import time; print('ready', flush=True); time.sleep(600)"
    variables = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/fr_", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_"}
    yield from started(tmp_path, code, **variables)


def test_a_hung_rank_answers_by_its_recorder_thread(hung: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (found,) = take_recordings([living(2, hung.pid, tmp_path)], seconds=60)
    assert (found.raw, found.by, found.silent) == (b"dump of a hung rank", "its recorder thread", "")
    assert not recorder.request_path(tmp_path, hung.pid, os.getuid()).exists()


def test_a_dump_of_before_is_no_answer(hung: subprocess.Popen[bytes], tmp_path: Path) -> None:
    path = recorder.answer_path(tmp_path, hung.pid, os.getuid())
    path.write_bytes(b"old")
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert take_recordings([living(0, hung.pid, tmp_path)], seconds=60)[0].raw == b"dump of a hung rank"


def test_a_file_that_torch_wrote_itself_is_taken_if_it_is_of_this_trouble(
    silent: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fr_7"
    path.write_bytes(b"written at the timeout")
    assert take_recordings([living(7, silent.pid, tmp_path)], seconds=0.2)[0].by == "torch's dump file"
    monkeypatch.setattr("nccl_instrument.agent.dumps.recordings.OLD_SECONDS", 0.0)
    os.utime(path, (time.time() - 1, time.time() - 1))
    assert take_recordings([living(7, silent.pid, tmp_path)], seconds=0.2)[0].raw == b""


def test_the_debug_pipe_is_rung_and_its_answer_waited_for(silent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe_3.pipe")
    asked = living(3, silent.pid, tmp_path)

    def torch() -> None:
        with open(tmp_path / "pipe_3.pipe", "rb") as pipe:
            assert pipe.read(1) == b"1"
        (tmp_path / "fr_3").write_bytes(b"as asked")

    threading.Thread(target=torch, daemon=True).start()
    found = next(one for _ in range(60) if (one := take_recordings([asked], seconds=1.0)[0]).raw)
    assert found.raw == b"as asked"


def test_a_rank_that_does_not_answer_says_what_was_tried(silent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (found,) = take_recordings([living(1, silent.pid, tmp_path)], seconds=0.3)
    assert found.silent == "no answer within the time; tried its recorder thread, torch's dump file"


def test_a_process_that_is_gone_is_said_to_be_without_waiting(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert take_recordings([living(1, process.pid, tmp_path)], seconds=60)[0].silent == "the process is gone"


def test_links_and_pipes_in_an_answers_place_are_not_read(silent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "fr_1").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fr_2")
    found = take_recordings([living(rank, silent.pid, tmp_path) for rank in (1, 2)], seconds=0.2)
    assert [one.raw for one in found] == [b"", b""]


def test_a_recorder_that_cannot_dump_leaves_the_program_alone(tmp_path: Path) -> None:
    def broken() -> bytes:
        raise RuntimeError("no recorder in this torch")

    recorder.start(broken, tmp_path).join()


def test_without_torch_the_thread_ends_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", None)
    recorder.start(None, tmp_path).join()


def test_a_program_that_ends_by_an_exception_leaves_a_last_dump(tmp_path: Path) -> None:
    code = HUNG.rpartition("lock =")[0] + "raise SystemExit if sys.argv[2] == 'quiet' else RuntimeError('sizes differ')"
    for how, is_left in (("quiet", False), ("loud", True)):
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path), how], stderr=subprocess.DEVNULL) as process:
            process.wait()
        left = recorder.last_words_path(tmp_path, process.pid, os.getuid())
        assert left.exists() is is_left
    assert left.read_bytes() == b"dump of a hung rank\nended outside any op by RuntimeError: sizes differ"
    (found,) = take_recordings([living(0, process.pid, tmp_path)], seconds=60)
    assert (found.by, found.raw) == (recorder.LAST_WORDS, left.read_bytes())


STANDING = """
import os, sys, time
from pathlib import Path
from nccl_instrument import recorder, status
counts = b'{"pg_status": {"0": {"last_enqueued_collective": 5, "last_completed_collective": 4}}}'
status._glances = lambda: (("", lambda: counts),)
recorder.LOOK_SECONDS, recorder.STILL_SECONDS = 0.05, 0.0
folder = Path(sys.argv[1])
recorder.start(lambda: b"as it was", folder)
while not recorder.seen_path(folder, os.getpid(), os.getuid()).exists():
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(600)
"""


def test_of_a_rank_killed_in_an_op_what_was_kept_while_it_stood_is_taken(tmp_path: Path) -> None:
    for process in started(tmp_path, STANDING):
        (alive,) = take_recordings([living(1, process.pid, tmp_path)], seconds=60)
        assert alive.by == "its recorder thread"
        recorder.answer_path(tmp_path, process.pid, os.getuid()).unlink()
        process.kill()
        process.wait()
        (killed,) = take_recordings([living(1, process.pid, tmp_path)], seconds=60)
        assert (killed.raw, killed.by) == (b"as it was", recorder.SEEN_LATELY)


def test_only_a_process_that_stands_still_in_an_op_is_looked_at_and_once(tmp_path: Path) -> None:
    """A dump holds up every thread of the program: one that goes on is spared it."""
    dumps, path, counts = list[int](), tmp_path / "seen", [(5, -1, 4)]

    def glance() -> bytes:
        dumps.append(1)
        return b"dump"

    def torch() -> bytes:
        enqueued, _, done = counts[0]
        return b'{"pg_status": {"0": {"last_enqueued_collective": %d, "last_completed_collective": %d}}}' % (
            enqueued,
            done,
        )

    writer = status.StatusWriter(tmp_path, None, (("", torch),))
    keeper = recorder._Keeper(path, glance, writer.stands_since)
    writer.write()
    began_ns = writer.stands_since()
    assert began_ns > 0
    keeper.look()
    assert dumps == []  # it has just moved
    keeper.stands_since = lambda: began_ns - 100 * 10**9
    keeper.look()
    keeper.look()
    assert (len(dumps), path.read_bytes()) == (1, b"dump")
    counts[0] = (5, -1, 5)
    writer.write()
    assert writer.stands_since() == 0  # in no op: it computes
    keeper.stands_since = writer.stands_since
    keeper.look()
    assert (len(dumps), path.exists()) == (1, False)


STUCK = """
import sys, time
from pathlib import Path
from nccl_instrument import recorder
is_asked = []
def dump():
    if is_asked:
        time.sleep(600)
    return b"dump"
recorder.start(dump, Path(sys.argv[1]))
is_asked.append(1)
if sys.argv[2] == "pipe":
    is_asked.clear()
    import os
    os.mkfifo(Path(sys.argv[1]) / f"diogenes-last.{os.getuid()}.{os.getpid()}.part")
raise RuntimeError("the end")
"""


@pytest.mark.parametrize("how", ["dump", "pipe"])
def test_a_dump_that_never_ends_or_a_pipe_in_its_place_holds_no_dying_program(tmp_path: Path, how: str) -> None:
    argv = [sys.executable, "-c", STUCK, str(tmp_path), how]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=120)
    assert b"RuntimeError: the end" in said


def test_a_pipe_at_the_place_of_the_request_holds_up_no_agent(silent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    path = recorder.request_path(tmp_path, silent.pid, os.getuid())
    os.mkfifo(path)
    (found,) = take_recordings([living(1, silent.pid, tmp_path)], seconds=0.3)
    assert found.silent == "no answer within the time; tried torch's dump file"
    assert path.is_fifo()


def test_a_dump_file_of_before_the_process_began_is_of_an_earlier_trouble(tmp_path: Path) -> None:
    path = tmp_path / "fr_7"
    path.write_bytes(b"of the hang before the restart")
    os.utime(path, (time.time() - 60, time.time() - 60))
    code = "import time; print('ready', flush=True); time.sleep(600)"
    for process in started(tmp_path, code, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/fr_"):
        assert take_recordings([living(7, process.pid, tmp_path)], seconds=0.2)[0].raw == b""
        path.touch()
        assert take_recordings([living(7, process.pid, tmp_path)], seconds=0.2)[0].raw == path.read_bytes()


@pytest.mark.skipif(os.getuid() != 0, reason="gives files away")
def test_files_and_pipes_of_another_user_are_neither_read_nor_written_to(
    silent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe_1.pipe"
    os.mkfifo(pipe)
    left = [tmp_path / "fr_1", recorder.answer_path(tmp_path, silent.pid, 0)]
    left += [recorder.last_words_path(tmp_path, silent.pid, 0), recorder.seen_path(tmp_path, silent.pid, 0)]
    for path in left:
        path.write_bytes(b"a secret")
    for path in (pipe, *left):
        os.chown(path, 12345, -1)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    asked = living(1, silent.pid, tmp_path)
    (found,) = take_recordings([asked], seconds=0.3)
    silent.kill()
    silent.wait()
    (gone,) = take_recordings([asked], seconds=0.3)
    assert (found.raw, gone.raw, os.read(reader, 1)) == (b"", b"", b"")
    os.close(reader)


def test_of_two_recorders_the_one_that_knows_an_op_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch for GPUs has one for NCCL and one for the rest."""
    torch = SimpleNamespace(
        _dump_nccl_trace=lambda **_: b"nothing", _dump_fr_trace=lambda **_: b"profiling_name of gloo"
    )
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", torch)
    assert recorder._torch_dump()() == b"profiling_name of gloo"
    torch._dump_nccl_trace = lambda **_: b"profiling_name of nccl"
    assert recorder._torch_dump()() == b"profiling_name of nccl"


class Worker(BaseHTTPRequestHandler):
    """Answers as torch's worker server of a gloo rank does."""

    def do_POST(self) -> None:
        is_known = self.path == "/handler/fr_trace_json"
        body = b'{"entries": [{"profiling_name": "gloo:all_reduce"}]}' if is_known else b"Handler not found"
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass


class WorkerServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def test_torchs_worker_server_is_asked_at_a_socket_of_the_same_user(tmp_path: Path) -> None:
    code = "import time; print('ready', flush=True); time.sleep(600)"
    path = tmp_path / "worker.sock"
    with WorkerServer(str(path), Worker) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        for process in started(tmp_path, code, TORCH_WORKER_SERVER_SOCKET=str(path)):
            (found,) = take_recordings([living(1, process.pid, tmp_path)], seconds=60)
            assert (found.by, b"gloo:all_reduce" in found.raw) == ("torch's worker server", True)
            os.chown(path, 12345, -1) if os.getuid() == 0 else path.unlink()
            (other,) = take_recordings([living(1, process.pid, tmp_path)], seconds=0.3)
            assert "worker server" not in other.silent
        server.shutdown()


def test_a_worker_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    code = "import time; print('ready', flush=True); time.sleep(600)"
    path = tmp_path / "worker.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        for process in started(tmp_path, code, TORCH_WORKER_SERVER_SOCKET=str(path)):
            (found,) = take_recordings([living(1, process.pid, tmp_path)], seconds=0.3)
    assert (
        found.silent == "no answer within the time; tried its recorder thread, torch's worker server, torch's dump file"
    )
