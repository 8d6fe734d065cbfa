"""Each thing that is missing is said in one sentence that tells what to do."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from console.supervisor import preflight
from console.supervisor.folder import claim
from tests.eval.spine import FAULTS


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, prints: str = "") -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho {prints}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_this_machine_can_build() -> None:
    assert preflight.build_problems() == []


def test_no_compiler(empty_path: Path) -> None:
    assert "'gcc' here to build the profiler plugin with: install gcc and make" in str(preflight.compiler_problem())
    install(empty_path, "gcc")
    install(empty_path, "cc")
    assert "'make'" in str(preflight.compiler_problem())
    install(empty_path, "make")
    assert preflight.compiler_problem() is None


def test_no_node_or_one_too_old(empty_path: Path) -> None:
    assert "no Node.js here" in str(preflight.node_problem())
    install(empty_path, "npm")
    install(empty_path, "node", "v18.19.0")
    assert preflight.node_problem() == "Diogenes needs Node 20 or newer, and this machine has v18.19.0."
    install(empty_path, "node", "v20.0.0")
    assert preflight.node_problem() is None


def test_a_taken_port_is_named_and_a_free_one_is_not() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Port {port} is taken" in str(preflight.port_problem(port))
    assert preflight.port_problem(port) is None


class Health(BaseHTTPRequestHandler):
    """What ingest answers, as far as it is recognised by it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok", "service": "diogenes ingest"}')

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def health_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_port_taken_by_another_diogenes_says_so_in_one_sentence(health_port: int) -> None:
    wanted = [
        f"Port {health_port} is taken by another Diogenes: choose another with PORT= (the one above it is used too)."
    ]
    assert preflight.port_problems(health_port) == wanted
    assert len(preflight.port_problems(health_port - 1)) == 1  # for the one above it


@pytest.mark.parametrize("port", [0, -1, 65535, 70000])
def test_an_impossible_port(port: int) -> None:
    assert preflight.port_problems(port) == [f"PORT={port} is no port: choose a number between 1 and 65534."]


def test_words_that_make_no_sense_are_said_before_anything_is_tried(tmp_path: Path) -> None:
    problems = preflight.run_problems("abc", tmp_path / "var", "yes", "")
    assert [problem.split()[0] for problem in problems] == ["PORT=abc", "DEMO=yes"]
    assert not (tmp_path / "var").exists()


def test_only_faults_that_hang_the_job_make_a_demo() -> None:
    assert set(preflight.FAULTS_THAT_HANG) == set(FAULTS)
    assert preflight.demo_problems("1", "") == preflight.demo_problems("1", "nic_down") == []
    assert "DEMO_FAULT=bogus is no fault" in preflight.demo_problems("1", "bogus")[0]
    assert "choose one of nic_down" in preflight.demo_problems("1", "slow_compute")[0]
    assert preflight.demo_problems("0", "bogus") == []


def test_a_full_disk(tmp_path: Path) -> None:
    said = str(preflight.disk_problem(tmp_path / "not" / "yet", 10**18))
    assert "has too little room: " in said and said.endswith(" MB free, 1000000000000 MB needed.")
    assert preflight.disk_problem(tmp_path, 1) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_is_not_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in str(preflight.writable_problem(tmp_path / "var", "data"))


def test_a_data_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert preflight.writable_problem(tmp_path / "file" / "var", "data") == (
        f"The data folder {tmp_path / 'file' / 'var'} cannot be made: {tmp_path / 'file'} is a file."
    )


@pytest.mark.parametrize("folder", ["/proc/x", "/proc"])
def test_a_data_folder_that_no_user_can_write_is_not_called_full(folder: str) -> None:
    assert preflight.data_problems(Path(folder)) == [
        f"The data folder {folder} cannot be written (this file system takes no files of ours): choose another with DATA=."
    ]


def test_a_folder_in_use_is_said_before_anything_else(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    assert preflight.data_problems(tmp_path) == [preflight.in_use_problem(tmp_path)]
    folder.release()
    assert preflight.data_problems(tmp_path) == []
