"""What an epoch of a given length can show (Pulse §6.1): printed beside every verdict that rests on gaps.

Channels send slices in turn; a rank whose rate drops to 1/p makes the others pause p − 1 slice times between slices. A
pause shorter than an epoch is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rca.keys import Rows

SLICE_BYTES_MAX = 2**20


def slice_ns(slice_bytes: int, n_channels: int, nic_bytes_per_s: float) -> float:
    """Time to send a slice when the channels share the NIC."""
    return slice_bytes * n_channels / nic_bytes_per_s * 1e9


def hidden_above(epoch_ns: int, one_slice_ns: float) -> float:
    """Share of the usual rate above which a slow sender's gaps are hidden by epochs of this length."""
    return 1.0 / (1.0 + epoch_ns / one_slice_ns)


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen with these epochs. hidden_above: share of the usual rate; the others explain it."""

    epoch_ns: int
    slice_bytes: int
    n_channels: int
    nic_bytes_per_s: float
    hidden_above: float

    @property
    def sentence(self) -> str:
        """The law with its numbers, for a person."""
        one = slice_ns(self.slice_bytes, self.n_channels, self.nic_bytes_per_s) / 1e3
        return (
            f"Epochs of {self.epoch_ns / 1e3:g} µs against slices of {one:.0f} µs: the pauses that a sender above "
            f"{self.hidden_above:.0%} of its usual rate makes others keep are not seen."
        )


def sight_of(rows: Rows, nic: Rows) -> Sight | None:
    """By the rows of `traffic` and `nic` of a window; None where none was measured.

    Without the size of the slices or the speed of a NIC the largest slice of the library and what the fastest flow did in an
    epoch stand for them, which say rather too much is hidden than too little.
    """
    if not len(rows):
        return None
    epoch_ns = int(rows["epoch_ns"].max())
    n_channels = max(len(np.unique(rows["channel"])), 1)
    known = int(rows["slice_bytes"].max())
    speed = float(nic["speed_mbps"].max()) * 1e6 / 8 if len(nic) else 0.0
    busy = np.maximum(rows["actual_ns"], 1)
    rate = speed or float((rows["n_bytes"] / busy).max()) * 1e9 * n_channels
    if epoch_ns <= 0 or rate <= 0:
        return None
    size = known or SLICE_BYTES_MAX
    return Sight(epoch_ns, size, n_channels, rate, hidden_above(epoch_ns, slice_ns(size, n_channels, rate)))
