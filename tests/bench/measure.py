"""How many transfers a second the measurement core takes, in what memory, and what it costs a work request.

`python -m tests.bench.measure`. A C loop (measure.c) feeds 2,000 queue pairs with one data second of a 400 Gbit/s NIC: 4 KiB
a transfer, 12.2 million in all, each an event; then the poll. On one thread, then on as many as there are cores. MB are
2**20 bytes, as in Pulse §4.3. ns_per_post_and_poll: what the shim in front of libibverbs adds to a work request, a library
without hardware behind it.
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

RUNS, FLOWS, TRANSFERS = 3, 2_000, 12_200_000
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
        one, all_ = _run(loop, 1), _run(loop, cores)
        added_ns = _shim_ns(Path(name))
    mb = round((TABLE_BYTES + one["pool_bytes"]) / 2**20, 1)
    report = {
        "bench": "measure", "cores": cores, "events_per_s_core": round(one["events"] / one["fed_s"]),
        "events_per_s_all": round(all_["events"] / all_["fed_s"]), "mb_2000_flows": mb,
        "lost": int(one["lost_bytes"] + all_["lost_bytes"]),
        "ns_per_work_request": round(one["fed_s"] / one["events"] * 1e9, 1), "poll_s": round(one["poll_s"], 3),
        "upload_mb_per_s": uploaded_mb_per_s(),
        "cells_per_s": int(one["cells"]), "raw_mb_per_s": round(one["cells"] * PACKED_CELL.itemsize / 1e6, 1),
        "ns_per_post_and_poll": added_ns,
    }  # fmt: skip
    for key, value in report.items():
        print(f"{key:>22}  {value}")
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


def _run(loop: Path, n_threads: int) -> dict[str, float]:
    """Medians over RUNS runs, each in a fresh process."""
    names = ("fed_s", "poll_s", "events", "lost_bytes", "pool_bytes", "cells", "failed")
    runs = []
    for number in range(RUNS):
        print(f"{n_threads} threads, run {number + 1} of {RUNS}", flush=True)
        said = subprocess.run(
            [loop, str(n_threads), str(FLOWS), str(TRANSFERS)], capture_output=True, text=True, check=True
        )
        runs.append(dict(zip(names, map(float, said.stdout.split()), strict=True)))
    return {name: statistics.median(run[name] for run in runs) for name in names}


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
