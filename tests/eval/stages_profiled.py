"""E9: torch.profiler on the same live window as the recorder, both reduced to the same stages and scored by the same frontier.

Of 40 captured steps the inner 20 are compared. HTA reads the same Kineto traces and takes the same ranges, so its reduction is
this one; its own analyses are not compared. What is measured is agreement and what each costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from nccl_instrument.wire import encode_batch
from rca.frontier.accounting import account
from rca.frontier.imported import read_imported
from tests.builders import FakeJob, with_rows
from tests.eval.stages_job import PYTHON, JobFailed, Recorded, run_job
from tests.eval.stages_rows import STAGE_OF
from tests.stages import stage_tables

SCENARIOS: Final = ("data", "comm", "forward_host", "callback_sync")
CAPTURED, INNER, DELAY_MS, N_RANKS = 40, slice(10, 30), 180, 8
STAGE_NAME: Final = {"callback_sync": "callback"}


def profiled_rows(folder: Path, seed: int, seeds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every scenario so many times."""
    if not PYTHON.exists():
        return []
    return list(_rows(folder, seed, seeds, say))


def _rows(folder: Path, seed: int, seeds: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    for number in range(seeds):
        for scenario in SCENARIOS:
            try:
                found = _row(folder / f"profiled-{scenario}-{number}", scenario, seed + number)
            except JobFailed as error:
                say(f"profiled {scenario}: the job did not train: {error}")
                continue
            say(f"profiled {found}")
            yield found


def _row(folder: Path, scenario: str, seed: int) -> dict[str, Any]:
    folder.mkdir(parents=True)
    recorded = run_job(
        folder, "--scenario", scenario, "--ranks", str(N_RANKS), "--hidden-rank", str(seed % N_RANKS), "--delay-ms",
        str(DELAY_MS), "--seed", str(seed), "--warmup", "10", "--profile", str(CAPTURED),
    )  # fmt: skip
    traces = sorted(folder.glob("trace-*.json"))
    began = time.process_time()
    imported = read_imported(traces).window
    took = time.process_time() - began
    stages = list(recorded.schema.stages)
    theirs = imported.durations[INNER][:, :, [imported.stages.index(one) for one in stages]]
    shares, other = account(recorded.durations_s[:CAPTURED][INNER]).shares, account(theirs).shares
    truth = stages.index(STAGE_OF[STAGE_NAME.get(scenario, scenario)])
    return {
        "scenario": scenario, "top1": int(shares.argmax()) == truth, "profiler_top1": int(other.argmax()) == truth,
        "same_order": bool((np.argsort(-shares)[:2] == np.argsort(-other)[:2]).all()),
        "share_difference": round(float(np.abs(shares - other).max()), 4),
        "packet_bytes": packet_bytes(recorded), "trace_bytes": sum(path.stat().st_size for path in traces),
        "overhead_pct": overhead_pct(recorded), "reduce_s": round(took, 2),
    }  # fmt: skip


def overhead_pct(recorded: Recorded) -> float | None:
    """By how much the captured steps are longer than those after them, the slowest rank's; None without both."""
    walls = recorded.wall_s.max(axis=1)
    if len(walls) <= CAPTURED:
        return None
    return round(100 * float(np.median(walls[:CAPTURED]) / np.median(walls[CAPTURED:]) - 1), 1)


def packet_bytes(recorded: Recorded) -> int:
    """What the stage tables of the captured steps add to the node's batches."""
    rows = stage_tables(recorded.durations_s[:CAPTURED] * 1e3, schema=recorded.schema)
    job = FakeJob(ranks=N_RANKS, nodes=1)
    plain = job.batch()
    return len(encode_batch(with_rows(plain, **rows))) - len(encode_batch(plain))


def profiled_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Keys of the suite's last line."""
    if not rows:
        return {"profiled_rows": 0}
    overheads = [row["overhead_pct"] for row in rows if row["overhead_pct"] is not None]
    return {
        "profiled_rows": len(rows), "profiled_top1": sum(row["top1"] for row in rows),
        "profiler_top1": sum(row["profiler_top1"] for row in rows),
        "profiled_same_order": sum(row["same_order"] for row in rows),
        "share_difference_max": max(row["share_difference"] for row in rows),
        "packet_bytes": int(np.median([row["packet_bytes"] for row in rows])),
        "trace_bytes": int(np.median([row["trace_bytes"] for row in rows])),
        "profiler_overhead_pct": round(float(np.median(overheads)), 1) if overheads else None,
        "reduce_s": round(float(np.median([row["reduce_s"] for row in rows])), 2),
    }  # fmt: skip
