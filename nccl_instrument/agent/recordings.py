"""Flight Recorder dumps of training processes, by whichever way a rank offers one.

In this order: the thread of nccl_instrument.recorder, which answers even when the rank hangs; what it left when the program
ended by an exception; torch's worker server; the debug pipe of torch's NCCL backend; a dump file that torch has written by
itself. All is asked at once and waited for together; a rank that does not answer says so with what was tried.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nccl_instrument.agent.worker_server import SOCKET, WorkerServer, has_server
from nccl_instrument.recorder import (
    DUMP_BYTES_MAX,
    LAST_WORDS,
    SEEN_LATELY,
    answer_path,
    last_words_path,
    request_path,
    seen_path,
)

WAIT_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.1
ENVIRONMENT_BYTES_MAX: Final = 2**20
PREFIXES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PREFIX: Final = "/tmp/nccl_trace_rank_"
PIPE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
OLD_SECONDS: Final = 600.0
"""A dump file older than this is of another trouble."""


@dataclass(frozen=True, slots=True)
class RecorderDump:
    """raw: pickle or JSON as torch wrote it; b'' when there is none, and `silent` says what was tried. by: how it came."""

    rank: int
    pid: int
    raw: bytes
    by: str
    silent: str


@dataclass(slots=True)
class _Asked:
    """A process that was asked, and the files in which it may answer: path → newest that counts, unix seconds."""

    rank: int
    pid: int
    answers: dict[Path, tuple[str, float]]
    tried: list[str]
    seen: list[Path]  # what a process that is gone by now kept for that
    server: WorkerServer | None = None


def take_recordings(
    trainers: Sequence[tuple[int, int]], folder: Path, *, seconds: float = WAIT_SECONDS
) -> list[RecorderDump]:
    """Dumps of `trainers`, pairs of (rank, process id); never raises, and waits no longer than `seconds`."""
    asked = [_ask(rank, pid, folder, seconds) for rank, pid in trainers]
    found: dict[tuple[int, int], RecorderDump] = {}
    give_up_at = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() >= give_up_at
        for one in asked:
            if (one.rank, one.pid) not in found and (dump := _answered(one, is_last=is_last)) is not None:
                found[one.rank, one.pid] = dump
        if is_last or len(found) == len(asked):
            return [found[one.rank, one.pid] for one in asked]
        time.sleep(LOOK_SECONDS)


def _ask(rank: int, pid: int, folder: Path, seconds: float) -> _Asked:
    said, now, answers = _environment(pid), time.time(), dict[Path, tuple[str, float]]()
    tried, server = [], None
    with contextlib.suppress(OSError):
        uid = os.stat(f"/proc/{pid}").st_uid
        answers[answer_path(folder, pid, uid)] = ("its recorder thread", now)
        _touch(request_path(folder, pid, uid), uid)
        tried.append("its recorder thread")
        if said.get(SOCKET) and has_server(Path(said[SOCKET]), uid):
            server = WorkerServer(Path(said[SOCKET]), seconds, DUMP_BYTES_MAX)
            server.start()
            tried.append("torch's worker server")
    for path in _of_anybody(folder, last_words_path(folder, pid, 0)):
        answers[path] = (LAST_WORDS, now - OLD_SECONDS)
    if said.get(PIPE) and _ring(Path(f"{said[PIPE]}{rank}.pipe")):
        tried.append("its debug pipe")
    prefix = next((said[name] for name in PREFIXES if said.get(name)), PREFIX)
    answers[Path(f"{prefix}{rank}")] = ("torch's dump file", now - OLD_SECONDS)
    return _Asked(
        rank, pid, answers, [*tried, "torch's dump file"], _of_anybody(folder, seen_path(folder, pid, 0)), server
    )


def _of_anybody(folder: Path, path: Path) -> list[Path]:
    """This file of any user: whose a process was is not known any more once it is gone."""
    return list(folder.glob(path.name.replace(".0.", ".*.", 1)))


def _answered(one: _Asked, *, is_last: bool) -> RecorderDump | None:
    """Its dump; when time is over, the reason why there is none. An old file counts only then: a new one may yet come."""
    is_gone = _is_gone(one.pid)
    for path, (by, since) in one.answers.items():
        raw = _fresh(path, since if is_last or is_gone else max(since, time.time() - WAIT_SECONDS - 1))
        if raw is not None:
            return RecorderDump(one.rank, one.pid, raw, by, "")
    if one.server is not None and one.server.raw:
        return RecorderDump(one.rank, one.pid, one.server.raw, "torch's worker server", "")
    if is_gone:
        for path in one.seen:
            if (raw := _fresh(path, time.time() - OLD_SECONDS)) is not None:
                return RecorderDump(one.rank, one.pid, raw, SEEN_LATELY, "")
        return RecorderDump(one.rank, one.pid, b"", "", "the process is gone")
    if not is_last:
        return None
    return RecorderDump(one.rank, one.pid, b"", "", f"no answer within the time; tried {', '.join(one.tried)}")


def _is_gone(pid: int) -> bool:
    """Also when its parent has not asked yet how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])
    except OSError:
        return True


def _fresh(path: Path, since: float) -> bytes | None:
    """The file, if it is a regular one written since then; None else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode) or known.st_mtime < since or not 0 < known.st_size <= DUMP_BYTES_MAX:
            return None
        return file.read(DUMP_BYTES_MAX)


def _touch(path: Path, uid: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if os.geteuid() == 0:
            os.fchown(descriptor, uid, -1)
    finally:
        os.close(descriptor)


def _ring(pipe: Path) -> bool:
    """Whether torch listens at its debug pipe and was asked: never waits for a reader."""
    try:
        if not stat.S_ISFIFO(os.lstat(pipe).st_mode):
            return False
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        os.write(descriptor, b"1\n")
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _environment(pid: int) -> dict[str, str]:
    """What the process was started with; {} when it is gone or not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read(ENVIRONMENT_BYTES_MAX)
    except OSError:
        return {}
    pairs = (one.partition(b"=") for one in raw.split(b"\0") if b"=" in one)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}
