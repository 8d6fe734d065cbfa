"""The bubble of a pipeline lies where the page says: held against the compute that the simulator's engine ran, stage by stage."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.engine import Engine
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import KINDS, Layout
from nccl_instrument.simulate.physics import CLUSTER, MS, Physics
from nccl_instrument.simulate.schedule import COMPUTE, OPTIMIZER_STAGE, STREAM_COMPUTE, STREAM_PP, WAIT, build_schedule
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.flows.bubble import AHEAD, ANOTHER_ORDER, INTERLEAVED, NO_PIPELINE, NOT_SEEN, Bubble, bubble_of
from rca.flows.layout import GroupLayout, layout_of
from rca.slow.iterations import Iterations, iterations_of
from tests.nccl_instrument.simulate.jobs import window_of

PHYSICS = replace(
    CLUSTER, forward_ms=12.0, backward_ms=24.0, optimizer_ms=6.0, n_layers=1, jitter=0.0, pp_kib=16 * 1024
)
STAGES = (2, 4, 8)
SCHEDULES = ("1f1b", "gpipe")
CLOCKS = 0.003
"""Of a share: steps are not all alike, and the median of some is not that of others."""


class Tapped:
    """An engine of which what it says of ended ops is kept."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.kept = engine, list[np.ndarray[tuple[int], np.dtype[np.void]]]()

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def finished(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        rows = self._engine.finished()
        self.kept.append(rows)
        return rows


@cache
def simulated(n_stages: int, physics: Physics) -> tuple[Iterations, Window, float]:
    """A job of pipelines, and what its bubble was by the engine's own ops."""
    layout = Layout(tp=1, pp=n_stages, dp=2, ranks_per_node=1)
    job = SimulatedJob(JobSettings(layout, physics))
    try:
        job.engine = tapped = Tapped(job.engine)  # type: ignore[assignment]
        window = window_of(list(in_order(job.batches(6.0))))
    finally:
        job.close()
    return iterations_of(window), window, bubble_by_mechanism(layout, physics, np.concatenate(tapped.kept))


def bubble_by_mechanism(layout: Layout, physics: Physics, ops: np.ndarray[tuple[int], np.dtype[np.void]]) -> float:
    """Median over steps, of the first pipeline: every stage computes its microbatches and nothing else while the first one works.

    The first send is begun when the first forward is over: nothing stands before it. From there the first stage's compute
    stream is gone through task by task, with the ends of the receives that it waited for.
    """
    mine = ops[(ops["rank"] == 0) & (ops["group"] == ops["group"][ops["func"] == FUNC_RECV].min())]
    steps = np.unique(mine["iteration"])[1:-1]
    spans = [span_ns(layout, physics, mine[mine["iteration"] == step]) for step in steps]
    computed = physics.n_microbatches * (physics.forward_ms + physics.backward_ms) * MS
    return 1.0 - computed / float(np.median(spans))


def span_ns(layout: Layout, physics: Physics, sent: np.ndarray[tuple[int], np.dtype[np.void]]) -> float:
    """From the first forward's begin to the last backward's end. sent: rank 0's sends and receives of one step."""
    schedule = build_schedule(layout, physics)
    tasks = schedule.tasks[: schedule.classes[0]["n_tasks"]]
    sent = sent[np.argsort(sent["ordinal"], kind="stable")]
    done, at = list[int](), 0
    for task in tasks[tasks["stream"] == STREAM_PP]:
        kernel = sent[at : at + task["n_ops"]]
        done.append(int(kernel["done_ns"].max()) if task["kind"] != WAIT else 0)
        at += 0 if task["kind"] == WAIT else task["n_ops"]
    assert at == len(sent) and KINDS.index("pp") == schedule.specs[0]["slot"]
    now = begin = int(sent["started_ns"][0]) - int(physics.forward_ms * MS)
    for task in tasks[(tasks["stream"] == STREAM_COMPUTE) & (tasks["stage"] != OPTIMIZER_STAGE)]:
        if task["kind"] == COMPUTE:
            now += int(task["ns"])
        elif task["kind"] == WAIT and task["other"] == STREAM_PP:
            now = max(now, *done[: task["position"]])
    return float(now - begin)


@pytest.mark.parametrize("n_stages", STAGES)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kib", [16 * 1024, 1024 * 1024], ids=["prompt", "sends take longer than forwards"])
@pytest.mark.parametrize("n_microbatches", [3, 6])
def test_what_the_engine_computed_lies_between_least_and_most(
    n_stages: int, schedule: str, kib: int, n_microbatches: int
) -> None:
    physics = replace(PHYSICS, schedule=schedule, pp_kib=kib, n_microbatches=n_microbatches)
    iterations, window, truth = simulated(n_stages, physics)
    told = bubble_of(iterations, layout_of(window))
    assert told.reason == "" and told.at_least - CLOCKS <= truth <= told.at_most + CLOCKS
    assert told.at_least > 0.25 * truth, "and not only by saying nothing"
    pipelines = len(iterations.ranks) // n_stages
    assert told.n == pipelines * (iterations.n - 2) and told.n_told >= told.n - pipelines
    assert told.at_most - told.at_least < (0.26 if schedule == "1f1b" else 0.6)


def test_the_more_stages_have_both_ends_in_sight_the_closer_are_least_and_most() -> None:
    few, more = bubble(2), bubble(8)
    assert more.at_most - more.at_least < few.at_most - few.at_least
    assert few.at_most < more.at_least, "and there is more to wait for"


def test_less_of_a_bubble_is_left_with_more_microbatches() -> None:
    few, many = bubble(4, n_microbatches=4), bubble(4, n_microbatches=12)
    assert many.at_most < few.at_most and many.at_least < few.at_least


def test_without_a_pipeline_and_without_one_of_its_stages_the_reason_is_said() -> None:
    iterations, window, _ = simulated(4, PHYSICS)
    layout = layout_of(window)
    others = tuple(one for one in layout if not one.name.startswith("pp"))
    assert unknown_for(iterations, others) == NO_PIPELINE
    assert (
        unknown_for(replace(iterations, row=np.where((iterations.rank < 2)[:, None], -1, iterations.row)), layout)
        == NOT_SEEN
    )
    assert unknown_for(iterations, tuple(replace(one, ranks=one.ranks[:-1]) for one in layout)) == NOT_SEEN


def test_stages_that_hold_several_parts_or_run_ahead_or_do_not_drain_are_unknown() -> None:
    iterations, window, _ = simulated(4, PHYSICS)
    layout = layout_of(window)
    pipelines = np.isin(iterations.comm_id, [one.comm_id for one in layout if one.name.startswith("pp")])
    ring = np.where(pipelines & (iterations.rank < 2), 3, iterations.peer)
    assert unknown_for(replace(iterations, peer=ring), layout) == INTERLEAVED
    receives = pipelines & (iterations.func == FUNC_RECV)
    late = np.where(receives[:, None], iterations.end + 200.0 * MS, iterations.end)
    assert unknown_for(replace(iterations, end=late), layout) == AHEAD
    turned = np.where(pipelines & (iterations.rank < 2), FUNC_RECV + FUNC_SEND - iterations.func, iterations.func)
    assert unknown_for(replace(iterations, func=turned), layout) in (ANOTHER_ORDER, AHEAD)


def bubble(n_stages: int, n_microbatches: int = 6) -> Bubble:
    iterations, window, _ = simulated(n_stages, replace(PHYSICS, schedule="1f1b", n_microbatches=n_microbatches))
    return bubble_of(iterations, layout_of(window))


def unknown_for(iterations: Iterations, layout: tuple[GroupLayout, ...]) -> str:
    told = bubble_of(iterations, layout)
    assert np.isnan(told.at_least) and np.isnan(told.at_most)
    return told.reason
