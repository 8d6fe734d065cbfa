"""Starts a live DDP job over gloo whose ranks record their stages (torch_jobs/stages.py), for the suite `stages`.

    .venv/bin/python -m tests.eval.stages_job --out FOLDER --scenario data --ranks 8 --hidden-rank 3 --delay-ms 120

Every rank leaves FOLDER/rank-R.json with its steps; what was done to whom is in FOLDER/truth.json, which the analysis never
reads. --help has the rest. torch lives in an environment of its own, which the Makefile makes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.stage_schema import Schema

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".venv-torch" / "bin" / "python"
SCRIPT: Final = Path(__file__).with_name("torch_jobs") / "stages.py"


class JobFailed(RuntimeError):
    """The job did not train; the message holds the end of what it said."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the ranks recorded in the measured steps. durations_s: (T, R, S); wall_s, overlap_s: (T, R); steps: (T,).

    sides: (n, 4) rank, step, channel, ns (-1: not ready). repeats, flags: (T, R). blocks: of each rank, (block, is it
    recorded, seconds).
    """

    schema: Schema
    steps: npt.NDArray[np.int64]
    durations_s: npt.NDArray[np.float64]
    wall_s: npt.NDArray[np.float64]
    overlap_s: npt.NDArray[np.float64]
    repeats: npt.NDArray[np.int64]
    flags: npt.NDArray[np.int64]
    sides: npt.NDArray[np.int64]
    blocks: list[list[list[float]]]
    counts: list[dict[str, int]]


def run_job(folder: Path, *arguments: str, **environment: str) -> Recorded:
    """Run the job with these command line arguments and read what it left. Raises JobFailed."""
    done = subprocess.run(
        [str(PYTHON), str(SCRIPT), "--out", str(folder), *arguments], env=surroundings(**environment),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise JobFailed(f"exit status {done.returncode}: {done.stdout[-2000:]}")
    return read_recorded(folder)


def read_recorded(folder: Path) -> Recorded:
    """What a finished job left: steps behind the warm-up that every rank recorded."""
    said = sorted((json.loads(path.read_text()) for path in folder.glob("rank-*.json")), key=lambda one: one["rank"])
    of = said[0]["schema"]
    parents = tuple((part, parent) for part, parent in of["parents"])
    schema = Schema(tuple(of["stages"]), of["micro_steps"], parents, tuple(of["sides"]))
    rows = [{row[0]: row for row in one["steps"] if row[0] >= one["warmup"]} for one in said]
    steps = sorted(set.intersection(*map(set, rows)))

    def column(at: int) -> npt.NDArray[np.int64]:
        return np.array([[of_rank[step][at] for of_rank in rows] for step in steps], np.int64)

    sides = [(one["rank"], *side) for one in said for side in one["sides"] if side[0] >= one["warmup"]]
    return Recorded(
        schema, np.array(steps, np.int64), column(6) / 1e9, column(1) / 1e9, column(2) / 1e9, column(4), column(3),
        np.array(sides, np.int64).reshape(-1, 4), [one["blocks"] for one in said], [one["counts"] for one in said],
    )  # fmt: skip


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a job: no launcher's variables of ours, and only this tree to import from."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DIOGENES_", "SLURM_", "TORCH"))}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **more}


if __name__ == "__main__":
    sys.exit(subprocess.run([str(PYTHON), str(SCRIPT), *sys.argv[1:]], env=surroundings(), check=False).returncode)
