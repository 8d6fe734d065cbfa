"""Rate curves from the raw epochs that were fetched (Pulse Figures 7 and 8): thinned out for a page, exact where zoomed.

A page asks for a stretch of time and draws some hundred columns of it. A column is whole epochs of what is drawn; its rate is
its bytes over its time, its peak that of its fullest epoch. So a pause shorter than a column shows as a rate below the
peak, and as itself once the stretch is short enough for a column to be one epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.epochs import Epochs

COLUMNS: Final = 1_000
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FlowKey = tuple[int, int, bool]
"""The peer's place in the communicator, the channel, and whether it serves sends."""


@dataclass(frozen=True, slots=True)
class Moved:
    """(n,) epochs with bytes, by their begin, on one clock. length_ns: of each; more than one length where iterations differ."""

    begins_ns: Ints
    length_ns: Ints
    n_bytes: Ints

    def within(self, from_ns: int, until_ns: int) -> Moved:
        """Those that touch the stretch."""
        kept = (self.begins_ns + self.length_ns > from_ns) & (self.begins_ns < until_ns)
        return Moved(self.begins_ns[kept], self.length_ns[kept], self.n_bytes[kept])


@dataclass(frozen=True, slots=True)
class Curve:
    """edges_ns: (c + 1,) of the columns. mean, peak: (c,) bytes per second. epochs: how many of the shortest are in a column."""

    edges_ns: Ints
    mean: Floats
    peak: Floats
    epochs: int


def moved_by_rank(epochs: Epochs, comm_id: int, offset_ns: int = 0) -> Moved:
    """What a process sent in one communicator, all flows together. offset_ns: its node's clock minus the server's."""
    mine = epochs.flows["comm_id"] == np.uint64(comm_id)
    return _moved(epochs, mine, offset_ns)


def moved_by_flow(epochs: Epochs, comm_id: int, offset_ns: int = 0) -> dict[FlowKey, Moved]:
    """The same flow by flow, in order."""
    flows = epochs.flows
    keys = {
        (int(flow["peer"]), int(flow["channel"]), bool(flow["is_p2p"]))
        for flow in flows[flows["comm_id"] == np.uint64(comm_id)]
    }
    found = {}
    for peer, channel, is_p2p in sorted(keys):
        mine = (flows["comm_id"] == np.uint64(comm_id)) & (flows["peer"] == peer)
        mine &= (flows["channel"] == channel) & (flows["is_p2p"] == is_p2p)
        found[peer, channel, is_p2p] = _moved(epochs, mine, offset_ns)
    return found


def _moved(epochs: Epochs, those: npt.NDArray[np.bool_], offset_ns: int) -> Moved:
    """those: (F,) of the flows."""
    kept = those[epochs.cells["flow"]]
    cells = epochs.cells[kept]
    length = epochs.iterations["epoch_ns"][epochs.flows["iteration"][cells["flow"]]].astype(np.int64)
    begins = epochs.starts_ns()[kept] - offset_ns
    order = np.lexsort((length, begins))
    begins, length, n_bytes = begins[order], length[order], cells["n_bytes"][order].astype(np.int64)
    if not len(begins):
        return Moved(begins, length, n_bytes)
    first = np.flatnonzero((np.diff(begins, prepend=begins[0] - 1) != 0) | (np.diff(length, prepend=0) != 0))
    return Moved(begins[first], length[first], np.add.reduceat(n_bytes, first))


def curve_of(moved: Moved, from_ns: int, until_ns: int, n_columns: int = COLUMNS) -> Curve:
    """The stretch in at most about n_columns columns, each of whole epochs of the shortest there are."""
    moved = moved.within(from_ns, until_ns)
    if not len(moved.begins_ns) or until_ns <= from_ns:
        return Curve(np.array([from_ns, max(until_ns, from_ns + 1)]), np.zeros(1), np.zeros(1), 1)
    least = int(moved.length_ns.min())
    epochs = max(-(-(until_ns - from_ns) // (least * n_columns)), 1)
    width = epochs * least
    phase = int(moved.begins_ns[moved.length_ns == least][0]) % least
    first = (from_ns - phase) // least * least + phase
    n = -(-(until_ns - first) // width)
    edges = first + width * np.arange(n + 1)
    mean, peak = np.zeros(n), np.zeros(n)
    for length in np.unique(moved.length_ns).tolist():
        mine = moved.length_ns == length
        begins, n_bytes = moved.begins_ns[mine], moved.n_bytes[mine]
        mean += _spread(begins, length, n_bytes, edges) * 1e9 / width
        _raise_to(peak, begins, length, n_bytes * 1e9 / length, int(edges[0]), width)
    return Curve(edges, mean, np.maximum(peak, mean), epochs)


def _spread(begins_ns: Ints, length_ns: int, n_bytes: Ints, edges_ns: Ints) -> Floats:
    """(c,) bytes between the edges; those of an epoch lie evenly in it. Epochs of one length do not overlap."""
    zero = int(edges_ns[0])
    knots = np.stack([begins_ns - zero, begins_ns - zero + length_ns], axis=1).ravel().astype(np.float64)
    total = np.concatenate([[0.0], np.cumsum(n_bytes)])
    sums = np.stack([total[:-1], total[1:]], axis=1).ravel()
    between: Floats = np.diff(np.interp((edges_ns - zero).astype(np.float64), knots, sums))
    return between


def _raise_to(peak: Floats, begins_ns: Ints, length_ns: int, rate: Floats, zero_ns: int, width_ns: int) -> None:
    """Raise each column to the fullest epoch that touches it."""
    first = (begins_ns - zero_ns) // width_ns
    last = (begins_ns + length_ns - 1 - zero_ns) // width_ns
    for step in range(int((last - first).max(initial=0)) + 1):
        at = first + step
        inside = (at <= last) & (at >= 0) & (at < len(peak))
        np.maximum.at(peak, at[inside], rate[inside])


def pauses(moved: Moved, from_ns: int, until_ns: int, least_ns: int) -> tuple[Ints, Ints]:
    """(begins, lengths) of the silences of at least least_ns between the first and the last byte of the stretch."""
    moved = moved.within(from_ns, until_ns)
    if not len(moved.begins_ns):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = np.maximum.accumulate(moved.begins_ns + moved.length_ns)
    lengths = moved.begins_ns[1:] - ends[:-1]
    kept = lengths >= least_ns
    return ends[:-1][kept], lengths[kept]
