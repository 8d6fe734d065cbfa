"""E1: what recording stages costs live ranks, in paired blocks inside one job: recorded and not, in turns.

`python -m tests.bench.stages_overhead [BLOCKS]`. DDP over gloo on this machine; for each number of ranks and each way out
(the ring that the agent reads; the gather over a group of its own) so many pairs of turns in an order that alternates.
The interval is of whole blocks drawn again (paired.py). The paper asks for less than 3 % with the upper bound of 95 %.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench.paired import Interval, slowdown_pct
from tests.eval.stages_job import run_job

RANKS: Final = (2, 4, 8)
BLOCKS: Final = 80
STEPS: Final = 5
"""Of a turn: short ones, so that what others do on the machine falls on both of a pair or spoils that pair alone."""
BASE_MS: Final = 60.0
ROADS: Final = {"agent": ("--road", "agent"), "gather": ("--road", "gather", "--gather-steps", str(STEPS))}
"""A gather in every turn is 24 times as many as there are by default: the median pair has one."""
EVENTS: Final = ("--event-share", "0.1")


def main(blocks: int) -> None:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for road, options in ROADS.items():
        found[road] = {}
        for n_ranks in RANKS:
            slower, failed = measure(n_ranks, blocks, (*options, *EVENTS))
            found[road][str(n_ranks)] = {**{name: round(pct, 3) for name, pct in slower.items()}, "failed": failed}
            print(f"{road}, {n_ranks} ranks: {found[road][str(n_ranks)]}", flush=True)
    worst = max(of["upper95"] for roads in found.values() for of in roads.values())
    report = {
        "bench": "stages_overhead",
        "cores": os.cpu_count(),
        "blocks": blocks,
        "step_pct": found,
        "worst_upper95": worst,
    }
    print(json.dumps(report))


def measure(n_ranks: int, blocks: int, options: tuple[str, ...]) -> tuple[Interval, int]:
    """Per cent by which recorded turns last longer, and the gathers that failed."""
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-", dir="/dev/shm") as folder:
        wanted = ("--ranks", str(n_ranks), "--steps", str(STEPS), "--blocks", str(blocks), "--base-ms", str(BASE_MS))
        segments = Path(folder) / "segments"
        segments.mkdir()
        made = run_job(
            Path(folder) / "job", *wanted, *options, "--seconds-max", "1800", DIOGENES_SEGMENT_DIR=str(segments)
        )
    turns = {(block, is_recorded): seconds for block, is_recorded, seconds in made.blocks[0]}
    base, treated = ([turns[block, is_recorded] for block in range(blocks)] for is_recorded in (0.0, 1.0))
    return slowdown_pct(base, treated), sum(counts["gathers_failed"] for counts in made.counts)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else BLOCKS)
