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

from nccl_instrument import recorder
from nccl_instrument.agent.recordings import OLD_SECONDS, take_recordings

HUNG = """
import sys, threading
from pathlib import Path
from nccl_instrument import recorder
recorder.start(lambda: b"dump of a hung rank", Path(sys.argv[1]))
print("ready", flush=True)
lock = threading.Lock(); lock.acquire(); lock.acquire()
"""


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
    (found,) = take_recordings([(2, hung.pid)], tmp_path)
    assert (found.raw, found.by, found.silent) == (b"dump of a hung rank", "its recorder thread", "")
    assert not recorder.request_path(tmp_path, hung.pid, os.getuid()).exists()


def test_a_dump_of_before_is_no_answer(hung: subprocess.Popen[bytes], tmp_path: Path) -> None:
    path = recorder.answer_path(tmp_path, hung.pid, os.getuid())
    path.write_bytes(b"old")
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert take_recordings([(0, hung.pid)], tmp_path)[0].raw == b"dump of a hung rank"


def test_a_file_that_torch_wrote_itself_is_taken_if_it_is_of_this_trouble(
    silent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "fr_7"
    path.write_bytes(b"written at the timeout")
    assert take_recordings([(7, silent.pid)], tmp_path, seconds=0.2)[0].by == "torch's dump file"
    os.utime(path, (time.time() - OLD_SECONDS - 5, time.time() - OLD_SECONDS - 5))
    assert take_recordings([(7, silent.pid)], tmp_path, seconds=0.2)[0].raw == b""


def test_the_debug_pipe_is_rung_and_its_answer_waited_for(silent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe_3.pipe")

    def torch() -> None:
        with open(tmp_path / "pipe_3.pipe", "rb") as pipe:
            assert pipe.read(1) == b"1"
        (tmp_path / "fr_3").write_bytes(b"as asked")

    thread = threading.Thread(target=torch)
    thread.start()
    deadline = time.monotonic() + 5
    while (
        not (found := take_recordings([(3, silent.pid)], tmp_path, seconds=1.0)[0]).raw and time.monotonic() < deadline
    ):
        pass
    thread.join(5)
    assert found.raw == b"as asked"


def test_a_rank_that_does_not_answer_says_what_was_tried(silent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    began = time.monotonic()
    (found,) = take_recordings([(1, silent.pid)], tmp_path, seconds=0.3)
    assert found.silent == "no answer within the time; tried its recorder thread, torch's dump file"
    assert time.monotonic() - began < 5


def test_a_process_that_is_gone_is_said_to_be_without_waiting(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert take_recordings([(1, process.pid)], tmp_path, seconds=60)[0].silent == "the process is gone"


def test_links_and_pipes_in_an_answers_place_are_not_read(silent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    (tmp_path / "fr_1").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fr_2")
    found = take_recordings([(1, silent.pid), (2, silent.pid)], tmp_path, seconds=0.2)
    assert [one.raw for one in found] == [b"", b""]


def test_a_recorder_that_cannot_dump_leaves_the_program_alone(tmp_path: Path) -> None:
    def broken() -> bytes:
        raise RuntimeError("no recorder in this torch")

    thread = recorder.start(broken, tmp_path)
    thread.join(5)
    assert not thread.is_alive()


def test_without_torch_the_thread_ends_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", None)
    thread = recorder.start(None, tmp_path)
    thread.join(20)
    assert not thread.is_alive()


def test_a_program_that_ends_by_an_exception_leaves_a_last_dump(tmp_path: Path) -> None:
    code = HUNG.rpartition("lock =")[0] + "raise SystemExit if sys.argv[2] == 'quiet' else RuntimeError('sizes differ')"
    for how, is_left in (("quiet", False), ("loud", True)):
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path), how], stderr=subprocess.DEVNULL) as process:
            process.wait()
        left = recorder.last_words_path(tmp_path, process.pid, os.getuid())
        assert left.exists() is is_left
    assert left.read_bytes() == b"dump of a hung rank\nended outside any op by RuntimeError: sizes differ"
    (found,) = take_recordings([(0, process.pid)], tmp_path)
    assert (found.by, found.raw) == (recorder.LAST_WORDS, left.read_bytes())


KILLED = """
import sys, time
from pathlib import Path
from nccl_instrument import recorder
recorder.LOOK_SECONDS, recorder.LOOKS_PER_GLANCE = 0.05, 2
recorder.start(lambda: b"as it was", Path(sys.argv[1]))
while not recorder.seen_path(Path(sys.argv[1]), __import__("os").getpid(), __import__("os").getuid()).exists():
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(600)
"""


def test_of_a_killed_rank_what_was_seen_shortly_before_is_taken(tmp_path: Path) -> None:
    for process in started(tmp_path, KILLED):
        (alive,) = take_recordings([(1, process.pid)], tmp_path)
        assert alive.by == "its recorder thread"
        recorder.answer_path(tmp_path, process.pid, os.getuid()).unlink()
        process.kill()
        process.wait()
        (killed,) = take_recordings([(1, process.pid)], tmp_path)
        assert (killed.raw, killed.by) == (b"as it was", recorder.SEEN_LATELY)


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
            (found,) = take_recordings([(1, process.pid)], tmp_path)
            assert (found.by, b"gloo:all_reduce" in found.raw) == ("torch's worker server", True)
            os.chown(path, 12345, -1) if os.getuid() == 0 else path.unlink()
            (other,) = take_recordings([(1, process.pid)], tmp_path, seconds=0.3)
            assert "worker server" not in other.silent
        server.shutdown()


def test_a_worker_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    code = "import time; print('ready', flush=True); time.sleep(600)"
    path = tmp_path / "worker.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        for process in started(tmp_path, code, TORCH_WORKER_SERVER_SOCKET=str(path)):
            (found,) = take_recordings([(1, process.pid)], tmp_path, seconds=0.3)
    assert (
        found.silent == "no answer within the time; tried its recorder thread, torch's worker server, torch's dump file"
    )
