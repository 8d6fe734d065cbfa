"""What the shim in front of libibverbs wrote: blocks of bytes per queue pair and epoch, and the queue pairs' counts.

The file is written by another process while it is read: a block that is not whole yet is left for the next time, and
one that cannot be is an error.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.measure.meter import FLOW, PACKED_CELL, unpacked

NAME: Final = re.compile(r"diogenes-verbs\.(\d+)\.(\d+)\.(\d+)(?:\.old)?")
"""Of a file: user, process, when that started; the second-newest ends in .old."""
MAGIC: Final = 0x33564744
FLOWS_MAX: Final = 4_096
CELLS_MAX: Final = 4 * 2**20
EPOCH_NS_MIN, EPOCH_NS_MAX, UNIT_BYTES_MAX = 8_000, 1_000_000, 2**16
TIME_MAX: Final = 2**62
NAMED, SEVERAL_CHANNELS, SEVERAL_FLOWS = 1, 2, 4
"""Bits of `named`: the profiler plugin said which flow a queue pair serves; it served several channels to the same peer; it
served several peers or communicators, so that its bytes belong to no one of them.
"""
BLOCK: Final = np.dtype(
    [
        ("magic", "<u4"), ("device", "<u4"), ("now_ns", "<u8"), ("start_ns", "<u8"), ("first_epoch", "<u8"),
        ("epoch_ns", "<u4"), ("unit_bytes", "<u4"), ("n_flows", "<u4"), ("n_qps", "<u4"), ("lag_ns", "<u4"), ("reserved", "<u4"),
        ("n_cells", "<u8"), ("lost_bytes", "<u8"), ("qps_refused", "<u8"), ("blocks_lost", "<u8"), ("name", "S64"),
    ]
)  # fmt: skip
QUEUE_PAIR: Final = np.dtype(
    [
        ("qpn", "<u4"), ("dest_qpn", "<u4"), ("dgid", "u1", 16), ("dlid", "<u2"), ("port", "u1"), ("is_global", "u1"),
        ("connects", "<u4"), ("last_status", "<u4"), ("last_vendor_err", "<u4"), ("work_requests", "<u8"), ("bytes", "<u8"),
        ("signaled", "<u8"), ("refused", "<u8"), ("completions", "<u8"), ("received", "<u8"), ("errors", "<u8"),
        ("flushed", "<u8"), ("last_error_ns", "<u8"), ("comm_id", "<u8"), ("connected_ns", "<u8"), ("comm_rank", "<i4"),
        ("peer", "<i4"), ("channel", "u1"), ("direction", "u1"), ("named", "u1"), ("reserved", "u1", 5),
    ]
)  # fmt: skip
"""Counts since the process opened the device. refused: calls that posted less than they were given. errors: completions
with another status than flushed; flushed ones follow from them. comm_id to direction: the flow it serves, see `named`.
"""


class BadVerbsFile(ValueError):
    """No file of the shim's, or a damaged one; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Block:
    """One device and poll. head: (), BLOCK; flows, cells: as the meter gives them; queue_pairs: (Q,) QUEUE_PAIR.

    Cells of the last `lag_ns` before `now_ns` may be added to by the next block of the device.
    """

    head: np.void
    flows: npt.NDArray[np.void]
    cells: npt.NDArray[np.void]
    queue_pairs: npt.NDArray[np.void]


def blocks(path: Path) -> Iterator[Block]:
    """The whole blocks of a file, a block in memory at a time."""
    at = 0
    with path.open("rb") as stream:
        while True:
            stream.seek(at)
            head = stream.read(BLOCK.itemsize)
            block = block_of(head + stream.read(block_bytes(head, at)), at)
            if block is None:
                return
            yield block
            at += BLOCK.itemsize + block_bytes(head, at)


def block_bytes(raw: bytes, at: int = 0) -> int:
    """How many bytes follow the head that `raw` begins with; 0 while that is not whole. at: where it is, for the message.

    BadVerbsFile when it cannot be a head.
    """
    if len(raw) < BLOCK.itemsize:
        return 0
    head = np.frombuffer(raw, BLOCK, 1)[0]
    sizes = [int(head[name]) for name in ("n_flows", "n_cells", "n_qps")]
    is_bad = head["magic"] != MAGIC or sizes[0] > FLOWS_MAX or sizes[1] > CELLS_MAX or sizes[2] > FLOWS_MAX
    times = [int(head[name]) for name in ("now_ns", "start_ns", "first_epoch")]
    is_bad = is_bad or not EPOCH_NS_MIN <= head["epoch_ns"] <= EPOCH_NS_MAX or max(times) >= TIME_MAX
    if is_bad or times[2] * int(head["epoch_ns"]) >= TIME_MAX or not 0 < head["unit_bytes"] <= UNIT_BYTES_MAX:
        raise BadVerbsFile(f"the file is damaged, or of another version of the shim, at byte {at:,}")
    return sum(kind.itemsize * n for kind, n in zip((FLOW, PACKED_CELL, QUEUE_PAIR), sizes, strict=True))


def block_of(raw: bytes, at: int = 0) -> Block | None:
    """The block that `raw` begins with; None while it is not whole. BadVerbsFile when it cannot be one."""
    length = block_bytes(raw, at)
    if len(raw) < BLOCK.itemsize + length:
        return None
    head, place, parts = np.frombuffer(raw, BLOCK, 1)[0], BLOCK.itemsize, []
    for kind, name in ((FLOW, "n_flows"), (PACKED_CELL, "n_cells"), (QUEUE_PAIR, "n_qps")):
        parts.append(np.frombuffer(raw, kind, int(head[name]), place))
        place += kind.itemsize * int(head[name])
    flows, cells, queue_pairs = parts
    if int(flows["n_cells"].sum()) != len(cells):
        raise BadVerbsFile(f"the file is damaged at byte {at:,}: its flows and epochs contradict each other")
    return Block(head, *unpacked(flows, cells), queue_pairs)


def peer(row: np.void) -> str:
    """Whom a queue pair sends to: an address, or the port's local identifier where the network does not route."""
    if not row["connects"]:
        return ""
    if not row["is_global"]:
        return f"lid {row['dlid']}"
    whole = ipaddress.IPv6Address(row["dgid"].tobytes())
    return str(whole.ipv4_mapped or whole)
