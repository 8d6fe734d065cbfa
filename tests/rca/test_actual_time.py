"""What was measured on the wire: nobody first, then who it is by which of the metrics, beside what the waits say and alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import TRAFFIC_INCOMPLETE, TRAFFIC_SOURCES
from rca.asked import Asking
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Finding, Grade, Symptom, SymptomKind
from rca.flows import analyzer
from rca.flows.connections import received_bytes
from rca.flows.measured import measured_in
from rca.rules import actual_time
from rca.settings import DEFAULT
from rca.slow.ends import GROWN_MIN
from rca.slow.measured_too import with_measured
from rca.slow.slowdown import Slowdown, slowdown_of
from tests.nccl_instrument.simulate.jobs import EIGHT, EXPERTS, window_after

RING = Layout(tp=1, pp=1, dp=4, ranks_per_node=1)
AT_S, SECONDS = 6.0, 14.0
ONSET_NS = ORIGIN_NS + int(AT_S * 1e9)


@cache
def window(
    fault: str, layout: Layout, victim: int | None = None, amount: float | None = None, traffic_rows: int = 10**6
) -> Window:
    physics = replace(TESTBED, traffic_rows=traffic_rows)
    return window_after(fault, layout, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics)


def symptom_of(one: Window) -> Symptom:
    return Symptom(SymptomKind.STRAGGLER, one.job, one.attempt, ONSET_NS, one.end_ns, 0, (0,), "slow")


def slow(one: Window) -> Slowdown:
    found = slowdown_of(one, ONSET_NS, DEFAULT)
    assert found is not None
    return found


def by_wire(one: Window) -> tuple[Finding, ...]:
    return actual_time.explain(slow(one), symptom_of(one), DEFAULT)


def diagnosed(one: Window) -> Diagnosis:
    return diagnose(one, symptom_of(one))


def without(one: Window, *tables: str) -> Window:
    return replace(one, tables={name: rows for name, rows in one.tables.items() if name not in tables})


def without_waits(one: Window) -> Window:
    """As of a library that counts no waits, and without flows in progress: the wire alone is left."""
    ops = one.rows("op").copy()
    for name in ("gpu", "peer", "net"):
        ops[f"{name}_wait_ns"] = ops[f"receive_{name}_wait_ns"] = 0
    return replace(one, tables={**one.tables, "op": ops, "flow": one.rows("flow")[:0]})


@pytest.mark.parametrize(
    ("fault", "layout", "victim", "amount"),
    [("gpu_slow", RING, 2, 2.0), ("data_slow", EIGHT, 2, None), ("gpus_slow", RING, None, 2.0)],
)
def test_late_starts_are_nobodys_on_the_wire(
    fault: str, layout: Layout, victim: int | None, amount: float | None
) -> None:
    assert by_wire(window(fault, layout, victim, amount)) == ()


def test_slow_copies_are_no_slow_wire() -> None:
    assert by_wire(window("gpu_pcie_slow", RING, 1)) == ()


def test_without_measured_bytes_the_findings_are_the_same_objects() -> None:
    bare = without(window("nic_limited", RING, 2, 0.4), "traffic")
    found: list[Finding] = []
    slowdown = slow(bare)
    same, missing = with_measured(found, slowdown, Asking(slowdown, symptom_of(bare), DEFAULT))
    assert same is found and missing == (actual_time.UNMEASURED,)
    assert actual_time.UNMEASURED in diagnosed(bare).missing
    assert actual_time.UNMEASURED not in diagnosed(window("nic_limited", RING, 2, 0.4)).missing
    assert not [fact for one in diagnosed(bare).findings for fact in one.evidence if fact.source == "traffic"]


def test_links_that_are_all_slow_are_nobodys_and_the_networks() -> None:
    (found,) = by_wire(window("links_slow", RING, None, 0.5))
    assert found.kind is FaultKind.GROUP_ANOMALY and found.component is Component.NETWORK and not found.culprits


def test_bytes_of_iterations_that_lost_something_are_no_evidence() -> None:
    one = window("nic_limited", RING, 2, 0.4)
    rows = one.rows("traffic").copy()
    rows["flags"] |= TRAFFIC_INCOMPLETE
    spoiled = replace(one, tables={**one.tables, "traffic": rows})
    assert by_wire(spoiled) == ()
    assert any("lost something" in said for said in diagnosed(spoiled).missing)


@pytest.mark.parametrize(
    ("fault", "layout", "victim", "amount"),
    [
        ("nic_limited", RING, 2, 0.4), ("nic_limited", EXPERTS, 3, 0.4), ("pcie_contended", RING, 1, None),
        ("cross_numa", RING, 1, None), ("misaligned", EXPERTS, 3, None),
    ],
)  # fmt: skip
def test_a_slow_nic_is_told_by_its_actual_time(fault: str, layout: Layout, victim: int, amount: float | None) -> None:
    (found,) = by_wire(window(fault, layout, victim, amount))
    assert found.culprits == (victim,) and found.component is Component.NIC
    told = {fact.what: fact.value for fact in found.evidence}
    assert told["told by"] == analyzer.By.ACTUAL.value and told["epoch"] == 32.0
    assert 0 < float(told["pauses hidden above this share of a sender's rate"]) <= 100


@pytest.mark.parametrize("traffic_rows", [10**6, 200])
def test_the_wire_alone_finds_it_where_waits_are_not_counted(traffic_rows: int) -> None:
    found = diagnosed(without_waits(window("nic_limited", RING, 2, 0.4, traffic_rows))).findings
    assert found[0].rule == "actual_time" and found[0].culprits == (2,)


def captured(one: Window) -> Window:
    """As a mirrored port would have shown it: of a plugin's rows of late proxies the times that their bytes usually take."""
    rows = one.rows("traffic").copy()
    key, late = (
        np.stack([rows["rank"], rows["peer"], rows["comm_id"].astype(np.int64) >> 1]),
        rows["start_ns"] >= ONSET_NS,
    )
    _, of = np.unique(key, axis=1, return_inverse=True)
    for name in ("actual_ns", "share_ns"):
        for at in np.unique(of):
            mine, usual = of == at, (of == at) & ~late
            per_byte = np.median(rows[name][usual] / rows["n_bytes"][usual]) if usual.any() else 0.0
            rows[name][mine & late] = (rows["n_bytes"][mine & late] * per_byte).astype(np.int64)
    rows["source"] = TRAFFIC_SOURCES.index("capture")
    return replace(one, tables={**one.tables, "traffic": rows})


