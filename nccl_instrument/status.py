"""What a training process says of its own progress once a second, for jobs whose collectives nobody traces.

    nccl_instrument.recorder.start(steps=lambda: trainer.step)      # once, after init_process_group

A daemon thread writes a small file beside the segments: who the process is, how many steps it has done, and of every process
group the last collective enqueued, started and completed, as PyTorch's Flight Recorder counts them. The file is locked
while the process lives, so that its last words outlive it and are told from a living one's. Nothing here can raise into
the training program, nothing waits for anybody: a folder without room or right is passed over.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib
import json
import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

WRITE_SECONDS: Final = 1.0
LOCK_SECONDS: Final = 1.0
FILE_BYTES_MAX: Final = 32 * 1024
GROUPS_MAX: Final = 64
GROUP_CHARS_MAX: Final = 32
STEPS: Final = ""
BY_ITSELF, BY_EXCEPTION = 1, 2  # codes of tables.ENDINGS, which would bring numpy into the training program
_HEAD: Final = struct.Struct("<4sII")  # magic, length of the JSON, its crc32
_MAGIC: Final = b"DGST"
_NUMBERS: Final = {
    "rank": ("RANK", "SLURM_PROCID"),
    "world_size": ("WORLD_SIZE", "SLURM_NTASKS"),
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID"),
    "restart_count": ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"),
    "tp": ("DIOGENES_TP_RANK",),
    "pp": ("DIOGENES_PP_RANK",),
    "dp": ("DIOGENES_DP_RANK",),
    "ep": ("DIOGENES_EP_RANK",),
}
"""As the plugin reads them (plugin/identity.c)."""

_WRITERS: Final[dict[tuple[int, Path], StatusWriter]] = {}  # of this process, and of those it was forked from

Counts = tuple[int, int, int]
"""Enqueued, started, done; -1 unknown."""


class BadStatus(ValueError):
    """The bytes are no status; the message says why."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one process group, or of the steps. changed_ns: monotonic, when one of the counts last changed."""

    name: str
    enqueued: int
    started: int
    done: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Status:
    """What a process wrote. identity: job, and _NUMBERS as far as known, else -1. written_ns: monotonic.

    started: field 22 of its /proc/<pid>/stat. ending: of tables.ENDINGS, what it said when its program ended. n_left_out:
    process groups beyond GROUPS_MAX.
    """

    pid: int
    started: int
    identity: Mapping[str, Any]
    written_ns: int
    ending: int
    progress: tuple[Progress, ...]
    n_left_out: int


def status_path(folder: Path, pid: int, uid: int) -> Path:
    """Where the process leaves its status."""
    return folder / f"diogenes-status.{uid}.{pid}"


def start(folder: Path, steps: Callable[[], int] | None = None, clock_s: float = WRITE_SECONDS) -> StatusWriter:
    """Start the thread; what it writes with. steps: how many steps the program has done so far.

    Whoever comes second in the same process gets the writer that is there; its steps count where nobody's did yet.
    """
    if writer := _WRITERS.get((os.getpid(), folder)):
        writer.steps = writer.steps or steps
        return writer
    writer = _WRITERS[os.getpid(), folder] = StatusWriter(folder, steps)
    thread = threading.Thread(target=writer.run, args=(clock_s,), name="diogenes-status", daemon=True)
    thread.start()
    return writer


@dataclass
class StatusWriter:
    """The writing side, of one process."""

    folder: Path
    steps: Callable[[], int] | None = None
    glances: tuple[tuple[str, Callable[[], bytes]], ...] | None = None
    _file: int = -1
    _known: dict[str, Progress] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, clock_s: float = WRITE_SECONDS) -> None:
        """Write until the process ends, which is not waited for."""
        pid, wait = os.getpid(), threading.Event()
        with contextlib.suppress(Exception):
            atexit.register(self._say_end, pid)
        while os.getpid() == pid:
            self.write()
            wait.wait(clock_s)

    def write(self, ending: int = 0) -> None:
        """One status. Never raises: what could not be written is seen by the age of what was."""
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            return  # the thread is stuck inside torch: the program must end all the same
        try:
            with contextlib.suppress(Exception):
                self._write(ending)
        finally:
            self._lock.release()

    def stands_since(self) -> int:
        """Since when (monotonic ns) no group's counts have changed while one has an op under way; 0 else. Any thread may ask."""
        groups = [one for one in list(self._known.values()) if one.name != STEPS]
        is_busy = any(one.enqueued > one.done for one in groups)
        return max(one.changed_ns for one in groups) if is_busy else 0

    def _say_end(self, pid: int) -> None:
        if os.getpid() == pid:
            is_raised = getattr(sys, "last_value", None) is not None  # an exception nobody caught
            self.write(BY_EXCEPTION if is_raised else BY_ITSELF)

    def _write(self, ending: int) -> None:
        if self._file < 0 or not os.fstat(self._file).st_nlink:
            self._open()
        now_ns = time.monotonic_ns()
        progress = self._progress(now_ns)
        said = {
            **identity(), "pid": os.getpid(), "started": started(), "written_ns": now_ns, "ending": ending,
            "n_left_out": len(progress[GROUPS_MAX:]),
            "progress": [[one.name, one.enqueued, one.started, one.done, one.changed_ns] for one in progress[:GROUPS_MAX]],
        }  # fmt: skip
        raw = json.dumps(said, separators=(",", ":")).encode()
        os.pwrite(self._file, _HEAD.pack(_MAGIC, len(raw), zlib.crc32(raw)) + raw, 0)

    def _open(self) -> None:
        path = status_path(self.folder, os.getpid(), os.getuid())
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            os.posix_fallocate(file, 0, FILE_BYTES_MAX)  # so that a folder that fills up later does not silence us
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def _progress(self, now_ns: int) -> list[Progress]:
        found: dict[str, Counts] = {}
        if self.steps is not None:
            with contextlib.suppress(Exception):
                found[STEPS] = (-1, -1, int(self.steps()))
        if self.glances is None:
            self.glances = _glances()
        for prefix, glance in self.glances or ():
            with contextlib.suppress(Exception):
                found |= {f"{prefix}{name}"[:GROUP_CHARS_MAX]: counts for name, counts in pg_status(glance()).items()}
        return [self._changed(name, counts, now_ns) for name, counts in found.items()]

    def _changed(self, name: str, counts: Counts, now_ns: int) -> Progress:
        before = self._known.get(name)
        if before is None or (before.enqueued, before.started, before.done) != counts:
            self._known[name] = before = Progress(name, *counts, now_ns)
        return before


