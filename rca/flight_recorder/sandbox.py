"""Dumps are read in processes of their own, with limits on memory and processor time.

A few bytes can ask an unpickler for gigabytes, or a parser for minutes; here that ends one reading process, and the
dumps it had not got to are read by the next. Every dump has its own processor time, so that only the one that takes too
much is refused; it is remembered. All together have an end, too: whoever waits for the answer has one.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

import numpy as np

from rca.flight_recorder.columns import decode_words
from rca.flight_recorder.reader import read_frame, write_frame
from rca.flight_recorder.reading import DUMP_BYTES_MAX, BadDump
from rca.flight_recorder.recording import ENTRY, Recording, merge, recording_of

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
    argv = [sys.executable, "-S", "-m", "rca.flight_recorder.reader", str(CPU_SECONDS)]  # -S: PYTHONPATH says it all
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
                write_frame(pipe, name.encode("utf-8", "replace"), raw[: DUMP_BYTES_MAX + 1])
    except BrokenPipeError:
        return  # it died; what it did not answer is asked again


def _answers(pipe: IO[bytes]) -> Iterator[Recording]:
    while (framed := read_frame(pipe)) is not None:
        yield recording_of(decode_words(framed[0]), framed[1])


def _refusal(name: str, why: str) -> Recording:
    return Recording(np.zeros(0, ENTRY), (), (), (), (), (), refused={name: why})
