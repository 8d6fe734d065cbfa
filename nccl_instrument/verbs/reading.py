"""What the shim in front of libibverbs wrote: blocks of bytes per queue pair and epoch, and the queue pairs' counts.

The file is written by another process while it is read: a block that is not whole yet is left for the next time, and
one that cannot be is an error.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.measure.meter import CELL, FLOW

MAGIC: Final = 0x31564744
FLOWS_MAX: Final = 4_096
CELLS_MAX: Final = 4 * 2**20
BLOCK: Final = np.dtype(
    [
        ("magic", "<u4"), ("device", "<u4"), ("now_ns", "<u8"), ("start_ns", "<u8"), ("first_epoch", "<u8"),
        ("epoch_ns", "<u4"), ("unit_bytes", "<u4"), ("n_flows", "<u4"), ("n_qps", "<u4"), ("n_cells", "<u8"),
        ("lost_bytes", "<u8"), ("qps_refused", "<u8"), ("blocks_lost", "<u8"), ("name", "S64"),
    ]
)  # fmt: skip
QUEUE_PAIR: Final = np.dtype(
    [
        ("qpn", "<u4"), ("dest_qpn", "<u4"), ("dgid", "u1", 16), ("dlid", "<u2"), ("port", "u1"), ("is_global", "u1"),
        ("connects", "<u4"), ("last_status", "<u4"), ("last_vendor_err", "<u4"), ("work_requests", "<u8"), ("bytes", "<u8"),
        ("signaled", "<u8"), ("refused", "<u8"), ("completions", "<u8"), ("received", "<u8"), ("errors", "<u8"),
        ("flushed", "<u8"), ("last_error_ns", "<u8"),
    ]
)  # fmt: skip
"""Counts since the process opened the device. refused: calls that posted less than they were given. errors: completions
with another status than flushed; flushed ones follow from them.
"""


class BadVerbsFile(ValueError):
    """No file of the shim's, or a damaged one; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Block:
    """One device and poll. head: (), BLOCK; flows, cells: as the meter gives them; queue_pairs: (Q,) QUEUE_PAIR."""

    head: np.void
    flows: npt.NDArray[np.void]
    cells: npt.NDArray[np.void]
    queue_pairs: npt.NDArray[np.void]


def blocks(path: Path) -> Iterator[Block]:
    """The whole blocks of a file, a block in memory at a time."""
    with path.open("rb") as stream:
        while True:
            begin = stream.tell()
            head = _rows(stream, BLOCK, 1)
            if head is None:
                return
            sizes = [int(head[0][name]) for name in ("n_flows", "n_cells", "n_qps")]
            if head[0]["magic"] != MAGIC or sizes[0] > FLOWS_MAX or sizes[1] > CELLS_MAX or sizes[2] > FLOWS_MAX:
                raise BadVerbsFile(f"{path.name} is damaged at byte {begin:,}")
            parts = [_rows(stream, kind, n) for kind, n in zip((FLOW, CELL, QUEUE_PAIR), sizes, strict=True)]
            flows, cells, queue_pairs = parts
            if flows is None or cells is None or queue_pairs is None:
                return
            if int(flows["n_cells"].sum()) != len(cells):
                raise BadVerbsFile(f"{path.name} is damaged at byte {begin:,}")
            yield Block(head[0], flows, cells, queue_pairs)


def peer(row: np.void) -> str:
    """Whom a queue pair sends to: an address, or the port's local identifier where the network does not route."""
    if not row["connects"]:
        return ""
    if not row["is_global"]:
        return f"lid {row['dlid']}"
    whole = ipaddress.IPv6Address(row["dgid"].tobytes())
    return str(whole.ipv4_mapped or whole)


def _rows(stream: BinaryIO, kind: np.dtype[np.void], n: int) -> npt.NDArray[np.void] | None:
    """n rows; None when the file has not got them."""
    found = stream.read(kind.itemsize * n)
    return np.frombuffer(found, kind) if len(found) == kind.itemsize * n else None
