"""What must be true before anything is built or started, each said in one clear sentence when it is not.

`make` runs this file with the system's Python before there is a virtual environment, so it uses the standard library
alone and avoids syntax that an older Python could not even parse: such a Python is one of the things it reports.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from nccl_instrument.testbed.faults import FOR_EVER_S, KINDS

PYTHON_MIN = (3, 11)
NODE_MIN = 20
ROOT = Path(__file__).resolve().parents[2]
BUILD_BYTES_MIN = 2_000_000_000
DATA_BYTES_MIN = 500_000_000
WORDS_FIT = (errno.EACCES, errno.EPERM, errno.EROFS)  # the system's other words (/proc: "No such file") mislead
FAULTS_THAT_HANG = [
    name for name, kind in KINDS.items() if kind.kind.endswith("fail-stop") or kind.default == FOR_EVER_S
]


def build_problems() -> list[str]:
    """What keeps us from installing and building in the source folder."""
    found = [python_problem(), compiler_problem(), node_problem(), writable_problem(ROOT, "source")]
    if not (ROOT / ".venv" / ".stamp-venv").exists():
        found += [venv_problem(), disk_problem(ROOT, BUILD_BYTES_MIN)]
    return [problem for problem in found if problem]


def data_problems(folder: Path) -> list[str]:
    """What keeps us from using this data folder."""
    found = in_use_problem(folder) or writable_problem(folder, "data") or disk_problem(folder, DATA_BYTES_MIN)
    return [found] if found else []


def port_problems(port: int) -> list[str]:
    """What keeps us from listening on this port and, with ingest, on the one above it; one sentence is enough."""
    if not 0 < port < 65535:
        return [number_problem(str(port))]
    found = port_problem(port) or port_problem(port + 1)
    return [found] if found else []


def number_problem(port: str) -> str:
    return f"PORT={port} is no port: choose a number between 1 and 65534."


def demo_problems(demo: str, fault: str) -> list[str]:
    """What keeps us from starting the demo as it was asked for."""
    if demo not in ("0", "1"):
        return [f"DEMO={demo} says neither yes nor no: DEMO=0 starts without the demo job, DEMO=1 with it."]
    if demo == "1" and fault and fault not in FAULTS_THAT_HANG:
        named = ", ".join(FAULTS_THAT_HANG)
        return [f"DEMO_FAULT={fault} is no fault that hangs a job: choose one of {named}; README says how to slow it."]
    return []


def python_problem() -> str | None:
    if sys.version_info >= PYTHON_MIN:
        return None
    return f"Diogenes needs Python 3.11 or newer, and {sys.executable} is {sys.version.split()[0]}."


def venv_problem() -> str | None:
    wanted = subprocess.run([sys.executable, "-c", "import venv, ensurepip"], capture_output=True, check=False)
    if wanted.returncode == 0:
        return None
    return f"{sys.executable} cannot create virtual environments: install python3-venv (Debian, Ubuntu) or its like."


def compiler_problem() -> str | None:
    given = os.environ.get("CC")  # without it the plugin is built by gcc, the testbed by cc
    for name in ([given] if given else ["gcc", "cc"]) + ["make"]:
        if shutil.which(name.split()[0]) is None:
            return f"There is no {name!r} here to build the profiler plugin with: install gcc and make."
    return None


def node_problem() -> str | None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        return f"There is no Node.js here to build the pages with: install Node {NODE_MIN} or newer, with npm."
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    major = version.lstrip("v").split(".")[0]
    if major.isdigit() and int(major) >= NODE_MIN:
        return None
    return f"Diogenes needs Node {NODE_MIN} or newer, and this machine has {version or 'one that does not start'}."


def writable_problem(folder: Path, what: str) -> str | None:
    """The folder must take new files. Tried, not asked: root may write everywhere, and still not below /proc.

    One that is missing is made only when everything else is right; tried is the folder it would lie in.
    """
    existing = first_existing(folder)
    try:
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return f"The disk of {folder} is full."
        if error.errno == errno.ENOTDIR:
            return f"The {what} folder {folder} cannot be made: {existing} is a file."
        reason = error.strerror if error.errno in WORDS_FIT else "this file system takes no files of ours"
        return f"The {what} folder {folder} cannot be written ({reason}): choose another{' with DATA=' * (what == 'data')}."


def first_existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    existing = folder.absolute()
    while not os.path.exists(existing) and existing != existing.parent:
        existing = existing.parent
    return existing


def disk_problem(folder: Path, bytes_min: int) -> str | None:
    free = shutil.disk_usage(first_existing(folder)).free
    if free >= bytes_min:
        return None
    return f"The disk of {folder} has too little room: {free // 1_000_000} MB free, {bytes_min // 1_000_000} MB needed."


def in_use_problem(folder: Path) -> str | None:
    """A supervisor holds a lock on its data folder as long as it lives."""
    try:
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = (folder / "lock").read_text().strip()
        return (
            f"Diogenes is already running on {folder} (process {owner}): stop it, or choose another folder with DATA=."
        )
    except OSError:
        return None  # no lock yet, or not ours to read: writable_problem says so
    return None


def port_problem(port: int) -> str | None:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except PermissionError:
        return f"This user may not listen on port {port}: choose one above 1023 with PORT=."
    except OSError:
        owner = "another Diogenes" if is_diogenes(port) else "another program"
        return f"Port {port} is taken by {owner}: choose another with PORT= (the one above it is used too)."
    return None


def is_diogenes(port: int) -> bool:
    """Web and ingest both tell how ingest is doing, and whose it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/ingest/health")
        return b'"diogenes ingest"' in connection.getresponse().read(10_000)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def run_problems(port: str, folder: Path, demo: str, fault: str) -> list[str]:
    """What keeps us from starting what was asked for: what is wrong in the words first, then in the world."""
    wrong_words = [] if port.isdecimal() else [number_problem(port)]
    wrong_words += demo_problems(demo, fault)
    return wrong_words or data_problems(folder) or port_problems(int(port))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check what building and running need.")
    parser.add_argument("--port")
    parser.add_argument("--data", type=Path, default=Path("var"))
    parser.add_argument("--demo", default="1")
    parser.add_argument("--fault", default="")
    chosen = parser.parse_args()
    problems = build_problems()
    if chosen.port is not None:
        problems += run_problems(chosen.port, chosen.data, chosen.demo, chosen.fault)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
