"""Slowdowns of simulated jobs whose shape the testbed does not have: plain rings, rings through nodes, experts, shared nodes.

Each window is made once. Nobody comes first: what is everybody's, what cannot be told, and what heals.
"""

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
from rca.findings import CREPT, Component, Diagnosis, FaultKind, Finding, Grade, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.slow.slowdown import CREPT_BEFORE, TOO_FEW, slowdown_of
from rca.why_not import why_not
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_after, window_of

RING = Layout(tp=1, pp=1, dp=4, ranks_per_node=1)
THROUGH_NODES = Layout(tp=1, pp=1, dp=8, ranks_per_node=2)
EXPERTS = Layout(tp=2, pp=1, dp=4, ep=4, ranks_per_node=2)
AT_S, SECONDS = 6.0, 14.0
ONSET_NS = ORIGIN_NS + int(AT_S * 1e9)


@cache
def slow(fault: str, layout: Layout, victim: int | None, amount: float, transport: str = "IB") -> Window:
    return window_after(fault, layout, victim, amount, at_s=AT_S, seconds=SECONDS, transport=transport)


def diagnosed(window: Window) -> Diagnosis:
    symptom = Symptom(SymptomKind.STRAGGLER, window.job, window.attempt, ONSET_NS, window.end_ns, 0, (0,), "slow")
    return diagnose(window, symptom)


def blamed(diagnosis: Diagnosis) -> set[int]:
    return {rank for finding in diagnosis.findings for rank in finding.culprits}


@pytest.mark.parametrize(("slower", "slow_too"), [(5, 1), (1, 5), (2, 3)])
def test_of_two_slow_gpus_both_are_named_the_slower_one_first(slower: int, slow_too: int) -> None:
    layout = replace(RING, dp=8)
    faults = (
        make_fault("gpu_slow", layout, AT_S, victim=rank, amount=by) for rank, by in ((slower, 3.0), (slow_too, 2.2))
    )
    found = diagnosed(window_of(run(layout, *faults, seconds=SECONDS))).findings
    assert [(one.culprits, one.grade) for one in found] == [((slower,), Grade.STRONG), ((slow_too,), Grade.STRONG)]


@pytest.mark.parametrize("fault", ["recompile", "clock_skew", "warm_experts"])
def test_what_is_healthy_blames_nobody(fault: str) -> None:
    layout = EXPERTS if fault == "warm_experts" else EIGHT
    assert not blamed(diagnosed(window_after(fault, layout, at_s=AT_S, seconds=SECONDS)))


@pytest.mark.parametrize(("share", "named"), [(1.0, {1}), (3.0, set[int]())])
def test_of_a_pace_that_crept_a_window_that_shows_little_of_it_blames_nobody(share: float, named: set[int]) -> None:
    """share: what the job lost since its start, by what the window shows."""
    window = slow("nic_limited", RING, 1, 0.3)
    shown = slowdown_of(window, ONSET_NS, DEFAULT)
    assert shown is not None
    numbers = {"iteration_usual_s": 1.0, "iteration_s": 1.0 + share * (shown.slow_ns / shown.usual_ns - 1), CREPT: 9.0}
    symptom = Symptom(
        SymptomKind.STRAGGLER, window.job, window.attempt, ONSET_NS, window.end_ns, 0, (0,), "slow", numbers
    )
    found = diagnose(window, symptom)
    assert (blamed(found), CREPT_BEFORE in found.missing) == (named, not named)
    told = why_not(window, symptom, found, 2).why_not
    assert (told == CREPT_BEFORE) == (not named)


def test_of_a_pace_that_crept_too_few_iterations_are_said_to_be_that() -> None:
    window = slow("nic_limited", RING, 1, 0.3)
    numbers = {"iteration_usual_s": 1.0, "iteration_s": 9.0, CREPT: 9.0}
    symptom = Symptom(
        SymptomKind.STRAGGLER, window.job, window.attempt, window.end_ns, window.end_ns, 0, (0,), "", numbers
    )
    assert TOO_FEW in diagnose(window, symptom).missing


@pytest.mark.parametrize(("fault", "amount"), [("links_slow", 0.5), ("gpus_slow", 2.0)])
@pytest.mark.parametrize("layout", [RING, EXPERTS])
def test_what_is_everybodys_is_nobodys(fault: str, amount: float, layout: Layout) -> None:
    found = diagnosed(slow(fault, layout, None, amount))
    assert not blamed(found) and found.findings[0].kind is FaultKind.GROUP_ANOMALY


