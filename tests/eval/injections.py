"""Accuracy suite `injections`: the paper's seven faults (Mycroft §7.1) on random victims, live and simulated.

Live: a testbed job of its own per case (2 × 2 × 2 on four nodes) under four agents and a running stack, severities from the
evaluation's fault table, scored from the REST API as in `spine`. Simulated: the same seven on TP 8 × PP 2 × DP 2 over four
machines, as in the paper, scored as in `localization`. Run by `make eval SUITE=injections [SEED=n]`; the last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nccl_instrument.simulate.bar import Bar
from nccl_instrument.simulate.layout import Layout
from tests.eval.injections_live import INJECTIONS, Refused
from tests.eval.localization_cases import draw_case
from tests.eval.localization_report import summary as simulated_summary
from tests.eval.localization_report import table
from tests.eval.localization_run import run_case as run_simulated
from tests.eval.scoring import Truth
from tests.eval.spine import CaseResult, describe, follow, summary, training, wait_for_data
from tests.eval.stack import RunningStack

REPEATS: Final = 3
TRAIN_SECONDS: Final = 30.0  # a slowdown is told from what was usual before it
GIVE_UP_SECONDS: Final = 60.0
RANKS: Final = 8
PAPER: Final = Layout(tp=8, pp=2, dp=2, ranks_per_node=8, nics_per_node=4)
SIMULATED: Final = {
    "nic_down": "nic_down", "nic_limit": "nic_limited", "slow_copies": "gpu_pcie_slow", "slow_compute": "gpu_slow",
    "background_compute": "background_compute", "background_traffic": "background_traffic", "proxy_sleep": "proxy_sleeps",
}  # fmt: skip
"""Live fault → the simulator's."""


def run_case(stack: RunningStack, fault: str, victim: int, draw: random.Random, name: str) -> CaseResult:
    """Inject `fault` on `victim` of a fresh job and score what the console says of it."""
    with training(stack, name) as job:
        wait_for_data(stack, name)
        time.sleep(TRAIN_SECONDS)
        early = stack.incidents(name)
        injected_at = time.time()
        with INJECTIONS[fault](job, victim, draw) as (ranks, amount):
            result = CaseResult(Truth(fault, frozenset(ranks)), verdicts=[f"amount {amount:.2f}"] if amount else [])
            if early:
                result.verdicts.append(f"FALSE ALARM before the fault: {early[0]['headline']}")
                return result
            return follow(stack, name, injected_at, result, GIVE_UP_SECONDS)


def run_live(
    cases: Sequence[tuple[str, int]], seed: int, windows: Path | None = None
) -> tuple[list[CaseResult], list[str], list[str]]:
    """Results, settings that were overridden, and what the testbed cannot do here. windows: where each job's newest go."""
    results, refused = [], []
    with RunningStack() as stack:
        overridden = stack.settings_overridden()
        for number, (fault, victim) in enumerate(cases, 1):
            try:
                draw = random.Random(f"{seed}/{number}")
                results.append(run_case(stack, fault, victim, draw, f"injections-{number}"))
                if windows:
                    windows.mkdir(parents=True, exist_ok=True)
                    _save_window(stack, f"injections-{number}", windows / f"{seed}-{number}-{fault}.npz")
            except Refused as reason:
                refused.append(f"{fault}: {reason}")
                print(f"[{number}/{len(cases)}] {refused[-1]}", flush=True)
                continue
            print(describe(number, len(cases), results[-1]), flush=True)
    return results, overridden, refused


def _save_window(stack: RunningStack, job: str, path: Path) -> None:
    """For `python -m rca`: of the job's incident, where there is one."""
    incidents = stack.incidents(job)
    stack.manage("save_window", str(incidents[0]["number"]) if incidents else job, str(path))


def run_paper(faults: Sequence[str], repeats: int, seed: int) -> dict[str, Any]:
    """The same faults simulated on the paper's 32 GPUs."""
    bar, rows = Bar(len(faults) * repeats, "simulated cases"), []
    for number in range(len(faults) * repeats):
        name = SIMULATED[faults[number // repeats]]
        case = draw_case(seed, PAPER.n_ranks, number, "the paper's seven", name, PAPER)
        rows.append(run_simulated(case, lambda share, done=number: bar.tell(done + share)))  # type: ignore[misc]
    bar.end()
    print(table([{**row, "command": "(simulated part of injections)"} for row in rows]), flush=True)
    return simulated_summary(rows, seed, overridden=[])


def main() -> int:
    chosen = parser().parse_args()
    faults = chosen.faults.split(",")
    draw = random.Random(chosen.seed)
    cases = [(fault, draw.randrange(RANKS)) for fault in faults for _ in range(chosen.repeats)]
    draw.shuffle(cases)
    cases = cases[: chosen.cases] if chosen.live else []
    found: dict[str, Any] = {}
    if chosen.simulated:
        print(f"injections: the paper's layout simulated, seed {chosen.seed}", flush=True)
        found = run_paper(faults, chosen.repeats, chosen.seed)
    print(f"injections: {len(cases)} live cases, seed {chosen.seed}, about {1.5 * len(cases):.0f} minutes", flush=True)
    results, overridden, refused = run_live(cases, chosen.seed, chosen.windows) if cases else ([], [], [])
    said = summary(results, "injections", chosen.seed, overridden)
    keys = (
        "cases",
        "rank_level",
        "machine_level",
        "component_right",
        "tied",
        "wrongly_blamed",
        "misjudged",
        "detect_s",
    )
    print(json.dumps({**said, "refused": refused, "simulated": {key: found.get(key) for key in keys}}))
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, default=os.environ.get("SEED") or random.randrange(10**6))
    made.add_argument("--repeats", type=int, default=REPEATS)
    made.add_argument("--cases", type=int, help="so many of the live cases only")
    made.add_argument("--faults", default=",".join(INJECTIONS), help="comma-separated, for a shorter run")
    made.add_argument("--windows", type=Path, help="folder for the window of each live case")
    made.add_argument("--live", action=argparse.BooleanOptionalAction, default=True)
    made.add_argument("--simulated", action=argparse.BooleanOptionalAction, default=True)
    return made


if __name__ == "__main__":
    sys.exit(main())
