"""Every node has two clocks of its own: monotonic since its boot, and a wall clock that is nearly right.

Nothing in a simulated trace is told in the job's time: rows are stamped with their node's monotonic clock, which starts
somewhere and runs a little fast or slow, and the batch's anchors tie that to a wall clock with an offset.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

UPTIME_NS: Final = 10**15
OFFSET_NS: Final = 500_000  # deviation of wall clocks that NTP keeps
DRIFT_PPM: Final = 5.0
Ints = npt.NDArray[np.int64]


class Clocks:
    """The clocks of all nodes; times of the job are nanoseconds since its start, which was at `origin_ns` unix time."""

    def __init__(self, n_nodes: int, origin_ns: int, seed: int) -> None:
        random = np.random.default_rng([seed, 77])
        self.origin_ns = origin_ns
        self._uptime_ns = random.integers(UPTIME_NS // 100, UPTIME_NS, n_nodes)
        self._offset_ns = (random.standard_normal(n_nodes) * OFFSET_NS).astype(np.int64)
        self._drift_ppm = random.standard_normal(n_nodes) * DRIFT_PPM

    def change(self, offset_ns: dict[int, int], drift_ppm: dict[int, float]) -> None:
        """Clocks that are worse than usual."""
        for node, offset in offset_ns.items():
            self._offset_ns[node] += offset
        for node, drift in drift_ppm.items():
            self._drift_ppm[node] += drift

    def mono_ns(self, node: Ints, job_ns: Ints) -> Ints:
        """The nodes' monotonic clocks at these times; 0, unknown, stays 0."""
        gained = np.rint(job_ns * (self._drift_ppm[node] / 1e6)).astype(np.int64)
        return np.where(job_ns == 0, 0, self._uptime_ns[node] + job_ns + gained)

    def wall_ns(self, node: int, job_ns: int) -> int:
        """A node's wall clock."""
        gained = round(job_ns * self._drift_ppm[node] / 1e6)
        return int(self.origin_ns + job_ns + gained + self._offset_ns[node])
