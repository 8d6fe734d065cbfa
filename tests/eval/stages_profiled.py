"""E9: torch.profiler and HTA on the same live window as the recorder, all reduced to the same stages and scored by one frontier.

Of 40 captured steps the inner 20 are compared. The profiler's traces are read by our own importer, and by HTA
(HolisticTraceAnalysis), whose table of ranges is reduced here. What is measured is agreement and what each costs; the profiler's
overhead is that of a job without a fault.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from nccl_instrument.wire import encode_batch
from rca.frontier.accounting import Seconds, account
from rca.frontier.imported import read_imported
from rca.frontier.routing import candidates
from rca.settings import DEFAULT
from tests.builders import FakeJob, with_rows
from tests.eval.stages_job import PYTHON, JobFailed, Recorded, run_job, surroundings
from tests.eval.stages_rows import STAGE_OF
from tests.stages import stage_tables

SCENARIOS: Final = ("data", "comm", "forward_compute", "callback_sync")
CAPTURED, INNER, DELAY_MS, N_RANKS = 40, slice(10, 30), 180, 8
STAGE_NAME: Final = {"callback_sync": "callback", "forward_compute": "forward_host"}
HTA: Final = Path(__file__).with_name("torch_jobs") / "hta_ranges.py"
STEP: Final = "step"
Found = dict[str, Any]


def profiled_rows(
    folder: Path, seed: int, seeds: int, tell: Callable[[float, str], None]
) -> tuple[list[Found], list[str]]:
    """Every scenario so many times and as many jobs without a fault; what did not train."""
    if not PYTHON.exists() or not seeds:
        return [], []
    planned = [(number, scenario) for number in range(seeds) for scenario in (*SCENARIOS, "none")]
    rows, failed = list[Found](), list[str]()

    def run(one: tuple[int, str]) -> None:
        number, scenario = one
        try:
            rows.append(_row(folder / f"profiled-{scenario}-{number}", scenario, seed + number))
        except (JobFailed, ValueError) as error:
            failed.append(f"profiled {scenario}: {error}")
        tell((len(rows) + len(failed)) / len(planned), f"profiled {scenario}")

    with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        list(pool.map(run, planned))
    return rows, failed


def _row(folder: Path, scenario: str, seed: int) -> Found:
    folder.mkdir(parents=True)
    recorded = run_job(
        folder, "--scenario", scenario, "--ranks", str(N_RANKS), "--hidden-rank", str(seed % N_RANKS), "--delay-ms",
        str(DELAY_MS), "--seed", str(seed), "--warmup", "10", "--profile", str(CAPTURED),
    )  # fmt: skip
    traces = sorted(folder.glob("trace-*.json"))
    found = {"scenario": scenario, "overhead_pct": overhead_pct(recorded)}
    if scenario != "none":
        found |= compared(recorded, traces, STAGE_OF[STAGE_NAME.get(scenario, scenario)])
    for path in traces:  # a few megabytes each
        path.unlink()
    return found


def compared(recorded: Recorded, traces: Sequence[Path], truth: str) -> Found:
    """How the profiler's traces, by our importer and by HTA, agree with what the recorder says of the inner steps."""
    stages = list(recorded.schema.stages)
    ours = account(recorded.durations_s[:CAPTURED][INNER]).shares
    began = time.process_time()
    imported = read_imported(traces).window
    took = time.process_time() - began
    theirs = imported.durations[INNER][:, :, [imported.stages.index(one) for one in stages]]
    found: Found = {"recorder": scored(ours, stages, truth), "profiler": _against(theirs, ours, stages, truth)}
    found["profiler"]["reduce_s"] = round(took, 2)
    if (told := hta_ranges(traces, [STEP, *stages])) is not None:
        matrix = reduced(told["ranges"], len(traces), stages)
        found["hta"] = {**_against(matrix[INNER], ours, stages, truth), "reduce_s": told["s"]}
    return {**found, "packet_bytes": packet_bytes(recorded), "trace_bytes": sum(path.stat().st_size for path in traces)}


def scored(shares: Seconds, stages: Sequence[str], truth: str) -> Found:
    order = np.argsort(-shares, kind="stable")
    named = [stages[at] for at in order[:2]]
    held = [stages[at] for at in candidates(shares, DEFAULT.stage_candidates)]
    return {"top1": named[0] == truth, "top2": truth in named, "hit": truth in held, "candidates": len(held)}


