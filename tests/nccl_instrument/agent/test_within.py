"""A path that a process names leads to its own files, whatever links lie on the way."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_instrument.agent.dumps import within
from nccl_instrument.agent.dumps.recordings import take_recordings
from nccl_instrument.agent.dumps.within import Place, open_of, open_within
from nccl_instrument.agent.processes.proc import Living
from nccl_instrument.status import decode_status, status_path

from .test_sight import IN_CONTAINER, needs_namespaces

WAYS = [within._by_kernel, within._step_by_step]


@pytest.fixture(params=WAYS, ids=["kernel", "steps"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], int]:
    """By the kernel, and as where it knows no openat2."""

    def refuses(start: int, path: str) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    if request.param is within._step_by_step:
        monkeypatch.setattr(within, "_by_kernel", refuses)
    chosen: Callable[[int, str], int] = request.param
    return chosen


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A container's files, beside a file of the node with which it has nothing to do."""
    (tmp_path / "node").mkdir()
    for name in ("secret", "trace"):
        (tmp_path / "node" / name).write_bytes(b"of the node")
    root = tmp_path / "container"
    (root / "tmp").mkdir(parents=True)
    (root / "tmp" / "trace").write_bytes(b"of the container")
    return root


def content(root: Path, path: str) -> bytes:
    known = open_within(str(root), path)
    with open(f"/proc/self/fd/{known}", "rb") as file:
        os.close(known)
        return file.read()


def test_its_own_file_is_found(root: Path, way: object) -> None:
    assert content(root, "/tmp/trace") == b"of the container"
    assert content(root, "tmp/trace") == b"of the container"


@pytest.mark.parametrize("link", ["{node}", "../node", "../../../../../../../../..{node}"])
def test_a_folder_that_is_a_link_does_not_lead_out(root: Path, way: object, link: str) -> None:
    (root / "linked").symlink_to(link.format(node=root.parent / "node"))
    for path in ("/linked/secret", "linked/secret", "/tmp/../linked/secret", "/../node/secret", "../node/secret"):
        with pytest.raises(OSError):
            open_within(str(root), path)


def test_a_link_through_proc_does_not_lead_out(root: Path, way: object) -> None:
    (root / "proc").symlink_to("/proc/self/root")
    with pytest.raises(OSError):
        open_within(str(root), f"/proc{root.parent}/node/secret")


def test_a_folder_that_is_a_link_within_the_container_is_followed(root: Path) -> None:
    (root / "var").mkdir()
    (root / "var" / "tmp").symlink_to("/tmp")
    assert content(root, "/var/tmp/trace") == b"of the container"


def test_the_last_part_is_no_link_and_of_the_kind_and_user_that_was_asked_for(root: Path, way: object) -> None:
    (root / "tmp" / "link").symlink_to("trace")
    assert open_of(Place("/tmp/link", str(root)), os.getuid(), stat.S_IFREG) == -1
    assert open_of(Place("/tmp/trace", str(root)), os.getuid(), stat.S_IFIFO) == -1
    assert open_of(Place("/tmp/trace", str(root)), os.getuid() + 1, stat.S_IFREG) == -1
    assert open_of(Place("/tmp/tr\0ace", str(root)), os.getuid(), stat.S_IFREG) == -1
    known = open_of(Place("/tmp/trace", str(root)), os.getuid(), stat.S_IFREG)
    assert known >= 0
    os.close(known)


CONTAINED = """
import os, sys, time
from pathlib import Path
from nccl_instrument import status
status.start(Path(sys.argv[1]), lambda: 1)
path = status.status_path(Path(sys.argv[1]), os.getpid(), os.getuid())
while not path.exists() or not path.stat().st_size:
    time.sleep(0.01)
os.chroot(sys.argv[2])
print("ready", flush=True)
time.sleep(600)
"""


@needs_namespaces
def test_of_a_real_container_its_dump_is_taken_and_not_what_its_link_leads_to(root: Path) -> None:
    folder = root.parent / "shared"
    folder.mkdir()
    os.rename(root / "tmp", root / "own")
    (root / "tmp").symlink_to(root.parent / "node")
    argv = [*IN_CONTAINER, sys.executable, "-c", CONTAINED, str(folder), str(root)]
    surroundings = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": "/tmp/fr_", "DIOGENES_JOB": "job", "RANK": "5"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=surroundings) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        told = decode_status(status_path(folder, 1, os.getuid()).read_bytes())
        of = Living(5, told.pid, told.started, folder, os.getuid())
        (root.parent / "node" / "fr_5").write_bytes(b"of the node")
        assert take_recordings([of], seconds=0.3)[0].raw == b""
        os.unlink(root / "tmp")
        os.rename(root / "own", root / "tmp")
        (root / "tmp" / "fr_5").write_bytes(b"of the container")
        assert take_recordings([of], seconds=0.3)[0].raw == b"of the container"
        process.kill()
