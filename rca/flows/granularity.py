"""What an epoch of a given length can show (Pulse §6.1): printed beside every verdict that rests on gaps.

Channels send slices in turn; a rank whose rate drops to 1/p makes the others pause p − 1 slice times between slices. A
pause shorter than an epoch is not seen.
"""

from __future__ import annotations

SLICE_BYTES_MAX = 2**20


def slice_ns(slice_bytes: int, n_channels: int, nic_bytes_per_s: float) -> float:
    """Time to send a slice when the channels share the NIC."""
    return slice_bytes * n_channels / nic_bytes_per_s * 1e9


def hidden_above(epoch_ns: int, one_slice_ns: float) -> float:
    """Share of the usual rate above which a slow sender's gaps are hidden by epochs of this length."""
    return 1.0 / (1.0 + epoch_ns / one_slice_ns)
