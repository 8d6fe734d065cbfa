"""How many transfers a second the measurement core takes, in what memory, and what it costs a work request.

`python -m tests.bench.measure`. A C loop (measure.c) feeds 2,000 queue pairs what a 400 Gbit/s NIC sends: 4 KiB a transfer, 12.2
million a second, each an event, and polls every data second. First as fast as it goes, on one thread and on as many as there
are cores, in three orders, from the likely to the hardest: messages as a NIC takes turns among 64 queue pairs, every queue pair
one transfer in turn, any queue pair next. Then in real time while another thread polls, which is where something can get lost.

events_per_s_core: polls included, per second that the kernel charged, of the hardest order; what else the machine does is not in
it, but that it emptied the caches. events_per_s_all: per second that went by. The keys with an order's name say the rest.
mb_2000_flows: the table as if all of it were touched, and the epochs at their most, as Pulse §4.3 counts; mb_resident: what the
process really took, all that finds the epochs included. MB are 2**20 bytes. ns_per_post_and_poll: what the shim in front of
libibverbs adds to a work request, a library without hardware behind it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from nccl_instrument.flows.epochs import begun_ns, cells_of
from nccl_instrument.measure.meter import EPOCH_NS, PACKED_CELL
from nccl_instrument.simulate.effects import effects_of
from nccl_instrument.simulate.faults import Scenario
from nccl_instrument.simulate.job import make_engine
from tests.eval.pulse_cases import SETTINGS

RUNS, FLOWS, SECONDS = 3, 2_000, 2
ORDERS, HARDEST = ("messages", "turn", "random"), "random"
HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "nccl_instrument" / "measure"
UPLOAD_TICKS, TICK_NS = 20, 100_000_000
TABLE_BYTES = 4 * 2**24
VERBS = FOLDER.with_name("verbs")
TESTED = HERE.parent / "nccl_instrument" / "verbs"


def main() -> None:
    subprocess.run(["make", "-s", "-C", FOLDER], check=True)
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-") as name:
        loop = _compiled(Path(name) / "loop")
        one = {order: _best(loop, 1, order) for order in ORDERS}
        all_ = {order: _best(loop, cores, order) for order in ORDERS}
        paced = {order: _run(loop, 1, order, "paced") for order in ORDERS}
        added_ns = _shim_ns(Path(name))
    runs = [*one.values(), *all_.values(), *paced.values()]
    hardest = one[HARDEST]
    report = {
        "bench": "measure", "cores": cores, "load": round(os.getloadavg()[0], 1),
        "events_per_s_core": round(hardest["events"] / hardest["cpu_s"]),
        "events_per_s_all": round(all_[HARDEST]["events"] / all_[HARDEST]["wall_s"]),
        "mb_2000_flows": max(round((TABLE_BYTES + run["pool_bytes"]) / 2**20, 1) for run in runs),
        "mb_resident": max(round(run["resident_kb"] / 1024, 1) for run in runs),
        "lost": int(sum(run["lost_bytes"] for run in runs)),
        "all_taken": all(run["taken"] for run in runs),
        "ns_per_work_request": round(hardest["cpu_s"] / hardest["events"] * 1e9, 1),
        "poll_s": round(max(run["poll_cpu_s"] for run in runs), 3),
        "upload_mb_per_s": uploaded_mb_per_s(),
        "cells_per_s": int(hardest["cells"] / SECONDS),
        "raw_mb_per_s": round(hardest["cells"] / SECONDS * PACKED_CELL.itemsize / 1e6, 1),
        "ns_per_post_and_poll": added_ns,
        **{f"events_per_cpu_s_{order}": round(run["events"] / run["cpu_s"]) for order, run in one.items()},
        **{f"events_per_cpu_s_threads_{order}": round(run["events"] / run["cpu_s"]) for order, run in all_.items()},
        **{f"cores_at_400g_{order}": round(run["cpu_s"] / SECONDS, 3) for order, run in paced.items()},
        "handed_over_at_400g": int(max(run["handed_over"] for run in paced.values())),
    }  # fmt: skip
    for key, value in report.items():
        print(f"{key:>33}  {value}")
    print(json.dumps(report))


def _compiled(path: Path) -> Path:
    sources = [HERE / "measure.c", *sorted((FOLDER / "src").glob("*.c"))]
    subprocess.run(["cc", "-O2", "-std=c11", "-pthread", "-o", path, *sources], check=True)
    return path


def _shim_ns(folder: Path) -> float:
    """Difference of medians with the shim and without it."""
    subprocess.run(["make", "-s", "-C", VERBS], check=True)
    words = ["cc", "-std=gnu11", "-O2", "-pthread", f"-I{TESTED}", f"-I{VERBS / 'src'}"]
    library = ["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", f"-Wl,--version-script={TESTED / 'behind.map'}"]
    subprocess.run([*words, *library, TESTED / "behind.c", "-o", folder / "libibverbs.so.1"], check=True)
    (folder / "libibverbs.so").symlink_to("libibverbs.so.1")
    subprocess.run([*words, HERE / "verbs_post.c", "-o", folder / "posts", "-ldl"], check=True)
    with_it, without = ([_posts_ns(folder, shim) for _ in range(RUNS)] for shim in (True, False))
    return round(statistics.median(with_it) - statistics.median(without), 1)


def _posts_ns(folder: Path, has_shim: bool) -> float:
    into = folder / "verbs"
    into.mkdir(exist_ok=True)
    libraries = [VERBS / "build", folder] if has_shim else [folder]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries)), "DIOGENES_VERBS": str(into)}
    said = subprocess.run([folder / "posts"], capture_output=True, text=True, check=True, env=environment)
    return float(said.stdout.split()[0])


def _best(loop: Path, n_threads: int, order: str) -> dict[str, float]:
    """The cheapest of RUNS runs: what else the machine does only adds."""
    return min((_run(loop, n_threads, order, "fast") for _ in range(RUNS)), key=lambda run: run["cpu_s"])


def _run(loop: Path, n_threads: int, order: str, how: str) -> dict[str, float]:
    print(f"{n_threads} threads, {order}, {how}", flush=True)
    words: list[str | Path] = [loop, str(n_threads), str(FLOWS), str(SECONDS), order, how]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return {name: float(number) for name, number in found.items()}


def uploaded_mb_per_s() -> float:
    """10**6 bytes a second of cells, of the busiest of eight NICs of a node, once the pipeline runs."""
    setting = SETTINGS["GPT-2 70B"]
    physics = replace(setting.physics, slices_every=1, traffic_rows=0)
    engine = make_engine(setting.layout, effects_of(Scenario((), 1), setting.layout, physics), 1, True)
    n_cells = np.zeros(setting.layout.ranks_per_node, np.int64)
    for tick in range(1, UPLOAD_TICKS + 1):
        engine.run(tick * TICK_NS)
        rows = engine.slices()
        for rank in range(len(n_cells)):
            mine = rows[rows["rank"] == rank]
            _, flows = np.unique(mine[["group", "peer", "channel"]], return_inverse=True)
            order = np.argsort(flows, kind="stable")
            flows, mine = flows[order].astype(np.int64), mine[order]
            begins = begun_ns(flows, mine["sent_ns"], mine["left_ns"], np.zeros(len(mine), np.int64))
            n_cells[rank] += len(cells_of(flows, begins, mine["left_ns"], mine["bytes"].astype(np.int64), EPOCH_NS))
    engine.close()
    return round(float(n_cells.max()) * PACKED_CELL.itemsize / (UPLOAD_TICKS * TICK_NS) * 1e3, 3)


if __name__ == "__main__":
    main()
