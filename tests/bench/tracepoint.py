"""What one profiler callback costs NCCL's progress thread, beside a plugin that does nothing.

`python -m tests.bench.tracepoint`. A C loop (tracepoint.c) makes the calls; the figures are medians of RUNS runs of its
own percentiles. state: the first call of a state or step stop; repeat: the same SendPeerWait again; repeat_start: the
same receive step started again; op: one op with 16 flows, start to completion record, without its steps. kernel: one
channel's kernel begun and ended (three calls), where NCCL reports them. api_call: what the shim in front of NCCL's API
adds to one call of ncclAllReduce, a library that does nothing behind it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

RUNS, ROUNDS = 5, 20_000
HERE = Path(__file__).parent
PLUGIN_FOLDER = HERE.parents[1] / "nccl_instrument" / "plugin"
API_FOLDER = PLUGIN_FOLDER.with_name("nccl_api")
BEHIND = HERE.parent / "nccl_instrument" / "nccl_api" / "behind.c"
Figures = dict[str, dict[str, float]]


def main() -> None:
    for made in (PLUGIN_FOLDER, API_FOLDER):
        subprocess.run(["make", "-s", "-C", made, "all"], check=True)
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-", dir=_segment_folder()) as name:
        folder = Path(name)
        _compile(folder / "loop", HERE / "tracepoint.c", "-ldl")
        _compile(folder / "empty.so", HERE / "tracepoint_empty.c", "-shared", "-fPIC")
        ours = measure(folder, PLUGIN_FOLDER / "build" / "libnccl-profiler-diogenes.so")
        empty = measure(folder, folder / "empty.so")
        _compile(folder / "libnccl.so.2", BEHIND, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2")
        _compile(folder / "calls", HERE / "api_call.c", f"-L{folder}", "-l:libnccl.so.2")
        called = api_call(folder)
    show(ours, empty)
    print(
        f"a call of NCCL's API: {called['p50']} ns more with the shim before it ({called['p99']} at the 99th percentile)"
    )
    report = {
        "bench": "tracepoint",
        "cores": os.cpu_count(),
        **ours,
        "empty_ns": empty["state_ns"],
        "api_call_ns": called,
    }
    print(json.dumps(report))


def measure(folder: Path, plugin: Path) -> Figures:
    """Medians over RUNS runs, each in a fresh process with a fresh segment."""
    runs = [_run(folder, plugin) for _ in range(RUNS)]
    return {
        name: {
            quantile: round(statistics.median(run[name][quantile] for run in runs), 1) for quantile in ("p50", "p99")
        }
        for name in runs[0]
    }


def api_call(folder: Path) -> dict[str, float]:
    """What the API shim adds to a call: the difference of medians over RUNS runs with it and without."""
    with_it, without = ([_calls(folder, shim) for _ in range(RUNS)] for shim in (True, False))
    pairs = (("p50", 0), ("p99", 1))
    return {
        name: round(statistics.median(one[at] for one in with_it) - statistics.median(one[at] for one in without), 1)
        for name, at in pairs
    }


def _calls(folder: Path, has_shim: bool) -> list[float]:
    shim = {"LD_PRELOAD": str(API_FOLDER / "build" / "libdiogenes-nccl-api.so")} if has_shim else {}
    environment = {**os.environ, "DIOGENES_SEGMENT_DIR": str(folder), "LD_LIBRARY_PATH": str(folder), **shim}
    done = subprocess.run([folder / "calls"], capture_output=True, text=True, check=True, env=environment)
    for segment in folder.glob("diogenes.*"):
        segment.unlink()
    return [float(word) for word in done.stdout.split()]


def show(ours: Figures, empty: Figures) -> None:
    print(f"{'ns per call':<18}{'p50':>8}{'p99':>8}{'empty p50':>12}{'empty p99':>12}")
    for name, figures in ours.items():
        print(f"{name.removesuffix('_ns'):<18}{figures['p50']:>8}{figures['p99']:>8}", end="")
        print(f"{empty[name]['p50']:>12}{empty[name]['p99']:>12}", flush=True)


def _run(folder: Path, plugin: Path) -> Figures:
    environment = {**os.environ, "DIOGENES_SEGMENT_DIR": str(folder)}
    command = [str(folder / "loop"), str(plugin), str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    for segment in folder.glob("diogenes.*"):
        segment.unlink()
    figures: Figures = json.loads(done.stdout)
    return figures


def _compile(target: Path, source: Path, *flags: str) -> None:
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", source, "-o", target, *flags], check=True)


def _segment_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


if __name__ == "__main__":
    main()
