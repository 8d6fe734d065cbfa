"""The control page: memory shared with the ranks, through which faults go in and progress comes out.

The layout is the one of src/control_page.h (a test compares both sides). It is an anonymous memory file, so nothing of
it outlives the processes, and a frozen or hung rank can still be read.
"""

from __future__ import annotations

import mmap
import os
import struct

PAGE_BYTES = 4096
NIC_PAGE_BYTES = 128
N_RECENT_ITERATIONS = 512
NEVER = 2**64 - 1
HEALTHY_MILLI = 1000

JOB_OFFSETS = {"stop_at": 0, "pause_at": 8, "pause_ns": 16, "profiler": 24, "n_passes": 32}
RANK_OFFSETS = {
    "copy_factor_milli": 0,
    "compute_factor_milli": 8,
    "is_stuck_before": 16,
    "proxy_sleep_until_ns": 24,
    "checkpoint_ns": 32,
    "corrupt_next": 40,
    "state": 256,
    "iteration": 264,
    "n_ops_enqueued": 272,
    "n_ops_done": 280,
    "listen_port": 288,
    "n_elements_checked": 296,
    "iteration_us": 1024,
}
NIC_OFFSETS = {"is_up": 0, "bytes_per_s": 8, "tx_bytes": 32, "rx_bytes": 40}
STATES = ("starting", "running", "in data loader", "paused", "checkpoint", "finished", "failed")

_U64 = struct.Struct("=Q")


class ControlPage:
    """Reads and writes single aligned 64-bit words, which the hardware does whole."""

    def __init__(self, n_ranks: int, n_nics: int, link_bytes_per_s: int) -> None:
        self.n_ranks = n_ranks
        n_bytes = PAGE_BYTES * (1 + n_ranks) + NIC_PAGE_BYTES * n_nics
        self.fd = os.memfd_create("diogenes-testbed-control")
        os.ftruncate(self.fd, n_bytes)
        self._memory = mmap.mmap(self.fd, n_bytes)
        self.set_job("stop_at", NEVER)
        self.set_job("pause_at", NEVER)
        for rank in range(n_ranks):
            self.set_rank(rank, "copy_factor_milli", HEALTHY_MILLI)
            self.set_rank(rank, "compute_factor_milli", HEALTHY_MILLI)
        for nic in range(n_nics):
            self.set_nic(nic, "is_up", 1)
            self.set_nic(nic, "bytes_per_s", link_bytes_per_s)

    def set_job(self, field: str, value: int) -> None:
        _U64.pack_into(self._memory, JOB_OFFSETS[field], value)

    def read_job(self, field: str) -> int:
        return _U64.unpack_from(self._memory, JOB_OFFSETS[field])[0]

    def set_rank(self, rank: int, field: str, value: int) -> None:
        _U64.pack_into(self._memory, PAGE_BYTES * (1 + rank) + RANK_OFFSETS[field], value)

    def read_rank(self, rank: int, field: str) -> int:
        return _U64.unpack_from(self._memory, PAGE_BYTES * (1 + rank) + RANK_OFFSETS[field])[0]

    def set_nic(self, nic: int, field: str, value: int) -> None:
        _U64.pack_into(self._memory, self._nic_start(nic) + NIC_OFFSETS[field], value)

    def read_nic(self, nic: int, field: str) -> int:
        return _U64.unpack_from(self._memory, self._nic_start(nic) + NIC_OFFSETS[field])[0]

    def _nic_start(self, nic: int) -> int:
        return PAGE_BYTES * (1 + self.n_ranks) + NIC_PAGE_BYTES * nic

    def iterations(self) -> list[int]:
        return [self.read_rank(rank, "iteration") for rank in range(self.n_ranks)]

    def recent_iterations_ms(self, rank: int) -> list[float]:
        """Durations of the last finished iterations, oldest first; the very first (warm-up) is left out."""
        done = self.read_rank(rank, "iteration")
        start = PAGE_BYTES * (1 + rank) + RANK_OFFSETS["iteration_us"]
        numbers = range(max(1, done - N_RECENT_ITERATIONS), done)
        return [
            struct.unpack_from("=I", self._memory, start + 4 * (number % N_RECENT_ITERATIONS))[0] / 1000
            for number in numbers
        ]

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
