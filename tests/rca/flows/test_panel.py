"""The job panel's numbers: nothing of a job that does not repeat, and what a simulated pipeline is known to do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from ingest.window import Window
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.flows.algorithms import algorithms_in
from rca.flows.bubble import NO_ITERATIONS
from rca.flows.op_level import op_level, stopped_op_level
from rca.flows.panel import panel_of
from rca.flows.parallelism import Parallelism
from rca.settings import DEFAULT
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_after, window_of
from tests.rca.test_actual_time import ONSET_NS, RING, window

PHYSICS = replace(TESTBED, traffic_rows=10**6, jitter=0.0)


@cache
def pipeline() -> Window:
    return window_of(run(EIGHT, seconds=8.0, physics=PHYSICS))


def test_a_job_without_ops_has_nothing_but_a_layout() -> None:
    one = replace(pipeline(), tables={})
    panel = panel_of(one)
    assert panel.layout == () and panel.stages == () and panel.communication == ()
    assert np.isnan(panel.iteration_ns) and np.isnan(panel.bubble.at_least) and panel.bubble.reason == NO_ITERATIONS
    assert algorithms_in(one) == () and op_level(one, one.end_ns, DEFAULT) == () and stopped_op_level(one) == ()


def test_microbatches_take_what_they_compute() -> None:
    """Stage 1 has both ends of its forward and of its backward in sight: 6 and 12 ms of compute, and its tensor op."""
    panel = panel_of(pipeline())
    first, last = panel.stages
    assert (first.ranks, last.ranks) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert len(first.forward_ns) == PHYSICS.n_microbatches
    assert min(one for one in first.forward_ns if np.isfinite(one)) >= PHYSICS.forward_ms * 1e6
    assert len(last.backward_ns) == PHYSICS.n_microbatches
    assert 0 < panel.bubble.at_least < panel.bubble.at_most < 1 and panel.bubble.reason == ""


def test_communication_is_divided_among_what_groups_serve() -> None:
    panel = panel_of(pipeline())
    found = {one.parallelism: one for one in panel.communication}
    assert {Parallelism.DATA, Parallelism.PIPELINE} <= found.keys()
    data = found[Parallelism.DATA]
    assert 0 < data.actual_ns <= panel.iteration_ns and 0 < data.ns <= panel.iteration_ns
    assert data.n_ops == PHYSICS.n_buckets + 1  # ReduceScatters, and the AllGather of what was updated


def test_rings_and_trees_are_what_the_library_says_and_what_it_does_not_do_is_shown() -> None:
    one = window("nic_limited", RING, 2, 0.4)
    seen = algorithms_in(one)
    assert seen and all(other.agrees for other in seen) and not any(other.sentence for other in seen)
    ops = one.rows("op").copy()
    ops["algo"] = 3 - ops["algo"]  # TREE for RING and the reverse
    said = algorithms_in(replace(one, tables={**one.tables, "op": ops}))
    assert said and all(other.agrees is False and "may be wrong" in other.sentence for other in said)


def test_begins_and_ends_alone_name_a_late_rank_but_of_a_slow_nic_the_group_or_somebody_else() -> None:
    (late,) = op_level(window("gpu_slow", RING, 2, 2.0), ONSET_NS, DEFAULT)
    assert late.ranks == (2,)
    found = op_level(window("nic_limited", RING, 2, 0.4), ONSET_NS, DEFAULT)
    assert found and not any(one.ranks == (2,) for one in found)
    assert op_level(window_after("clock_skew", Layout(tp=1, pp=1, dp=4, ranks_per_node=1)), ONSET_NS, DEFAULT) == ()
