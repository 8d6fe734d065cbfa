"""Python stacks of the processes of a job, as py-spy dumped them, and what kind of process each is.

Ranks have helpers: data-loader workers, checkpoint writers. They run other code than the trainer, so stacks are compared
only among processes of one kind. Frames go from the innermost outwards, as py-spy prints them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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
        if any(_LOADER_FRAME.search(frame.file) or frame.name == "_worker_loop" for frame in self.main):
            return LOADER
        if any(_WRITER_FRAME.search(frame.file) for frame in self.main) and _is_child(self.main):
            return WRITER
        if any(_LAUNCHER_FRAME.search(frame.file) for frame in self.main):
            return LAUNCHER
        return OTHER if _is_child(self.main) else TRAINER


def _is_child(stack: Stack) -> bool:
    """Whether the process was made by multiprocessing: its outermost calls say so."""
    return any("multiprocessing/" in frame.file and frame.name in ("BaseProcess._bootstrap", "_bootstrap", "spawn_main")
               for frame in stack)  # fmt: skip