@pytest.mark.parametrize("fault", ["nic_limited", "nic_pcie_slow"])
def test_over_sockets_a_slow_nic_is_named_by_what_both_ends_wait_for(fault: str) -> None:
    found = diagnosed(slow(fault, RING, 1, 0.3, "Socket"))
    assert blamed(found) == {1} and found.findings[0].component is Component.NIC


def test_over_sockets_ranks_that_a_slow_nic_holds_up_by_turns_do_not_hide_it() -> None:
    """Round a ring of 16 through four nodes all wait longer at both ends, and the one way to the slow NIC costs most."""
    layout, ring = Layout(tp=1, pp=1, dp=16, ranks_per_node=4), replace(TESTBED, dp_reduce="ring")
    found = diagnosed(
        window_after("nic_limited", layout, 8, 0.3, at_s=AT_S, seconds=SECONDS, transport="Socket", physics=ring)
    )
    assert not blamed(found) and set(found.findings[0].subject.ranks) == {7, 8}


STAGES = Layout(tp=2, pp=2, dp=4, ranks_per_node=4)


@pytest.mark.parametrize(("fault", "amount"), [("gpu_slow", 2.0), ("gpu_pcie_slow", 3.0)])
def test_over_sockets_sends_to_a_busy_stage_are_no_slow_network(fault: str, amount: float) -> None:
    found = diagnosed(slow(fault, STAGES, 4, amount, "Socket"))
    assert not any(one.culprits for one in found.findings if one.rule == "slow_nic")


@pytest.mark.parametrize("victim", [4, 10])
def test_over_sockets_what_a_slow_nic_sends_the_next_stage_tells_it_from_its_neighbour(victim: int) -> None:
    """Its ring has one way to it; its sends and receives of the pipeline are nobody else's."""
    found = diagnosed(slow("nic_limited", STAGES, victim, 0.4, "Socket"))
    assert blamed(found) == {victim} and found.findings[0].component is Component.NIC


def test_over_sockets_a_late_receiver_is_no_slow_network() -> None:
    found = diagnosed(slow("gpu_slow", RING, 1, 3.0, "Socket"))
    assert blamed(found) == {1} and found.findings[0].component is Component.GPU


@pytest.mark.parametrize("victim", [0, 2])
def test_a_few_iterations_are_enough_to_tell_a_nic_from_its_neighbours(victim: int) -> None:
    found = diagnosed(window_after("nic_limited", EIGHT, victim, 0.12, at_s=AT_S, seconds=AT_S + 5.0))
    assert blamed(found) == {victim} and found.findings[0].component is Component.NIC


BETWEEN_TWO = Layout(tp=1, pp=1, dp=4, ranks_per_node=2)


@pytest.mark.parametrize(
    ("fault", "layout", "amount"), [("nic_limited", THROUGH_NODES, 0.25), ("background_traffic", BETWEEN_TWO, 0.75)]
)
def test_two_ends_of_a_link_are_tied_where_nothing_is_late_against_the_data(
    fault: str, layout: Layout, amount: float
) -> None:
    """Credits pass by what waits to be sent; or the link itself is slow, and no port counts whose bytes fill it."""
    physics = replace(TESTBED, credits_queue=False)
    window = window_after(fault, layout, 1, amount, at_s=AT_S, seconds=SECONDS, physics=physics)
    found = diagnosed(replace(window, tables={**window.tables, "nic": window.rows("nic")[:0]}))
    best = found.findings[0]
    assert not blamed(found) and best.grade is Grade.WEAK
    assert best.subject.kind == "link" and set(best.subject.ranks) == {1, 2}
    assert set(found.victims) == set(range(layout.n_ranks)) - {1, 2}, "who may have started it does not only wait"


@pytest.mark.parametrize("fault", ["nic_limited", "nic_pcie_slow"])
@pytest.mark.parametrize("victim", [3, 4])
def test_the_end_of_such_a_link_whose_credits_or_hand_over_are_late_is_blamed(fault: str, victim: int) -> None:
    found = diagnosed(slow(fault, THROUGH_NODES, victim, 0.25))
    assert blamed(found) == {victim} and found.findings[0].component is Component.NIC


@pytest.mark.parametrize("victim", [0, 2])
def test_in_a_plain_ring_the_nic_that_all_slow_connections_share_is_blamed(victim: int) -> None:
    found = diagnosed(slow("nic_limited", RING, victim, 0.4))
    assert blamed(found) == {victim} and found.findings[0].component is Component.NIC


@pytest.mark.parametrize("layout", [EIGHT, STAGES, RING])
def test_a_nic_that_keeps_four_fifths_of_its_rate_is_told_by_what_else_is_as_fast_as_ever(layout: Layout) -> None:
    found = diagnosed(slow("nic_limited", layout, 2, 0.8))
    assert blamed(found) == {2} and found.findings[0].component is Component.NIC


