"""The measurement core (src/, in C) as a Python object: transfers in, bytes per queue pair and epoch out.

One Meter is one network card. Its memory is bounded: the table's pages that no queue pair falls into are never touched,
and epochs come from a pool that flows give back when they fall silent.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

LIBRARY: Final = Path(__file__).resolve().parent / "build" / "libdgmeasure.so"
EPOCH_NS: Final = 32_000
AGGREGATED_BYTES: Final = 4_096
POLL_NS: Final = 1_000_000_000
FLOWS_MAX: Final = 4_096
POOL_BYTES_MAX: Final = 512 * 2**20

FLOW: Final = np.dtype([("qpn", "<u4"), ("n_cells", "<u4"), ("bytes", "<u8")])
PACKED_CELL: Final = np.dtype([("skip", "<u2"), ("units", "<u2")])
"""As it leaves the core: epochs since the flow's cell before it; without units it only bridges a pause."""
CELL: Final = np.dtype([("epoch", "<u4"), ("units", "<u4")])
SENT: Final = np.dtype([("now_ns", "<u8"), ("bytes", "<u8"), ("qpn", "<u4"), ("reserved", "<u4")])
COUNTS: Final = (
    "transfers", "events", "bytes", "lost_bytes", "flows_refused", "late_events", "early_events", "flows_aged", "bad_qpns",
    "pool_bytes", "flows", "handed_over", "handed_lost",
)  # fmt: skip


class MeterError(RuntimeError):
    """The core cannot be loaded, or a setting cannot be; the message is one sentence."""


class _Settings(ctypes.Structure):
    _fields_ = [
        ("epoch_ns", ctypes.c_uint32), ("aggregated", ctypes.c_uint32), ("poll_ns", ctypes.c_uint64),
        ("flows_max", ctypes.c_uint32), ("pool_bytes_max", ctypes.c_uint64),
    ]  # fmt: skip


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in COUNTS]


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll took. flows: (F,) FLOW, with exact bytes. cells: (C,) CELL, flow by flow, epochs counted from first_epoch;
    unit_bytes: of their units.
    """

    first_epoch: int
    unit_bytes: int
    flows: npt.NDArray[np.void]
    cells: npt.NDArray[np.void]


class Meter:
    """Bytes per queue pair and epoch of one network card. epoch_ns: 8,000 to 1,000,000; aggregated_bytes 0: no aggregation."""

    def __init__(
        self, start_ns: int, *, epoch_ns: int = EPOCH_NS, aggregated_bytes: int = AGGREGATED_BYTES, poll_ns: int = POLL_NS,
        flows_max: int = FLOWS_MAX, pool_bytes_max: int = POOL_BYTES_MAX,
    ) -> None:  # fmt: skip
        self._library = _load()
        settings = _Settings(epoch_ns, aggregated_bytes, poll_ns, flows_max, pool_bytes_max)
        self._meter = self._library.dgm_create(ctypes.byref(settings), ctypes.c_uint64(start_ns))
        if not self._meter:
            raise MeterError(
                "the meter cannot be made: epochs are 8 to 1,000 µs, polls longer, and memory has to suffice"
            )
        self._flows, self._cells = np.zeros(256, FLOW), np.zeros(65_536, PACKED_CELL)

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._meter:
            self._library.dgm_destroy(self._meter)
            self._meter = None

    @property
    def unit_bytes(self) -> int:
        return int(self._library.dgm_unit_bytes(self._meter))

    def transfer(self, qpn: int, now_ns: int, n_bytes: int) -> None:
        """A queue pair handed bytes to the wire."""
        self._library.dgm_transfer(self._meter, qpn, now_ns, n_bytes)

    def transfers(self, sent: npt.NDArray[np.void]) -> None:
        """A burst, (n,) SENT, in order."""
        sent = np.ascontiguousarray(sent, SENT)
        self._library.dgm_transfers(self._meter, sent.ctypes.data, len(sent))

    def poll(self, now_ns: int) -> Polled:
        """Take what was measured since the last poll."""
        first = ctypes.c_uint64()
        while True:
            n_flows, n_cells = ctypes.c_uint32(len(self._flows)), ctypes.c_uint64(len(self._cells))
            done = self._library.dgm_poll(
                self._meter, ctypes.c_uint64(now_ns), ctypes.byref(first), self._flows.ctypes.data_as(ctypes.c_void_p),
                ctypes.byref(n_flows), self._cells.ctypes.data_as(ctypes.c_void_p), ctypes.byref(n_cells),
            )  # fmt: skip
            if done == 0:
                flows, cells = unpacked(self._flows[: n_flows.value], self._cells[: n_cells.value])
                return Polled(first.value, self.unit_bytes, flows, cells)
            self._flows = np.zeros(max(2 * n_flows.value, len(self._flows)), FLOW)
            self._cells = np.zeros(max(2 * n_cells.value, len(self._cells)), PACKED_CELL)

    def counts(self) -> dict[str, int]:
        """COUNTS → number, since the meter was made; pool_bytes and flows are of now."""
        counts = _Counts()
        self._library.dgm_counts(self._meter, ctypes.byref(counts))
        return {name: int(getattr(counts, name)) for name in COUNTS}


def unpacked(
    flows: npt.NDArray[np.void], cells: npt.NDArray[np.void]
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """(FLOW, CELL) rows of FLOW and PACKED_CELL ones, whose n_cells add up. An epoch beyond 2³² begins anew."""
    ends = np.cumsum(flows["n_cells"], dtype=np.int64)
    sums = np.concatenate([[0], np.cumsum(cells["skip"], dtype=np.int64)])
    has_units = cells["units"] > 0
    found = np.zeros(int(has_units.sum()), CELL)
    begins = np.repeat(sums[ends - flows["n_cells"]], flows["n_cells"])
    found["epoch"], found["units"] = (sums[1:] - begins)[has_units], cells["units"][has_units]
    counts = np.concatenate([[0], np.cumsum(has_units)])
    flows = flows.copy()
    flows["n_cells"] = counts[ends] - counts[ends - flows["n_cells"]]
    return flows, found


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise MeterError(f"{LIBRARY.name} is not built: make build") from error
    library.dgm_create.restype = ctypes.c_void_p
    library.dgm_destroy.argtypes = [ctypes.c_void_p]
    library.dgm_unit_bytes.argtypes = [ctypes.c_void_p]
    library.dgm_unit_bytes.restype = ctypes.c_uint32
    library.dgm_transfer.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64]
    library.dgm_transfers.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
    library.dgm_poll.argtypes = [ctypes.c_void_p, ctypes.c_uint64, *[ctypes.c_void_p] * 5]
    library.dgm_counts.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library
