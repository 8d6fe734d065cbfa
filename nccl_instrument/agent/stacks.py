"""Python stacks of training processes and their children, taken with py-spy from outside, without stopping them.

Asked for when something is wrong, so nothing is taken for granted: a process may hang, be gone, or not be ours to look at.
Each dump has a time limit, all of them together have one, and what could not be taken says why: a rank that does not
answer is evidence, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DUMP_SECONDS: Final = 5.0
ALL_SECONDS: Final = 20.0
AT_ONCE: Final = 2
CHILDREN_MAX: Final = 32  # of one trainer: data-loader workers, checkpoint writers
PROCESSES_MAX: Final = 512
RAW_BYTES_MAX: Final = 4 * 2**20
COMMAND_CHARS: Final = 300
_REASONS: Final = (
    ("permission", "not permitted: run the agent as the user that trains or as root, with ptrace allowed"),
    ("operation not permitted", "not permitted: run the agent as the user that trains or as root, with ptrace allowed"),
    ("no such process", "the process is gone"),
    ("no such file", "the process is gone"),
    ("failed to find python version", "it is no Python process, or one py-spy does not know"),
)


@dataclass(frozen=True, slots=True)
class StackDump:
    """raw: py-spy's JSON; b'' when nothing could be taken, and `silent` says why. taken_ns: monotonic."""

    rank: int
    pid: int
    parent: int
    command: str
    taken_ns: int
    raw: bytes
    silent: str


def find_py_spy() -> str | None:
    """The program, beside this Python or on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def take_stacks(
    trainers: Sequence[tuple[int, int]],
    *,
    py_spy: str | None = None,
    seconds: float = ALL_SECONDS,
    is_over: Callable[[], bool] = lambda: False,
) -> list[StackDump]:
    """Stacks of `trainers`, pairs of (rank, process id), and of their Python children; never raises.

    is_over: asked before each; what is left is then left out.

    All trainers come before any child, so that the time limit takes children first.
    """
    program = py_spy or find_py_spy()
    family = [(rank, pid, 0) for rank, pid in trainers[:PROCESSES_MAX]]
    for rank, pid in trainers:
        family += [(rank, child, pid) for child in python_children(pid)[: max(PROCESSES_MAX - len(family), 0)]]
    if program is None:
        return [_silent(*one, "py-spy is not installed on this node: pip install py-spy") for one in family]
    give_up_at = time.monotonic() + seconds
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda one: _take(program, one, 0.0 if is_over() else give_up_at), family))


def python_children(pid: int) -> list[int]:
    """Python processes below `pid`, nearest first, at most CHILDREN_MAX."""
    found: list[int] = []
    front = [pid]
    while front and len(found) < CHILDREN_MAX:
        front = [child for one in front for child in _children(one)]
        found += [child for child in front if _is_python(child)]
    return found[:CHILDREN_MAX]


def _take(program: str, who: tuple[int, int, int], give_up_at: float) -> StackDump:
    rank, pid, parent = who
    left = give_up_at - time.monotonic()
    if left <= 0:
        return _silent(rank, pid, parent, "there was no time left to look at it")
    command = _command(pid)
    argv = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=min(left, DUMP_SECONDS), check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return _silent(rank, pid, parent, f"py-spy did not finish within {min(left, DUMP_SECONDS):.0f} s")
    except OSError as error:
        return _silent(rank, pid, parent, f"py-spy cannot be run: {error.strerror or error}")
    if done.returncode != 0:
        return _silent(rank, pid, parent, _reason(done.stderr.decode("utf-8", "replace")))
    if len(done.stdout) > RAW_BYTES_MAX:
        return _silent(rank, pid, parent, f"its stacks take {len(done.stdout)} bytes, at most {RAW_BYTES_MAX} are sent")
    return StackDump(rank, pid, parent, command, time.monotonic_ns(), done.stdout, "")


def _silent(rank: int, pid: int, parent: int, why: str) -> StackDump:
    return StackDump(rank, pid, parent, _command(pid), time.monotonic_ns(), b"", why)


def _reason(said: str) -> str:
    """One sentence from what py-spy complained of."""
    known = [why for word, why in _REASONS if word in said.lower()]
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return known[0] if known else f"py-spy failed: {lines[0][:200] if lines else 'without a word'}"


def _command(pid: int) -> str:
    """The command line, '' when the process is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()[: 4 * COMMAND_CHARS]
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:COMMAND_CHARS]


def _children(pid: int) -> Iterable[int]:
    try:
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            yield from (int(child) for child in (task / "children").read_text().split())
    except (OSError, ValueError):
        return


def _is_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return False
