"""Flight Recorder dumps of training processes, by whichever way a rank offers one.

In this order: the thread of nccl_instrument.recorder, which answers even when the rank hangs; what it left when the program
ended by an exception; torch's worker server; the debug pipe of torch's NCCL backend; a dump file that torch has written by
itself. All is asked at once and waited for together; a rank that does not answer says so with what was tried.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nccl_instrument.agent.dumps.sight import Seen, look_at
from nccl_instrument.agent.dumps.within import Place, open_of, place_of
from nccl_instrument.agent.dumps.worker_server import SOCKET, WorkerServer
from nccl_instrument.agent.processes.proc import Living
from nccl_instrument.dumps import RECORDER, Part, Room
from nccl_instrument.recorder import (
    ANSWERED,
    DUMP_BYTES_MAX,
    LAST_WORDS,
    REFUSED,
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
_STAMP_SECONDS: Final = 0.02
"""Files are stamped by a clock that stands still for a tick of the kernel."""


@dataclass(slots=True)
class _Asked:
    """A process that was asked, and the files in which it may answer: path → newest that counts, unix seconds."""

    seen: Seen
    answers: dict[Place, tuple[str, float]]
    tried: list[str]
    server: WorkerServer | None = None


def take_recordings(
    processes: Sequence[Living], *, room: Room | None = None, seconds: float = WAIT_SECONDS
) -> list[Part]:
    """Dumps of `processes`; never raises, and waits no longer than `seconds`. room: where they are to fit into."""
    asked, into = [_ask(one, seconds) for one in processes], room or Room()
    found: dict[int, Part] = {}
    give_up_at = time.monotonic() + seconds
    while True:
        is_last = time.monotonic() >= give_up_at
        for at, one in enumerate(asked):
            if at not in found and (part := _answered(one, is_last=is_last)) is not None:
                found[at] = into.admit(part)
        if is_last or len(found) == len(asked):
            return [found[at] for at in range(len(asked))]
        time.sleep(LOOK_SECONDS)


def _ask(one: Living, seconds: float) -> _Asked:
    seen = look_at(one)
    said, now = _environment(seen), time.time()
    since = max(one.began_s, now - OLD_SECONDS)  # what an earlier process left is of an earlier trouble
    asked = _Asked(seen, {_own(answer_path(one.folder, one.pid, one.uid)): (ANSWERED, now - _STAMP_SECONDS)}, [])
    if seen.is_alive and _touch(request_path(one.folder, one.pid, one.uid), one.uid):
        asked.tried.append(ANSWERED)
    server = open_of(_in(seen, said[SOCKET]), one.uid, stat.S_IFSOCK) if said.get(SOCKET) else -1
    if server >= 0:
        asked.server = WorkerServer(server, seconds, DUMP_BYTES_MAX)
        asked.server.start()
        asked.tried.append("torch's worker server")
    asked.answers[_own(last_words_path(one.folder, one.pid, one.uid))] = (LAST_WORDS, since)
    if said.get(PIPE) and _ring(_in(seen, f"{said[PIPE]}{one.rank}.pipe"), one.uid):
        asked.tried.append("its debug pipe")
    prefix = next((said[name] for name in PREFIXES if said.get(name)), PREFIX)
    asked.answers[_in(seen, f"{prefix}{one.rank}")] = ("torch's dump file", since)
    asked.tried.append("torch's dump file")
    return asked


def _in(seen: Seen, path: str) -> Place:
    """A path that the process says, among its own files."""
    return place_of(seen.number, seen.root, path)


def _own(path: Path) -> Place:
    """In the folder that recorders share with us."""
    return Place(str(path))


def _answered(one: _Asked, *, is_last: bool) -> Part | None:
    """Its dump; when time is over, the reason why there is none. An old file counts only then: a new one may yet come."""
    of, is_gone, why = one.seen.of, not look_at(one.seen.of).is_alive, ""
    for path, (by, since) in one.answers.items():
        raw = _fresh(path, of.uid, since if is_last or is_gone else max(since, time.time() - WAIT_SECONDS - 1))
        if raw is not None and raw.startswith(REFUSED):
            why = f"{by}: {raw[len(REFUSED) :].decode('ascii', 'replace')}"
        elif raw is not None:
            return _part(of, raw, by)
    if one.server is not None and one.server.raw:
        return _part(of, one.server.raw, "torch's worker server")
    if is_gone:
        raw = _fresh(_own(seen_path(of.folder, of.pid, of.uid)), of.uid, of.began_s)
        if raw is None or raw.startswith(REFUSED):
            return _part(of, b"", "", why or "the process is gone")
        return _part(of, raw, SEEN_LATELY)
    why = why or f"no answer within the time; tried {', '.join(one.tried)}"
    return _part(of, b"", "", why) if is_last else None


def _part(of: Living, raw: bytes, by: str, silent: str = "") -> Part:
    return Part(RECORDER, of.rank, of.pid, 0, "", time.time_ns(), silent, by).holding(raw)


def _fresh(path: Place, uid: int, since: float) -> bytes | None:
    """The file, if it is a regular one of this user, written since then; None else."""
    descriptor = _open(path, uid, stat.S_IFREG, os.O_RDONLY)
    if descriptor < 0:
        return None
    with open(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if known.st_mtime < since or not 0 < known.st_size <= DUMP_BYTES_MAX:
            return None
        return file.read(DUMP_BYTES_MAX)


def _open(path: Place, uid: int, kind: int, flags: int) -> int:
    """A file of this kind and user, opened without waiting for anybody; -1 else.

    The path is the process's word, and we may be root: it is looked at first, since opening a device may already do something.
    """
    known = open_of(path, uid, kind)
    if known < 0:
        return -1
    try:
        return os.open(f"/proc/self/fd/{known}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        os.close(known)


def _touch(path: Path, uid: int) -> bool:
    """Whether the request lies there, a new file or the one of before; what else has this name is let be."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        descriptor = _open(_own(path), uid, stat.S_IFREG, os.O_RDONLY)
        if descriptor < 0:
            return False
    try:
        if os.geteuid() == 0:
            os.fchown(descriptor, uid, -1)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _ring(pipe: Place, uid: int) -> bool:
    """Whether torch listens at its debug pipe and was asked: never waits for a reader."""
    descriptor = _open(pipe, uid, stat.S_IFIFO, os.O_WRONLY)
    if descriptor < 0:
        return False
    try:
        os.write(descriptor, b"1\n")
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _environment(seen: Seen) -> dict[str, str]:
    """What the process was started with; {} when it is gone, cannot be seen or is not ours to read."""
    try:
        with open(f"/proc/{seen.number}/environ", "rb") as file:
            raw = file.read(ENVIRONMENT_BYTES_MAX) if seen.number else b""
    except OSError:
        return {}
    pairs = (line.partition(b"=") for line in raw.split(b"\0") if b"=" in line)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}
