"""Lets the node's agent take PyTorch's Flight Recorder from a rank that hangs, gloo included.

    nccl_instrument.recorder.start()      # once, after init_process_group

A daemon thread looks twice a second whether the agent has left a request, and answers it with a file. It calls the dump function
as soon as there is an op, since the first such call imports for seconds; a signal would not do, as Python runs its handlers
between two lines of the main thread, which a hung rank never reaches. A program that ends by an exception leaves a last dump:
under gloo, sizes that differ end every rank within milliseconds. One that is killed leaves what was seen of it a few seconds
before. Beside it a thread says how far the process is (status.py). Neither ever raises into the training program.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from nccl_instrument import status

FOLDER_VARIABLE: Final = "DIOGENES_SEGMENT_DIR"
FOLDER: Final = "/dev/shm"
LOOK_SECONDS: Final = 0.5
DUMP_BYTES_MAX: Final = 32 * 2**20
LAST_WORDS: Final = "its last words"
SEEN_LATELY: Final = "what was seen of it a few seconds before"
LOOKS_PER_GLANCE: Final = 10
ENDING_CHARS: Final = 200
_OP: Final = b"profiling_name"
_DISTRIBUTED: Final = "/torch/distributed/"
_BACKEND: Final = re.compile(r"gloo|nccl|process ?group", re.IGNORECASE)

Dump = Callable[[], bytes]


def request_path(folder: Path, pid: int, uid: int) -> Path:
    """Where the agent leaves a request for this process of that user."""
    return folder / f"diogenes-ask.{uid}.{pid}"


def answer_path(folder: Path, pid: int, uid: int) -> Path:
    """Where the process leaves its dump."""
    return folder / f"diogenes-dump.{uid}.{pid}"


def last_words_path(folder: Path, pid: int, uid: int) -> Path:
    """Where the process leaves a dump when its program ends by an exception, with the words of `ending` behind it."""
    return folder / f"diogenes-last.{uid}.{pid}"


def seen_path(folder: Path, pid: int, uid: int) -> Path:
    """Where the process keeps a recent dump, without frames, in case it is killed."""
    return folder / f"diogenes-seen.{uid}.{pid}"


def leftovers(folder: Path, pid: int, uid: int) -> list[Path]:
    """Every file of this module that a process may have left."""
    return [path(folder, pid, uid) for path in (request_path, answer_path, last_words_path, seen_path)]


def start(
    dump: Dump | None = None, folder: Path | None = None, *, steps: Callable[[], int] | None = None
) -> threading.Thread:
    """Start the threads. dump: makes the bytes of a dump, torch's own by default. steps: how many steps were done so far."""
    into = folder or Path(os.environ.get(FOLDER_VARIABLE, FOLDER).partition(":")[0])
    with contextlib.suppress(Exception):
        status.start(into, steps)
    with contextlib.suppress(Exception):
        _leave_last_words(into, dump or _torch_dump(frames=False))
    thread = threading.Thread(target=_serve, args=(into, dump), name="diogenes-recorder", daemon=True)
    thread.start()
    return thread


def _serve(folder: Path, dump: Dump | None, stop: threading.Event | None = None) -> None:
    try:
        make, glance = dump or _torch_dump(), dump or _torch_dump(frames=False)
        glance()
    except Exception:
        return  # without a recorder there is nothing to answer, and nobody to bother with it
    pid, wait, is_ready = os.getpid(), stop or threading.Event(), dump is not None
    asked, answer = request_path(folder, pid, os.getuid()), answer_path(folder, pid, os.getuid())
    seen, newest, n_looks = seen_path(folder, pid, os.getuid()), b"", 0
    while not wait.wait(LOOK_SECONDS):
        n_looks += 1
        if os.getpid() != pid:
            return  # a forked child: its parent answers
        with contextlib.suppress(Exception):
            if not is_ready and _OP in glance():
                is_ready = bool(make())  # what it imports is imported now, not in a rank that hangs
            if asked.exists():
                asked.unlink()
                made = make()
                _write(answer, made if len(made) <= DUMP_BYTES_MAX else glance())
            if n_looks % LOOKS_PER_GLANCE == 0 and (glimpse := glance()) != newest:
                _write(seen, newest := glimpse)


def _write(path: Path, raw: bytes) -> None:
    """Whole or not at all, and only for our own user."""
    part = path.with_suffix(path.suffix + ".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(raw)
    part.replace(path)


def _leave_last_words(folder: Path, make: Dump) -> None:
    """Before the program dies of an exception, whoever else wants to see it."""
    pid, before = os.getpid(), sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        with contextlib.suppress(Exception):
            if os.getpid() == pid and not issubclass(kind, KeyboardInterrupt):
                _write(last_words_path(folder, pid, os.getuid()), make() + ending(kind, error, where))
        before(kind, error, where)

    sys.excepthook = hook


def ending(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> bytes:
    """What ended the program and whether an op raised it: behind the pickle, where readers of pickles stop."""
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = where.tb_frame.f_code.co_filename if where is not None else ""
    said = f"{kind.__name__}: {error}"
    how = "in an op" if _DISTRIBUTED in place or _BACKEND.search(said) else "outside any op"
    return f"\nended {how} by {' '.join(said.split())[:ENDING_CHARS]}".encode()


def _torch_dump(*, frames: bool = True) -> Dump:
    """torch's dump function, of collectives, with stacks or without. Raises when this torch has none.

    A torch built for GPUs has two recorders, NCCL's and that of the other backends: the first that knows an op.
    """
    module: Any = importlib.import_module("torch._C._distributed_c10d")
    makers = [getattr(module, name) for name in ("_dump_nccl_trace", "_dump_fr_trace") if hasattr(module, name)]
    if not makers:
        raise AttributeError("this torch has no Flight Recorder")

    def dump() -> bytes:
        made = b""
        for make in makers:
            made = bytes(make(includeCollectives=True, includeStackTraces=frames, onlyActive=False))
            if _OP in made:
                break
        return made

    return dump
