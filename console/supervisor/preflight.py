"""What must be true before anything is built or started, each said in one clear sentence when it is not.

`make` runs this file with the system's Python before there is a virtual environment, so it uses the standard library
alone and avoids syntax that an older Python could not even parse: such a Python is one of the things it reports.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

PYTHON_MIN = (3, 11)
NODE_MIN = 20
ROOT = Path(__file__).resolve().parents[2]
BUILD_BYTES_MIN = 2_000_000_000
DATA_BYTES_MIN = 500_000_000


def build_problems() -> list[str]:
    """What keeps us from installing and building in the source folder."""
    found = [python_problem(), compiler_problem(), node_problem(), writable_problem(ROOT, "source")]
    if not (ROOT / ".venv" / ".stamp-venv").exists():
        found += [venv_problem(), disk_problem(ROOT, BUILD_BYTES_MIN)]
    return [problem for problem in found if problem]


def data_problems(data: Path) -> list[str]:
    """What keeps us from using this data folder."""
    found = in_use_problem(data) or writable_problem(data, "data") or disk_problem(data, DATA_BYTES_MIN)
    return [found] if found else []


def port_problems(ports: list[int]) -> list[str]:
    """What keeps us from listening on these ports."""
    return [problem for port in ports if (problem := port_problem(port))]


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
    for name in (os.environ.get("CC", "cc"), "make"):
        if shutil.which(name.split()[0]) is None:
            return f"There is no {name!r} here to build the profiler plugin with: install a C compiler and make."
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
    """The folder itself, or the nearest one above it that exists, must take new files."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return None
    return f"The {what} folder {folder} cannot be written by this user ({existing} refuses)."


def disk_problem(folder: Path, bytes_min: int) -> str | None:
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free >= bytes_min:
        return None
    return f"The disk of {folder} is full: {free // 1_000_000} MB free, {bytes_min // 1_000_000} MB needed."


def in_use_problem(data: Path) -> str | None:
    """A supervisor holds a lock on its data folder as long as it lives."""
    try:
        with (data / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = (data / "lock").read_text().strip()
        return f"Diogenes is already running on {data} (process {owner}): stop it, or choose another folder with DATA=."
    except OSError:
        return None  # no lock yet, or not ours to read: writable_problem says so
    return None


def port_problem(port: int) -> str | None:
    if not 0 < port < 65536:
        return f"{port} is no port: choose one between 1 and 65534 with PORT=."
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except PermissionError:
        return f"This user may not listen on port {port}: choose one above 1023 with PORT=."
    except OSError:
        return f"Port {port} is taken by another program: choose another with PORT= (the one above it is used too)."
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Check what building and running need.")
    parser.add_argument("--port", type=int)
    parser.add_argument("--data", type=Path)
    chosen = parser.parse_args()
    problems = build_problems()
    if chosen.data and chosen.port is not None:
        problems += data_problems(chosen.data) or port_problems([chosen.port, chosen.port + 1])
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
