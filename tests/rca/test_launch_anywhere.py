"""Who launches late where a tree hides whose ops begin late: one of all nodes, a whole node, or nobody."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ingest.window import Window
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.slow.launch_anywhere import leads_anywhere_ns, uneven_nodes
from rca.slow.slowdown import Slowdown, slowdown_of
from tests.nccl_instrument.simulate.jobs import window_after

AT_S, SECONDS = 6.0, 14.0
ONSET_NS = ORIGIN_NS + int(AT_S * 1e9)
WIDE = Layout(tp=2, pp=1, dp=16, ranks_per_node=8)
EXPERTS = Layout(tp=2, pp=2, dp=8, ep=2, ranks_per_node=8)
FOLLOWS = 4  # tasks that a host runs ahead of its GPU
IN_TREES = replace(TESTBED, n_microbatches=4, dp_reduce="tree", tree_from=2, optimizer_ms=8.0)


@cache
def in_trees(fault: str, victim: int | None, amount: float, ahead: int = IN_TREES.ahead) -> Window:
    physics = replace(IN_TREES, ahead=ahead)
    return window_after(fault, WIDE, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics)


@pytest.mark.parametrize(("fault", "victim", "amount"), [("nic_limited", 8, 0.3), ("gpu_pcie_slow", 8, 3.0)])
def test_nobody_launches_late_where_the_network_or_copies_are_slow(fault: str, victim: int, amount: float) -> None:
    assert not leads_anywhere_ns(slow(in_trees(fault, victim, amount)))


@pytest.mark.parametrize(
    "layout", [Layout(tp=4, pp=1, dp=8, ranks_per_node=8), Layout(tp=1, pp=1, dp=8, ranks_per_node=2)]
)
def test_that_all_gpus_are_slower_is_nobodys_doing_though_half_of_a_trees_ranks_begin_with_others_data(
    layout: Layout,
) -> None:
    physics = replace(TESTBED, dp_reduce="tree", tree_from=2)
    window = window_after("gpus_slow", layout, None, 2.0, at_s=AT_S, seconds=SECONDS, physics=physics)
    found = diagnosed(window)
    assert [(one.culprits, one.tied, one.kind) for one in found.findings] == [((), (), FaultKind.GROUP_ANOMALY)]


@pytest.mark.parametrize(("fault", "victim", "amount"), [("background_compute", 1, 0.7), ("gpu_slow", 2, 3.0)])
def test_one_who_is_seen_to_be_late_is_not_named_before_a_mate_of_whom_nothing_is_seen(
    fault: str, victim: int, amount: float
) -> None:
    physics, layout = replace(TESTBED, dp_reduce="tree", tree_from=2), Layout(tp=1, pp=1, dp=8, ranks_per_node=2)
    found = diagnosed(window_after(fault, layout, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics))
    assert not any(rank not in (2, 3) for one in found.findings for rank in one.culprits)
    assert fault == "gpu_slow" or not any(len(one.culprits) == 1 for one in found.findings)


@pytest.mark.parametrize("victim", [0, 10])
def test_who_launches_last_is_found_among_all_nodes_where_trees_hide_who_begins_late(victim: int) -> None:
    """Rank 0 is at the root of its tree and begins with others' data; rank 10 has no part in the network at all."""
    window = in_trees("gpu_slow", victim, 3.0)
    assert list(leads_anywhere_ns(slow(window))) == [victim]
    assert diagnosed(window).findings[0].culprits == (victim,)


def slow(window: Window) -> Slowdown:
    found = slowdown_of(window, ONSET_NS, DEFAULT)
    assert found is not None
    return found


def diagnosed(window: Window) -> Diagnosis:
    return diagnose(window, Symptom(SymptomKind.STRAGGLER, window.job, 1, ONSET_NS, window.end_ns, 0, (0,), "slow"))


@pytest.mark.parametrize(("fault", "victim", "amount"), [("nic_limited", 8, 0.3), ("gpus_slow", None, 2.0)])
def test_no_node_is_less_even_where_the_network_is_slow_or_all_are(
    fault: str, victim: int | None, amount: float
) -> None:
    assert not uneven_nodes(slow(in_trees(fault, victim, amount, FOLLOWS)))


def test_a_node_whose_gpus_are_all_slow_launches_less_evenly_than_it_used_to() -> None:
    window = in_trees("background_compute", 0, 0.7, FOLLOWS)
    assert uneven_nodes(slow(window)) == (0,)
    best = diagnosed(window).findings[0]
    assert (best.culprits, best.component) == (tuple(range(8)), Component.NODE)


@pytest.mark.parametrize("ahead", [1, FOLLOWS, 16])
def test_mates_of_a_slow_gpu_who_are_seen_on_time_are_not_late_with_it(ahead: int) -> None:
    """Behind a pipeline's sends and receives it shows who is late, though no tree op tells: half of the node is not."""
    best = diagnosed(with_experts("gpu_slow", 20, 2.3, ahead)).findings[0]
    assert best.culprits in ((), (20,)), "where its experts' tokens tell, it is named"
    assert 20 in best.subject.ranks and len(best.subject.ranks) < 8


def test_a_node_that_computes_something_else_is_late_as_a_whole_behind_a_pipeline_too() -> None:
    best = diagnosed(with_experts("background_compute", 2, 0.7, FOLLOWS)).findings[0]
    assert (best.culprits, best.component) == (tuple(range(16, 24)), Component.NODE)


@cache
def with_experts(fault: str, victim: int, amount: float, ahead: int) -> Window:
    physics = replace(TESTBED, n_microbatches=4, dp_reduce="tree", tree_from=2, ahead=ahead)
    return window_after(fault, EXPERTS, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics)
