"""Accuracy suite `healthy`: ten minutes of a live job with everything that looks like trouble and is none.

A pause of 30 s (evaluation), a checkpoint by rank 0 and an agent restart are put in; no incident may open. Run by
`make eval SUITE=healthy [MINUTES=10]`; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

from console.supervisor.demo import LiveJob
from nccl_instrument.testbed.control import ask
from tests.eval.spine import training, wait_for_data
from tests.eval.stack import RunningStack

JOB = "healthy"
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 30.0
CHECKPOINT_SECONDS = 8.0


def disturb(job: LiveJob, what: str, rank: int, seconds: float) -> None:
    answer = ask(job.rundir, {"do": "inject", "fault": what, "rank": rank, "amount": seconds})
    if not answer.get("ok"):
        raise RuntimeError(f"the testbed refused {what}: {answer.get('error')}")
    print(f"healthy: {what} of {seconds:.0f} s", flush=True)


def restart_agent(job: LiveJob) -> None:
    """Stop one agent as a service manager would; `look` starts it again."""
    name = next(name for name in job.children if name.startswith("agent-"))
    job.children[name].stop()
    print(f"healthy: {name} restarts", flush=True)


def disturbances(minutes: float) -> list[tuple[float, Callable[[LiveJob], None]]]:
    """(seconds from the start, what happens), spread over the run."""
    whole = minutes * 60
    return [
        (0.2 * whole, lambda job: disturb(job, "pause", 0, PAUSE_SECONDS)),
        (0.5 * whole, lambda job: disturb(job, "checkpoint", 0, CHECKPOINT_SECONDS)),
        (0.7 * whole, restart_agent),
    ]


def run(stack: RunningStack, minutes: float) -> dict[str, object]:
    """Train for `minutes` with the disturbances in; the suite's JSON object."""
    due = disturbances(minutes)
    with training(stack, JOB) as job:
        wait_for_data(stack, JOB)
        began = time.time()
        told = 0
        while (elapsed := time.time() - began) < minutes * 60:
            while due and due[0][0] <= elapsed:
                due.pop(0)[1](job)
            job.look()
            if elapsed > told + 60:
                told += 60
                print(
                    f"healthy: {elapsed / 60:.0f} of {minutes:.0f} minutes, {len(stack.incidents(JOB))} incidents",
                    flush=True,
                )
            time.sleep(LOOK_SECONDS)
        iteration = ask(job.rundir, {"do": "status"})["iteration"]
        incidents = stack.incidents(JOB)
        overridden = stack.settings_overridden()
    for row in incidents:
        print(f"healthy: FALSE incident {row['number']}: {row['headline']}", flush=True)
    named = [row["headline"] for row in incidents if row["culprits"]]
    return {
        "suite": "healthy",
        "seed": 0,
        "settings_overridden": overridden,
        "minutes": minutes,
        "iterations": iteration,
        "false_incidents": len(incidents),
        "findings": len(named),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES") or 10))
    chosen = parser.parse_args()
    with RunningStack() as stack:
        print(json.dumps(run(stack, chosen.minutes)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
