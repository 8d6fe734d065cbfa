"""Run under sanitizers by test_sanitizers.py: jobs with faults that begin and end, on both transports.

argv: the library to use, how many jobs.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from pathlib import Path

from nccl_instrument.simulate import engine
from nccl_instrument.simulate.faults import KINDS, Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED

FASTER = dataclasses.replace(TESTBED, link_mbit=2000, forward_ms=2, backward_ms=4, optimizer_ms=1)
LAYOUTS = [Layout(), Layout(2, 1, 4, 4, 2), Layout(1, 4, 2, 1, 1), Layout(1, 1, 8, 1, 2, 1)]


def run(seed: int) -> None:
    """A job drawn from the seed."""
    draw = random.Random(seed)
    layout, transport = draw.choice(LAYOUTS), draw.choice(["IB", "Socket"])
    changes = {
        "schedule": draw.choice(["1f1b", "gpipe"]), "dp_reduce": draw.choice(["sharded", "ring", "tree"]),
        "tree_from": draw.choice([2, 64]), "slices": draw.choice([1, 2]), "ahead": draw.choice([1, 1000]),
        "gpu_dies_with_process": draw.choice([True, False]), "flush_us": draw.choice([0.0, 30.0]),
        "traffic_rows": draw.choice([0, 150, 10**6]), "slices_every": draw.choice([0, 1, 3]),
    }  # fmt: skip
    able = [n for n in KINDS if (n != "hot_expert" or layout.ep > 1) and (n != "different_order" or layout.tp > 1)]
    faults = [make_fault(n, layout, 0.4, draw.choice([None, 0.9]), seed=seed) for n in draw.sample(able, 2)]
    physics = dataclasses.replace(FASTER, **changes)
    job = SimulatedJob(JobSettings(layout, physics, Scenario(tuple(faults), seed), transport=transport))
    for _ in job.batches(1.5):
        pass
    job.close()


if __name__ == "__main__":
    engine.LIBRARY = Path(sys.argv[1])  # type: ignore[misc]
    engine.build_library = lambda: None
    for number in range(int(sys.argv[2])):
        run(number)
    print("clean")
