"""What an epoch of a given length can show (Pulse §6.1): printed beside every verdict that rests on gaps.

Channels send slices in turn; a rank whose rate drops to 1/p makes the others pause p − 1 slice times between slices. A
pause shorter than an epoch is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rca.keys import Ints, Rows, mix
from rca.slow.streams import Floats

SLICE_BYTES_MIN = 2**15
"""The smallest slice that the library cuts ops into (LL, a step): what moves less in all has no pauses between slices."""
NIC_BYTES_PER_S_MAX = 50e9
"""A NIC of 400 Gb/s, where no speed of any is known."""


def slice_ns(slice_bytes: int, n_channels: int, nic_bytes_per_s: float) -> float:
    """Time to send a slice when the channels share the NIC."""
    return slice_bytes * n_channels / nic_bytes_per_s * 1e9


def hidden_above(epoch_ns: int, one_slice_ns: float) -> float:
    """Share of the usual rate above which a slow sender's gaps are hidden by epochs of this length."""
    return 1.0 / (1.0 + epoch_ns / one_slice_ns)


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen with these epochs, of the flows that hide most. hidden_above: share of the usual rate; the others
    explain it."""

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
    """Of flows by their rows of `traffic`, and the rows of `nic` of the same window; None where nothing was measured.

    Flows share a NIC by rank and communicator; the ones that hide most count. A slice of unknown size is taken for the smallest
    of the library, a NIC of unknown speed for the fastest of its node, else for 400 Gb/s: that says rather too much is hidden
    than too little.
    """
    rows = rows[rows["epoch_ns"] > 0]
    if not len(rows):
        return None
    sliced = rows[rows["n_bytes"] >= SLICE_BYTES_MIN]
    rows = sliced if len(sliced) else rows
    of, n = _sharing(rows)
    size = np.where(rows["slice_bytes"] > 0, rows["slice_bytes"], SLICE_BYTES_MIN).astype(np.int64)
    smallest, longest, speed = np.full(n, np.iinfo(np.int64).max), np.zeros(n, np.int64), np.zeros(n)
    np.minimum.at(smallest, of, size)
    np.maximum.at(longest, of, rows["epoch_ns"].astype(np.int64))
    np.maximum.at(speed, of, _nic_bytes_per_s(rows, nic))
    channel = np.unique(np.stack([of, rows["channel"].astype(np.int64)]), axis=1)
    n_channels = np.bincount(channel[0], minlength=n)
    sights = [
        Sight(epoch_ns, one, shared, rate, hidden_above(epoch_ns, slice_ns(one, shared, rate)))
        for epoch_ns, one, shared, rate in zip(
            longest.tolist(), smallest.tolist(), n_channels.tolist(), speed.tolist(), strict=True
        )
    ]
    return min(sights, key=lambda one: one.hidden_above)


def _sharing(rows: Rows) -> tuple[Ints, int]:
    """(n,) of each row which of the flows it is of that take turns: a rank's on one NIC in one communicator; and how many."""
    keys, of = np.unique(mix(rows["rank"], rows["comm_id"], _nic_of(rows)), return_inverse=True)
    return of.ravel(), len(keys)


def _nic_of(rows: Rows) -> Ints:
    """(n,) a number for each name of a NIC."""
    found: Ints = np.unique(rows["nic"], return_inverse=True)[1].ravel()
    return found


def _nic_bytes_per_s(rows: Rows, nic: Rows) -> Floats:
    """(n,) the speed of the NIC of each row; without its name the fastest of the node."""
    _, first, of = np.unique(mix(rows["node"], _nic_of(rows)), return_index=True, return_inverse=True)
    found = np.zeros(len(first))
    for number, at in enumerate(first.tolist()):
        there = nic[nic["node"] == rows["node"][at]]
        own = there[there["name"] == rows["nic"][at]]
        mbps = int(own["speed_mbps"].max(initial=0)) or int(there["speed_mbps"].max(initial=0))
        found[number] = mbps * 1e6 / 8 or NIC_BYTES_PER_S_MAX
    speeds: Floats = found[of.ravel()]
    return speeds
