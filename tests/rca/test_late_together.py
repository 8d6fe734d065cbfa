"""Of ranks that keep each other late inside a node: one is named, the node, or nobody is and they are tied."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, Symptom, SymptomKind
from rca.rules import late_start
from rca.slow import late_together
from rca.slow.slowdown import NOTHING_REPEATS
from tests.nccl_instrument.simulate.jobs import window_after
from tests.windows import make_window

ALONE = Layout(tp=1, pp=1, dp=4, ranks_per_node=1)
STAGES = Layout(tp=2, pp=2, dp=4, ranks_per_node=4)
TENSOR = Layout(tp=4, pp=1, dp=3, ranks_per_node=4)
LONGER_RINGS = Layout(tp=4, pp=1, dp=8, ranks_per_node=4)
AT_S, SECONDS = 6.0, 14.0


@cache
def diagnosed(fault: str, layout: Layout, victim: int, amount: float) -> Diagnosis:
    window = window_after(fault, layout, victim, amount, at_s=AT_S, seconds=SECONDS)
    onset_ns = ORIGIN_NS + int(AT_S * 1e9)
    return diagnose(window, Symptom(SymptomKind.STRAGGLER, window.job, 1, onset_ns, window.end_ns, 0, (0,), "slow"))


def blamed(diagnosis: Diagnosis) -> set[int]:
    return {rank for finding in diagnosis.findings for rank in finding.culprits}


@pytest.mark.parametrize(
    ("layout", "victim", "amount"), [(STAGES, 15, 3.0), (STAGES, 5, 3.0), (TENSOR, 6, 3.0), (LONGER_RINGS, 4, 4.0)]
)
def test_a_slow_gpu_is_named_though_its_mates_are_late_with_it(layout: Layout, victim: int, amount: float) -> None:
    found = diagnosed("gpu_slow", layout, victim, amount)
    assert blamed(found) == {victim} and found.findings[0].component is Component.GPU


@pytest.mark.parametrize("layout", [STAGES, TENSOR, LONGER_RINGS])
def test_all_ranks_of_a_node_on_which_something_else_computes_are_named(layout: Layout) -> None:
    found = diagnosed("background_compute", layout, 1, 0.7)
    assert blamed(found) == {4, 5, 6, 7} and found.findings[0].component is Component.NODE


@pytest.mark.parametrize(
    ("fault", "amount", "component"), [("gpu_slow", 3.0, Component.GPU), ("background_compute", 0.8, Component.NODE)]
)
def test_what_slows_the_proxy_of_a_lone_rank_too_is_its_nodes(fault: str, amount: float, component: Component) -> None:
    best = diagnosed(fault, ALONE, 1, amount).findings[0]
    assert (best.culprits, best.component) == ((1,), component)


def test_of_a_job_that_does_not_repeat_itself_it_is_said_that_nobody_can_be_named() -> None:
    window = make_window()
    found = diagnose(window, Symptom(SymptomKind.STRAGGLER, "job", 1, window.start_ns, window.end_ns, 0, (0,), "slow"))
    assert (found.findings, found.missing[-1]) == ((), NOTHING_REPEATS)


@pytest.mark.parametrize("n", [3, 5, 9, 40])
def test_a_few_iterations_seem_as_uneven_as_many(n: int) -> None:
    draw = np.random.default_rng(4)
    ready = draw.normal(0, 1e6, (8, n, 200)) + draw.normal(0, 1e7, (8, 1, 200)) + draw.normal(0, 1e8, (1, n, 200))
    found = [late_together._unevenness_ns(ready[..., at])[0] for at in range(200)]
    assert 0.6e6 < np.median(found) < 0.78e6  # 0.67 deviations, a little less the middle of eight


def test_one_hiccup_of_all_does_not_make_a_few_iterations_uneven() -> None:
    ready = np.random.default_rng(5).normal(0, 1e6, (8, 4))
    ready[:, 2] += 1e9
    assert late_together._unevenness_ns(ready)[0] < 1.5e6


@pytest.mark.parametrize(("late", "bound"), [((1, 2, 3), (0, 1, 2, 3)), ((2, 3), ()), ((0, 1, 3), (0, 1, 2, 3))])
def test_who_waits_in_every_layer_for_one_that_is_late_is_late_too(
    late: tuple[int, ...], bound: tuple[int, ...]
) -> None:
    """Pairs 0, 1 and 2, 3 on one node, each with a communicator; a third one, of the even ranks, goes to other nodes, too."""
    members = np.array([(1, 0), (1, 1), (2, 2), (2, 3), (3, 0), (3, 2), (3, 4)], [("comm_id", "u8"), ("rank", "i4")])
    node = np.array([0, 0, 0, 0, 1])
    slowdown: Any = SimpleNamespace(
        window=SimpleNamespace(members=members), nodes=node, iterations=SimpleNamespace(ranks=np.arange(5)),
        ranks=SimpleNamespace(node=node, position=lambda rank: rank),
    )  # fmt: skip
    found = late_start._is_bound(slowdown, np.arange(4), np.array(late))
    assert tuple(np.flatnonzero(found).tolist()) == bound


def test_a_rank_bound_to_none_of_the_late_ones_may_be_on_time() -> None:
    members = np.array([(1, 1), (1, 2), (1, 3), (3, 0), (3, 4)], [("comm_id", "u8"), ("rank", "i4")])
    node = np.array([0, 0, 0, 0, 1])
    slowdown: Any = SimpleNamespace(
        window=SimpleNamespace(members=members), nodes=node, iterations=SimpleNamespace(ranks=np.arange(5)),
        ranks=SimpleNamespace(node=node, position=lambda rank: rank),
    )  # fmt: skip
    assert late_start._is_bound(slowdown, np.arange(4), np.array([1, 2, 3])).tolist() == [False, True, True, True]


BEFORE, SINCE = 113, 56
UNEVEN_NS = 54e3  # as measured on the testbed, both ranks of a node slowed by what else computes there


def two_mates(lead_ns: Any, own_ns: float) -> Any:
    """Two ranks that begin an op by themselves; lead_ns: by how much the first begins later in the slow iterations."""
    draw = np.random.default_rng(6)
    ready = 1e8 * np.arange(BEFORE + SINCE) + draw.normal(0, 1.48 * UNEVEN_NS, (2, BEFORE + SINCE))
    is_slow = np.arange(BEFORE + SINCE) >= BEFORE
    ready[0, is_slow] += lead_ns
    own = np.where(is_slow, own_ns, 0.0) + np.zeros((2, 1))
    delays = SimpleNamespace(launches=SimpleNamespace(ready=ready), own_ns=own, noise_ns=np.full(2, UNEVEN_NS))
    return SimpleNamespace(slow=is_slow, usual=~is_slow, delays=delays)


@pytest.mark.parametrize(("lead_ns", "leads"), [(0.5e6, True), (0.2e6, False)])
def test_who_begins_later_in_every_iteration_leads(lead_ns: float, leads: bool) -> None:
    found, late = late_together._lead_ns(two_mates(lead_ns, 0.02e6), [0, 1])
    assert (found > 0, late.tolist()) == (leads, [leads, False])


def test_who_begins_much_later_now_and_then_does_not_lead() -> None:
    often = np.where(np.arange(SINCE) % 4 == 0, 8e6, 0.0)
    assert often.mean() >= 2e6
    assert late_together._lead_ns(two_mates(often, 0.02e6), [0, 1])[0] == 0.0


@pytest.mark.parametrize(("lead_ns", "are_alike"), [(0.0, True), (0.25e6, True), (1e6, False), (6e6, False)])
def test_mates_are_late_alike_though_not_by_exactly_the_same(lead_ns: float, are_alike: bool) -> None:
    assert late_together._is_alike(two_mates(lead_ns, 6.7e6), [0, 1], UNEVEN_NS) is are_alike
