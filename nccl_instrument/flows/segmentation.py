"""Where each op begins and ends in a flow's bytes per epoch (Pulse Algorithm 1).

An op ends at a gap of at least δ once its expected volume has gone. Epochs without bytes are left out, so that a pause in
the middle of an op, shorter than δ or before the volume is reached, does not cut it. Ops that follow each other without a
gap are cut by volume alone and marked: their boundary is inside one epoch at best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

DELTA_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """One op on one flow. start_ns, end_ns: of its first epoch's start and its last epoch's end. actual_ns: time in
    epochs with bytes. is_finished: its volume was reached, and δ of silence or another op followed. is_cut: by volume alone.
    """

    start_ns: int
    end_ns: int
    actual_ns: int
    n_bytes: int
    is_finished: bool
    is_cut: bool


def segment(
    epochs: npt.NDArray[np.int64], n_bytes: npt.NDArray[np.int64], expected: Sequence[float], *, epoch_ns: int, now_ns: int,
    delta_ns: int = DELTA_NS,
) -> list[Segment]:  # fmt: skip
    """The ops of one flow to one peer. epochs: (n,) rising numbers of those with bytes; expected: each op's own volume, in
    order; what comes after the last of them is one more segment. now_ns: until when the flow was seen.
    """
    found: list[Segment] = []
    kept = n_bytes > 0
    starts, sizes = epochs[kept] * epoch_ns, n_bytes[kept]
    gaps_ns = np.diff(starts, prepend=starts[:1]) - epoch_ns
    ahead = _ahead(sizes, gaps_ns >= delta_ns)
    first, volume, cut_before = 0, 0, False
    for at in range(len(starts)):
        wanted, following = _volumes(expected, len(found))
        if at > first and volume >= wanted:
            is_gap = bool(gaps_ns[at] >= delta_ns)
            # Without a gap, what follows is the next op only if it is as much as that one has; else it is headers.
            if is_gap or ahead[at] + volume - wanted >= following:
                cut = cut_before or not is_gap
                found.append(_made(starts, sizes, first, at, epoch_ns, is_finished=True, is_cut=cut))
                first, volume, cut_before = at, 0, not is_gap
        volume += int(sizes[at])
    if first < len(starts):
        is_silent = now_ns - (starts[-1] + epoch_ns) >= delta_ns
        is_over = bool(is_silent and volume >= _volumes(expected, len(found))[0])
        found.append(_made(starts, sizes, first, len(starts), epoch_ns, is_finished=is_over, is_cut=cut_before))
    return found


def _volumes(expected: Sequence[float], at: int) -> tuple[float, float]:
    """What this op and the next one are to move; without an end where nothing is known."""
    return (expected[at] if at < len(expected) else np.inf), (expected[at + 1] if at + 1 < len(expected) else np.inf)


def _ahead(sizes: npt.NDArray[np.int64], is_gap: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """(n,) bytes from each epoch to the end of its stretch without a gap."""
    total = np.append(np.cumsum(sizes[::-1])[::-1], 0)
    begins = np.flatnonzero(is_gap)
    ends = np.append(begins, len(sizes))
    end: npt.NDArray[np.int64] = total[:-1] - total[ends[np.searchsorted(begins, np.arange(len(sizes)), side="right")]]
    return end


def _made(
    starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], first: int, end: int, epoch_ns: int, *, is_finished: bool,
    is_cut: bool,
) -> Segment:  # fmt: skip
    return Segment(
        int(starts[first]), int(starts[end - 1]) + epoch_ns, (end - first) * epoch_ns, int(sizes[first:end].sum()),
        is_finished, is_cut,
    )  # fmt: skip
