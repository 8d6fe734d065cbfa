"""Dumps are read in processes of their own, with limits on memory and processor time.

A few bytes can ask an unpickler for gigabytes, or a parser for minutes; here that ends one reading process, and the
dumps it had not got to are read by the next. Every dump has its own processor time, so that only the one that takes too
much is refused; it is remembered. All together have an end, too: whoever waits for the answer has one.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import resource
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import IO, Final

import numpy as np

from rca.flight_recorder.reading import DUMP_BYTES_MAX, BadDump, rank_in_name, read_dump
from rca.flight_recorder.recording import ENTRY, Group, Recording, merge

MEMORY_BYTES: Final = 3 * 2**30
CPU_SECONDS: Final = 10
"""For each dump; the largest real one takes about two."""
SECONDS: Final = 40.0
"""For all dumps of a job together, by the clock."""
BUNDLE_SECONDS: Final = 120.0
READERS_MAX: Final = 4
DUMPS_PER_READER: Final = 8
DUMPS_MAX: Final = 20_000
REMEMBERED_MAX: Final = 1_000
TOO_MUCH: Final = "reading it takes more memory or time than it may"
_HEAD: Final = struct.Struct("<II")

Named = tuple[str, bytes]


_too_much: dict[bytes, str] = {}
"""Digests of dumps that ended their reader, and how: they are not tried again."""


def read_dumps(dumps: Sequence[Named], seconds: float = SECONDS) -> Recording:
    """All ranks' recordings in one; `refused` says of each dump that could not be read why not."""
    if len(dumps) > DUMPS_MAX:
        raise BadDump(f"{len(dumps)} dumps, at most {DUMPS_MAX} are read")
    n_readers = max(1, min(READERS_MAX, os.cpu_count() or 1, len(dumps) // DUMPS_PER_READER))
    end_at = time.monotonic() + seconds
    known = [_too_much.get(_digest(raw), "") if _too_much else "" for _, raw in dumps]
    refused = [_refusal(name, why) for (name, _), why in zip(dumps, known, strict=True) if why]
    new = [one for one, why in zip(dumps, known, strict=True) if not why]
    with ThreadPoolExecutor(n_readers) as threads:
        shares = threads.map(lambda share: _read_share(share, end_at), [new[at::n_readers] for at in range(n_readers)])
        return merge([*refused, *(one for share in shares for one in share)])


def _read_share(dumps: Sequence[Named], end_at: float) -> list[Recording]:
    """Read by one process after another, each going on where the one before died."""
    found: list[Recording] = []
    at = 0
    while at < len(dumps) and time.monotonic() < end_at:
        answered = _run_reader(dumps[at:], end_at)
        found += answered
        at += len(answered)
        if at < len(dumps) and time.monotonic() < end_at:
            name, raw = dumps[at]
            if len(_too_much) < REMEMBERED_MAX:
                _too_much[_digest(raw)] = TOO_MUCH
            found.append(_refusal(name, TOO_MUCH))
            at += 1
    return [
        *found,
        *(_refusal(name, "the time for reading this job's dumps was over before it") for name, _ in dumps[at:]),
    ]


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()


def _run_reader(dumps: Sequence[Named], end_at: float) -> list[Recording]:
    argv = [sys.executable, "-m", "rca.flight_recorder.sandbox", str(CPU_SECONDS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        ending = threading.Timer(max(end_at - time.monotonic(), 0.0), reader.kill)
        ending.start()
        try:
            with ThreadPoolExecutor(1) as thread:
                sending = thread.submit(_send, reader.stdin, dumps)
                found = list(_answers(reader.stdout))
                sending.result()
        finally:
            ending.cancel()
    return found


def _send(pipe: IO[bytes], dumps: Sequence[Named]) -> None:
    try:
        with pipe:
            for name, raw in dumps:
                _write(pipe, name.encode("utf-8", "replace"), raw[: DUMP_BYTES_MAX + 1])
    except BrokenPipeError:
        return  # it died; what it did not answer is asked again


def _answers(pipe: IO[bytes]) -> Iterator[Recording]:
    while (framed := _read(pipe)) is not None:
        yield _from_bytes(*framed)


def _refusal(name: str, why: str) -> Recording:
    return Recording(np.zeros(0, ENTRY), (), (), (), (), (), refused={name: why})


# ---- frames: two byte strings, each with its length before it -----------------------------------------------------------


def _write(pipe: IO[bytes], first: bytes, second: bytes) -> None:
    pipe.write(_HEAD.pack(len(first), len(second)))
    pipe.write(first)
    pipe.write(second)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    first, second = _HEAD.unpack(head)
    parts = pipe.read(first), pipe.read(second)
    return parts if (len(parts[0]), len(parts[1])) == (first, second) else None


def _as_bytes(recording: Recording) -> tuple[bytes, bytes]:
    words = {name: value for name, value in asdict(recording).items() if name != "entries"}
    return json.dumps(words).encode(), recording.entries.tobytes()


def _from_bytes(words: bytes, entries: bytes) -> Recording:
    said = json.loads(words)
    groups = tuple(Group(one["name"], one["what"], tuple(one["ranks"])) for one in said["groups"])
    return Recording(
        np.frombuffer(entries, ENTRY), tuple(said["ranks"]), groups, tuple(said["names"]), tuple(said["shapes"]),
        tuple(said["places"]), tuple(said["versions"]), said["refused"],
        {int(rank): why for rank, why in said["ended"].items()},
    )  # fmt: skip


# ---- the reading process ------------------------------------------------------------------------------------------------


def main(cpu_seconds: int) -> None:
    """Read dumps from standard input, answer each on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # a dump is millions of small objects and no cycle
    with open(sys.stdin.fileno(), "rb", buffering=2**20) as asked:
        while (framed := _read(asked)) is not None:
            name = framed[0].decode()
            _renew_time(cpu_seconds)
            try:
                answer = read_dump(framed[1], rank_in_name(name))
            except BadDump as error:
                answer = _refusal(name, str(error))
            except MemoryError:
                answer = _refusal(name, "it asks for more memory than reading a dump may take")
            except Exception as error:  # hostile bytes raise anything, and the next dump is not to blame
                answer = _refusal(name, f"it cannot be read ({type(error).__name__})")
            _write(sys.stdout.buffer, *_as_bytes(answer))


def _renew_time(cpu_seconds: int) -> None:
    """Processor time for one more dump, as far as whoever started this may give it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


if __name__ == "__main__":
    main(int(sys.argv[1]))
