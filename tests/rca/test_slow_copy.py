"""A GPU that copies slowly: what lies at a rank for another reason, and which of two that an op passes through it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.findings import Component, Symptom, SymptomKind
from rca.rules import slow_copy
from rca.settings import DEFAULT
from rca.slow.copies import own_copy_ns
from rca.slow.edges import Edges
from rca.slow.slowdown import Slowdown, slowdown_of
from tests.nccl_instrument.simulate.jobs import window_after

STAGES = Layout(tp=2, pp=2, dp=8, ranks_per_node=8)
THROUGH = Layout(tp=2, pp=1, dp=8, ranks_per_node=4)
TREE = Layout(tp=2, pp=1, dp=16, ranks_per_node=4)
SHARED = Layout(tp=2, pp=1, dp=16, ranks_per_node=8, nics_per_node=4)
AT_S = 8.0


def slowdown(
    fault: str, layout: Layout, victim: int, amount: float, dp_reduce: str = "sharded", transport: str = "IB"
) -> Slowdown:
    physics = replace(TESTBED, dp_reduce=dp_reduce, tree_from=2)
    window = window_after(fault, layout, victim, amount, at_s=AT_S, seconds=18.0, physics=physics, transport=transport)
    found = slowdown_of(window, ORIGIN_NS + int(AT_S * 1e9), DEFAULT)
    assert found is not None
    return found


def blamed(slow: Slowdown) -> list[int]:
    symptom = Symptom(SymptomKind.STRAGGLER, "simulated", 1, 0, 0, 0, (0,), "slow")
    found = slow_copy.explain(slow, symptom, DEFAULT)
    return [rank for one in found for rank in one.culprits if one.component is Component.COPY]


@pytest.mark.parametrize("victim", [0, 1, 5, 14, 31])
def test_in_a_tree_what_lies_until_the_other_child_has_sent_is_nobodys(victim: int) -> None:
    assert blamed(slowdown("gpu_slow", TREE, victim, 3.0, "tree")) == []


def test_of_ranks_that_a_ring_passes_through_none_is_blamed_whose_work_takes_longer() -> None:
    assert blamed(slowdown("gpu_slow", THROUGH, 4, 3.0)) == []


@pytest.mark.parametrize("transport", ["IB", "Socket"])
def test_what_lies_where_a_ring_enters_a_node_behind_a_slow_way_out_is_no_gpus(transport: str) -> None:
    slow = slowdown("nic_limited", SHARED, 14, 0.6, "ring", transport)
    assert slow.sum(own_copy_ns(slow)).max() < 0.1 * slow.lost_ns and blamed(slow) == []


@pytest.mark.parametrize("victim", [4, 6])
def test_of_two_that_a_ring_passes_through_the_one_that_is_through_last_is_blamed(victim: int) -> None:
    assert blamed(slowdown("gpu_pcie_slow", THROUGH, victim, 3.0)) == [victim]


@pytest.mark.parametrize("victim", [2, 15])
def test_a_gpu_that_copies_slowly_is_blamed_alone_where_a_ring_passes_through_its_node(victim: int) -> None:
    assert blamed(slowdown("gpu_pcie_slow", STAGES, victim, 4.0)) == [victim]


def given(*places: tuple[int, int, float]) -> list[float]:
    """What each place has in the end. places: (rank, room, what chunks wait for its GPU there)."""
    rank_at, room, own = (np.array(column) for column in zip(*places, strict=True))
    most = [max(one for one, other in zip(own, room, strict=True) if other == mine) for mine in room]
    inside = SimpleNamespace(room=room, of_room=lambda values: np.array(most))
    job: Any = SimpleNamespace(inside=inside, iterations=SimpleNamespace(rank_at=rank_at, ranks=np.unique(rank_at)))
    return slow_copy._given_to_witness(job, own).tolist()


def test_what_lies_where_a_ring_enters_is_given_to_the_rank_whose_own_sends_show_it() -> None:
    assert given((0, 7, 9e6), (0, 1, 0.0), (1, 7, 0.0), (1, 2, 2e6)) == [0.0, 0.0, 9e6, 2e6]


@pytest.mark.parametrize(
    "places",
    [
        ((0, 7, 9e6), (1, 7, 8e6)),
        ((0, 7, 9e6), (0, 1, 2e6), (1, 7, 8e6), (1, 2, 2e6)),
        ((0, 7, 9e6), (0, 1, 0.0), (1, 8, 8e6), (1, 2, 2e6)),
    ],
    ids=["no own sends", "both show it", "another op"],
)
def test_otherwise_it_stays_where_it_is(places: tuple[tuple[int, int, float], ...]) -> None:
    assert given(*places) == [own for _, _, own in places]


def ends(*later_ms: tuple[float, float]) -> Any:
    """Two ranks in two ops: of each op, by how much the second ends later than the first usually, and now."""
    rng, before = np.random.default_rng(1), np.arange(20) < 10
    apart = np.array([np.where(before, usual, now) + rng.normal(0, 0.01, 20) for usual, now in later_ms]) * 1e6
    end = np.concatenate([np.stack([np.zeros(20), one]) for one in apart])
    rooms = [np.array([at, at + 1]) for at in range(0, len(end), 2)]
    return slow_copy._through_last(SimpleNamespace(end=end), rooms, before, ~before)  # type: ignore[arg-type]


@pytest.mark.parametrize("later_ms", [((1.0, 1.0), (2.0, 2.0)), ((1.0, 1.05), (2.0, 2.05)), ((1.0, 3.0), (2.0, 0.0))])
def test_none_is_through_last_who_always_was_or_is_so_in_one_op_alone(
    later_ms: tuple[tuple[float, float], ...],
) -> None:
    assert ends(*later_ms) == -1


@pytest.mark.parametrize(("now_ms", "last"), [(3.0, 1), (-3.0, 0)])
def test_who_ends_all_ops_later_than_it_used_to_is_through_last(now_ms: float, last: int) -> None:
    assert ends((1.0, 1.0 + now_ms), (-2.0, now_ms - 2.0)) == last


def together(*places: tuple[int, int, float]) -> list[list[int]]:
    rank_at, room, own = (np.array(column) for column in zip(*places, strict=True))
    job: Any = SimpleNamespace(inside=SimpleNamespace(room=room), iterations=SimpleNamespace(rank_at=rank_at))
    return [at.tolist() for at in slow_copy._through_one(job, own, np.unique(rank_at))]


def test_two_that_show_it_in_one_op_alone_are_tied_and_others_are_not() -> None:
    assert together((0, 7, 9e6), (1, 7, 8e6), (2, 5, 4e6)) == [[2], [0, 1]]
    assert together((0, 7, 9e6), (0, 1, 2e6), (1, 7, 8e6), (1, 2, 2e6)) == [[1], [0]]


@pytest.mark.parametrize(
    ("who", "is_socket", "are_around"),
    [((1, 4, 5), True, True), ((1, 4), True, True), ((1, 4), False, False), ((4, 5), True, False), ((1, 2, 4), True, False),
     ((0, 4), True, False)],
    ids=["both sides", "two", "over InfiniBand", "of one node", "its own users", "not next to it"],
)  # fmt: skip
def test_over_sockets_gpus_of_several_nodes_around_one_nic_are_not_all_slow(
    monkeypatch: pytest.MonkeyPatch, who: tuple[int, ...], is_socket: bool, are_around: bool
) -> None:
    """A ring 0 → 1 → 2 → 4 and 3 → 5; ranks 2 and 3 share a NIC."""
    sender, receiver = np.array([0, 1, 2, 3, 1]), np.array([1, 2, 4, 5, 3])
    usual, now = np.ones(len(sender)), np.where((sender >= 1) & (sender <= 3), 2.0, 1.0)
    monkeypatch.setattr(slow_copy, "uses_sockets", lambda window: is_socket)
    monkeypatch.setattr(slow_copy, "edges_of", lambda slowdown: Edges(sender, receiver, usual, now, now))
    job: Any = SimpleNamespace(
        window=None,
        nodes=np.array([0, 0, 1, 1, 2, 2]),
        at=np.arange(6),
        ranks=SimpleNamespace(nic=np.array([0, 1, 2, 2, 3, 4])),
    )
    assert slow_copy._are_around_one_nic(job, np.array(who)) is are_around
    monkeypatch.setattr(slow_copy, "edges_of", lambda slowdown: Edges(sender, receiver, usual, usual, usual))
    assert not slow_copy._are_around_one_nic(job, np.array(who)), "a NIC that is as fast as ever"


def test_what_lies_around_one_slow_nic_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = slowdown("gpu_pcie_slow", THROUGH, 4, 5.0)
    assert blamed(slow) == [4]
    monkeypatch.setattr(slow_copy, "_are_around_one_nic", lambda slowdown, blamed: blamed.tolist() == [4])
    assert blamed(slow) == []
