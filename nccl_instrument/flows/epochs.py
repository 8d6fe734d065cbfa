"""Transfers as bytes per epoch: what a queue pair carried in each span of 32 µs (Pulse §4.2), from when each transfer was
posted and when it was done.

A queue pair sends its transfers one after the other, so one that was posted while the one before was still under way begins
where that one ends. Its bytes are spread evenly over its time: what happens inside a transfer nobody sees. Nothing is lost to
rounding: the epochs of a transfer add up to its bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

CELL: Final = np.dtype([("flow", "<i8"), ("epoch", "<i8"), ("bytes", "<i8")])
"""What a flow moved in an epoch; epochs are numbered from 0 of the clock the times are of."""


def begun_ns(flows: Ints, posted_ns: Ints, done_ns: Ints, before_ns: Ints) -> Ints:
    """(n,) when each transfer began. Transfers of a flow are in order, flows side by side; before_ns: (n,) when the last one
    that the flow had before these was done, of which the flow's first counts.
    """
    is_first = np.diff(flows, prepend=flows[:1] - 1) != 0
    former_ns = np.where(is_first, before_ns, np.roll(done_ns, 1))
    return np.minimum(np.maximum(posted_ns, former_ns), done_ns - 1)


def cells_of(flows: Ints, begins_ns: Ints, ends_ns: Ints, n_bytes: Ints, epoch_ns: int) -> npt.NDArray[np.void]:
    """CELL rows of these transfers, by flow and epoch, each pair once. ends_ns must lie after begins_ns."""
    first, last = begins_ns // epoch_ns, (ends_ns - 1) // epoch_ns
    of = np.repeat(np.arange(len(flows)), last - first + 1)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(last - first + 1) - (last - first + 1), last - first + 1)
    epoch = first[of] + nth
    begin, length, size = begins_ns[of], (ends_ns - begins_ns)[of], n_bytes[of]
    return added(flows[of], epoch, _sent_by((epoch + 1) * epoch_ns, begin, length, size)
                 - _sent_by(epoch * epoch_ns, begin, length, size))  # fmt: skip


def _sent_by(at_ns: Ints, begin_ns: Ints, length_ns: Ints, n_bytes: Ints) -> Ints:
    share = np.clip((at_ns - begin_ns) / length_ns, 0.0, 1.0)
    sent: Ints = np.rint(n_bytes * share).astype(np.int64)
    return sent


def added(flows: Ints, epochs: Ints, n_bytes: Ints) -> npt.NDArray[np.void]:
    """CELL rows by flow and epoch, those of the same flow and epoch added up, those without bytes left out."""
    order = np.lexsort((epochs, flows))
    flows, epochs, n_bytes = flows[order], epochs[order], n_bytes[order]
    starts = np.flatnonzero((np.diff(flows, prepend=-1) != 0) | (np.diff(epochs, prepend=-1) != 0))
    found = np.zeros(len(starts), CELL)
    if len(starts):
        found["flow"], found["epoch"] = flows[starts], epochs[starts]
        found["bytes"] = np.add.reduceat(n_bytes, starts)
    return found[found["bytes"] > 0]
