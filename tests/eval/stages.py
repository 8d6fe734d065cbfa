"""Which stage, which rank, how sure: StageFrontier's experiments, by the code that runs in production with shipped settings.

Rows of the mechanistic model (tests/eval/stages_model.py) come first; with --live N, jobs of torch's DDP over gloo follow, N
seeds of each. Every row runs as usual, then under its fault; only the windows under the fault are scored. The last line is
one JSON object (keys: evaluation.md).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rca.frontier.summaries import SUMMARIES
from rca.settings import DEFAULT, limits
from tests.eval.stages_cases import POSITIVE, SEEDS, Case, cases
from tests.eval.stages_live import live_rows
from tests.eval.stages_profiled import profiled_rows, profiled_summary
from tests.eval.stages_rows import Row, count, row
from tests.eval.stages_simulated import simulated_rows, simulated_summary

THRESHOLDS = (0.70, 0.75, 0.80, 0.85, 0.90)
RECOVERED_SHARE = 0.05  # of the step time: E6's step is back where it was within this


def main() -> int:
    chosen = parser().parse_args()
    seed = int(chosen.seed)
    planned = [
        one for one in cases(seed, chosen.seeds) if not chosen.families or one.family in chosen.families.split(",")
    ]
    print(f"seed {seed}: {len(planned)} rows of the model, live rows with {chosen.live} seeds", flush=True)
    rows = run_model(planned)
    simulated = simulated_rows(seed, chosen.simulated, say)
    live: list[Row] = []
    profiled: list[dict[str, Any]] = []
    if chosen.live or chosen.profiled:
        with tempfile.TemporaryDirectory(prefix="diogenes-stages-") as folder:
            live = live_rows(Path(folder), seed, chosen.live, say=say)
            profiled = profiled_rows(Path(folder), seed, chosen.profiled, say=say)
    print(table(rows))
    print(thresholds_table(rows))
    print(baselines_table([one for one in rows if one.kind == "e3"]))
    if live:
        print("live DDP over gloo, 8 ranks\n" + table(live))
    print(
        json.dumps(
            {**summary(rows, seed), **simulated_summary(simulated), **live_summary(live), **profiled_summary(profiled)}
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
    made.add_argument("--profiled", type=int, default=1, help="seeds of each job under torch.profiler (E9); 0: none")
    return made


def say(said: str) -> None:
    print(said, flush=True)


def run_model(planned: Sequence[Case]) -> list[Row]:
    """Every row."""
    rows, began = [], time.monotonic()
    for done, case in enumerate(planned):
        rows.append(row(case))
        if done % 10 == 9:
            print(f"{done + 1} of {len(planned)}, {time.monotonic() - began:.0f} s: {case.title}", flush=True)
    return rows


def of(rows: Sequence[Row], *families: str) -> list[Row]:
    return [one for one in rows if one.kind in families]


def summary(rows: Sequence[Row], seed: int) -> dict[str, Any]:
    """The suite's JSON object."""
    positive, e3 = of(rows, *POSITIVE), of(rows, "e3")
    controls, sub, healthy = of(rows, "control"), of(rows, "subthreshold"), of(rows, "no_fault")
    sizes = [len(one.candidates(DEFAULT.stage_candidates)) for one in positive]
    device, fused = [one for one in e3 if one.is_device], e3
    return {
        "suite": "stages", "seed": seed, "settings_overridden": overridden(),
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
        "recovered": sum(one.recovered(RECOVERED_SHARE) for one in of(rows, "e6")), "recovered_of": len(of(rows, "e6")),
        "baselines": baselines(e3), "thresholds": thresholds(positive),
    }  # fmt: skip


def live_summary(live: Sequence[Row]) -> dict[str, Any]:
    if not live:
        return {"live_rows": 0}
    positive = of(live, *POSITIVE)
    return {
        "live_rows": len(positive), "live_top1": count(positive, 1), "live_top2": count(positive, 2),
        "live_controls": len(of(live, "control")),
        "live_controls_routed": sum(one.truth in one.ranked()[:2] or one.is_strong for one in of(live, "control")),
        "live_no_fault": len(of(live, "no_fault")),
        "live_false_strong_labels": sum(one.is_strong for one in of(live, "no_fault")),
    }  # fmt: skip


def overridden() -> list[str]:
    """Settings that differ from the shipped ones: none, for the rows are judged with DEFAULT."""
    return [name for name, limit in limits().items() if DEFAULT.thresholds()[name] != limit.default]


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