@pytest.mark.parametrize(
    ("fault", "victim", "amount"), [("gpu_slow", 2, 1.3), ("gpu_pcie_slow", 2, 1.5), ("cpu_throttled", 1, 0.4)]
)
@pytest.mark.parametrize("layout", [EIGHT, STAGES, RING])
def test_what_makes_a_rank_a_little_slower_elsewhere_is_no_slow_nic(
    layout: Layout, fault: str, victim: int, amount: float
) -> None:
    found = diagnosed(slow(fault, layout, victim, amount))
    assert found.findings and not any(one.rule == "slow_nic" for one in found.findings)


def test_an_expert_gpu_that_is_slow_is_not_its_peers_fault() -> None:
    found = diagnosed(slow("gpu_slow", EXPERTS, 5, 3.0))
    assert blamed(found) == {5} and found.findings[0].component is Component.GPU


def test_all_ranks_of_a_node_whose_cpus_are_short_are_named_together() -> None:
    found = diagnosed(slow("cpu_contention", EIGHT, 1, 0.9))
    assert blamed(found) == {2, 3} and found.findings[0].component is Component.PROXY


def test_a_finding_says_where_the_time_went_how_far_it_reaches_and_when_it_began() -> None:
    window = slow("gpu_pcie_slow", EIGHT, 2, 3.0)
    found = diagnosed(window)
    best = found.findings[0]
    grown = {part.what: part.now - part.usual for part in best.parts}
    assert (best.culprits, best.component) == ((2,), Component.COPY)
    assert max(grown, key=lambda what: grown[what]) == "GPU copies"
    assert [cover.kind for cover in best.cover] == ["op", "rank", "node"]
    assert all(0 < cover.n <= cover.of for cover in best.cover)
    assert abs(best.began_ns - ONSET_NS) < 10**9
    assert found.compared[0].what == "iteration" and found.compared[0].now > found.compared[0].usual
    assert {one.unit for one in found.compared} == {"ms", "GB/s"}


def test_ranks_with_different_programs_count_their_iterations_from_the_same_moment() -> None:
    window = slow("gpu_slow", EXPERTS, 5, 3.0)
    slowdown = slowdown_of(window, ONSET_NS, DEFAULT)
    assert slowdown is not None
    began = slowdown.iterations.began[:, slowdown.usual]
    assert float(np.nanmax(np.ptp(began, axis=0))) < 0.5 * slowdown.usual_ns


def test_two_slow_nics_that_are_partners_in_one_ring_are_told_by_what_they_send_elsewhere() -> None:
    partners = Layout(tp=2, pp=2, dp=2, ranks_per_node=2)
    found = diagnosed(slow("background_traffic", partners, 1, 0.7))
    best = found.findings[0]
    assert (best.component, len(best.culprits), 1 in best.culprits) == (Component.NETWORK, 2, True)


