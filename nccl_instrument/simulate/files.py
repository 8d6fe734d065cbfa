"""A simulated job on disk: a folder with a description, the batches in the order they reach the server, and the truth.

job.json          what was simulated, without its faults
batches.dgtb      per batch: arrival (unix ns, 8 bytes little-endian), length (4), the encoded TraceBatch
truth.json        what happened: for whoever scores an analysis, never for the analysis
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from nccl_instrument.simulate.agents import Sent
from nccl_instrument.simulate.job import JobSettings
from nccl_instrument.wire import BATCH_BYTES_MAX

BATCHES: Final = "batches.dgtb"
JOB: Final = "job.json"
TRUTH: Final = "truth.json"
_FRAME: Final = struct.Struct("<qI")


class BadFolder(ValueError):
    """The folder does not hold a simulated job; the message says why."""


def write_job(folder: Path, settings: JobSettings, truth: list[dict[str, Any]], seconds: float) -> None:
    """What was simulated, and what befell it."""
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        "job": settings.name, "seconds": seconds, "transport": settings.transport, "seed": settings.scenario.seed,
        "origin_ns": settings.origin_ns, "layout": dataclasses.asdict(settings.layout),
        "physics": dataclasses.asdict(settings.physics),
    }  # fmt: skip
    (folder / JOB).write_text(json.dumps(described, indent=1) + "\n")
    write_truth(folder / TRUTH, truth)


def write_truth(path: Path, truth: list[dict[str, Any]]) -> None:
    """What really happened, for whoever scores."""
    path.write_text(json.dumps(truth, indent=1) + "\n")


def in_order(cut: Iterable[list[Sent]]) -> Iterator[Sent]:
    """Batches in the order they arrive; those that are late wait in memory until their time has come: until batches are cut
    later than that, of whichever nodes: what is cut later arrives later still."""
    waiting: list[tuple[int, int, Sent]] = []
    n = 0
    for sent in cut:
        for batch in sent:
            heapq.heappush(waiting, (batch.arrives_ns, n, batch))
            n += 1
        newest_ns = min((batch.cut_ns for batch in sent), default=0)
        while waiting and waiting[0][0] <= newest_ns:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def write_batches(folder: Path, batches: Iterable[Sent]) -> tuple[int, int]:
    """Number of batches and bytes written."""
    n_batches = n_bytes = 0
    with (folder / BATCHES).open("wb") as file:
        for batch in batches:
            file.write(_FRAME.pack(batch.arrives_ns, len(batch.encoded)))
            file.write(batch.encoded)
            n_batches, n_bytes = n_batches + 1, n_bytes + len(batch.encoded)
    return n_batches, n_bytes


def read_batches(folder: Path) -> Iterator[tuple[int, bytes]]:
    """(arrival in unix ns, encoded batch), in order. Raises BadFolder."""
    try:
        file = (folder / BATCHES).open("rb")
    except OSError as error:
        raise BadFolder(f"{folder} holds no simulated job: {error}") from error
    with file:
        while head := file.read(_FRAME.size):
            arrives_ns, length = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, BATCH_BYTES_MAX + 1)
            encoded = file.read(min(length, BATCH_BYTES_MAX))
            if len(encoded) != length:
                raise BadFolder(f"{folder / BATCHES} is cut off or damaged.")
            yield arrives_ns, encoded


def read_truth(folder: Path) -> list[dict[str, Any]]:
    """For scoring only."""
    found: list[dict[str, Any]] = json.loads((folder / TRUTH).read_text())
    return found