def pg_status(raw: bytes) -> dict[str, Counts]:
    """Process group → its counts, from a Flight Recorder dump as JSON, without entries. Raises ValueError."""
    groups = json.loads(raw).get("pg_status") or {}
    names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    return {str(group): (*(int(of.get(name, -1)) for name in names),) for group, of in groups.items()}  # type: ignore[misc]


def decode_status(raw: bytes) -> Status:
    """The status in the file's bytes. Raises BadStatus: also for one that was being written, which is worth a second look."""
    if len(raw) < _HEAD.size:
        raise BadStatus("truncated")
    magic, length, crc = _HEAD.unpack_from(raw)
    said = raw[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or len(said) != length or zlib.crc32(said) != crc:
        raise BadStatus("not whole")
    try:
        found = json.loads(said)
        job = str(found["job"])[:512].encode("utf-8", "replace").decode()
        identity = {"job": job, **{name: _within(found[name], -1, 2**31) for name in _NUMBERS}}
        rows = found["progress"][:GROUPS_MAX]
        progress = tuple(
            Progress(str(name)[:GROUP_CHARS_MAX], *(_within(count, -1, 2**62) for count in counts))
            for name, *counts in rows
        )
        times = _within(found["started"], 0, 2**62), identity, _within(found["written_ns"], 0, 2**62)
        ending, n_left_out = (
            _within(found["ending"], 0, BY_EXCEPTION + 1),
            _within(found.get("n_left_out", 0), 0, 2**31),
        )
        return Status(_within(found["pid"], 1, 2**31), *times, ending, progress, n_left_out)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadStatus("makes no sense") from error


def _within(number: Any, least: int, beyond: int) -> int:
    if type(number) is not int or not least <= number < beyond:
        raise ValueError("a number that cannot be")
    return number


def identity() -> dict[str, Any]:
    """Job, and _NUMBERS as far as they are known, else -1: of this process, from its environment."""
    found: dict[str, Any] = {name: _number(names) for name, names in _NUMBERS.items()}
    distributed = sys.modules.get("torch.distributed")  # never imported for this
    if distributed is not None and found["rank"] < 0:
        with contextlib.suppress(Exception):
            found["rank"], found["world_size"] = int(distributed.get_rank()), int(distributed.get_world_size())
    return {"job": _job(), **found}


def _job() -> str:
    slurm, elastic = os.environ.get("SLURM_JOB_ID"), os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if named := os.environ.get("DIOGENES_JOB"):
        return named
    if slurm:
        return f"slurm-{slurm}"
    return elastic if elastic not in ("", "none") else os.environ.get("DIOGENES_K8S_JOB", "")


def _number(names: tuple[str, ...]) -> int:
    texts = (os.environ.get(name, "") for name in names)
    return next((int(text) for text in texts if text.isdigit() and len(text) < 10), -1)


def started() -> int:
    """Field 22 of this process's /proc/<pid>/stat: tells its pid from its successor."""
    with open("/proc/self/stat", "rb") as file:
        raw = file.read()
    return int(raw[raw.rfind(b")") + 2 :].split()[19])


def _glances() -> tuple[tuple[str, Callable[[], bytes]], ...] | None:
    """What asks torch's recorders for their counts alone: microseconds. None while torch is not there, () where it has none."""
    if "torch.distributed" not in sys.modules:
        return None
    try:
        module: Any = importlib.import_module("torch._C._distributed_c10d")
    except ImportError:
        return ()
    names = (("nccl ", "_dump_nccl_trace_json"), ("", "_dump_fr_trace_json"))
    makers = [(prefix, getattr(module, name)) for prefix, name in names if hasattr(module, name)]
    return tuple((prefix, lambda make=make: bytes(make(includeCollectives=False))) for prefix, make in makers)
