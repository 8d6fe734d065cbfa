"""Python stacks of the processes of a job, as py-spy dumped them, and what kind of process each is.

Ranks have helpers: data-loader workers, checkpoint writers. They run other code than the trainer, so stacks are compared
only among processes of one kind. Frames go from the innermost outwards, as py-spy prints them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAIN_THREAD: Final = "MainThread"
TRAINER: Final = "trainer"
LOADER: Final = "data-loader worker"
WRITER: Final = "checkpoint writer"
LAUNCHER: Final = "launcher"
OTHER: Final = "other process"
KINDS: Final = (TRAINER, LOADER, WRITER, LAUNCHER, OTHER)

_LOADER_FRAME: Final = re.compile(r"torch/utils/data/_utils/worker\.py$")
_WRITER_FRAME: Final = re.compile(
    r"checkpoint/(_async_executor|_async_process_executor|state_dict_saver)\.py$|filesystem_async\.py$"
)
_LAUNCHER_FRAME: Final = re.compile(
    r"torch/distributed/(elastic/agent|launcher|run\.py)|accelerate/commands|deepspeed/launcher"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A call: function, file (from the package on, where that is known), line (0: not said)."""

    name: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})" if self.line else f"{self.name} ({self.file})"


Stack = tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread and its calls, innermost first. has_gil: it held the interpreter's lock when it was looked at."""

    name: str
    stack: Stack
    has_gil: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a rank. silent: why nothing could be read of it, '' when it could."""

    rank: int
    pid: int
    command: str
    threads: tuple[Thread, ...]
    silent: str = ""

    @property
    def main(self) -> Stack:
        """Calls of the main thread, () when there is none."""
        named = [one.stack for one in self.threads if one.name == MAIN_THREAD]
        return named[0] if named else (self.threads[0].stack if len(self.threads) == 1 else ())

    @property
    def kind(self) -> str:
        """What kind of process it is, by the code its main thread runs."""
        said = {kind for frame in self.main for kind in _kinds_of_call(frame.file, frame.name)}
        if LOADER in said:
            return LOADER
        if WRITER in said and OTHER in said:
            return WRITER
        if LAUNCHER in said:
            return LAUNCHER
        return OTHER if OTHER in said else TRAINER


@lru_cache(maxsize=65_536)  # thousands of ranks make the same calls
def _kinds_of_call(file: str, name: str) -> tuple[str, ...]:
    """What this call says of its process; OTHER: it was made by multiprocessing."""
    found = []
    if _LOADER_FRAME.search(file) or name == "_worker_loop":
        found.append(LOADER)
    if _WRITER_FRAME.search(file):
        found.append(WRITER)
    if _LAUNCHER_FRAME.search(file):
        found.append(LAUNCHER)
    if "multiprocessing/" in file and name in ("BaseProcess._bootstrap", "_bootstrap", "spawn_main"):
        found.append(OTHER)
    return tuple(found)
