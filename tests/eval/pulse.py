"""Accuracy suite `pulse`: the failures of Pulse's Tables 3 and 4, measured byte by byte, beside what ops alone would say.

Every failure, severity and scenario, three times with random victims, simulated transfer by transfer; the answers are those of
the console's own watch. Then what the measurement itself is worth: every op cut exactly, algorithms and parallelism inferred,
the same congestion seen at other granularities (Figure 9), and some cases at the pace of time through a running server. Each
experiment is kept as a line of a file, so that a run that was interrupted goes on. Run by `make eval SUITE=pulse [SEED=n]`,
with all parts some hours; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from nccl_instrument.agent.traffic.sampling import EPOCH_NS, ROWS_PER_S
from nccl_instrument.simulate.bar import Bar
from rca.settings import DEFAULT
from tests.eval.localization import code_version
from tests.eval.parallel import in_parallel
from tests.eval.pulse_cases import REPEATS, SETTINGS, TABLE, Experiment, draw, planned
from tests.eval.pulse_exact import ops_judged
from tests.eval.pulse_granularity import inflation, told_inflation
from tests.eval.pulse_layouts import layouts_judged
from tests.eval.pulse_report import is_miss, summary, table, told
from tests.eval.pulse_run import AFTERWARDS_SECONDS, run_experiment
from tests.eval.pulse_server import latencies
from tests.eval.stack import ROOT

Row = dict[str, Any]
PARTS: Final = ("experiments", "exact", "layouts", "granularity", "latency")
LATENCY_CASES: Final = 6
GRANULARITY_CASES: Final = 4


def main() -> int:
    chosen = parser().parse_args()
    parts = chosen.parts.split(",")
    rows = _experiments(chosen) if "experiments" in parts else []
    if rows:
        print(table(rows), flush=True)
    found = summary(rows, chosen.seed, overridden_here())
    if "exact" in parts:
        found |= ops_judged(chosen.seed, is_quick=chosen.quick)
    if "layouts" in parts:
        found["parallelism"] = layouts_judged(chosen.seed, 10 if chosen.quick else chosen.layouts)
    if "granularity" in parts:
        found["granularity"] = inflation(chosen.seed, 1 if chosen.quick else GRANULARITY_CASES)
        print(told_inflation(found["granularity"]), flush=True)
    if "latency" in parts:
        found |= latencies(chosen.seed, 2 if chosen.quick else LATENCY_CASES)
    print(json.dumps({"latency_s": None, **found}))
    return 0


def overridden_here() -> list[str]:
    """Settings with which the jobs in this process are watched and measured that are not the shipped ones."""
    found = [name for name, value in shipped_unlike(DEFAULT, type(DEFAULT)()).items() if value]
    found += sorted(name for name in os.environ if name.startswith("DIOGENES_") and name != "DIOGENES_SECRET_KEY")
    budgets = {one.physics.traffic_rows for one in SETTINGS.values()} - {ROWS_PER_S}
    epochs = {one.physics.epoch_us * 1000 for one in SETTINGS.values()} - {EPOCH_NS}
    return found + ["traffic_rows_max"] * bool(budgets) + ["epoch_us"] * bool(epochs)


def shipped_unlike(used: Any, shipped: Any) -> dict[str, bool]:
    """Setting → whether what is used differs from what is shipped."""
    return {one.name: getattr(used, one.name) != getattr(shipped, one.name) for one in dataclasses.fields(shipped)}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, default=os.environ.get("SEED") or random.randrange(10**6))
    made.add_argument("--repeats", type=int, default=REPEATS, choices=range(1, REPEATS + 1))
    made.add_argument(
        "--quick", action="store_true", help="once, the mildest and worst severity, less of the other parts"
    )
    made.add_argument("--only", type=int, action="append", help="the experiment of this number; may be given again")
    made.add_argument("--failures", default="", help="of these failures only, as Table 3 calls them, comma-separated")
    made.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    made.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="experiments at a time")
    made.add_argument("--layouts", type=int, default=100, help="random layouts for parallelism")
    made.add_argument("--results", type=Path, help="file to keep experiments in, and to go on from")
    made.add_argument(
        "--after",
        type=float,
        default=AFTERWARDS_SECONDS,
        help="seconds from the first diagnosis to the last that counts",
    )
    made.add_argument("--windows", type=Path, help="folder for the window of each experiment's newest diagnosis")
    return made


def chosen_experiments(chosen: argparse.Namespace) -> list[Experiment]:
    """What is to be run."""
    failures = set(filter(None, chosen.failures.split(",")))
    unknown = failures - {row.failure for row in TABLE}
    if unknown:
        raise SystemExit(
            f"There is no failure “{min(unknown)}”; there are: {', '.join({row.failure for row in TABLE})}."
        )
    repeats = 1 if chosen.quick and not chosen.only else chosen.repeats
    plans = planned(repeats, is_quick=chosen.quick and not chosen.only)
    return [
        draw(chosen.seed, *plan)
        for plan in plans
        if (not failures or plan[1].failure in failures) and (not chosen.only or plan[0] in chosen.only)
    ]


def _experiments(chosen: argparse.Namespace) -> list[Row]:
    wanted = chosen_experiments(chosen)
    kept = chosen.results or ROOT / "var" / "eval" / f"pulse-{chosen.seed}.jsonl"
    known = {} if chosen.only else read_results(kept, code_version())
    todo = [one for one in wanted if one.number not in known]
    print(
        f"pulse: {len(wanted)} experiments, {len(wanted) - len(todo)} known from {kept}, seed {chosen.seed}", flush=True
    )
    rows = {**known, **_run_all(todo, kept, chosen)}
    return [rows[one.number] for one in wanted]


def _run_all(todo: Sequence[Experiment], kept: Path, chosen: argparse.Namespace) -> dict[int, Row]:
    """Runs every experiment; keeps each one as soon as it is known."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    bar, rows, version = Bar(len(todo), "experiments"), dict[int, Row](), code_version()
    run = partial(run_experiment, windows=chosen.windows, after_s=chosen.after)
    for row in in_parallel(run, todo, chosen.jobs):
        rows[row["number"]] = row
        with kept.open("a") as file:
            file.write(json.dumps({"code": version, **row}) + "\n")
        bar.tell(len(rows), f"{row['failure']} {row['severity']}")
        if chosen.only or is_miss(row):
            print("\n".join(told(row)), flush=True)
    bar.end()
    return rows


def read_results(kept: Path, version: str) -> dict[int, Row]:
    """Experiments that this very code has run before; what other code found says nothing about it."""
    if not kept.exists():
        return {}
    rows = [json.loads(line) for line in kept.read_text().splitlines() if line.endswith("}")]
    return {row["number"]: row for row in rows if row.pop("code") == version}


if __name__ == "__main__":
    sys.exit(main())
