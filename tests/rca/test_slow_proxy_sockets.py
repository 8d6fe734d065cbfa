"""Proxies over sockets, where what a proxy leaves lying, a late receiver and a slow way look alike in a ring."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, Symptom, SymptomKind
from rca.rules import slow_nic
from rca.settings import DEFAULT
from rca.slow.edges import edges_of
from rca.slow.ends import ends_of
from rca.slow.slowdown import slowdown_of
from tests.nccl_instrument.simulate.jobs import run, window_after, window_of

STAGES = Layout(tp=2, pp=2, dp=8, ranks_per_node=4)
AT_S = 8.0
ONSET_NS = ORIGIN_NS + int(AT_S * 1e9)


@cache
def diagnosed(fault: str, victim: int, amount: float) -> Diagnosis:
    window = window_after(fault, STAGES, victim, amount, at_s=AT_S, seconds=24.0, physics=TESTBED, transport="Socket")
    return diagnose(window, Symptom(SymptomKind.STRAGGLER, window.job, 1, ONSET_NS, window.end_ns, 0, (0,), "slow"))


@pytest.mark.parametrize(("fault", "amount"), [("gpu_slow", 3.0), ("nic_limited", 0.2), ("background_compute", 0.6)])
def test_proxies_that_only_wait_are_not_blamed(fault: str, amount: float) -> None:
    assert not any(one.culprits for one in diagnosed(fault, 2, amount).findings if one.component is Component.PROXY)


@pytest.mark.parametrize("amount", [0.8, 0.9])
def test_a_node_whose_sends_and_receives_all_wait_for_its_proxies_is_named(amount: float) -> None:
    best = diagnosed("cpu_contention", 2, amount).findings[0]
    assert (best.component, best.culprits) == (Component.PROXY, (8, 9, 10, 11))


@pytest.mark.parametrize("victim", [5, 14])
def test_a_proxy_that_sleeps_is_caught_by_what_it_leaves_unnoticed(victim: int) -> None:
    best = diagnosed("proxy_sleeps", victim, 1.0).findings[0]
    assert (best.component, best.culprits) == (Component.PROXY, (victim,))


FOUR_NODES = Layout(tp=4, pp=1, dp=4, ranks_per_node=4)


@cache
def with_slow_nics(nics: tuple[int, ...], transport: str) -> Window:
    """The NICs of these ranks become slow at once."""
    one = make_fault("nic_limited", FOUR_NODES, AT_S, victim=nics[0], amount=0.4)
    fault = replace(one, ranks=nics, nics=nics)
    return window_of(run(FOUR_NODES, fault, seconds=18.0, transport=transport))


def on_nics(nics: tuple[int, ...], transport: str) -> Diagnosis:
    window = with_slow_nics(nics, transport)
    return diagnose(window, Symptom(SymptomKind.STRAGGLER, window.job, 1, ONSET_NS, window.end_ns, 0, (0,), "slow"))


@pytest.mark.parametrize(
    ("nics", "transport"), [((4,), "Socket"), ((4, 5), "Socket"), ((4, 5, 6, 7), "IB")],
    ids=["one of four", "two of four", "all, and no CPU carries data"],
)  # fmt: skip
def test_nics_of_a_node_of_which_others_are_as_fast_as_ever_or_that_need_no_cpu_are_not_its_proxies(
    nics: tuple[int, ...], transport: str
) -> None:
    found = on_nics(nics, transport).findings
    assert found and not any(one.component is Component.PROXY for one in found)


@pytest.mark.parametrize(
    ("transport", "command"), [("Socket", "ethtool -S {nic}"), ("IB", "rdma statistic show link {nic}/1")]
)
def test_what_to_look_at_names_the_nic(transport: str, command: str) -> None:
    window = with_slow_nics((4,), transport)
    nic = str(window.ranks["nic"][window.ranks["rank"] == 4][0])
    assert nic and command.format(nic=nic) in on_nics((4,), transport).findings[0].advice


def test_where_every_nic_of_a_node_is_slow_over_sockets_it_is_who_carries_the_data() -> None:
    best = on_nics((4, 5, 6, 7), "Socket").findings[0]
    assert (best.component, best.culprits, best.subject.node) == (Component.PROXY, (4, 5, 6, 7), "node1")
    assert "CPUs" in best.sentence


@pytest.mark.parametrize(
    ("blamed", "rivals", "fast", "is_node"),
    [
        ((4, 7), ((), ()), (), True),
        ((4, 7), ((), ()), (5,), True),
        ((4,), ((),), (), False),
        ((4, 8), ((), ()), (), False),
        ((4, 7), ((), (8,)), (), False),
        ((4, 7), ((), ()), (5, 6), False),
    ],
    ids=[
        "two of its NICs",
        "half of the others are fast",
        "one",
        "one elsewhere",
        "or one elsewhere",
        "the others are fast",
    ],
)
def test_a_node_whose_nics_alone_are_blamed_is_named_though_victims_elsewhere_cost_as_much(
    blamed: tuple[int, ...], rivals: tuple[tuple[int, ...], ...], fast: tuple[int, ...], is_node: bool
) -> None:
    """Over sockets who waits for a slow node's data keeps back what others sent it, so their connections look slow, too."""
    slowdown = slowdown_of(with_slow_nics((4, 5, 6, 7), "Socket"), ONSET_NS, DEFAULT)
    assert slowdown is not None
    end_of = np.arange(len(slowdown.nodes))
    ends = ends_of(edges_of(slowdown), end_of)
    elsewhere = ~np.any([ends.touched(end) for end in (4, 5, 6, 7)], axis=0)
    now_ns = np.where(elsewhere, ends.usual_ns + (ends.now_ns - ends.usual_ns)[~elsewhere].max(), ends.now_ns)
    is_fast = np.any([ends.touched(end) for end in fast], axis=0) if fast else np.zeros(len(elsewhere), bool)
    is_slow = np.where(elsewhere, np.arange(len(elsewhere)) % 2 == 0, ~is_fast)
    seen = replace(
        ends, now_ns=now_ns, is_slow=is_slow, chosen=blamed, rivals=rivals, unexplained=np.zeros(0, np.int64)
    )
    assert slow_nic._whole_node(slowdown, seen, end_of) == (1 if is_node else None)


@pytest.mark.parametrize(
    ("tied", "said"),
    [
        ((4, 8), "The link rank 4 to rank 8 is slow; why: 3 ms"),
        ((4, 5, 8), "The links among ranks 4, 5 and 8 are slow; why: 3 ms"),
    ],
)
def test_ways_between_more_than_two_ends_are_links_among_them(tied: tuple[int, ...], said: str) -> None:
    slowdown = slowdown_of(with_slow_nics((4,), "Socket"), ONSET_NS, DEFAULT)
    assert slowdown is not None
    both = replace(on_nics((4,), "Socket").findings[0], sentence="both: 3 ms")
    found = slow_nic._as_link(slowdown, np.arange(len(slowdown.nodes)), tied, both, "why")
    assert (found.sentence, found.culprits, len(found.tied)) == (said, (), len(tied))
