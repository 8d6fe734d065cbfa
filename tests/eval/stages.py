"""Which stage, which rank, how sure: StageFrontier's experiments, by the code that runs in production with shipped settings.

Rows of the mechanistic model (stages_model.py), of the simulator, of live jobs of torch over gloo (--live N seeds of each), of
the same jobs under torch.profiler and HTA (--profiled N, E9), and what recording costs them (--overhead N blocks, E1). Every
row runs as usual, then under its fault; only the windows under the fault are scored. The last line is one JSON object (keys:
evaluation.md). A progress bar says how long the rest takes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rca.frontier.summaries import SUMMARIES
from rca.settings import DEFAULT, limits
from tests.bench.stages_overhead import BLOCKS, overhead, said
from tests.eval.stages_cases import POSITIVE, SEEDS, Case, cases
from tests.eval.stages_job import PYTHON
from tests.eval.stages_live import live_rows
from tests.eval.stages_profiled import profiled_rows, profiled_summary, profiled_table
from tests.eval.stages_progress import Progress
from tests.eval.stages_rows import Row, count, row
from tests.eval.stages_simulated import simulated_rows, simulated_summary

THRESHOLDS = (0.70, 0.75, 0.80, 0.85, 0.90)
FORWARD_LABELS = {"forward_device": "forward_device_supported", "forward_host": "forward_host_overhead_suspected"}
TAKES_S = {"model": 0.5, "simulated": 16.0, "live": 780.0, "profiled": 60.0, "overhead": 8.0}
"""Seconds that a row, a seed or a block of a part takes on two cores, for the progress bar."""


@dataclass
class Ran:
    """What was run, and what could not be."""

    rows: list[Row]
    simulated: list[dict[str, Any]] = field(default_factory=list)
    live: list[Row] = field(default_factory=list)
    profiled: list[dict[str, Any]] = field(default_factory=list)
    overhead: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)


def main() -> int:
    chosen, began = parser().parse_args(), time.monotonic()
    seed = int(chosen.seed)
    families = set(filter(None, chosen.families.split(",")))
    planned = [one for one in cases(seed, chosen.seeds) if not families or one.family in families]
    print(
        f"seed {seed}: {len(planned)} rows of the model, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        flush=True,
    )
    ran = run_all(planned, seed, chosen)
    took_s = round(time.monotonic() - began)
    print(told(ran))
    print(f"{took_s} s in all, load {os.getloadavg()[0]:.1f}")
    print(
        json.dumps(
            {
                **summary(ran.rows, seed),
                "settings_overridden": overridden([*ran.rows, *ran.live]),
                **more_of(ran),
                "failed": ran.failed,
                "took_s": took_s,
            }
        )
    )
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", default=os.environ.get("SEED") or random.randrange(10**6))
    made.add_argument("--seeds", type=int, default=SEEDS, help="seeds of each row of the model")
    made.add_argument("--families", default="", help="of these families only, comma-separated")
    made.add_argument("--live", type=int, default=1, help="seeds of each live job; 0: none")
    made.add_argument("--simulated", type=int, default=5, help="seeds of each simulated job (four rows each); 0: none")
    made.add_argument("--profiled", type=int, default=3, help="seeds of each job under torch.profiler (E9); 0: none")
    made.add_argument("--overhead", type=int, default=BLOCKS, help="blocks of turns of each job (E1); 0: none")
    return made


def run_all(planned: Sequence[Case], seed: int, chosen: argparse.Namespace) -> Ran:
    """Every part, one after the other; live jobs beside each other, E1 alone."""
    n = {"model": len(planned)} | {part: getattr(chosen, part) for part in TAKES_S if part != "model"}
    bar = Progress({part: seconds * n[part] for part, seconds in TAKES_S.items()})
    ran = Ran(run_model(planned, partial(bar.tell, "model")))
    ran.simulated = simulated_rows(seed, chosen.simulated, partial(bar.tell, "simulated"))
    with tempfile.TemporaryDirectory(prefix="diogenes-stages-") as folder:
        ran.live, failed = live_rows(Path(folder), seed, chosen.live, partial(bar.tell, "live"))
        ran.profiled, more = profiled_rows(Path(folder), seed, chosen.profiled, partial(bar.tell, "profiled"))
        ran.failed = [*failed, *more]
    if chosen.overhead and PYTHON.exists():
        ran.overhead = overhead(chosen.overhead, partial(bar.tell, "overhead"))
    bar.end()
    return ran


def run_model(planned: Sequence[Case], tell: Callable[[float, str], None]) -> list[Row]:
    """Every row."""
    rows = []
    for done, case in enumerate(planned, 1):
        rows.append(row(case))
        tell(done / len(planned), case.title)
    return rows


def told(ran: Ran) -> str:
    """Everything for a reader."""
    parts = [table(ran.rows), thresholds_table(ran.rows), baselines_table(of(ran.rows, "e3")), families_table(ran.rows)]
    if ran.live:
        parts += ["live over gloo, 8 ranks", table(ran.live)]
    if ran.profiled:
        parts.append(profiled_table(ran.profiled))
    if ran.overhead:
        parts += [*map(said, ran.overhead["e1"]), f"E1: {ran.overhead['e1_verdict']}, load {ran.overhead['e1_load']}"]
    return "\n\n".join([*parts, *(f"NOT RUN: {one}" for one in ran.failed)])


def more_of(ran: Ran) -> dict[str, Any]:
    """Keys of the parts beside the model."""
    return {
        **simulated_summary(ran.simulated), **live_summary(ran.live), **profiled_summary(ran.profiled), **ran.overhead
    }  # fmt: skip


def of(rows: Sequence[Row], *families: str) -> list[Row]:
    return [one for one in rows if one.kind in families]


def summary(rows: Sequence[Row], seed: int) -> dict[str, Any]:
    """The suite's JSON object."""
    positive, e3 = of(rows, *POSITIVE), of(rows, "e3")
    controls, sub, healthy = of(rows, "control"), of(rows, "subthreshold"), of(rows, "no_fault")
    sizes = [len(one.candidates(DEFAULT.stage_candidates)) for one in positive]
    device, fused = [one for one in e3 if one.is_device], e3
    return {
        "suite": "stages", "seed": seed, "settings_overridden": overridden(rows),
        "rows": len(positive), "top1": count(positive, 1), "top2": count(positive, 2),
        "candidate_hit": sum(one.truth in one.candidates(DEFAULT.stage_candidates) for one in positive),
        "avg_candidates": round(sum(sizes) / max(len(sizes), 1), 2), "e3_rows": len(e3), "e3_top1": count(e3, 1),
        "e3_top2": count(e3, 2), "fused_rows": len(fused), "fused_stage_top1": count(fused, 1),
        "fused_top1": sum(one.fused == one.truth for one in fused),
        "fused_by_ops_top1": sum(one.by_ops == one.truth for one in fused),
        "fused_rank": sum(one.last == one.rank for one in fused), "stage_rank": sum(one.leader == one.rank for one in fused),
        "forward_device_supported": sum("forward_device_supported" in one.labels for one in device),
        "forward_device_rows": len(device), "controls": len(controls),
        "controls_routed": sum(one.truth in one.ranked()[:2] or one.is_strong for one in controls),
        "subthreshold": len(sub), "subthreshold_wrong": sum(one.is_strong for one in sub),
        "no_fault_rows": len(healthy), "no_fault_windows": sum(len(one.windows) for one in healthy),
        "false_strong_labels": sum(one.is_strong for one in healthy),
        "false_moved": sum(window.moved.usual_s > 0 and window.moved.verdict in ("routed", "unlocalised")
                           for one in healthy for window in one.windows),
        "recovered": sum(one.has_recovered for one in of(rows, "e6")), "recovered_of": len(of(rows, "e6")),
        "baselines": baselines(e3), "thresholds": thresholds(positive), "forward": forward_families(e3),
    }  # fmt: skip


