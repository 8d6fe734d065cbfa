"""Short simulated jobs for tests: a job's batches, decoded, and the window a server would cut from them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import numpy as np

from ingest.window import TRACE_TABLES, TRAFFIC_TABLES, Window
from nccl_instrument.simulate.agents import Sent
from nccl_instrument.simulate.faults import Fault, Scenario, make_fault
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED, Physics
from nccl_instrument.wire import Rows, TraceBatch, decode_batch
from tests.replay import replayed

EIGHT = Layout()  # 2 × 2 × 2 on four nodes, as the testbed
SIXTY_FOUR = Layout(tp=8, pp=2, dp=4, ranks_per_node=8)
EXPERTS = Layout(tp=2, pp=1, dp=4, ep=4, ranks_per_node=2)


def run(
    layout: Layout = EIGHT,
    *faults: Fault,
    seconds: float = 4.0,
    physics: Physics = TESTBED,
    seed: int = 1,
    transport: str = "IB",
    missing: float = 0.0,
    late_s: float = 0.0,
) -> list[Sent]:
    """Every batch of the job, in the order they arrive."""
    scenario = Scenario(tuple(faults), seed, missing, late_s)
    job = SimulatedJob(JobSettings(layout, physics, scenario, transport=transport))
    try:
        return list(in_order(job.batches(seconds)))
    finally:
        job.close()


@cache
def healthy() -> tuple[TraceBatch, ...]:
    """Eight ranks for four seconds, decoded."""
    return decoded(run())


def decoded(sent: Iterable[Sent]) -> tuple[TraceBatch, ...]:
    return tuple(decode_batch(one.encoded) for one in sent)


def table(batches: Iterable[TraceBatch], name: str) -> Rows:
    """All rows of one table."""
    return np.concatenate([batch.rows(name) for batch in batches])


def window_of(sent: Iterable[Sent], span_s: float = 60.0) -> Window:
    """What the server knows at the end."""
    return replayed(((one.arrives_ns, one.encoded) for one in sent), keep_s=span_s + 5).window(
        span_s, tables=(*TRACE_TABLES, *TRAFFIC_TABLES)
    )


def window_after(
    name: str,
    layout: Layout = EIGHT,
    victim: int | None = None,
    amount: float | None = None,
    *,
    at_s: float = 4.0,
    seconds: float = 18.0,
    physics: Physics = TESTBED,
    seed: int = 1,
    transport: str = "IB",
) -> Window:
    """The window some seconds after a fault began."""
    fault = make_fault(name, layout, at_s, victim=victim, amount=amount, seed=seed)
    return window_of(run(layout, fault, seconds=seconds, physics=physics, seed=seed, transport=transport))
