"""What touches all nodes of a rack is one finding about the rack; what touches less, more or nobody's rack stays as it was.

The jobs are simulated, a node's racks declared afterwards: agents say them, and no trace depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.faults import Fault
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Component, Cover, Diagnosis, FaultKind, Finding, Grade, Symptom, SymptomKind
from rca.hang import sinks
from rca.hang.progress import state_of
from rca.printed import text
from rca.racks import one_per_rack, racks_apart
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.normal import Normal
from rca.why_not import why_not
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_of
from tests.rca.transforms import renamed

PAIRS = Layout(tp=2, pp=1, dp=8, ranks_per_node=2)
STAGES = Layout(tp=2, pp=4, dp=4, ranks_per_node=4)
FOURS = Layout(tp=4, pp=2, dp=4, ranks_per_node=4)
RING = Layout(tp=2, pp=1, dp=4, ranks_per_node=2)
SINGLES = Layout(tp=1, pp=1, dp=16, ranks_per_node=1)
LAYOUTS = {"pairs": PAIRS, "stages": STAGES, "fours": FOURS, "singles": SINGLES, "eight": EIGHT, "ring": RING}
NOTHING_PASSES = 1e-7
"""Of a NIC's rate: its port is up, and what was sent has not arrived when the job is diagnosed."""
SLOW_S = 6.0
STALL = Symptom(SymptomKind.FAILURE, "simulated", 1, 1, 2, 0, (), "")


@cache
def window(
    name: str, layout: str = "pairs", nodes: tuple[int, ...] = (2, 3), amount: float = 0.0, transport: str = "IB",
    at_s: float = 2.0, seconds: float = 13.5,
) -> Window:  # fmt: skip
    """The window some seconds after the same befell all these nodes."""
    made = LAYOUTS[layout]
    ranks = tuple(rank for node in nodes for rank in made.ranks_of_node(node))
    nics = tuple(sorted({int(made.nic_of[rank]) for rank in ranks}))
    fault = Fault(name, at_s, amount=amount, ranks=ranks, nics=nics, nodes=nodes)
    return window_of(run(made, fault, seconds=seconds, transport=transport))


def standing(cut: Window, racks: Sequence[str]) -> Window:
    names = cut.nodes["name"].tolist()
    order = sorted(names, key=lambda name: int(name.removeprefix("node")))
    return replace(cut, racks={name: rack for name, rack in zip(order, racks, strict=True) if rack})


def in_twos(cut: Window) -> Window:
    return standing(cut, [f"r{node // 2}" for node in range(len(cut.nodes))])


def diagnosed(cut: Window, kind: SymptomKind = SymptomKind.FAILURE) -> Diagnosis:
    seen = look(cut, Normal())
    return diagnose(cut, next(one for one in seen.symptoms if one.kind is kind))


def slow(cut: Window) -> Diagnosis:
    onset_ns = ORIGIN_NS + int(SLOW_S * 1e9)
    symptom = Symptom(SymptomKind.STRAGGLER, cut.job, cut.attempt, onset_ns, cut.end_ns, 0, (0,), "slow")
    return diagnose(cut, symptom)


def about_racks(found: Diagnosis) -> list[Finding]:
    return [one for one in found.findings if one.subject.kind == "rack"]


# ---- no rack ----


@pytest.mark.parametrize(
    "racks",
    [
        [""] * 8,
        ["a", "a", "a", "b", "b", "b", "b", "b"],
        ["a", "a", "b", "", "c", "c", "c", "c"],
        ["a", "a", "b", "b", "b", "c", "c", "c"],
        ["a", "b", "c", "d", "e", "f", "g", "h"],
        ["a"] * 8,
    ],
    ids=["undeclared", "two racks", "one undeclared", "part of one", "alone in theirs", "the whole job in one"],
)
@pytest.mark.parametrize("fault", ["node_silent", "nic_down", "nic_limited"])
def test_what_is_no_whole_rack_is_found_as_without_racks(fault: str, racks: list[str]) -> None:
    cut = window(fault, amount=NOTHING_PASSES)
    found, plain = diagnosed(standing(cut, racks)), diagnosed(cut)
    assert not about_racks(found)
    assert [replace(one, cover=()) for one in found.findings] == [replace(one, cover=()) for one in plain.findings]


def test_what_touches_every_node_of_the_job_is_no_racks() -> None:
    found = diagnosed(in_twos(window("nic_down", "eight", (0, 1, 2, 3))))
    assert found.findings and not about_racks(found)
    cut = in_twos(window("nic_down"))
    assert racks_apart(cut, np.arange(len(cut.nodes))) == {}


def test_ranks_that_are_tied_inside_their_nodes_make_no_rack() -> None:
    found = slow(in_twos(window("gpu_slow", "pairs", amount=2.0, at_s=SLOW_S, seconds=14.0)))
    assert [one.subject.kind for one in found.findings] == ["node", "node"]
    assert all(one.tied for one in found.findings)


