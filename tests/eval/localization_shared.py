"""Cases of large jobs that share their beginning: up to sixteen of them are one job until its fault begins.

Until then a case is a healthy job, and of 10,000 GPUs simulating that takes many minutes. So the job of a block of cases is
run once until its usual pace is known; for every case a process is forked off that gives the job its fault and
goes on alone. Batches are those of a job that had the fault from its description (tests/nccl_instrument/simulate/test_befall.py).
"""

from __future__ import annotations

import multiprocessing
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from nccl_instrument.simulate.faults import Fault, Scenario, make_fault
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import Physics
from tests.eval.localization_cases import (
    DRAWS_MAX,
    FROM_THE_START,
    LARGE,
    ROWS,
    STEADY_SECONDS,
    Case,
    Plan,
    draw_layout,
    draw_physics,
    fewer_replicas,
    is_felt,
    must_slow,
    nearest,
    pace_seconds,
    ports_waiting,
    warm_iterations,
)
from tests.eval.localization_run import PAUSE_SECONDS, follow_case
from tests.eval.watching import SECOND, Watch

Row = dict[str, Any]
BLOCK: Final = len(ROWS)
ROOM_SECONDS: Final = PAUSE_SECONDS + 1.0  # a look comes so much later at most


@dataclass(frozen=True)
class SharedJob:
    """The job of a block of cases. usual_s: an iteration; ready_s: its age when cases part."""

    seed: int
    gpus: int
    block: int
    layout: Layout
    physics: Physics
    transport: str
    job_seed: int
    usual_s: float

    @property
    def ready_s(self) -> float:
        return max(warm_iterations(self.gpus, is_stop=False) * self.usual_s, STEADY_SECONDS)

    @property
    def settings(self) -> JobSettings:
        return JobSettings(self.layout, self.physics, Scenario((), self.job_seed), transport=self.transport)


def shares(plan: Plan) -> bool:
    """Whether the case is one of a block; small jobs are cheap, and each is another."""
    gpus, _, _, fault = plan
    return gpus >= LARGE and fault not in FROM_THE_START


def in_blocks(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    """The plans that share a job, block by block."""
    blocks: dict[tuple[int, int], list[Plan]] = {}
    for plan in filter(shares, plans):
        blocks.setdefault((plan[0], block_of(plan)), []).append(plan)
    yield from blocks.values()


def block_of(plan: Plan) -> int:
    """Sixteen faulty cases and the healthy ones between them; every other block's job has experts."""
    block = plan[1] // (2 * BLOCK)
    return block - block % 2 if plan[3] == "hot_expert" else block


def draw_job(seed: int, gpus: int, block: int) -> SharedJob:
    """The job of this block; the same for the same arguments."""
    draw = random.Random(f"{seed}/{gpus}/block {block}")
    layout = draw_layout(gpus, "hot_expert", draw)
    while block % 2 and layout.ep > 1:
        layout = draw_layout(gpus, "", draw)
    physics = draw_physics(layout, draw)
    physics = replace(physics, credits_queue=draw.random() < 0.5)
    transport, job_seed = "Socket" if draw.random() < 0.2 else "IB", draw.randrange(1, 2**31)
    physics = ports_waiting(physics, job_seed)
    tried, alike = fewer_replicas(layout, physics)
    usual_s = pace_seconds(tried, alike, (), transport, job_seed)
    return SharedJob(seed, gpus, block, layout, physics, transport, job_seed, usual_s)


def draw_fault(job: SharedJob, plan: Plan) -> Case:
    """The case of this plan: a fault of the shared job, drawn until it is felt."""
    drawn: list[Case] = []
    for attempt in range(DRAWS_MAX):
        drawn.append(_drawn(job, plan, random.Random(f"{job.seed}/{job.gpus}/{plan[1]}/{attempt}")))
        if is_felt(drawn[-1]):
            return drawn[-1]
    return nearest(drawn)


def _drawn(job: SharedJob, plan: Plan, draw: random.Random) -> Case:
    gpus, number, row, name = plan
    if name == "different_op" and job.physics.dp_reduce == "tree":
        name = "different_size"  # a tree knows no other op
    fault_seed, start_s = draw.randrange(1, 2**31), job.ready_s + ROOM_SECONDS + draw.uniform(0, 5)
    fault = make_fault(name, job.layout, round(start_s, 3), seed=fault_seed)
    return Case(
        job.seed, gpus, number, row, fault, job.layout, job.physics, job.transport, job.job_seed, round(job.usual_s, 4),
        round(_slowdown(job, fault, fault_seed), 3),
    )  # fmt: skip


def _slowdown(job: SharedJob, fault: Fault, fault_seed: int) -> float:
    """By how much the fault makes iterations longer; 0 where that is not its point."""
    if not must_slow(fault):
        return 0.0
    tried, alike = fewer_replicas(job.layout, job.physics)
    of_tried = make_fault(fault.name, tried, 0.001, amount=fault.amount, seed=fault_seed)
    return pace_seconds(tried, alike, (of_tried,), job.transport, job.job_seed) / job.usual_s


def run_block(
    seed: int,
    plans: Sequence[Plan],
    jobs: int,
    windows: Path | None = None,
    tell: Callable[[float], None] = lambda share: None,
) -> Iterator[Row]:
    """The rows of one block's cases as they come, `jobs` at a time. tell: hears how much of the shared beginning is over."""
    shared = draw_job(seed, plans[0][0], block_of(plans[0]))
    watch = Watch(int(PAUSE_SECONDS * SECOND))
    with closing(SimulatedJob(shared.settings)) as job:
        for now_ns in watch.follow(in_order(job.batches(shared.ready_s))):
            tell((now_ns - shared.settings.origin_ns) / SECOND / shared.ready_s)
        yield from _forked([partial(_part, shared, plan, watch, job, windows) for plan in plans], jobs)


def _part(shared: SharedJob, plan: Plan, watch: Watch, job: SimulatedJob, windows: Path | None) -> Row:
    """One case, from where it parts from the others."""
    case = draw_fault(shared, plan)
    job.befall(case.fault)
    return follow_case(case, job, watch, windows=windows)


def _forked(parts: Sequence[Callable[[], Row]], jobs: int) -> Iterator[Row]:
    """What each returns, run in a copy of this process."""
    fork, waiting = multiprocessing.get_context("fork"), list(parts)
    running: dict[Connection, Any] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                here, there = fork.Pipe(duplex=False)
                child = fork.Process(target=_send, args=(waiting.pop(0), there), daemon=True)
                child.start()
                there.close()
                running[here] = child
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                yield _received(ready, running.pop(ready))
    finally:
        for child in running.values():
            child.kill()


def _send(part: Callable[[], Row], there: Connection) -> None:
    try:
        there.send(part())
    except Exception:
        there.send({"error": traceback.format_exc()})


def _received(here: Connection, child: Any) -> Row:
    try:
        found: Row = here.recv()
    except EOFError:
        found = {"error": "its process ended without an answer"}
    child.join()
    if "error" in found:
        raise RuntimeError(f"A case failed: {found['error']}")
    return found