def test_the_proxy_that_notices_late_is_told_from_the_network_to_the_machine() -> None:
    (found,) = by_wire(captured(window("cpu_contention", EXPERTS, 2)))
    assert found.culprits == (4, 5) and found.component is Component.PROXY
    assert found.kind is FaultKind.COMPUTATION_FAIL_SLOW


def test_without_waits_a_late_proxy_is_its_groups_and_computation() -> None:
    one = without_waits(captured(window("cpu_contention", RING, 2)))
    found = diagnosed(one).findings
    assert [(other.rule, other.kind, other.culprits) for other in found] == [
        ("actual_time", FaultKind.GROUP_ANOMALY, ())
    ]
    assert "not the network" in found[0].sentence


def test_hot_experts_are_told_by_what_is_enqueued_for_them_where_their_own_bytes_were_not_measured() -> None:
    seen = window("hot_expert", EXPERTS, 3)
    one = slow(replace(seen, tables={name: rows for name, rows in seen.tables.items() if name != "traffic"}))
    usual, now = received_bytes(one)
    assert int(np.nanargmax(now / usual)) == int(np.flatnonzero(one.iterations.ranks == 3)[0])
    assert np.nanmax(now / usual) > analyzer.HOT_MIN * np.nanmedian(now / usual)


def test_hot_experts_are_named_where_nothing_was_measured_on_the_wire_and_no_nic_is() -> None:
    found = diagnosed(without(window("hot_expert", EXPERTS, 3), "traffic")).findings
    assert [(one.culprits, one.kind) for one in found] == [((3,), FaultKind.COMPUTATION_FAIL_SLOW)]
    assert found[0].grade is not Grade.WEAK


def test_a_slow_nic_to_experts_that_are_sent_as_much_as_ever_is_no_hot_expert() -> None:
    one = without(window("nic_limited", EXPERTS, 3, 0.5), "traffic")
    assert not by_wire(one)


