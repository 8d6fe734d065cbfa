"""How many iterations are measured on this node: as many as its share of CPU time and of the batch allows.

What an iteration costs is known when it is over. Of what all of them would cost in a second the part that is allowed gives how
many are measured, always one in a power of two: whatever other nodes choose, the iterations measured there contain these or
are among them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

EPOCH_NS: Final = 32_000
ROWS_PER_S: Final = 150
WORK_PER_ROW: Final = 100
"""Epochs with bytes, and chunks, that may be gone through for each row that may be sent: rows are what the network pays, these
what the node's CPU does.
"""
EVERY_MOST: Final = 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one iteration of one process."""

    rows: int
    cells: int
    transfers: int
    took_ns: int

    def share(self, rows_per_s: int) -> float:
        """Of what a node may spend in a second, what this process would spend if every iteration were measured."""
        most = max(self.rows, self.cells / WORK_PER_ROW, self.transfers / WORK_PER_ROW)
        return most / rows_per_s * 1e9 / max(self.took_ns, 1)


@dataclass
class Sampling:
    """Of one node. epoch_ns: length of an epoch; rows_per_s: of `traffic`, 0 none."""

    epoch_ns: int = EPOCH_NS
    rows_per_s: int = ROWS_PER_S
    _costs: dict[int, float] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        return self.rows_per_s > 0

    @property
    def every(self) -> int:
        """One in so many iterations is measured: a power of two."""
        share, every = sum(self._costs.values()), 1
        while every < share and every < EVERY_MOST:
            every *= 2
        return every

    def is_measured(self, iteration: int) -> bool:
        return self.is_on and iteration % self.every == 0

    def is_any_measured(self, first: int, last: int) -> bool:
        """Whether any iteration from first to last is."""
        every = self.every
        return self.is_on and -(-first // every) * every <= last

    def told(self, process: int, cost: Cost) -> None:
        """What an iteration cost; a little at a time, so that one odd iteration does not change what is measured."""
        before, now = self._costs.get(process), cost.share(self.rows_per_s)
        self._costs[process] = now if before is None else 0.75 * before + 0.25 * now

    def forget(self, process: int) -> None:
        self._costs.pop(process, None)
