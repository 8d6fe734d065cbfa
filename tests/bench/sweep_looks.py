"""Stores jobs and looks at them, in a process of its own, which sweep.py starts.

Every job is the same simulated one under another name; between two sweeps PERIOD_S seconds of all of them arrive. The looks are
taken by as many processes as a shipped worker has, which live as long as a worker's do.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import django
from asgiref.sync import sync_to_async

django.setup()

from console.incidents.models import Incident, Look  # noqa: E402  (models need Django set up)
from console.incidents.watching.watch import watch_job  # noqa: E402
from ingest.read import running_attempts  # noqa: E402
from nccl_instrument.simulate.agents import Sent  # noqa: E402
from tests.bench.rca_jobs import SECOND, SWEEP_LAYOUT, of_job, simulated  # noqa: E402
from tests.bench.rca_store import Doors  # noqa: E402

PERIOD_S, FIRST_S = 10.0, 20.0


async def main(n_jobs: int, n_sweeps: int, n_workers: int) -> None:
    with ProcessPoolExecutor(n_workers, multiprocessing.get_context("spawn")) as workers:
        await measure(n_jobs, n_sweeps, workers)


async def measure(n_jobs: int, n_sweeps: int, workers: ProcessPoolExecutor) -> None:
    doors = Doors()
    await doors.open()
    seconds = FIRST_S + PERIOD_S * n_sweeps
    sent = list(simulated(SWEEP_LAYOUT, seconds))
    origin_ns = sent[0].arrives_ns - SECOND
    took: list[tuple[float, float]] = []
    for sweep in range(n_sweeps + 1):
        until_ns = origin_ns + int((FIRST_S + PERIOD_S * sweep) * SECOND)
        arrived = [one for one in sent if one.arrives_ns <= until_ns]
        sent = sent[len(arrived) :]
        await doors.store(_of_all(arrived, n_jobs))
        took.append(await sync_to_async(_sweep)(workers))
    await doors.application.stop()
    looks, incidents = await Look.objects.acount(), await Incident.objects.acount()
    if looks != n_jobs * (n_sweeps + 1) or incidents:
        raise SystemExit(f"{looks} looks and {incidents} incidents: this measures something else")
    nodes = SWEEP_LAYOUT.n_nodes * n_jobs
    print(json.dumps({"wall_s": [wall for wall, _ in took], "cpu_s": [cpu for _, cpu in took], "nodes": nodes}))


def _of_all(sent: list[Sent], n_jobs: int) -> Iterator[tuple[int, bytes]]:
    for one in sent:
        for job in range(n_jobs):
            yield of_job(one, job)


def _sweep(workers: ProcessPoolExecutor) -> tuple[float, float]:
    """Seconds, and those of the workers' processors, that a look at every running job takes, as the ten-second beat does it."""
    attempts, now_ns = [attempt.id for attempt in running_attempts()], time.time_ns()
    began = time.perf_counter()
    cpu_s = sum(workers.map(look_at, attempts, [now_ns] * len(attempts)))
    return time.perf_counter() - began, cpu_s


def look_at(attempt_id: int, now_ns: int) -> float:
    """Seconds of a processor that one look takes here. now_ns: what the clock says, as the jobs are dated by it."""
    cpu, time.time_ns = time.thread_time(), lambda: now_ns
    watch_job(attempt_id)
    return time.thread_time() - cpu


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
