"""Python stacks of training processes and their children, taken with py-spy from outside, without stopping them.

Asked for when something is wrong, so nothing is taken for granted: a process may hang, be gone, or not be ours to look at.
Each dump has a time limit, all of them together have one, and what could not be taken says why: a rank that does not
answer is evidence, too.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from nccl_instrument import dumps
from nccl_instrument.dumps import PART_BYTES_MAX, STACKS, Part, Room

DUMP_SECONDS: Final = 5.0
ALL_SECONDS: Final = 20.0
AT_ONCE: Final = 2
CHILDREN_MAX: Final = 32  # of one trainer: data-loader workers, checkpoint writers
PROCESSES_MAX: Final = 512
RAW_BYTES_MAX: Final = PART_BYTES_MAX[STACKS]
COMPLAINT_BYTES_MAX: Final = 2**16
PIECE_BYTES: Final = 2**16
COMMAND_CHARS: Final = 300
NO_PY_SPY: Final = "py-spy is not installed on this node: pip install py-spy"
NO_PYTHON: Final = f"{dumps.NO_PYTHON}, so it has no Python stack"
MAPS_BYTES_MAX: Final = 2**20
_REASONS: Final = (
    ("permission", "not permitted: run the agent as the user that trains or as root, with ptrace allowed"),
    ("operation not permitted", "not permitted: run the agent as the user that trains or as root, with ptrace allowed"),
    ("no such process", "the process is gone"),
    ("no such file", "the process is gone"),
    ("failed to find python version", f"{dumps.NO_PYTHON}, or one py-spy does not know"),
)


def find_py_spy() -> str | None:
    """The program, beside this Python or on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def may_be_python(pid: int) -> bool:
    """Whether py-spy might read it: its program or a library it has loaded is called python; True where nobody may look."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:
            return b"python" in maps.read(MAPS_BYTES_MAX).lower()
    except OSError:
        return True


def take_stacks(
    trainers: Sequence[tuple[int, int]],
    *,
    py_spy: str | None = None,
    room: Room | None = None,
    seconds: float = ALL_SECONDS,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Part]:
    """Stacks of `trainers`, pairs of (rank, process id), and of their Python children; never raises.

    is_over: asked before each; what is left is then left out. room: where the parts are to fit into.

    All trainers come before any child, so that the time limit takes children first.
    """
    program = py_spy or find_py_spy()
    family = [(rank, pid, 0) for rank, pid in trainers[:PROCESSES_MAX]]
    for rank, pid in trainers:
        family += [(rank, child, pid) for child in python_children(pid)[: max(PROCESSES_MAX - len(family), 0)]]
    if program is None:
        return [_part(one, NO_PY_SPY if may_be_python(one[1]) else NO_PYTHON) for one in family]
    give_up_at, into = time.monotonic() + seconds, room or Room()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda one: _take(program, one, 0.0 if is_over() else give_up_at, into), family))


def python_children(pid: int) -> list[int]:
    """Python processes below `pid`, nearest first, at most CHILDREN_MAX."""
    found: list[int] = []
    front = [pid]
    while front and len(found) < CHILDREN_MAX:
        front = [child for one in front for child in _children(one)]
        found += [child for child in front if _is_python(child)]
    return found[:CHILDREN_MAX]


def _take(program: str, who: tuple[int, int, int], give_up_at: float, room: Room) -> Part:
    left = give_up_at - time.monotonic()
    if left <= 0:
        return _part(who, "there was no time left to look at it")
    part = _part(who, "")  # what it is, before it can be gone
    argv = [program, "dump", "--json", "--nonblocking", "--pid", str(part.pid)]
    try:
        code, said, complaint = _run(argv, min(left, DUMP_SECONDS))
    except TimeoutError:
        return _part(who, f"py-spy did not finish within {min(left, DUMP_SECONDS):.0f} s")
    except OSError as error:
        return _part(who, f"py-spy cannot be run: {error.strerror or error}")
    if len(said) > RAW_BYTES_MAX:
        return _part(who, f"its stacks take more than {RAW_BYTES_MAX} bytes, at most as many are sent")
    if code != 0:
        return _part(who, _reason(complaint.decode("utf-8", "replace")))
    return room.admit(replace(part, taken_ns=time.time_ns()).holding(said))


def _run(argv: Sequence[str], seconds: float) -> tuple[int, bytes, bytes]:
    """Exit code, output and complaint of a program, ended when it says more than is sent. Raises TimeoutError, OSError."""
    give_up_at = time.monotonic() + seconds
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            said, complaint = _read_both(process, give_up_at)
            if len(said) > RAW_BYTES_MAX or len(complaint) > COMPLAINT_BYTES_MAX:
                process.kill()
            return process.wait(max(give_up_at - time.monotonic(), 0.1)), said, complaint
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        finally:
            process.kill()


def _read_both(process: subprocess.Popen[bytes], give_up_at: float) -> tuple[bytes, bytes]:
    """Output and complaint to their end, or as much as tells that there is too much of it."""
    assert process.stdout is not None
    assert process.stderr is not None
    read, left = (list[bytes](), list[bytes]()), [RAW_BYTES_MAX + 1, COMPLAINT_BYTES_MAX + 1]
    with selectors.DefaultSelector() as selector:
        for at, pipe in enumerate((process.stdout, process.stderr)):
            selector.register(pipe, selectors.EVENT_READ, at)
        while selector.get_map() and all(left):
            ready = selector.select(max(give_up_at - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                piece = os.read(key.fd, min(left[key.data], PIECE_BYTES)) if left[key.data] else b""
                read[key.data].append(piece)
                left[key.data] -= len(piece)
                if not piece:
                    selector.unregister(key.fileobj)
    return b"".join(read[0]), b"".join(read[1])


def _part(who: tuple[int, int, int], silent: str) -> Part:
    rank, pid, parent = who
    return Part(STACKS, rank, pid, parent, _command(pid), time.time_ns(), silent, "py-spy")


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
