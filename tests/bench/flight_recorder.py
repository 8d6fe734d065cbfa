"""Our analysis of Flight Recorder dumps beside torchfrtrace's, on the same dumps, in the same run.

`python -m tests.bench.flight_recorder [--ranks 8,64,256,1024]`; needs torch 2.13.0 (`make bench` installs it). Dumps are made as
torch writes them for NCCL: 2,000 entries a rank over the world, tensor-parallel and data-parallel groups, every one over but
the last, which one rank has not entered. Both tools run as a user would run them, a process each, once before they are
measured, so that both find their modules compiled as an installed package is. Medians by wall clock of runs that take turns;
cpu_s is the processor time of the process and its children, which says more on a busy machine, mb their peak memory; `agree`
says that both name that rank.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

RANKS, ENTRIES, TP = (8, 64, 256, 1024), 2_000, 8
REPEATED_BELOW, REPEATS = 128, 3
FRAMES = [
    {"name": f"call_{depth}", "filename": f"/srv/train/layer_{depth}.py", "line": 10 + depth} for depth in range(12)
]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flight_recorder", description=__doc__)
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)), help="sizes, with commas between them")
    sizes = [int(size) for size in parser.parse_args().ranks.split(",")]
    torchfrtrace = Path(__file__).resolve().parents[2] / ".venv-torch" / "bin" / "torchfrtrace"
    found: dict[str, dict[str, Any]] = {}
    for n_ranks in sizes:
        with tempfile.TemporaryDirectory(prefix="diogenes-fr-") as name:
            print(f"{n_ranks} ranks: writing dumps", flush=True)
            stuck = write_dumps(Path(name), n_ranks)
            repeats = REPEATS if n_ranks < REPEATED_BELOW else 1
            found[str(n_ranks)] = compare(Path(name), stuck, torchfrtrace, repeats)
            print(f"{n_ranks:>6} ranks  {found[str(n_ranks)]}", flush=True)
    print(json.dumps({"bench": "flight_recorder", "cores": os.cpu_count(), "entries": ENTRIES, "ranks": found}))


def compare(folder: Path, stuck: int, torchfrtrace: Path, repeats: int) -> dict[str, Any]:
    """Both tools' times, memory and answers; theirs are null where torch is not installed."""
    mine = [sys.executable, "-m", "rca", "bundle", "--json", str(folder)]
    theirs = [str(torchfrtrace), "--prefix", "dump_", str(folder)]
    commands = {"ours": mine, **({"torchfrtrace": theirs} if torchfrtrace.exists() else {})}
    with tempfile.TemporaryDirectory(prefix="diogenes-pyc-") as compiled:
        warm_up(commands, compiled)
        runs = [{who: Measured(argv, compiled) for who, argv in commands.items()} for _ in range(repeats)]
    row: dict[str, Any] = {}
    for who in ("ours", "torchfrtrace"):
        those = [run[who] for run in runs if who in run]
        row[f"{who}_s"] = round(median(one.seconds for one in those), 2) if those else None
        row[f"{who}_cpu_s"] = round(median(one.cpu_seconds for one in those), 2) if those else None
        row[f"{who}_mb"] = round(max(one.mb for one in those)) if those else None
    answers = [json.loads(run["ours"].out)["diagnosis"]["findings"] for run in runs]
    row["ours_right"] = all(bool(answer) and answer[0]["culprits"] == [stuck] for answer in answers)
    if len(commands) == 1:
        return {**row, "agree": None}
    named = [one.status == 0 and str(stuck) in one.out + one.err for one in (run["torchfrtrace"] for run in runs)]
    ratios = {
        "ratio": row["torchfrtrace_s"] / row["ours_s"],
        "cpu_ratio": row["torchfrtrace_cpu_s"] / row["ours_cpu_s"],
    }
    return {**row, "agree": row["ours_right"] and all(named), **{name: round(one, 1) for name, one in ratios.items()}}


def warm_up(commands: dict[str, list[str]], compiled: str) -> None:
    """Let both compile their modules, on dumps of two ranks."""
    with tempfile.TemporaryDirectory(prefix="diogenes-fr-") as name:
        write_dumps(Path(name), 2)
        for argv in commands.values():
            Measured([*argv[:-1], name], compiled)