def test_one_node_that_loses_everything_is_not_its_rack() -> None:
    found = diagnosed(in_twos(window("nic_limited", nodes=(2,), amount=NOTHING_PASSES)))
    assert found.findings and not about_racks(found)


@pytest.mark.parametrize("racks", [["a", "a", *[""] * 6], ["a", "a", "b", "b", *["c"] * 4], ["a", "a", *["b"] * 6]])
def test_of_two_racks_between_which_all_is_lost_none_is_named(racks: list[str]) -> None:
    """The moment is one in which only sends between the first four nodes were under way; undeclared nodes may be a rack, too."""
    cut = window("nic_limited", "stages", amount=NOTHING_PASSES, at_s=2.148, seconds=13.65)
    state = state_of(cut, DEFAULT)
    names = cut.nodes["name"][state.ranks.node[state.links]]
    assert {tuple(sorted(pair)) for pair in names.tolist()} == {("node0", "node2"), ("node1", "node3")}
    assert not about_racks(diagnose(standing(cut, racks), STALL))


def test_a_neighbour_of_nodes_that_lose_data_makes_no_rack_with_them() -> None:
    cut = window("nic_limited", "stages", amount=NOTHING_PASSES)
    assert not about_racks(diagnose(standing(cut, ["a", "b", "b", "b", *["c"] * 4]), STALL))


def test_one_rank_on_each_node_of_a_rack_is_no_rack() -> None:
    fault = Fault("rank_killed", 2.0, ranks=(4, 6), nodes=(2, 3))
    found = diagnosed(in_twos(window_of(run(PAIRS, fault, seconds=13.5))))
    assert found.findings and not about_racks(found)


# ---- a rack ----


@pytest.mark.parametrize("kind", [SymptomKind.FAILURE, SymptomKind.SILENCE])
@pytest.mark.parametrize("layout", ["pairs", "stages"])
def test_a_rack_whose_nodes_are_all_silent_is_one_finding(layout: str, kind: SymptomKind) -> None:
    cut = in_twos(window("node_silent", layout))
    found = diagnosed(cut, kind)
    (rack,) = found.findings
    ranks = tuple(rank for node in (2, 3) for rank in LAYOUTS[layout].ranks_of_node(node))
    assert (rack.subject.kind, rack.subject.name, rack.subject.ranks, rack.culprits) == ("rack", "r1", ranks, ranks)
    assert (rack.component, rack.kind, rack.grade) == (Component.NODE, FaultKind.SILENCE, Grade.STRONG)
    assert rack.sentence.startswith("All 2 nodes of rack r1 (")
    assert (
        f"; {len(cut.ranks) - len(ranks)} ranks wait for it. A switch or power that they share is likelier"
        in rack.sentence
    )
    assert [(one.n, one.of, one.whole) for one in rack.cover[-2:]] == [(2, 2, "rack r1"), (2, 8, "the job")]
    assert "ping -c 3 node2" in rack.advice and "ping -c 3 node3" in rack.advice
    assert "the job need not stop" in rack.advice
    assert set(found.victims) == {int(rank) for rank in cut.ranks["rank"]} - set(ranks)


def test_a_rack_that_is_not_heard_since_before_the_stall_is_one_finding() -> None:
    (rack,) = diagnose(in_twos(window("node_silent", seconds=9.0)), STALL).findings
    assert (rack.subject.name, rack.culprits, rack.grade) == ("r1", (4, 5, 6, 7), Grade.MODERATE)


@pytest.mark.parametrize("kind", [SymptomKind.FAILURE, SymptomKind.SILENCE])
def test_a_rack_of_more_nodes_than_findings_are_shown_hides_no_other_node(kind: SymptomKind) -> None:
    silent = (*range(2, 9), 14)
    assert len(silent) > DEFAULT.findings_max
    cut = standing(window("node_silent", "singles", silent), ["a"] * 2 + ["b"] * 7 + ["c"] * 7)
    found = {(one.subject.kind, one.subject.name): one for one in diagnosed(cut, kind).findings}
    assert found.keys() == {("rack", "b"), ("node", "node14")}
    assert found["rack", "b"].culprits == tuple(range(2, 9))
    assert Cover("node", 1, 7, "rack c") in found["node", "node14"].cover


