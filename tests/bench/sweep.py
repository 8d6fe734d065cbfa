"""How long the regular look at 20 jobs takes, by the two processes of a shipped worker.

`python -m tests.bench.sweep [--jobs 20] [--sweeps 3] [--workers 2]`. Twenty jobs of 62 nodes (496 GPUs), 1,240 in all, sent
through ingest's own application into a PostgreSQL of its own; ten seconds of data arrive between two sweeps. `s` is the
median; the first sweep, by a worker that has just started and knows no roster yet, is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from statistics import median

from tests.bench.ingest import Machine, say
from tests.bench.rca import child


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sweep", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=3, help="measured ones, after the first")
    parser.add_argument("--workers", type=int, default=2, help="processes that look, as a worker has by default")
    parser.add_argument("--folder", type=Path, help="where the database lies; default: the system's")
    chosen = parser.parse_args()
    with Machine(chosen.folder, n_ingests=0) as machine:
        say(f"{chosen.jobs} jobs: simulating one, storing it under every name, looking at all")
        found = child(machine, "sweep_looks", str(chosen.jobs), str(chosen.sweeps), str(chosen.workers))
    first, *later = found["wall_s"]
    say(f"{'first sweep':>20}  {first:.2f} s")
    for number, (wall_s, cpu_s) in enumerate(zip(later, found["cpu_s"][1:], strict=True), 2):
        say(f"{f'sweep {number}':>20}  {wall_s:.2f} s, {cpu_s:.2f} s of a processor in the workers")
    said = {"jobs": chosen.jobs, "s": round(median(later), 3), "first_s": round(first, 3), "nodes": found["nodes"]}
    said["workers"] = chosen.workers
    said["cpu_s"] = round(median(found["cpu_s"][1:]), 3)
    print(json.dumps({"bench": "sweep", "cores": os.cpu_count(), **said}))


if __name__ == "__main__":
    main()
