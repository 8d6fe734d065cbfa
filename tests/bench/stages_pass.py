"""The children of stages_read.py: one stores the batches of a very large job through ingest's own application, one makes passes.

`python -m tests.bench.stages_pass store RANKS`, `… pass`, against the database that the environment names.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from tests.bench.rca_store import Doors  # sets Django up for what follows  # isort: skip
from console.stages.watch import watch_stages
from ingest.models import Attempt
from nccl_instrument.wire import encode_batch
from tests.builders import MONO_NS, SECOND, WALL_NS, FakeJob, boot_id
from tests.stages import stage_tables

A_NODE, STEPS_A_SECOND, SECONDS = 8, 10, 16
"""A window of 120 steps behind 20 of warm-up, and some that are not due yet."""
USUAL_MS: Final = np.array([4.0, 30, 45, 3, 14, 3])


def encoded(n_ranks: int) -> Iterator[tuple[int, bytes]]:
    """(arrival, batch) of every node, second by second."""
    draw, job = np.random.default_rng(n_ranks), FakeJob(ranks=A_NODE, nodes=1)
    for second in range(SECONDS):
        end_ns = MONO_NS + (second + 1) * SECOND - SECOND // 20
        for node in range(-(-n_ranks // A_NODE)):
            ranks = tuple(range(node * A_NODE, min((node + 1) * A_NODE, n_ranks)))
            durations = USUAL_MS * draw.normal(1, 0.02, (STEPS_A_SECOND, len(ranks), 6)).clip(0.5)
            rows = stage_tables(durations, ranks=ranks, first_step=second * STEPS_A_SECOND, end_ns=end_ns)
            rows["recorder"]["world_size"] = n_ranks
            batch = replace(job.batch(0, second, tables=rows), node=f"node-{node}", boot_id=boot_id(node))
            yield WALL_NS + (second + 1) * SECOND, encode_batch(batch)


async def store(n_ranks: int) -> None:
    doors, began = Doors(), time.monotonic()
    await doors.open()
    n = await doors.store(encoded(n_ranks))
    await doors.application.stop()
    print(json.dumps({"batches": n, "stored_s": round(time.monotonic() - began, 1)}))


def make_passes() -> None:
    """One with a window due, and the next."""
    attempt, took, cpu, n = Attempt.objects.latest("pk"), [], [], []
    for _ in range(2):
        began, used = time.perf_counter(), time.process_time()
        n.append(watch_stages(attempt.pk))
        took.append(round(time.perf_counter() - began, 2))
        cpu.append(round(time.process_time() - used, 2))
    mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    told = {"pass_s": took[0], "pass_cpu_s": cpu[0], "packets": n[0], "next_pass_s": took[1], "next_pass_cpu_s": cpu[1]}
    print(json.dumps({**told, "mb": mb}))


if __name__ == "__main__":
    if sys.argv[1] == "store":
        asyncio.run(store(int(sys.argv[2])))
    else:
        make_passes()