def test_two_racks_that_fall_silent_are_two_findings() -> None:
    found = diagnosed(in_twos(window("node_silent", nodes=(2, 3, 6, 7))))
    assert {one.subject.name: one.culprits for one in found.findings} == {"r1": (4, 5, 6, 7), "r3": (12, 13, 14, 15)}


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("layout", ["pairs", "stages"])
def test_a_rack_whose_ports_are_all_down_is_named(layout: str, transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are more NICs than ends of waiting are looked at."""
    monkeypatch.setattr(sinks, "SINKS_MAX", 3)
    (rack,) = diagnosed(in_twos(window("nic_down", layout, transport=transport))).findings
    ranks = tuple(rank for node in (2, 3) for rank in LAYOUTS[layout].ranks_of_node(node))
    assert (rack.subject.kind, rack.subject.name, rack.culprits) == ("rack", "r1", ranks)
    assert (rack.component, rack.kind, rack.grade) == (
        Component.NIC, FaultKind.COMMUNICATION_FAIL_STOP, Grade.STRONG,
    )  # fmt: skip
    assert "ibqueryerrors" in rack.advice


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("layout", ["pairs", "stages"])
def test_a_rack_that_loses_everything_though_its_ports_are_up_is_named(layout: str, transport: str) -> None:
    cut = in_twos(window("nic_limited", layout, amount=NOTHING_PASSES, transport=transport))
    (rack,) = diagnosed(cut).findings
    ranks = tuple(rank for node in (2, 3) for rank in LAYOUTS[layout].ranks_of_node(node))
    assert (rack.subject.kind, rack.subject.name, rack.culprits) == ("rack", "r1", ranks)
    assert (rack.component, rack.kind) == (Component.NETWORK, FaultKind.COMMUNICATION_FAIL_STOP)
    assert rack.grade is Grade.MODERATE and rack.evidence and rack.conditions


def test_the_only_two_racks_of_a_job_are_told_apart_by_what_is_lost_inside_one() -> None:
    (rack,) = diagnosed(in_twos(window("nic_limited", "ring", amount=NOTHING_PASSES))).findings
    assert (rack.subject.kind, rack.subject.name, rack.culprits) == ("rack", "r1", (4, 5, 6, 7))


@pytest.mark.parametrize("fault", ["node_silent", "nic_down", "nic_limited"])
def test_a_rack_is_the_same_whatever_its_ranks_are_called(fault: str) -> None:
    cut = in_twos(window(fault, amount=NOTHING_PASSES))
    names = np.array([(rank * 5 + 3) % 16 for rank in range(16)])
    (rack,), (other,) = diagnosed(cut).findings, diagnosed(renamed(cut, names)).findings
    assert {names[rank] for rank in rack.culprits} == set(other.culprits)
    assert (rack.subject.name, rack.component, rack.grade) == (other.subject.name, other.component, other.grade)


@pytest.mark.parametrize("transport", ["IB", "Socket"])
def test_nics_of_a_rack_that_are_all_slow_are_the_racks(transport: str) -> None:
    cut = window("nic_limited", amount=0.33, at_s=SLOW_S, seconds=14.0, transport=transport)
    (rack,), (plain,) = slow(in_twos(cut)).findings, slow(cut).findings
    assert (rack.subject.kind, rack.subject.name, rack.culprits) == ("rack", "r1", (4, 5, 6, 7))
    assert (rack.component, rack.kind, rack.grade, rack.score) == (
        Component.NETWORK, FaultKind.COMMUNICATION_FAIL_SLOW, plain.grade, plain.score,
    )  # fmt: skip
    assert plain.advice in rack.advice


@pytest.mark.parametrize(("fault", "amount"), [("gpu_pcie_slow", 3.0), ("cpu_contention", 0.9)])
def test_findings_of_a_slow_rack_are_one_before_they_are_too_many_to_show(fault: str, amount: float) -> None:
    cut = window(fault, "fours", amount=amount, at_s=SLOW_S, seconds=14.0)
    (rack,), plain = slow(in_twos(cut)).findings, slow(cut).findings
    assert (rack.subject.kind, rack.culprits) == ("rack", tuple(range(8, 16)))
    assert len(plain) > 1 and rack.score == max(one.score for one in plain)
    assert (Cover("node", 2, 2, "rack r1"), Cover("node", 2, 8, "the job")) == rack.cover[-2:]


# ---- how it is told ----


def test_a_rank_of_the_rack_is_said_to_be_blamed_with_it() -> None:
    cut = in_twos(window("node_silent"))
    found = diagnosed(cut)
    assert "All 2 nodes of rack r1" in why_not(cut, found.symptom, found, 6).why_not
    assert "waits for rank" in why_not(cut, found.symptom, found, 0).why_not
    assert "1. rack r1: Node" in text(found)


def test_of_whole_racks_one_node_each_comes_first() -> None:
    cut = in_twos(window("node_silent"))
    nodes = np.array([0, 2, 3, 6, 7])
    names = cut.nodes["name"].tolist()
    firsts = [names[at] for at in one_per_rack(cut, nodes, nodes)]
    assert len(firsts) == 3 and len({cut.racks[name] for name in firsts}) == 3
