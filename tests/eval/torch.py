"""Accuracy suite `torch`: real PyTorch jobs over gloo that nobody traces, hung in six ways, scored from the REST API.

Every case is a job of its own, of 4 to 8 ranks on two nodes that are played on this machine: it trains, one agent per node
watches its recorder, a fault is put in, and the incident has to open by itself, with dumps that were asked for by
themselves. The first diagnosis and the one 30 s later count; what either has wrong is wrong. The healthy case is a long
checkpoint by rank 0 only. Run by `make eval SUITE=torch [SEED=n]`; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from console.supervisor.children import Child, Recipe, start
from tests.eval.scoring import quantiles
from tests.eval.spine import SETTLE_SECONDS, await_diagnosis, await_incident, newest_look, wait_for_data
from tests.eval.stack import RunningStack
from tests.eval.torch_cases import CULPRITS, HEALTHY, TorchCase, draw_case
from tests.eval.torch_job import TorchJob
from tests.eval.torch_scoring import NOTHING, TorchScore, score_torch, worse

REPEATS: Final = 3
TRAIN_SECONDS: Final = 15.0
GIVE_UP_SECONDS: Final = 60.0
AFTER_CHECKPOINT_SECONDS: Final = 20.0


@dataclass(slots=True)
class TorchResult:
    """What one case led to. detect_s is None when no incident opened; early: incidents before the fault."""

    case: TorchCase
    score: TorchScore = NOTHING
    detect_s: float | None = None
    n_incidents: int = 0
    early: int = 0
    verdicts: list[str] = field(default_factory=list)


@contextmanager
def training(stack: RunningStack, case: TorchCase, name: str) -> Iterator[TorchJob]:
    """A PyTorch job called `name` with an agent per node, stopped and forgotten at the end."""
    with tempfile.TemporaryDirectory(prefix="diogenes-torch-") as folder, TorchJob(case, Path(folder), name) as job:
        agents = [_agent(stack, job, node) for node in job.nodes]
        try:
            yield job
        finally:
            for agent in agents:
                agent.ask_to_stop()
            for agent in agents:
                agent.stop()


def _agent(stack: RunningStack, job: TorchJob, node: str) -> Child:
    spool = job.folder / "spool" / node
    spool.mkdir(parents=True)
    options = [
        "--server",
        stack.ingest_url,
        "--token-file",
        str(stack.agent_token_file),
        "--node",
        f"{job.name}-{node}",
    ]
    options += ["--segments", str(job.segments / node), "--spool", str(spool)]
    recipe = Recipe(f"agent-{node}", [sys.executable, "-m", "nccl_instrument.agent", *options])
    return start(recipe, job.folder / f"agent-{node}.log")


def run_case(stack: RunningStack, case: TorchCase, name: str) -> TorchResult:
    """Train, put the fault in, and score what the console says of it."""
    result = TorchResult(case)
    with training(stack, case, name) as job:
        wait_for_data(stack, name)
        time.sleep(TRAIN_SECONDS)
        result.early = len(stack.incidents(name))
        injected_at = job.inject()
        if result.early:
            result.verdicts.append(f"FALSE INCIDENT before the fault: {stack.incidents(name)[0]['headline']}")
        elif case.fault == HEALTHY:
            time.sleep(float(case.how) + AFTER_CHECKPOINT_SECONDS)
            result.verdicts += [row["headline"] for row in stack.incidents(name)]
        else:
            follow(stack, name, injected_at, result)
        result.n_incidents = len(stack.incidents(name))
    return result


def follow(stack: RunningStack, name: str, injected_at: float, result: TorchResult) -> None:
    """Wait for the incident, its first diagnosis, and the one that stands 30 s later."""
    row = await_incident(stack, name, injected_at + GIVE_UP_SECONDS)
    if row is None:
        result.verdicts.append(f"no incident; newest look: {newest_look(stack, name)}")
        return
    result.detect_s = time.time() - injected_at
    first = await_diagnosis(stack, row["number"], injected_at + GIVE_UP_SECONDS)
    if first is None:
        result.verdicts.append("an incident without a diagnosis")
        return
    time.sleep(SETTLE_SECONDS)
    last = stack.get(f"incidents/{row['number']}")
    result.score = worse(*(score_torch(result.case, seen["diagnosis"]) for seen in (first, last)))
    result.verdicts += [f"{seen['incident']['headline']} [{seen['diagnosis'].get('layer')}]" for seen in (first, last)]


def describe(number: int, n_cases: int, result: TorchResult) -> str:
    """One progress line per case."""
    says = " | ".join(dict.fromkeys(result.verdicts))
    if result.case.fault == HEALTHY:
        marks = f"{result.n_incidents} FALSE INCIDENTS" if result.n_incidents else "no incident"
        return f"[{number}/{n_cases}] {result.case.said}: {marks}: {says}"
    score = result.score
    found = f"{result.detect_s:.1f} s" if result.detect_s is not None else "never"
    marks = f"{'named' if score.named else 'NOT NAMED'}, {'layer' if score.layer_right else 'WRONG LAYER'}"
    blamed = f", {score.wrongly_blamed} BLAMED WRONGLY" if score.wrongly_blamed else ""
    return f"[{number}/{n_cases}] {result.case.said}: {marks}{blamed}, {found}: {says}"


def summary(results: Sequence[TorchResult], seed: int, overridden: list[str]) -> dict[str, Any]:
    """The suite's JSON object."""
    culprits = [one for one in results if one.case.fault != HEALTHY]
    healthy = [one for one in results if one.case.fault == HEALTHY]
    return {
        "suite": "torch",
        "seed": seed,
        "settings_overridden": overridden,
        "cases": len(culprits),
        "named": sum(one.score.named for one in culprits),
        "layer_right": sum(one.score.layer_right for one in culprits),
        "wrongly_blamed": sum(one.score.wrongly_blamed for one in culprits),
        "healthy": len(healthy),
        "false_incidents": sum(one.n_incidents for one in healthy) + sum(one.early for one in culprits),
        "detect_s": quantiles(one.detect_s for one in culprits if one.detect_s is not None),
        "undetected": sum(one.detect_s is None for one in culprits),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=os.environ.get("SEED") or random.randrange(10**6))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--faults", default=",".join((*CULPRITS, HEALTHY)), help="comma-separated, for a shorter run")
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    cases = [draw_case(fault, chosen.seed + k) for fault in chosen.faults.split(",") for k in range(chosen.repeats)]
    draw.shuffle(cases)
    results = []
    print(f"torch: {len(cases)} cases, seed {chosen.seed}, about {1.5 * len(cases):.0f} minutes", flush=True)
    with RunningStack() as stack:
        overridden = stack.settings_overridden()
        for number, case in enumerate(cases, 1):
            results.append(run_case(stack, case, f"torch-{number}"))
            print(describe(number, len(cases), results[-1]), flush=True)
    print(json.dumps(summary(results, chosen.seed, overridden)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
