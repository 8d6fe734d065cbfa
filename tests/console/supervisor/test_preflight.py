"""Each thing that is missing is said in one sentence that tells what to do."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from console.supervisor import preflight
from console.supervisor.folder import claim


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
    assert "install a C compiler and make" in str(preflight.compiler_problem())
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


@pytest.mark.parametrize("port", [0, -1, 70000])
def test_an_impossible_port(port: int) -> None:
    assert "is no port" in str(preflight.port_problem(port))


def test_a_full_disk(tmp_path: Path) -> None:
    assert "is full" in str(preflight.disk_problem(tmp_path / "not" / "yet", 10**18))
    assert preflight.disk_problem(tmp_path, 1) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_is_not_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot be written" in str(preflight.writable_problem(tmp_path / "var", "data"))


def test_a_data_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written" in str(preflight.writable_problem(tmp_path / "file" / "var", "data"))


def test_a_folder_in_use_is_said_before_anything_else(tmp_path: Path) -> None:
    folder = claim(tmp_path)
    assert preflight.data_problems(tmp_path) == [preflight.in_use_problem(tmp_path)]
    folder.release()
    assert preflight.data_problems(tmp_path) == []


def test_every_port_with_a_problem_is_named() -> None:
    assert len(preflight.port_problems([0, 70000])) == 2