def test_hot_experts_are_computation_and_the_longer_way_to_them_is_no_slow_network() -> None:
    found = diagnosed(window("hot_expert", EXPERTS, 3)).findings
    assert [(one.culprits, one.kind) for one in found] == [((3,), FaultKind.COMPUTATION_FAIL_SLOW)]


def test_both_sources_are_one_finding() -> None:
    found = diagnosed(window("nic_limited", RING, 2, 0.4)).findings
    assert len(found) == 1 and found[0].rule == "slow_nic" and found[0].culprits == (2,)
    assert any(fact.source == "traffic" for fact in found[0].evidence)


def test_a_way_that_waits_suspect_and_the_wire_does_not_is_left_out() -> None:
    one = captured(window("cpu_contention", RING, 2))
    assert any(other.rule == "slow_nic" for other in diagnosed(without(one, "traffic")).findings)
    assert [other.rule for other in diagnosed(one).findings] == ["slow_proxy"]


def test_a_late_proxy_whose_plugin_cannot_tell_the_wire_is_told_by_what_it_passes_on_off_the_wire() -> None:
    (found,) = by_wire(window("cpu_contention", EXPERTS, 2))
    assert (found.culprits, found.component, found.kind) == ((4, 5), Component.PROXY, FaultKind.COMPUTATION_FAIL_SLOW)
    assert {fact.what: fact.value for fact in found.evidence}["told by"] == analyzer.By.PASSES.value


def test_chunks_that_a_late_proxy_notices_late_are_no_slow_wire() -> None:
    found = diagnosed(window("cpu_contention", RING, 2)).findings[0]
    assert (found.rule, found.culprits, found.kind) == ("slow_proxy", (2,), FaultKind.COMPUTATION_FAIL_SLOW)


def test_a_node_that_does_not_measure_grades_it_down_and_is_said() -> None:
    one = without_waits(window("nic_limited", RING, 2, 0.4))
    rows = one.rows("traffic")
    partial = replace(one, tables={**one.tables, "traffic": rows[rows["node"] != 0]})
    found = diagnosed(partial)
    assert any("3 of 4 nodes" in said for said in found.missing)
    assert all(other.grade is not Grade.STRONG for other in found.findings)


def test_pauses_and_time_on_the_wire_add_up_to_what_an_op_lasts() -> None:
    """A straggler's peers pause: their actual time is as usual, and what they last longer is pauses."""
    one = slow(window("nic_limited", RING, 2, 0.4))
    measured = measured_in(one)
    longer = analyzer.wire_excess_ns(one, measured)
    assert longer.argmin() == 0  # the only one that neither sends to it nor is it
    spans = measured.ended - measured.began
    known = np.isfinite(measured.actual_ns)
    assert (measured.actual_ns[known] <= spans[known] + 1).all()
    paused = np.nanmean((spans - measured.actual_ns)[:, one.slow], axis=1)
    assert one.sum(paused)[0] > longer[0]  # which is time in which a chunk is done and its end has not come back yet


@pytest.mark.parametrize("is_longer", ["since the slowdown", "on rank 2"])
def test_only_epochs_of_one_length_are_compared_and_the_others_are_said(is_longer: str) -> None:
    """A process that doubles its epochs sees its pauses as bytes: no slow wire."""
    one = window("gpus_slow", RING, None, 2.0)
    rows = one.rows("traffic").copy()
    longer = (rows["start_ns"] >= ONSET_NS) if is_longer == "since the slowdown" else (rows["rank"] == 2)
    longer &= rows["start_ns"] >= ONSET_NS
    rows["actual_ns"] *= np.where(longer, 4, 1)
    rows["share_ns"] *= np.where(longer, 4, 1)
    rows["epoch_ns"] = np.where(longer, 64_000, 32_000)
    mixed = replace(one, tables={**one.tables, "traffic": rows})
    assert by_wire(mixed) == ()
    assert any("epochs of another length" in said for said in diagnosed(mixed).missing)
    assert not actual_time.is_whole(slow(mixed))


def test_epochs_of_another_length_beside_a_slow_nic_grade_it_down() -> None:
    one = without_waits(window("nic_limited", RING, 2, 0.4))
    rows = one.rows("traffic").copy()
    rows["epoch_ns"][::50] *= 2
    (found,) = by_wire(replace(one, tables={**one.tables, "traffic": rows}))
    assert found.culprits == (2,) and found.grade is not Grade.STRONG


