"""py-spy's dumps, as JSON or as text, as a Process; every field is checked, whatever sent it.

A dump that cannot be read is BadStacks with one sentence. File names are kept from the package on: the same line of two
ranks must look the same, wherever their environments lie.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

from rca.plain import printable
from rca.stacks.process import MAIN_THREAD, Frame, Process, Stack, Thread

STACKS_BYTES_MAX: Final = 16 * 2**20
THREADS_MAX: Final = 2_000
FRAMES_MAX: Final = 300
CHARS_MAX: Final = 300
_THREAD: Final = re.compile(r'^Thread (?:0x)?[0-9A-Fa-f]+ \(([^)]*)\)(?:: "(.*)")?$')
_FRAME: Final = re.compile(r"^ {4}(.+) \((.+?)(?::(\d{1,9}))?\)$")
_HEAD: Final = re.compile(r"^Process (\d+): (.*)$")
_PACKAGE: Final = re.compile(r"^.*(?:/lib/python\d(?:\.\d+)?|site-packages|dist-packages)/")


class BadStacks(Exception):
    """Not a dump of py-spy that can be read; the message says why in one sentence."""


def read_stacks(raw: bytes, rank: int, pid: int = 0, command: str = "") -> Process:
    """The stacks of one process. Raises BadStacks."""
    if len(raw) > STACKS_BYTES_MAX:
        raise BadStacks(f"{len(raw)} bytes, at most {STACKS_BYTES_MAX} are read")
    text = raw.decode("utf-8", "replace").strip()
    if not text:
        raise BadStacks("it is empty")
    return _from_json(text, rank, pid, command) if text[0] in "[{" else _from_text(text, rank, pid, command)


def _from_json(text: str, rank: int, pid: int, command: str) -> Process:
    try:
        said = json.loads(text)
    except RecursionError as error:
        raise BadStacks("it is nested too deep") from error
    except ValueError as error:
        raise BadStacks(f"it is not complete JSON ({str(error)[:120]})") from error
    if not isinstance(said, list) or not all(
        isinstance(one, dict) and isinstance(one.get("frames"), list) for one in said
    ):
        raise BadStacks("it is not a list of threads with frames")
    if len(said) > THREADS_MAX:
        raise BadStacks(f"{len(said)} threads, at most {THREADS_MAX} are read")
    first = said[0] if said else {}
    return Process(rank, pid or _number(first.get("pid")), _text(command), tuple(_thread(one) for one in said))


def _thread(said: dict[str, Any]) -> Thread:
    frames = tuple([_frame(one) for one in said["frames"][:FRAMES_MAX] if isinstance(one, dict)])
    is_main = said.get("os_thread_id") is not None and said.get("os_thread_id") == said.get("pid")
    return Thread(
        _text(said.get("thread_name")) or (MAIN_THREAD if is_main else ""), frames, said.get("owns_gil") is True
    )


def _frame(said: dict[str, Any]) -> Frame:
    name, short, file, line = said.get("name"), said.get("short_filename"), said.get("filename"), said.get("line")
    return _checked_frame(_text(name), _text(short), _text(file), _number(line))


@lru_cache(maxsize=65_536)  # thousands of ranks make the same calls
def _checked_frame(name: str, short: str, file: str, line: int) -> Frame:
    return Frame(name, short or short_file(file), line)


def _from_text(text: str, rank: int, pid: int, command: str) -> Process:
    """`py-spy dump` without --json: a head, then threads, each with its frames indented below it."""
    threads: list[tuple[str, bool, list[Frame]]] = []
    for line in text.splitlines():
        if head := _HEAD.match(line):
            pid, command = pid or int(head[1][:9]), command or head[2]
        elif thread := _THREAD.match(line):
            threads.append((_text(thread[2]), "gil" in thread[1], []))
        elif threads and len(threads[-1][2]) < FRAMES_MAX and (frame := _FRAME.match(line)):
            threads[-1][2].append(Frame(_text(frame[1]), short_file(_text(frame[2])), int(frame[3] or 0)))
    if not threads:
        raise BadStacks("it has no thread that py-spy would print")
    if len(threads) > THREADS_MAX:
        raise BadStacks(f"{len(threads)} threads, at most {THREADS_MAX} are read")
    made = tuple(Thread(name, tuple(frames), has_gil) for name, has_gil, frames in threads)
    return Process(rank, pid, _text(command), made)


def short_file(path: str) -> str:
    """The path from the package on, so that it is the same wherever Python is installed."""
    return _PACKAGE.sub("", path, count=1)


def as_text(stack: Stack) -> str:
    """One call a line, innermost first."""
    return "\n".join(str(frame) for frame in stack)


def _text(said: Any) -> str:
    return printable(said[:CHARS_MAX]) if isinstance(said, str) else ""


def _number(said: Any) -> int:
    return said if type(said) is int and 0 <= said < 2**31 else 0
