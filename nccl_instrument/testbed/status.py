"""What is known of a running job: ranks, iterations, timing, faults, processor use; and its line for people."""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .faults import Faults
from .pages import STATES, ControlPage
from .ranks import Ranks

RANK_COUNTERS = ("iteration", "n_ops_enqueued", "n_ops_done", "n_elements_checked")


class Status:
    def __init__(self, ranks: Ranks, page: ControlPage, faults: Faults) -> None:
        self.ranks = ranks
        self.page = page
        self.faults = faults
        self.started = time.monotonic()
        self._reaped_s = reaped_cpu_s()

    def describe(self) -> dict[str, Any]:
        uptime_s = time.monotonic() - self.started
        return {
            "job": self.ranks.settings.name,
            "uptime_s": uptime_s,
            "iteration": min(self.page.iterations()),
            "iteration_ms": spread(self.page.recent_iterations_ms(0)),
            "cpu_cores": self._cpu_seconds() / max(1e-9, uptime_s),
            "ranks": [self._describe_rank(rank) for rank in self.ranks.numbers],
            "faults": [asdict(fault) for fault in self.faults.found],
        }

    def _describe_rank(self, rank: int) -> dict[str, Any]:
        process = self.ranks.processes[rank]
        return {
            "rank": rank,
            "node": f"node{self.ranks.layout.node_of(rank)}",
            "pid": process.pid,
            "is_alive": process.poll() is None,
            "state": STATES[self.page.read_rank(rank, "state")],
        } | {name: self.page.read_rank(rank, name) for name in RANK_COUNTERS}

    def _cpu_seconds(self) -> float:
        """Of the ranks: those that live by /proc, those that ended by what the kernel added up for their parent."""
        ticks = 0
        for pid in self.ranks.pids:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK") + reaped_cpu_s() - self._reaped_s

    def opening_line(self) -> str:
        layout, links = self.ranks.layout, self.ranks.links
        return (
            f"Job {self.ranks.settings.name}: {layout.n_ranks} ranks on {layout.n_nodes} nodes "
            f"(tp {layout.tp}, pp {layout.pp}, dp {layout.dp}), {self.ranks.settings.transport} over "
            f"{'paced sockets' if links.is_paced else 'namespaces and tbf'}, "
            f"{'traced' if self.ranks.plugin else 'not traced (no plugin)'}, run folder {self.ranks.run_folder}"
        )

    def progress_line(self) -> str:
        now = self.describe()
        timing = now["iteration_ms"]
        active = ", ".join(f"{fault.fault} on rank {fault.rank}" for fault in self.faults.active())
        return (
            f"iteration {now['iteration']}, {timing['median']:.1f} ms ± {timing['mad']:.2f} (MAD), "
            f"{now['cpu_cores']:.2f} cores" + (f", faults: {active}" if active else "")
        )


def reaped_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spread(values: list[float]) -> dict[str, float]:
    """Median and median absolute deviation; zeros when there is nothing yet."""
    if not values:
        return {"median": 0.0, "mad": 0.0, "n": 0}
    middle = statistics.median(values)
    return {"median": middle, "mad": statistics.median(abs(v - middle) for v in values), "n": len(values)}
