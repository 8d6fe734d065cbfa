"""Raw epochs of a process as they are fetched for an incident (dumps of kind `epochs`): bytes by flow and epoch, as a file.

An .npz without objects and without compression of its own, so that reading takes no more than its size. Arrays `iterations`,
`flows`, `cells` (dtypes below) and `facts`, JSON as bytes. Times are CLOCK_MONOTONIC of the node; facts hold both clocks,
read together.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.void]

FORMAT: Final = 1
BYTES_MAX: Final = 16 * 2**20
ITERATION: Final = np.dtype(
    [("number", "<i8"), ("begins_ns", "<i8"), ("ends_ns", "<i8"), ("epoch_ns", "<i4"), ("every", "<i4"), ("is_whole", "?")]
)  # fmt: skip
"""every: one in so many was measured at that time. is_whole: nothing of it was lost."""
FLOW: Final = np.dtype(
    [
        ("iteration", "<u4"), ("comm_id", "<u8"), ("comm_rank", "<i4"), ("peer", "<i4"), ("channel", "<i2"), ("is_p2p", "?"),
        ("queue_pair", "<u4"), ("slice_bytes", "<u4"),
    ]
)  # fmt: skip
"""A flow that sent something in an iteration: `iteration` is the place of that one in `iterations`."""
CELL: Final = np.dtype([("flow", "<u4"), ("epoch", "<i8"), ("n_bytes", "<u8")])
"""flow: place in `flows`. epoch: time / epoch_ns of its iteration; those without bytes are left out."""
_ARRAYS: Final = {"iterations": ITERATION, "flows": FLOW, "cells": CELL, "facts": np.dtype("u1")}
_FACTS: Final = {"format": int, "rank": int, "pid": int, "nic": str, "source": str, "wall_ns": int, "mono_ns": int}


class BadEpochs(ValueError):
    """The bytes are no epochs this version can read; the message says why and is safe to show."""


@dataclass(frozen=True, slots=True)
class Epochs:
    """What a process sent in its newest iterations. iterations: (I,) ITERATION; flows: (F,) FLOW; cells: (n,) CELL, by flow and
    epoch. wall_ns, mono_ns: the node's clocks, read together. source: of tables.TRAFFIC_SOURCES.
    """

    rank: int
    pid: int
    nic: str
    source: str
    wall_ns: int
    mono_ns: int
    iterations: Rows
    flows: Rows
    cells: Rows

    def starts_ns(self) -> npt.NDArray[np.int64]:
        """(n,) when each cell's epoch began, on the wall clock."""
        length = self.iterations["epoch_ns"][self.flows["iteration"][self.cells["flow"]]].astype(np.int64)
        return self.cells["epoch"] * length + (self.wall_ns - self.mono_ns)


def write_epochs(epochs: Epochs) -> bytes:
    """The bytes of `epochs`."""
    facts: dict[str, Any] = {"format": FORMAT} | {name: getattr(epochs, name) for name in _FACTS if name != "format"}
    file = io.BytesIO()
    np.savez(
        file, iterations=epochs.iterations, flows=epochs.flows, cells=epochs.cells,
        facts=np.frombuffer(json.dumps(facts).encode(), np.uint8),
    )  # fmt: skip
    return file.getvalue()


def read_epochs(raw: bytes) -> Epochs:
    """The epochs in `raw`. Raises BadEpochs with the reason, whatever the bytes; never loads pickles."""
    if len(raw) > BYTES_MAX:
        raise BadEpochs(f"too large: {len(raw)} bytes, at most {BYTES_MAX}")
    try:
        arrays = _arrays(raw)
        facts = json.loads(arrays["facts"].tobytes())
    except (
        zipfile.BadZipFile,
        OSError,
        EOFError,
        RecursionError,
        NotImplementedError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise BadEpochs("not a file of epochs, or a damaged one") from error
    except ValueError as error:
        raise BadEpochs(f"not a file of epochs: {str(error)[:100]}") from error
    facts = _checked(facts)
    iterations, flows, cells = arrays["iterations"], arrays["flows"], arrays["cells"]
    if len(flows) and int(flows["iteration"].max()) >= len(iterations):
        raise BadEpochs("a flow of an iteration that is not there")
    if len(cells) and (int(cells["flow"].max()) >= len(flows) or int(cells["epoch"].min()) < 0):
        raise BadEpochs("epochs of a flow that is not there, or before all time")
    if len(iterations) and (int(iterations["epoch_ns"].min()) < 1 or int(iterations["every"].min()) < 1):
        raise BadEpochs("an iteration with epochs of no length")
    return Epochs(**facts, iterations=iterations, flows=flows, cells=cells)


def _arrays(raw: bytes) -> dict[str, npt.NDArray[Any]]:
    """Raises ValueError and whatever zipfile raises."""
    found: dict[str, npt.NDArray[Any]] = {}
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        for name, dtype in _ARRAYS.items():
            entry = file.NameToInfo.get(f"{name}.npy")
            if entry is None or entry.compress_type != zipfile.ZIP_STORED or entry.file_size > len(raw):
                raise ValueError(f"{name} is missing, compressed or longer than the file")
            data = file.read(entry)
            array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
            if array.dtype != dtype or array.ndim != 1:
                raise ValueError(f"{name} has other columns")
            found[name] = array
    return found


def _checked(facts: Any) -> Mapping[str, Any]:
    if not isinstance(facts, dict) or any(type(facts.get(name)) is not kind for name, kind in _FACTS.items()):
        raise BadEpochs("its facts lack something, or have it of another type")
    if facts["format"] != FORMAT:
        raise BadEpochs(f"format {facts['format']!s:.20} is not supported, this version reads {FORMAT}")
    if any(abs(facts[name]) >= 2**62 for name, kind in _FACTS.items() if kind is int):
        raise BadEpochs("its facts have a number that cannot be")
    return {name: facts[name] for name in _FACTS if name != "format"}
