"""From a trigger to a diagnosis at 128 to 100,000 GPUs: reading from PostgreSQL, analysing, memory, and how they grow.

`python -m tests.bench.rca [--sizes 128,1024] [--cases hang,slowdown]`. Every job is simulated and stored through ingest's
own application into a PostgreSQL of its own. Simulating takes by far the longest: minutes at 10,000 GPUs. `ranks` holds the
hang, `slowdown` the job that has become slower, whose iterations before and after must be read whole. A size that would not
fit into the machine's memory is left out and said.

100,000 GPUs are ten copies of 10,000 side by side: their window is laid out and analysed without a database (rca_tiled.py), and
`read_s` is null. `--store-all` stores them as well, which takes an hour of two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.ingest import Machine, say
from tests.bench.rca_jobs import LAYOUTS

SIZES = tuple(LAYOUTS)
CASES = ("hang", "slowdown")
MEMORY_SHARE = 0.7
"""Of what the machine has free: a job that is expected to need more is not tried."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rca", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="GPUs, with commas between them")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--folder", type=Path, help="where the database lies; default: the system's")
    parser.add_argument("--times", type=int, default=3, help="how often each is read and analysed; the median counts")
    parser.add_argument("--store-all", action="store_true", help="store 100,000 GPUs as well, batch by batch")
    chosen = parser.parse_args()
    found: dict[str, dict[str, dict[str, Any]]] = {case: {} for case in CASES}
    for size in sorted(int(size) for size in chosen.sizes.split(",")):
        for case in chosen.cases.split(","):
            found[case][str(size)] = measure(size, case, chosen, found[case])
    print("\n".join(table(found)))
    slowdown = {size: one for size, one in found["slowdown"].items() if one}
    print(json.dumps({"bench": "rca", "cores": os.cpu_count(), "ranks": found["hang"], "slowdown": slowdown}))


def measure(size: int, case: str, chosen: argparse.Namespace, smaller: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What one job of that size takes; {} when it would not fit."""
    expected_mb = max((one["mb"] * size / int(gpus) for gpus, one in smaller.items() if one), default=0.0)
    if expected_mb > MEMORY_SHARE * free_mb():
        say(f"{size} GPUs, {case}: left out, it would take about {expected_mb / 1000:.0f} GB of memory")
        return {}
    n_copies = 1 if chosen.store_all else LAYOUTS[size][3]
    say(f"{size} GPUs, {case}: simulating and storing" + (f" one of {n_copies} parts" if n_copies > 1 else ""))
    with Machine(chosen.folder, n_ingests=0) as machine:
        stored = child(machine, "rca_store", str(size), case, *(["one part"] if n_copies > 1 else []))
        say(f"{stored['batches']} batches stored in {stored['stored_s']:.0f} s")
        words = ["rca_read", case, str(stored["onset_ns"]), str(stored["usual_s"])]
        if n_copies > 1:
            window = machine.folder / "window.npz"
            child(machine, *words, str(window))
            words = ["rca_tiled", str(window), str(n_copies)]
        runs = [child(machine, *words) for _ in range(chosen.times)]
    runs.sort(key=lambda run: (run["read_s"] or 0.0) + run["analyse_s"])
    median = runs[len(runs) // 2]
    cpu = f"{median['read_cpu_s']} and {median['analyse_cpu_s']} s of a processor"
    read = "not read" if median["read_s"] is None else f"read {median['read_s']} s"
    say(f"{size} GPUs, {case}: {read}, analysed {median['analyse_s']} s ({cpu}), {median['mb']} MB")
    return median


def child(machine: Machine, module: str, *words: str) -> dict[str, Any]:
    """What a process of its own says in its last line."""
    argv = [sys.executable, "-m", f"tests.bench.{module}", *words]
    done = subprocess.run(argv, env={**os.environ, **machine.env}, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def table(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """One line per size; growth of reading and of analysing: times as long as at the size before, for times as many GPUs,
    of processor time."""
    lines = [f"{'':>10} {'GPUs':>7} {'read s':>8} {'analyse s':>10} {'cpu s':>14} {'MB':>7} {'growth':>22}"]
    for case, sizes in found.items():
        before: tuple[int, dict[str, Any]] | None = None
        for gpus, one in sizes.items():
            if not one:
                continue
            read = "-" if one["read_s"] is None else f"{one['read_s']:.2f}"
            cpu = f"{one['read_cpu_s']:.2f} + {one['analyse_cpu_s']:.2f}"  # what else runs on the machine counts less in it
            growth = grown(one, before[1], int(gpus) / before[0]) if before else ""
            lines.append(
                f"{case:>10} {gpus:>7} {read:>8} {one['analyse_s']:10.2f} {cpu:>14} {one['mb']:7} {growth:>22}"
            )
            before = int(gpus), one
    return lines


def grown(one: dict[str, Any], before: dict[str, Any], times: float) -> str:
    """How many times as long reading and analysing take, for so many times as many GPUs."""
    said = [
        f"{one[name] / before[name]:.1f}" if one[name] and before[name] else "-"
        for name in ("read_cpu_s", "analyse_cpu_s")
    ]
    return f"{' and '.join(said)} for {times:.1f}"


def free_mb() -> float:
    words = Path("/proc/meminfo").read_text().split()
    return int(words[words.index("MemAvailable:") + 1]) / 1024


if __name__ == "__main__":
    main()