class Measured:
    """A command that was run: its output, its seconds, and the most memory it and its children had at once, in MB."""

    def __init__(self, argv: list[str], compiled: str) -> None:
        """compiled: a folder for our compiled modules; torch's were compiled when it was installed."""
        settings = {"PYTHONDONTWRITEBYTECODE": ""} | ({"PYTHONPYCACHEPREFIX": compiled} if "rca" in argv else {})
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            before, began = _cpu_seconds(), time.perf_counter()
            process = subprocess.Popen(argv, stdout=out, stderr=err, env={**os.environ, **settings})
            self.mb = 0.0
            while process.poll() is None:
                self.mb = max(self.mb, _family_mb(process.pid))
                time.sleep(0.02)
            self.seconds, self.status = time.perf_counter() - began, process.returncode
            self.cpu_seconds = _cpu_seconds() - before
            out.seek(0), err.seek(0)
            self.out, self.err = out.read(), err.read()


def _cpu_seconds() -> float:
    """Of all children that have ended, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _family_mb(pid: int) -> float:
    """Resident memory of a process and its children, in MB of 2**20 bytes."""
    total = 0.0
    try:
        total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(_family_mb(int(child)) for child in (task / "children").read_text().split())
    except (OSError, IndexError, ValueError):
        pass  # it ended meanwhile
    return total


def write_dumps(folder: Path, n_ranks: int) -> int:
    """A dump per rank in `folder`; the rank that has not entered the last op of its data-parallel group."""
    stuck = n_ranks // 2 + 1
    for rank in range(n_ranks):
        (folder / f"dump_{rank}").write_bytes(pickle.dumps(_dump(rank, n_ranks, stuck), protocol=2))
    return stuck


def _dump(rank: int, n_ranks: int, stuck: int) -> dict[str, Any]:
    tp = min(TP, n_ranks // 2)
    n_dp = n_ranks // tp
    row, column = rank // tp, rank % tp
    groups = {
        "0": ("default_pg", list(range(n_ranks))),
        str(1 + row): (f"tp{row}", list(range(row * tp, (row + 1) * tp))),
        str(1 + n_dp + column): (f"dp{column}", list(range(column, n_ranks, tp))),
    }
    order = [str(1 + row)] * 6 + [str(1 + n_dp + column), "0"]
    numbers = dict.fromkeys(groups, 0)
    entries = []
    for at in range(ENTRIES):
        name = order[at % len(order)]
        numbers[name] += 1
        is_last = at == ENTRIES - 2  # an op of the data-parallel group
        if is_last and rank == stuck:
            break
        entries.append(_entry(at, name, groups[name][0], numbers[name], is_over=not is_last))
        if is_last and rank % tp == stuck % tp:
            break
    config = {name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in groups.items()}
    status = {str(at): {"last_enqueued_collective": numbers[name], "last_started_collective": numbers[name],
                        "last_completed_collective": numbers[name] - 1} for at, name in enumerate(groups)}  # fmt: skip
    return {
        "version": "2.10",
        "pg_config": config,
        "comm_lib_version": "2.27.5",
        "pg_status": status,
        "entries": entries,
    }


def _entry(at: int, group: str, desc: str, seq: int, *, is_over: bool) -> dict[str, Any]:
    created = 1_790_000_000_000_000_000 + at * 1_000_000
    return {
        "frames": FRAMES, "record_id": at, "pg_id": int(group), "process_group": (group, desc), "thread_name": "python3",
        "thread_id": "140424822115200", "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
        "profiling_name": "nccl:all_reduce", "time_created_ns": created, "input_sizes": ((1024,),), "input_dtypes": ["Float"],
        "output_sizes": ((1024,),), "output_dtypes": ["Float"], "state": "completed" if is_over else "started",
        "time_discovered_started_ns": created + 1000, "time_discovered_completed_ns": created + 9000 if is_over else None,
        "retired": is_over, "timeout_ms": 600_000, "is_p2p": False,
    }  # fmt: skip


if __name__ == "__main__":
    main()