def on_nics(fault: str, layout: Layout, nics: tuple[int, ...], amount: float) -> Window:
    """A fault at these NICs at once."""
    one = make_fault(fault, layout, AT_S, victim=nics[0], amount=amount)
    nodes = tuple(nic // layout.ranks_per_node for nic in nics)
    return window_of(run(layout, replace(one, ranks=nics, nics=nics, nodes=nodes), seconds=SECONDS))


def test_all_the_nics_of_one_node_are_its_nics_and_not_the_network_that_others_share() -> None:
    four_nodes = Layout(tp=2, pp=1, dp=4, ranks_per_node=2)
    found = diagnosed(on_nics("cross_numa", four_nodes, (2, 3), 0.7)).findings[0]
    assert (found.component, found.culprits, found.subject.node) == (Component.NIC, (2, 3), "node1")
    assert "one node's" in found.sentence


@pytest.mark.parametrize(("layout", "nics"), [(RING, (0, 2)), (RING, (1, 3)), (EIGHT, (0, 6))])
def test_traffic_on_every_second_nic_of_a_ring_is_told_by_what_they_carry_for_others(
    layout: Layout, nics: tuple[int, ...]
) -> None:
    found = diagnosed(on_nics("background_traffic", layout, nics, 0.7))
    assert blamed(found) == set(nics) and found.findings[0].component is Component.NETWORK


@pytest.mark.parametrize(("layout", "nics"), [(RING, (0, 2)), (EIGHT, (0, 6))])
def test_where_every_second_nic_of_a_ring_is_slow_by_itself_nobody_is_blamed(
    layout: Layout, nics: tuple[int, ...]
) -> None:
    """Where ports do not count how long they wait."""
    window = on_nics("nic_limited", layout, nics, 0.3)
    rows = window.rows("nic").copy()
    rows["xmit_wait"] = 2**64 - 1
    found = diagnosed(replace(window, tables={**window.tables, "nic": rows}))
    assert found.findings and not blamed(found) and "every second" in found.findings[0].sentence


def test_those_that_are_slow_by_themselves_are_told_by_the_ports_that_wait_for_them() -> None:
    found = diagnosed(on_nics("nic_limited", EIGHT, (0, 6), 0.3))
    assert blamed(found) == {0, 6} and found.findings[0].grade is Grade.MODERATE


@pytest.mark.parametrize("victim", [2, 6, 10])
def test_a_proxy_is_not_blamed_for_what_a_ring_goes_on_to_where_its_own_sends_are_as_fast_as_ever(victim: int) -> None:
    """Two ranks share a NIC that reaches memory badly; ranks of the next node have in their ring what these have."""
    layout, physics = (
        Layout(2, 1, 8, ranks_per_node=4, nics_per_node=2),
        replace(TESTBED, n_channels=4, dp_reduce="ring"),
    )
    window = window_after("cross_numa", layout, victim, 0.75, at_s=AT_S, seconds=SECONDS, physics=physics)
    users = {int(rank) for rank in range(16) if layout.nic_of[rank] == layout.nic_of[victim]}
    best = diagnosed(window).findings[0]
    assert set(best.culprits) <= users
    assert best.component is not Component.PROXY or not best.culprits


AHEAD = replace(
    TESTBED, link_mbit=400_000.0, node_gbyte_per_s=300.0, latency_us=10.0, node_latency_us=5.0, poll_us=1.0, step_gap_ms=3.0,
    n_channels=1, slot_kib=13_542, forward_ms=36.0, backward_ms=73.0, optimizer_ms=8.0, dp_kib=866_695, ep_kib=131_072,
    tp_kib=32_768, ahead=12, schedule="1f1b",
)  # fmt: skip
"""Hosts that run a dozen tasks ahead of their GPUs, and then wait for them."""
EXPERT_PAIRS = Layout(tp=1, pp=1, dp=16, ep=2, ranks_per_node=4)
EXPERT_NODES = Layout(tp=1, pp=1, dp=16, ep=4, ranks_per_node=4)
EXPERT_TENSORS = Layout(tp=2, pp=1, dp=16, ep=2, ranks_per_node=8)


def behind(reduce: str, layout: Layout, fault: str, victim: int, amount: float) -> Finding:
    """What is said first."""
    physics = replace(AHEAD, dp_reduce=reduce)
    return diagnosed(window_after(fault, layout, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics)).findings[
        0
    ]


@pytest.mark.parametrize("victim", [4, 5, 6, 7])
@pytest.mark.parametrize("layout", [EXPERT_PAIRS, EXPERT_NODES])
def test_who_hands_its_tokens_over_last_is_named_though_rings_show_only_whom_they_enter_by(
    layout: Layout, victim: int
) -> None:
    best = behind("ring", layout, "gpu_slow", victim, 3.0)
    assert best.culprits == (victim,) and best.component is Component.GPU


@pytest.mark.parametrize("victim", [8, 10, 11])
@pytest.mark.parametrize("reduce", ["ring", "sharded", "tree"])
def test_who_leads_its_tensor_group_by_more_is_whom_the_mate_of_its_experts_waits_for(reduce: str, victim: int) -> None:
    """Both lead their mates; who waits at the exchange does so for a part of the ops only."""
    assert behind(reduce, EXPERT_TENSORS, "gpu_slow", victim, 3.0).culprits == (victim,)


@pytest.mark.parametrize(("layout", "victim"), [(EXPERT_PAIRS, 5), (EXPERT_NODES, 6)])
def test_where_all_hand_over_at_once_who_is_seen_late_may_wait_for_a_mate_who_is_not(
    layout: Layout, victim: int
) -> None:
    best = behind("sharded", layout, "gpu_slow", victim, 3.0)
    assert not best.culprits and victim in best.subject.ranks and best.grade is Grade.MODERATE
    assert {rank // layout.ranks_per_node for rank in best.subject.ranks} == {1}


@pytest.mark.parametrize("reduce", ["ring", "sharded", "tree"])
@pytest.mark.parametrize("layout", [EXPERT_PAIRS, EXPERT_NODES, EXPERT_TENSORS])
def test_another_job_on_a_node_is_not_one_of_its_ranks(reduce: str, layout: Layout) -> None:
    best = behind(reduce, layout, "background_compute", 1, 0.6)
    assert len(best.culprits) in (0, layout.ranks_per_node)
    assert {rank // layout.ranks_per_node for rank in best.subject.ranks} == {1}
