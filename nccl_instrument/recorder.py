"""Lets the node's agent take PyTorch's Flight Recorder from a rank that hangs, gloo included.

    nccl_instrument.recorder.start()      # once, after init_process_group

A daemon thread looks twice a second whether the agent has left a request, and answers it with a file. It finds and calls the
dump function once at the start, since the first call imports for seconds; a signal would not do, as Python runs its handlers
between two lines of the main thread, which a hung rank never reaches. It never raises into the training program.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

FOLDER_VARIABLE: Final = "DIOGENES_SEGMENT_DIR"
FOLDER: Final = "/dev/shm"
LOOK_SECONDS: Final = 0.5
DUMP_BYTES_MAX: Final = 64 * 2**20

Dump = Callable[[], bytes]


def request_path(folder: Path, pid: int, uid: int) -> Path:
    """Where the agent leaves a request for this process of that user."""
    return folder / f"diogenes-ask.{uid}.{pid}"


def answer_path(folder: Path, pid: int, uid: int) -> Path:
    """Where the process leaves its dump."""
    return folder / f"diogenes-dump.{uid}.{pid}"


def start(dump: Dump | None = None, folder: Path | None = None) -> threading.Thread:
    """Start the thread; dump: makes the bytes of a dump, torch's own by default."""
    into = folder or Path(os.environ.get(FOLDER_VARIABLE, FOLDER).partition(":")[0])
    thread = threading.Thread(target=_serve, args=(into, dump), name="diogenes-recorder", daemon=True)
    thread.start()
    return thread


def _serve(folder: Path, dump: Dump | None, stop: threading.Event | None = None) -> None:
    try:
        make = dump or _torch_dump()
        make()  # what it imports is imported now
    except Exception:
        return  # without a recorder there is nothing to answer, and nobody to bother with it
    pid, wait = os.getpid(), stop or threading.Event()
    asked, answer = request_path(folder, pid, os.getuid()), answer_path(folder, pid, os.getuid())
    while not wait.wait(LOOK_SECONDS):
        if os.getpid() != pid:
            return  # a forked child: its parent answers
        with contextlib.suppress(Exception):
            if asked.exists():
                asked.unlink()
                _write(answer, make())


def _write(path: Path, raw: bytes) -> None:
    """Whole or not at all, and only for our own user."""
    part = path.with_suffix(path.suffix + ".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(raw[:DUMP_BYTES_MAX])
    part.replace(path)


def _torch_dump() -> Dump:
    """torch's dump function, of collectives with stacks. Raises when this torch has none."""
    module: Any = importlib.import_module("torch._C._distributed_c10d")
    make = module._dump_fr_trace if hasattr(module, "_dump_fr_trace") else module._dump_nccl_trace
    return lambda: bytes(make(includeCollectives=True, includeStackTraces=True, onlyActive=False))
