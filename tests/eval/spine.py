"""Accuracy suite `spine`: five faults that hang a live job, each on three random victims, scored from the REST API.

For every case a testbed job of its own (eight ranks on four nodes, IB) trains for a while under four agents, one fault
is injected, and the incident of that job is awaited. The first diagnosis and the one 30 s later count; what either has
wrong is wrong. Run by `make eval SUITE=spine [SEED=n]`; the last line is one JSON object.
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
from datetime import datetime
from pathlib import Path
from typing import Any

from console.supervisor.demo import LiveJob
from nccl_instrument.testbed.control import ask
from tests.eval.scoring import NOTHING, Score, Truth, quantiles, score_incident
from tests.eval.stack import RunningStack

FAULTS = ("nic_down", "rank_frozen", "rank_killed", "proxy_sleep", "stuck_before")
TRAIN_SECONDS = 12.0
SETTLE_SECONDS = 30.0
GIVE_UP_SECONDS = 40.0
POLL_SECONDS = 0.1
REPEATS = 3


@dataclass(slots=True)
class CaseResult:
    """What one injected fault led to. detect_s and root_cause_s are None when it was not found."""

    truth: Truth
    score: Score = NOTHING
    detect_s: float | None = None
    root_cause_s: float | None = None
    n_incidents: int = 0
    verdicts: list[str] = field(default_factory=list)


@contextmanager
def training(stack: RunningStack, name: str) -> Iterator[LiveJob]:
    """A live job called `name` with its agents, stopped and forgotten at the end."""
    with tempfile.TemporaryDirectory(prefix="diogenes-job-") as folder:
        job = LiveJob(stack.ingest_url, stack.agent_token_file, Path(folder), name)
        try:
            job.start()
            yield job
        finally:
            job.stop()


def run_case(stack: RunningStack, fault: str, victim: int, name: str, train_s: float = TRAIN_SECONDS) -> CaseResult:
    """Inject `fault` on `victim` in a fresh job and score what the console says of it."""
    with training(stack, name) as job:
        wait_for_data(stack, name)
        time.sleep(train_s)
        early = stack.incidents(name)
        answer = ask(job.rundir, {"do": "inject", "fault": fault, "rank": victim})
        injected_at = time.time()
        if not answer.get("ok"):
            raise RuntimeError(f"the testbed refused {fault}: {answer.get('error')}")
        result = CaseResult(Truth(fault, frozenset(answer["fault"]["ranks"])))
        if early:
            result.verdicts.append(f"FALSE ALARM before the fault: {early[0]['headline']}")
            return result
        return follow(stack, name, injected_at, result)


def follow(
    stack: RunningStack, name: str, injected_at: float, result: CaseResult, give_up_s: float = GIVE_UP_SECONDS
) -> CaseResult:
    """Wait for the incident, its first diagnosis, and the one that stands 30 s later."""
    row = await_incident(stack, name, injected_at + give_up_s)
    if row is None:
        result.verdicts.append(f"newest look: {newest_look(stack, name)}")
        return result
    result.detect_s = time.time() - injected_at
    first = await_diagnosis(stack, row["number"], injected_at + give_up_s)
    if first is None:
        return result
    began = time.time()
    incident = first["incident"]
    result.root_cause_s = seconds_between(incident["triggered_at"], incident["root_caused_at"])
    time.sleep(max(0.0, SETTLE_SECONDS - (time.time() - began)))
    last = stack.get(f"incidents/{row['number']}")
    result.score = score_incident(result.truth, [seen["diagnosis"] for seen in (first, last)])
    result.verdicts += [seen["incident"]["headline"] for seen in (first, last)]
    result.n_incidents = len(stack.incidents(name))
    return result


def wait_for_data(stack: RunningStack, name: str, limit_s: float = 60.0) -> None:
    """Until the console shows the job with data; RuntimeError when it never does."""
    deadline = time.time() + limit_s
    while time.time() < deadline:
        jobs = [job for job in stack.get("jobs")["jobs"] if job["name"] == name]
        if jobs and jobs[0]["last_data_at"]:
            return
        time.sleep(0.3)
    raise RuntimeError(f"no data of job {name} arrived in {limit_s:.0f} s")


def await_incident(stack: RunningStack, name: str, deadline: float) -> dict[str, Any] | None:
    while time.time() < deadline:
        if found := stack.incidents(name):
            return found[-1]
        time.sleep(POLL_SECONDS)
    return None


def newest_look(stack: RunningStack, name: str) -> str:
    """What the console last saw of the job, which says why there is no incident."""
    number = next((job["id"] for job in stack.get("jobs")["jobs"] if job["name"] == name), None)
    looks = stack.get(f"jobs/{number}")["looks"] if number is not None else []
    return str(looks[0]["saw"]) if looks else "none"


def await_diagnosis(stack: RunningStack, number: int, deadline: float) -> dict[str, Any] | None:
    while time.time() < deadline:
        seen: dict[str, Any] = stack.get(f"incidents/{number}")
        if seen["diagnosis"] is not None:
            return seen
        time.sleep(POLL_SECONDS)
    return None


def seconds_between(earlier: str, later: str | None) -> float | None:
    if later is None:
        return None
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def describe(number: int, n_cases: int, result: CaseResult) -> str:
    """One progress line per case."""
    score, found = result.score, f"{result.detect_s:.1f} s" if result.detect_s is not None else "never"
    marks = ("named" if score.named else "NOT NAMED", "component" if score.component_right else "WRONG COMPONENT")
    says = " | ".join(dict.fromkeys(result.verdicts))
    return f"[{number}/{n_cases}] {result.truth.fault} on {sorted(result.truth.ranks)}: {', '.join(marks)}, {found}: {says}"


def summary(results: Sequence[CaseResult], suite: str, seed: int, overridden: list[str]) -> dict[str, Any]:
    """The suite's JSON object."""
    return {
        "suite": suite,
        "seed": seed,
        "settings_overridden": overridden,
        "cases": len(results),
        "named": sum(result.score.named for result in results),
        "tied": sum(result.score.tied for result in results),
        "component_right": sum(result.score.component_right for result in results),
        "wrongly_blamed": sum(result.score.wrongly_blamed for result in results),
        "incidents": sum(result.n_incidents for result in results),
        "undetected": sum(result.detect_s is None for result in results),
        "detect_s": quantiles(result.detect_s for result in results if result.detect_s is not None),
        "root_cause_s": quantiles(result.root_cause_s for result in results if result.root_cause_s is not None),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=os.environ.get("SEED") or random.randrange(10**6))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--faults", default=",".join(FAULTS), help="comma-separated, for a shorter run")
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    cases = [(fault, draw.randrange(8)) for fault in chosen.faults.split(",") for _ in range(chosen.repeats)]
    draw.shuffle(cases)
    results = []
    print(f"spine: {len(cases)} cases, seed {chosen.seed}, about {len(cases)} minutes", flush=True)
    with RunningStack() as stack:
        overridden = stack.settings_overridden()
        for number, (fault, victim) in enumerate(cases, 1):
            results.append(run_case(stack, fault, victim, f"spine-{number}"))
            print(describe(number, len(cases), results[-1]), flush=True)
    print(json.dumps(summary(results, "spine", chosen.seed, overridden)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