def _against(durations: Seconds, ours: Seconds, stages: Sequence[str], truth: str) -> Found:
    shares = account(durations).shares
    same = bool((np.argsort(-shares)[:2] == np.argsort(-ours)[:2]).all())
    apart = round(float(np.abs(shares - ours).max()), 4)
    return {**scored(shares, stages, truth), "same_order": same, "share_difference": apart}


def hta_ranges(traces: Sequence[Path], names: Sequence[str]) -> Found | None:
    """What HTA makes of the traces; None where it is not installed."""
    done = subprocess.run(
        [str(PYTHON), str(HTA), ",".join(names), *map(str, traces)],
        env=surroundings(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and "No module named" in done.stderr:
        return None
    if done.returncode:
        raise ValueError(f"HTA: {done.stderr.strip()[-300:]}")
    found: Found = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def reduced(ranges: Sequence[Sequence[Any]], n_ranks: int, stages: Sequence[str]) -> Seconds:
    """(T, R, S) seconds of the stages inside each range `step`, the rest of it in the last one."""
    of_rank = [[one for one in ranges if one[0] == rank] for rank in range(n_ranks)]
    steps = [sorted((start, start + took) for _, name, start, took in held if name == STEP) for held in of_rank]
    found = np.zeros((min(map(len, steps)), n_ranks, len(stages)))
    for rank, held in enumerate(of_rank):
        begins = np.array([start for start, _ in steps[rank]])
        for _, name, start, took in held:
            at = int(np.searchsorted(begins, start, side="right")) - 1
            if name in stages and 0 <= at < len(found) and start < steps[rank][at][1]:
                found[at, rank, stages.index(name)] += took / 1e6
        whole = np.array([end - start for start, end in steps[rank][: len(found)]]) / 1e6
        found[:, rank, -1] = np.maximum(whole - found[:, rank, :-1].sum(axis=1), 0)
    return found


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


def profiled_summary(rows: Sequence[Found]) -> Found:
    """Keys of the suite's last line."""
    positive = [row for row in rows if row["scenario"] != "none"]
    if not positive:
        return {"profiled_rows": 0}
    overheads = [row["overhead_pct"] for row in rows if row["scenario"] == "none" and row["overhead_pct"] is not None]
    tools = dict(_tools(positive))
    return {
        "profiled_rows": len(positive), "profiled_top1": tools["recorder"]["top1"], "tools": tools,
        "share_difference_max": max(of.get("share_difference_max", 0.0) for of in tools.values()),
        "packet_bytes": int(np.median([row["packet_bytes"] for row in positive])),
        "trace_bytes": int(np.median([row["trace_bytes"] for row in positive])),
        "profiler_overhead_pct": round(float(np.median(overheads)), 1) if overheads else None,
    }  # fmt: skip


def _tools(rows: Sequence[Found]) -> Iterator[tuple[str, Found]]:
    for tool in ("recorder", "profiler", "hta"):
        held = [row[tool] for row in rows if tool in row]
        if not held:
            continue
        sizes = [one["candidates"] for one in held]
        found: Found = {"rows": len(held), **{key: sum(one[key] for one in held) for key in ("top1", "top2", "hit")}}
        found |= {"avg_candidates": round(float(np.mean(sizes)), 2), "max_candidates": max(sizes)}
        if tool != "recorder":
            found["same_order"] = sum(one["same_order"] for one in held)
            found["share_difference_max"] = max(one["share_difference"] for one in held)
            found["reduce_s"] = round(float(np.median([one["reduce_s"] for one in held])), 2)
        yield tool, found


def profiled_table(rows: Sequence[Found]) -> str:
    """As Table 6."""
    of = profiled_summary(rows)
    if not of["profiled_rows"]:
        return "E9: nothing was profiled"
    lines = [
        f"{'E9':16} {'rows':>4} {'top-1':>6} {'top-2':>6} {'hit':>4} {'cand.':>9} {'share diff.':>11} {'postproc.':>9}"
    ]
    for tool, one in of["tools"].items():
        lines.append(
            f"{tool:16} {one['rows']:4} {one['top1']:6} {one['top2']:6} {one['hit']:4}"
            f" {one['avg_candidates']:5.2f}/{one['max_candidates']:<3} {one.get('share_difference_max', 0.0):11.4f}"
            f" {one.get('reduce_s', 0.0):8.2f}s"
        )
    hta = "" if "hta" in of["tools"] else "; HTA is not installed"
    return "\n".join(lines) + (
        f"\nrecorder {of['packet_bytes'] / 1e3:.1f} kB, traces {of['trace_bytes'] / 1e6:.1f} MB; capture makes a step without"
        f" fault {of['profiler_overhead_pct']} % longer{hta}"
    )
