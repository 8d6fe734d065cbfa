"""Which long iterations are examined for a proxy that sleeps, and when several late proxies are one NIC at the other end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rca.rules import slow_proxy
from rca.rules.slow_proxy import long_runs
from rca.settings import DEFAULT, Settings
from rca.slow.cover import Covered
from rca.slow.edges import Edges
from rca.slow.inside import Wait


def runs(*more_ms: int) -> list[list[int]]:
    """Of iterations that much longer than usual each."""
    more = np.array(more_ms, np.float64)
    return [run.tolist() for run in long_runs(more > 0, more)]


@pytest.mark.parametrize("at", range(1, 5))
def test_a_pause_across_two_of_a_row_of_long_iterations_is_examined_whole_wherever_it_lies(at: int) -> None:
    more = [0, 50, 50, 50, 50, 50, 0]
    more[at], more[at + 1] = 500, 500
    assert runs(*more)[0] == [at, at + 1]


def test_every_long_iteration_is_examined_once_and_the_costliest_come_first() -> None:
    found = runs(10, 900, 20, 0, 400, 0, 0, 30, 700, 600, 40)
    assert found == [[8, 9], [1, 2], [4], [10], [7], [0]]


def test_iterations_that_do_not_follow_each_other_are_not_put_together() -> None:
    assert runs(500, 0, 500) == [[0], [2]]


def test_where_none_is_long_none_is_examined() -> None:
    assert runs(0, 0, 0) == runs(0) == []


def test_who_has_just_woken_when_most_flows_stand_still_is_looked_for_shortly_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = np.array([1, 2, 3, 3, 3, 4], np.int64) * slow_proxy.TICK_NS + 7
    flow = np.zeros(len(ticks), [("tick_ns", "i8"), ("stuck_ns", "i8")])
    flow["tick_ns"], flow["stuck_ns"] = ticks, 2 * DEFAULT.still_ns
    woken_ns, asked = 3 * slow_proxy.TICK_NS, []

    def deaf_at(window: Any, until: int, settings: Settings) -> set[int]:
        asked.append(until)
        return {5} if until < woken_ns else set()

    monkeypatch.setattr(slow_proxy, "_deaf_at", deaf_at)
    iterations = SimpleNamespace(began=np.zeros((1, 1)), start_ns=0)
    job: Any = SimpleNamespace(window=SimpleNamespace(rows=lambda _: flow), iterations=iterations)
    assert slow_proxy._deaf_ranks(job, 0, 1e9, DEFAULT) == {5}
    assert asked == [4 * slow_proxy.TICK_NS, 2 * slow_proxy.TICK_NS]


@pytest.mark.parametrize(
    ("longer", "n_late", "n_ranks", "are_alike"),
    [
        ((3.1, 5.0), 2, 2, True), ((2.8, 5.0), 2, 2, False), ((2.8, 5.0), 6, 8, True), ((2.8, 5.0), 5, 8, False),
        ((2.4, 5.0), 8, 8, False), ((5.0,), 8, 8, False),
    ],
    ids=["by two thirds", "by half, of two ranks", "by half, most are late", "by half, some are late", "by less", "one alone"],
)  # fmt: skip
def test_a_node_whose_ranks_mostly_look_late_themselves_may_send_less_alike(
    longer: tuple[float, ...], n_late: int, n_ranks: int, are_alike: bool
) -> None:
    assert slow_proxy._are_alike(np.array(longer), n_late, n_ranks) is are_alike


def ends_at_one_nic(*edges: tuple[int, int, float], nic: tuple[int, ...]) -> bool:
    """Whether those of ranks 2 and 3 that are slow do. edges: (sender, receiver, times as long on the wire as usual)."""
    sender, receiver, times = (np.array(column) for column in zip(*edges, strict=True))
    usual = np.full(len(edges), 1e6)
    connections = Edges(sender, receiver, usual, usual * times, usual)
    job: Any = SimpleNamespace(ranks=SimpleNamespace(nic=np.array(nic)), at=np.arange(len(nic)))
    return slow_proxy._end_at_one_nic(job, connections, np.array([2, 3]))


def test_proxies_whose_slow_connections_all_end_at_one_shared_nic_are_not_several_slow_proxies() -> None:
    assert ends_at_one_nic((2, 0, 2.0), (3, 1, 2.0), (2, 5, 1.0), nic=(7, 7, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("edges", "nic"),
    [
        (((2, 0, 2.0), (3, 1, 2.0)), (7, 8, 1, 2, 3, 4)),
        (((2, 0, 2.0), (3, 5, 2.0)), (7, 7, 1, 2, 3, 4)),
        (((2, 0, 2.0), (3, 1, 1.0)), (7, 7, 1, 2, 3, 4)),
        (((2, 0, 2.0), (3, 1, 2.0)), (-1, -1, 1, 2, 3, 4)),
    ],
    ids=["two NICs", "another rank", "one connection", "NICs nobody knows"],
)
def test_slow_connections_to_several_ends_or_a_single_one_stay_the_senders(
    edges: tuple[tuple[int, int, float], ...], nic: tuple[int, ...]
) -> None:
    assert not ends_at_one_nic(*edges, nic=nic)


def goes_to_a_slow_nic(*edges: tuple[int, int, float], node: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> bool:
    """Whether what rank 1 sends does, NICs being ranks. edges: (sender, receiver, times as long on the wire as usual)."""
    sender, receiver, times = (np.array(column) for column in zip(*edges, strict=True))
    usual = np.full(len(edges), 1e6)
    connections = Edges(sender, receiver, usual, usual * times, usual)
    at = np.arange(len(node))
    job: Any = SimpleNamespace(ranks=SimpleNamespace(nic=at), at=at, nodes=np.array(node))
    return slow_proxy._is_the_way(job, connections, 1)


def test_a_rank_whose_neighbour_is_slow_with_others_too_waits_for_room() -> None:
    assert goes_to_a_slow_nic((0, 1, 1.0), (1, 2, 2.1), (2, 3, 2.1), (3, 4, 1.0))


@pytest.mark.parametrize(
    ("edges", "node"),
    [
        (((0, 1, 1.0), (1, 2, 2.1), (2, 3, 1.05)), (0, 1, 2, 3, 4, 5)),
        (((1, 2, 2.1), (2, 3, 2.1), (1, 4, 2.0), (4, 5, 1.0)), (0, 1, 2, 3, 4, 5)),
        (((0, 2, 3.0), (1, 2, 3.0)), (1, 1, 2, 3, 4, 5)),
        (((0, 1, 1.0), (1, 2, 1.1), (2, 3, 3.0)), (0, 1, 2, 3, 4, 5)),
    ],
    ids=["a neighbour as fast as ever", "a second one", "only its own node's", "none of its sends is slow"],
)
def test_a_late_proxy_is_not_excused_by_a_way_that_only_its_node_finds_slow(
    edges: tuple[tuple[int, int, float], ...], node: tuple[int, ...]
) -> None:
    assert not goes_to_a_slow_nic(*edges, node=node)


def comes_and_goes(*lengths_ms: int) -> bool:
    """Whether what makes iterations of 100 ms usually as long as these does."""
    began = np.cumsum([0, *lengths_ms])[None, :] * 1e6
    job: Any = SimpleNamespace(
        iterations=SimpleNamespace(n=len(lengths_ms) + 1, began=began), slow=np.ones(len(lengths_ms) + 1, bool),
        usual_ns=100e6, lost_ns=(np.mean(lengths_ms) - 100) * 1e6,
    )  # fmt: skip
    return slow_proxy._comes_and_goes(job)


@pytest.mark.parametrize("lengths_ms", [(100, 400, 100, 100, 100, 350, 100), (400, 300, 100, 350, 100, 200, 300, 100)])
def test_what_leaves_iterations_between_long_ones_as_short_as_ever_comes_and_goes(lengths_ms: tuple[int, ...]) -> None:
    assert comes_and_goes(*lengths_ms)


@pytest.mark.parametrize("lengths_ms", [(200, 190, 210, 200), (100, 100, 200, 210, 190, 200, 200, 100)])
def test_what_began_a_little_later_or_ended_is_there_all_the_time(lengths_ms: tuple[int, ...]) -> None:
    assert not comes_and_goes(*lengths_ms)


@pytest.mark.parametrize(
    ("n_sure", "n_looking", "n_named"), [(4, 4, 0), (4, 5, 0), (4, 6, 8), (4, 8, 8), (3, 8, 8), (3, 5, 0), (1, 6, 8)]
)
def test_who_looks_late_in_a_third_of_its_ops_counts_beside_others_of_its_node(
    monkeypatch: pytest.MonkeyPatch, n_sure: int, n_looking: int, n_named: int
) -> None:
    """So many of eight are late throughout; what the ring's entry sends is half as much longer as what its exit sends."""
    monkeypatch.setattr(slow_proxy, "uses_sockets", lambda window: False)
    monkeypatch.setattr(slow_proxy, "_every_one", lambda *_: False)
    monkeypatch.setattr(slow_proxy, "_end_at_one_nic", lambda *_: True)
    wire, usual, every = np.array([300.0] * 4 + [580.0] * 4), np.full(8, 100.0), np.full(8, 10)
    seen = Covered(wire, every, every, np.zeros(8, bool), False)
    rank, waits = np.arange(8), {wait: SimpleNamespace(excess_ns=wire) for wait in Wait}
    inside = SimpleNamespace(usual={Wait.NETWORK: usual}, room=rank)
    job: Any = SimpleNamespace(
        window=None, nodes=np.zeros(8, np.int64), waits=waits, inside=inside, sum=lambda values: values, lost_ns=600.0
    )
    is_sure = (rank % 2 == 1) & (rank < 2 * n_sure)
    late = slow_proxy._Late(seen, seen, is_sure, rank < n_looking, Edges(*(np.zeros(0, np.int64),) * 5))
    assert [len(at) for at in slow_proxy._by_node(job, late)] == ([n_named] if n_named else [])