def live_summary(live: Sequence[Row]) -> dict[str, Any]:
    if not live:
        return {"live_rows": 0}
    positive = of(live, *POSITIVE)
    families = {name: of(live, name) for name in POSITIVE if of(live, name)}
    return {
        "live_families": {
            name: {"rows": len(held), "top1": count(held, 1), "top2": count(held, 2)} for name, held in families.items()
        },
        "live_rows": len(positive), "live_top1": count(positive, 1), "live_top2": count(positive, 2),
        "live_controls": len(of(live, "control")),
        "live_controls_routed": sum(one.truth in one.ranked()[:2] or one.is_strong for one in of(live, "control")),
        "live_no_fault": len(of(live, "no_fault")),
        "live_false_strong_labels": sum(one.is_strong for one in of(live, "no_fault")),
    }  # fmt: skip


def overridden(rows: Sequence[Row]) -> list[str]:
    """Settings in which any row was judged by other than the shipped ones."""
    shipped = {name: limit.default for name, limit in limits().items()}
    used = [one.settings.thresholds() for one in rows]
    return sorted({name for held in used for name, default in shipped.items() if held[name] != default})


def forward_families(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Forward on the device and on the host (Table 5): what the host's clock names, and what device times say."""
    found = {}
    for where, label in FORWARD_LABELS.items():
        held = [one for one in rows if one.true.where == where]
        found[where] = {
            "rows": len(held), "top1": count(held, 1), "top2": count(held, 2),
            label: sum(label in one.labels for one in held),
        }  # fmt: skip
    return found


def families_table(rows: Sequence[Row]) -> str:
    """As Table 5."""
    lines = ["forward by the host's clock and by the device's"]
    for where, one in forward_families(of(rows, "e3")).items():
        label = FORWARD_LABELS[where]
        lines.append(
            f"{where:16} top-1 {one['top1']}/{one['rows']}  top-2 {one['top2']}/{one['rows']}  {label} {one[label]}"
        )
    return "\n".join(lines)


def baselines(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The dashboards' summaries on the same windows (Table 4)."""
    found = {}
    for name in SUMMARIES:
        sets = [one.summary_candidates(name, DEFAULT.stage_candidates) for one in rows]
        found[name] = {
            "top1": sum(one.truth in one.summary(name)[:1] for one in rows),
            "top2": sum(one.truth in one.summary(name)[:2] for one in rows),
            "candidate_hit": sum(one.truth in held for one, held in zip(rows, sets, strict=True)),
            "avg_candidates": round(sum(map(len, sets)) / max(len(sets), 1), 2),
        }
    return found


def thresholds(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Candidate sets at other thresholds (Table 15)."""
    found = {}
    for cumulative in THRESHOLDS:
        sets = [one.candidates(cumulative) for one in rows]
        found[f"{cumulative:.2f}"] = {
            "hit": sum(one.truth in held for one, held in zip(rows, sets, strict=True)), "rows": len(rows),
            "avg": round(sum(map(len, sets)) / max(len(sets), 1), 2), "max": max(map(len, sets), default=0),
        }  # fmt: skip
    return found


def table(rows: Sequence[Row]) -> str:
    """A line for every kind of row."""
    lines = [
        f"{'row':44} {'rows':>4} {'top-1':>6} {'top-2':>6} {'hit':>5} {'cand.':>6} {'fused':>6} {'rank':>5} {'strong':>6} moved"
    ]
    for title in dict.fromkeys(one.title for one in rows):
        same = [one for one in rows if one.title == title]
        sets = [one.candidates(DEFAULT.stage_candidates) for one in same]
        moved = sum(window.moved.verdict in ("routed", "unlocalised") for one in same for window in one.windows)
        lines.append(
            f"{title:44} {len(same):4} {count(same, 1):6} {count(same, 2):6}"
            f" {sum(one.truth in held for one, held in zip(same, sets, strict=True)):5}"
            f" {sum(map(len, sets)) / len(sets):6.2f} {sum(one.fused == one.truth for one in same):6}"
            f" {sum(one.named == one.rank for one in same):5} {sum(one.is_strong for one in same):6} {moved}"
        )
    return "\n".join(lines)


def thresholds_table(rows: Sequence[Row]) -> str:
    found = thresholds(of(rows, *POSITIVE))
    lines = [
        f"{name}: hit {one['hit']}/{one['rows']}, {one['avg']} stages, at most {one['max']}"
        for name, one in found.items()
    ]
    return "candidate threshold\n" + "\n".join(lines)


def baselines_table(rows: Sequence[Row]) -> str:
    n, found = len(rows), baselines(rows)
    ours = f"{'frontier':24} top-1 {count(rows, 1)}/{n}  top-2 {count(rows, 2)}/{n}"
    lines = [
        f"{name:24} top-1 {one['top1']}/{n}  top-2 {one['top2']}/{n}  hit {one['candidate_hit']}/{n}"
        for name, one in found.items()
    ]
    return "\n".join(["E3 by summary", ours, *lines])


if __name__ == "__main__":
    sys.exit(main())