def test_a_rank_that_is_steadily_late_and_is_sent_more_has_no_old_lateness_for_an_excess() -> None:
    one = slow(window("hot_expert", EXPERTS, 3))
    steady = replace(one, delays=replace(one.delays, own_ns=np.full_like(one.delays.own_ns, float(one.lost_ns))))
    on_its_way = analyzer._sent_longer_ns(one, measured_in(one))[3]
    assert [found.excess_ns for found in analyzer.hot_ranks(steady, measured_in(one))] in ([], [on_its_way])


@cache
def exchange(fault: str, victim: int, amount: float) -> Window:
    """Four ranks in a square who send to both neighbours, over and over."""
    physics = replace(TESTBED, schedule="neighbours", ep_kib=4096, traffic_rows=10**6)
    layout = Layout(1, 1, 4, 4, 1)
    return window_after(fault, layout, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics)


def test_a_nic_a_fifth_slower_is_told_where_the_wire_is_quiet() -> None:
    one = exchange("nic_pcie_slow", 2, 0.83)
    assert analyzer.slow_from(slow(one), measured_in(slow(one))) < 0.2
    assert diagnosed(one).culprits == (2,)


def test_what_is_slow_is_held_against_chance_and_never_below_a_tenth() -> None:
    one = slow(exchange("nic_pcie_slow", 2, 0.83))
    rows = one.window.rows("traffic").copy()
    noisy = replace(one, window=replace(one.window, tables={**one.window.tables, "traffic": rows}))
    assert analyzer.slow_from(one, measured_in(one)) >= analyzer.GROWN_LEAST
    rows["actual_ns"] = rows["actual_ns"] * np.random.default_rng(1).uniform(0.4, 1.6, len(rows))
    assert analyzer.slow_from(noisy, measured_in(noisy)) > analyzer.slow_from(one, measured_in(one))
    few = replace(one, usual=one.usual & (np.cumsum(one.usual) <= 2))
    assert analyzer.slow_from(few, measured_in(few)) == GROWN_MIN


@pytest.mark.parametrize("by", list(actual_time.SAID))
def test_one_rank_is_sent_and_several_are(by: analyzer.By) -> None:
    one = slow(exchange("nic_pcie_slow", 2, 0.83))
    verdict = analyzer.Verdict(analyzer.What.COMMUNICATION, by, (2,), 1e7, 2, 3)
    alone, both = (actual_time._told(one, replace(verdict, ranks=ranks)).sentence for ranks in ((2,), (1, 2)))
    assert "rank 2" in alone.lower() and " of its " in alone and not {"they", "their", "send"} & {*alone.split()}
    assert "ranks 1 and 2" in both.lower() and " of their " in both and not {"it", "its", "sends"} & {*both.split()}
    assert "and is sent" not in both and "and are sent" not in alone


def test_ways_of_several_nics_of_one_node_are_its_nics_and_of_several_nodes_the_network() -> None:
    four_nodes = Layout(tp=2, pp=1, dp=4, ranks_per_node=2)
    one = slow(window("gpu_slow", four_nodes, 2, 2.0))
    verdict = analyzer.Verdict(analyzer.What.COMMUNICATION, analyzer.By.ACTUAL, (2, 3), 1e6, 4, 4, n_ends=2)
    apart = replace(verdict, ranks=(2, 4))
    by_ports = replace(verdict, by=analyzer.By.PORTS)
    told = [actual_time._component(one, each) for each in (verdict, apart, by_ports)]
    assert told == [Component.NIC, Component.NETWORK, Component.NETWORK]


def test_of_a_square_whose_ways_are_all_slow_the_ports_tell_which_diagonal() -> None:
    found = diagnosed(exchange("background_traffic", 1, 0.2))
    one = slow(exchange("background_traffic", 1, 0.2))
    (by_ports,) = analyzer.communications(one, measured_in(one), DEFAULT)
    assert by_ports.by is analyzer.By.PORTS and len(by_ports.ranks) == 2 and 1 in by_ports.ranks
    assert found.culprits == tuple(one.iterations.ranks[list(by_ports.ranks)])
    assert found.findings[0].component is Component.NETWORK
