"""Lets the node's agent take PyTorch's Flight Recorder from a rank that hangs, gloo included.

    nccl_instrument.recorder.start()      # once, after init_process_group

A daemon thread looks twice a second whether the agent has left a request, and answers it with a file. It calls the dump function
as soon as there is an op, since the first such call imports for seconds; a signal would not do, as Python runs its handlers
between two lines of the main thread, which a hung rank never reaches. A program that ends by an exception leaves a last dump:
under gloo, sizes that differ end every rank within milliseconds. Beside it a thread says how far the process is (status.py).
While that stands still inside an op a dump is kept, in case the process is killed: making one holds the GIL for tens of
milliseconds, which a job that goes on must not pay. Neither thread ever raises into the training program.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from nccl_instrument import status

FOLDER_VARIABLE: Final = "DIOGENES_SEGMENT_DIR"
FOLDER: Final = "/dev/shm"
LOOK_SECONDS: Final = 0.5
DUMP_BYTES_MAX: Final = 32 * 2**20
ALL_BYTES_MAX: Final = 2 * DUMP_BYTES_MAX
"""Of the files of one process together."""
FREE_SHARE: Final = 0.125
"""Of what is free in the folder: a dump takes no more, since the job itself needs the rest."""
REFUSED: Final = b"diogenes: no dump: "
"""So begins, with the reason behind it, what lies in the place of a dump for which there is no room."""
ANSWERED: Final = "its recorder thread"
LAST_WORDS: Final = "its last words"
SEEN_LATELY: Final = "what was seen of it a few seconds before"
STILL_SECONDS: Final = 2.0
GLANCE_SHARE: Final = 0.01
"""Of the time at most, for the dumps nobody asked for."""
LAST_WORDS_SECONDS: Final = 1.0
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
    """Where the process keeps a dump, without frames, while it stands still in an op, in case it is killed."""
    return folder / f"diogenes-seen.{uid}.{pid}"


def leftovers(folder: Path, pid: int, uid: int) -> list[Path]:
    """Every file of this module that a process may have left."""
    whole = [path(folder, pid, uid) for path in (request_path, answer_path, last_words_path, seen_path)]
    return [*whole, *(_part_path(path) for path in whole[1:])]


def start(
    dump: Dump | None = None, folder: Path | None = None, *, steps: Callable[[], int] | None = None
) -> threading.Thread:
    """Start the threads. dump: makes the bytes of a dump, torch's own by default. steps: how many steps were done so far."""
    into = folder or Path(os.environ.get(FOLDER_VARIABLE, FOLDER).partition(":")[0])
    writer = status.StatusWriter(into)
    with contextlib.suppress(Exception):
        writer = status.start(into, steps)
    with contextlib.suppress(Exception):
        _leave_last_words(into, dump or _torch_dump(frames=False))
    thread = threading.Thread(
        target=_serve, args=(into, dump, writer.stands_since), name="diogenes-recorder", daemon=True
    )
    thread.start()
    return thread


def _serve(folder: Path, dump: Dump | None, stands_since: Callable[[], int]) -> None:
    try:
        make, glance = dump or _torch_dump(), dump or _torch_dump(frames=False)
        glance()
    except Exception:
        return  # without a recorder there is nothing to answer, and nobody to bother with it
    pid, wait, is_ready = os.getpid(), threading.Event(), dump is not None
    asked, answer = request_path(folder, pid, os.getuid()), answer_path(folder, pid, os.getuid())
    keeper = _Keeper(seen_path(folder, pid, os.getuid()), glance, stands_since)
    while not wait.wait(LOOK_SECONDS):
        if os.getpid() != pid:
            return  # a forked child: its parent answers
        with contextlib.suppress(Exception):
            if not is_ready and _OP in glance():
                is_ready = bool(make())  # what it imports is imported now, not in a rank that hangs
            if asked.exists():
                asked.unlink()
                made = make()
                _leave(answer, made if len(made) <= DUMP_BYTES_MAX else glance())
            keeper.look()


@dataclass(slots=True)
class _Keeper:
    """Keeps a dump in `path` while the process stands still, one per standstill, and none once it goes on."""

    path: Path
    glance: Dump
    stands_since: Callable[[], int]
    kept_of: int = 0  # the standstill whose dump lies there, by when it began
    not_before_ns: int = 0

    def look(self) -> None:
        since, now_ns = self.stands_since(), time.monotonic_ns()
        if self.kept_of not in (0, since):
            self.kept_of = 0
            self.path.unlink(missing_ok=True)  # of an op that has come to its end
        if since and not self.kept_of and now_ns - since >= STILL_SECONDS * 1e9 and now_ns >= self.not_before_ns:
            self.kept_of = since
            try:
                _leave(self.path, self.glance())
            finally:
                now_ns, began_ns = time.monotonic_ns(), now_ns
                self.not_before_ns = now_ns + int((now_ns - began_ns) / GLANCE_SHARE)


def _leave(path: Path, raw: bytes) -> None:
    """Leave the dump, or why there is no room for it."""
    path.unlink(missing_ok=True)  # of an earlier trouble
    room = _room_for(path)
    if len(raw) > room:
        raw = REFUSED + f"it has {len(raw)} bytes, and its folder has room for {max(room, 0)}".encode()
    _write(path, raw)


def _room_for(path: Path) -> int:
    """Bytes that the process may still leave in the folder."""
    folder, pid, uid = path.parent, os.getpid(), os.getuid()
    held = 0
    for one in leftovers(folder, pid, uid):
        with contextlib.suppress(FileNotFoundError):
            held += one.lstat().st_size
    there = os.statvfs(folder)
    return min(DUMP_BYTES_MAX, ALL_BYTES_MAX - held, int(there.f_bavail * there.f_frsize * FREE_SHARE))


def _part_path(path: Path) -> Path:
    return path.with_suffix(path.suffix + ".part")


def _write(path: Path, raw: bytes) -> None:
    """Whole or not at all, and only for our own user. Waits for nobody: what else may lie in its place is left alone."""
    part = _part_path(path)
    with open(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600), "wb", buffering=0
    ) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{part} is no file of ours")
        try:
            file.truncate(0)
            left = memoryview(raw)
            while left:  # unbuffered: nothing is tried again when the file is closed
                left = left[file.write(left) or 0 :]
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)  # half a dump would lie in the node's memory for ever
            raise


def _leave_last_words(folder: Path, make: Dump) -> None:
    """Before the program dies of an exception, whoever else wants to see it; a dump that does not end is not waited for."""
    pid, before = os.getpid(), sys.excepthook

    def leave(said: bytes) -> None:
        with contextlib.suppress(Exception):
            _leave(last_words_path(folder, pid, os.getuid()), make() + said)

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        with contextlib.suppress(Exception):
            if os.getpid() == pid and not issubclass(kind, KeyboardInterrupt):
                thread = threading.Thread(target=leave, args=(ending(kind, error, where),), daemon=True)
                thread.start()
                thread.join(LAST_WORDS_SECONDS)
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
