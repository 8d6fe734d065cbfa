"""Ops that stand still on a node behind a rank that the network does not show, and GPUs that copy slowly, which look alike."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.findings import Component, Finding, Grade, Symptom, SymptomKind
from rca.rules import late_start, slow_copy
from rca.settings import DEFAULT
from rca.slow.copies import own_copy_ns
from rca.slow.slowdown import Slowdown, slowdown_of
from rca.slow.standstill import hidden_mates, stands_still
from tests.nccl_instrument.simulate.jobs import window_after

PLAIN = Layout(tp=1, pp=1, dp=16, ranks_per_node=4)  # rings enter and leave node 1 at ranks 4 and 7, and pass 5 and 6
LONG = Layout(tp=1, pp=1, dp=16, ranks_per_node=8)
PAIRS = Layout(tp=1, pp=1, dp=8, ranks_per_node=2)
AT_S = 8.0
ASKED = Symptom(SymptomKind.STRAGGLER, "simulated", 1, 0, 0, 0, (0,), "slow")


@cache
def slowdown(
    fault: str, layout: Layout, victim: int | None, amount: float, dp_reduce: str = "ring", transport: str = "IB"
) -> Slowdown:
    physics = replace(TESTBED, dp_reduce=dp_reduce)
    window = window_after(fault, layout, victim, amount, at_s=AT_S, seconds=16.0, physics=physics, transport=transport)
    found = slowdown_of(window, ORIGIN_NS + int(AT_S * 1e9), DEFAULT)
    assert found is not None
    return found


def told(slow: Slowdown) -> tuple[Finding, ...]:
    return slow_copy.explain(slow, ASKED, DEFAULT) + late_start.explain(slow, ASKED, DEFAULT)


def meant(one: Finding) -> set[int]:
    return {*one.culprits, *(rank for subject in one.tied for rank in subject.ranks)}


@pytest.mark.parametrize(("dp_reduce", "transport"), [("ring", "IB"), ("sharded", "IB"), ("ring", "Socket")])
@pytest.mark.parametrize(("layout", "victim", "unseen"), [(PLAIN, 5, {5, 6}), (LONG, 10, set(range(9, 15)))])
def test_a_slow_gpu_between_the_ends_of_a_ring_is_one_of_those_that_are_not_seen(
    layout: Layout, victim: int, unseen: set[int], dp_reduce: str, transport: str
) -> None:
    (one,) = told(slowdown("gpu_slow", layout, victim, 2.5, dp_reduce, transport))
    assert (one.rule, one.component, one.grade) == ("late_start", Component.GPU, Grade.MODERATE)
    assert victim in meant(one) <= unseen


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("victim", [4, 7])
def test_a_gpu_that_copies_slowly_moves_something_all_the_time(victim: int, transport: str) -> None:
    slow = slowdown("gpu_pcie_slow", PLAIN, victim, 4.0, "sharded", transport)
    assert not stands_still(slow, own_copy_ns(slow)).any()
    (one,) = told(slow)
    assert (one.component, one.culprits) == (Component.COPY, (victim,))


def test_behind_a_rank_that_has_not_begun_all_ranks_of_the_op_stand_still() -> None:
    slow = slowdown("gpu_slow", PLAIN, 5, 2.5)
    at = np.flatnonzero(stands_still(slow, own_copy_ns(slow)))
    assert set(slow.iterations.rank[at].tolist()) == {4, 7}
    assert [hidden_mates(slow, int(room)).tolist() for room in np.unique(slow.inside.room[at])] == [[5, 6]]


@pytest.mark.parametrize("victim", [2, 3])
def test_of_ranks_that_are_all_seen_none_stands_for_another(victim: int) -> None:
    slow = slowdown("gpu_pcie_slow", PAIRS, victim, 4.0)
    assert not stands_still(slow, np.full(len(slow.iterations.rank), slow.lost_ns)).any()


def test_where_every_gpu_is_slow_no_node_stands_out() -> None:
    assert all(not meant(one) for one in told(slowdown("gpus_slow", PLAIN, None, 2.0)))


def test_the_sentence_names_whom_the_finding_names() -> None:
    for one in told(slowdown("gpu_slow", LONG, 10, 2.5, "sharded")):
        assert one.sentence.startswith(("Rank 10 ", "One of ranks 9–14 "))
