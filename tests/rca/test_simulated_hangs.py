"""Hangs that only the simulator makes: ops that differ, orders that cross, GPUs that stop, nodes that fall silent."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Rows, Window
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Grade, Symptom, SymptomKind
from rca.hang.progress import state_of
from rca.hang.trees import comes_down
from rca.keys import Mask
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.normal import Normal
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_after, window_of

STALL = Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), "")
FOURS = Layout(tp=4, pp=1, dp=4, ranks_per_node=4)
LAYOUTS = {
    "8": EIGHT,
    "16": Layout(tp=4, pp=2, dp=2, ranks_per_node=4),
    "fours": FOURS,
    "wide": Layout(tp=2, pp=1, dp=8, ranks_per_node=4),
    "stages": Layout(tp=1, pp=4, dp=4, ranks_per_node=4),
    "shared nics": Layout(tp=2, pp=2, dp=4, ranks_per_node=4, nics_per_node=2),
    "tensor over nodes": Layout(tp=8, pp=1, dp=2, ranks_per_node=4),
    "experts in a node": Layout(tp=1, pp=1, dp=8, ep=4, ranks_per_node=4),
    "tensor and data": Layout(tp=2, pp=1, dp=8, ranks_per_node=4),
    "data alone": Layout(tp=1, pp=1, dp=16, ranks_per_node=4),
    "deep": Layout(tp=2, pp=4, dp=2, ranks_per_node=4),
}


@cache
def window(
    name: str, layout: str = "8", victim: int = 5, transport: str = "IB", seconds: float = 13.5, at_s: float = 2.0
) -> Window:
    return window_after(name, LAYOUTS[layout], victim, at_s=at_s, seconds=seconds, transport=transport)


@cache
def healthy() -> Window:
    return window_of(run(EIGHT, seconds=6.0))


def diagnosed(name: str, layout: str = "8", victim: int = 5, transport: str = "IB", at_s: float = 2.0) -> Diagnosis:
    cut = window(name, layout, victim, transport, at_s + 11.5, at_s)
    seen = look(cut, Normal())
    assert seen.symptoms, f"no symptom: {seen.held}"
    return diagnose(cut, seen.symptoms[0])


def kinds(found: Diagnosis) -> set[FaultKind]:
    return {finding.kind for finding in found.findings}


# ---- different ops ----


def test_in_a_healthy_job_nobody_disagrees() -> None:
    assert not len(state_of(healthy(), DEFAULT).disputed.at)


@pytest.mark.parametrize("name", ["nic_down", "rank_frozen", "stuck_before", "proxy_stuck"])
def test_a_hang_in_which_all_entered_the_same_is_no_mismatch(name: str) -> None:
    assert FaultKind.MISMATCH not in kinds(diagnosed(name))


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("name", ["different_op", "different_size"])
def test_the_rank_whose_peers_are_through_with_another_op_is_named(name: str, transport: str) -> None:
    found = diagnosed(name, "fours", 6, transport)
    best = found.findings[0]
    assert (best.culprits, best.component, best.kind, best.grade) == (
        (6,), Component.SOFTWARE, FaultKind.MISMATCH, Grade.STRONG,
    )  # fmt: skip
    assert best.evidence[0].rank == 6
    assert len({fact.value for fact in best.evidence}) == 2
    assert len(found.findings) == 1, "what the mismatch explains is no second finding"


@pytest.mark.parametrize("name", ["different_op", "different_size"])
def test_two_that_disagree_are_a_tie_and_neither_ones_proxy_is_blamed(name: str) -> None:
    found = diagnosed(name)
    assert (found.culprits, found.findings[0].kind, len(found.findings)) == ((), FaultKind.MISMATCH, 1)
    assert {rank for tied in found.findings[0].tied for rank in tied.ranks} == {5, 7}


# ---- different orders ----


def test_ops_in_the_same_order_are_no_deadlock() -> None:
    for name in ("nic_down", "rank_frozen", "stuck_before", "gpu_error", "different_op"):
        assert FaultKind.DEADLOCK not in kinds(diagnosed(name, "16"))


def with_an_earlier_crossing(cut: Window, rank: int) -> Window:
    """The window in which this rank's orders differed an iteration earlier too, and all went well."""
    tables = {name: cut.rows(name).copy() for name in ("op", "live_op")}
    ids = {name: np.uint64(cut.members["comm_id"][cut.members["name"] == name][0]) for name in ("world", "tp_2")}
    newest = max(int(rows["op"][rows["comm_id"] == ids["world"]].max()) for rows in tables.values())
    first_ns = min(
        int(rows["enqueued_ns"][_of(rows, rank, ids["world"], newest - 1)].min(initial=2**62))
        for rows in tables.values()
    )
    for rows in tables.values():
        moved = (rows["rank"] == rank) & (rows["comm_id"] == ids["tp_2"]) & (rows["enqueued_ns"] < first_ns)
        last = rows["op"][moved].max(initial=0)
        rows["enqueued_ns"][moved & (rows["op"] == last)] = first_ns + 1
    return replace(cut, tables={**cut.tables, **tables})


def _of(rows: Rows, rank: int, comm_id: np.uint64, op: int) -> Mask:
    found: Mask = (rows["rank"] == rank) & (rows["comm_id"] == comm_id) & (rows["op"] == op)
    return found


def test_an_order_that_differed_before_without_harm_is_no_deadlock() -> None:
    cut = with_an_earlier_crossing(window("different_order"), 5)
    assert FaultKind.DEADLOCK not in kinds(diagnose(cut, look(cut, Normal()).symptoms[0]))


@pytest.mark.parametrize(
    ("layout", "victim"), [("8", 5), ("16", 5), ("deep", 1), ("tensor over nodes", 4), ("wide", 6)]
)
@pytest.mark.parametrize("transport", ["IB", "Socket"])
def test_the_rank_whose_order_changed_is_named_whether_the_network_sees_both_ops_or_not(
    layout: str, victim: int, transport: str
) -> None:
    found = diagnosed("different_order", layout, victim, transport)
    best = found.findings[0]
    assert (best.culprits, best.component, best.kind) == ((victim,), Component.SOFTWARE, FaultKind.DEADLOCK)
    assert {
        str(fact.value).split()[0]
        for fact in best.evidence
        if fact.what == "order of enqueueing" and fact.rank == victim
    } == {"world"}
    assert len(found.findings) == 1


def test_where_the_orders_before_are_not_known_both_sides_of_a_deadlock_are_named() -> None:
    cut = window("different_order")
    world = cut.members["comm_id"][cut.members["name"] == "world"][0]
    tables = {name: cut.rows(name) for name in ("op", "live_op")}
    newest = max(int(rows["op"][rows["comm_id"] == world].max()) for rows in tables.values())
    tables = {name: rows[(rows["comm_id"] != world) | (rows["op"] == newest)] for name, rows in tables.items()}
    found = diagnose(replace(cut, tables={**cut.tables, **tables}), look(cut, Normal()).symptoms[0])
    assert (found.culprits, found.findings[0].kind) in [((4, 5), FaultKind.DEADLOCK), ((5, 7), FaultKind.DEADLOCK)]


# ---- silence ----


@pytest.mark.parametrize("name", ["node_silent", "agent_silent"])
@pytest.mark.parametrize(("layout", "node", "ranks"), [("8", 0, (0, 1)), ("8", 2, (4, 5)), ("16", 1, (4, 5, 6, 7))])
def test_a_silent_node_is_named_with_all_its_ranks_whether_the_job_hangs_or_goes_on(
    name: str, layout: str, node: int, ranks: tuple[int, ...]
) -> None:
    cut = window(name, layout, node, seconds=16.0)
    for symptom in look(cut, Normal()).symptoms:
        found = diagnose(cut, symptom)
        best = found.findings[0]
        assert (best.culprits, best.component, best.kind) == (ranks, Component.NODE, FaultKind.SILENCE)
        assert not {rank for finding in found.findings for rank in finding.culprits} - set(ranks), (
            "nobody else is blamed"
        )


@pytest.mark.parametrize(("layout", "node"), [("8", 2), ("wide", 1), ("shared nics", 0), ("experts in a node", 1)])
def test_a_node_last_heard_of_before_the_stall_is_one_finding_before_it_counts_as_silent(
    layout: str, node: int
) -> None:
    cut = window("node_silent", layout, node, seconds=6.5)
    found = diagnose(cut, STALL)
    ranks = tuple(cut.ranks["rank"][cut.ranks["node"] == node].tolist())
    best = found.findings[0]
    assert (best.culprits, best.component, best.kind, best.grade) == (
        ranks, Component.NODE, FaultKind.SILENCE, Grade.MODERATE,
    )  # fmt: skip
    assert not set(found.victims) & set(ranks)
    assert "cannot be told yet" in best.sentence


def test_a_node_whose_batches_come_late_is_said_not_blamed() -> None:
    cut = window("node_silent", "16", 1, seconds=6.5)
    nodes = cut.nodes.copy()
    nodes["catching_up"][1] = True
    best = diagnose(replace(cut, nodes=nodes), STALL).findings[0]
    assert (best.culprits, best.kind, best.grade) == ((), FaultKind.SILENCE, Grade.WEAK)
    assert {rank for tied in best.tied for rank in tied.ranks} == {4, 5, 6, 7}


def test_a_node_of_which_all_rows_were_lost_is_one_finding_that_blames_nobody() -> None:
    cut = window("rank_frozen", "16", 5)
    bare = replace(cut, tables={name: rows[rows["node"] != 1] for name, rows in cut.tables.items()})
    (best,) = diagnose(bare, STALL).findings
    assert (best.culprits, best.subject.name, best.kind, best.grade) == ((), "node1", FaultKind.SILENCE, Grade.WEAK)


def test_a_node_that_was_seen_to_stand_still_before_its_agent_was_lost_is_judged_by_what_was_seen() -> None:
    cut = window("rank_frozen", "16", 5)
    late_ns = cut.end_ns - 4 * 10**9
    nodes = cut.nodes.copy()
    nodes["watermark_ns"][1] = late_ns
    tables = {
        name: rows[(rows["node"] != 1) | (rows["tick_ns"] <= late_ns)]
        if "tick_ns" in (rows.dtype.names or ())
        else rows
        for name, rows in cut.tables.items()
    }
    assert diagnose(replace(cut, nodes=nodes, tables=tables), STALL).culprits == (5,)


def test_while_an_agent_is_silent_no_rank_of_the_running_job_is_said_to_be_stuck() -> None:
    for seconds in (24.5, 25.0, 25.5):  # it has twice the time of a node without which the job stands
        cut = window("agent_silent", "8", 0, seconds=seconds)
        (symptom,) = look(cut, Normal()).symptoms
        assert {finding.rule for finding in diagnose(cut, symptom).findings} == {"silence"}


# ---- a GPU that executes nothing ----


@pytest.mark.parametrize(
    ("layout", "victim", "at_s"), [("8", 2, 2.0), ("8", 5, 2.0), ("8", 5, 4.0), ("16", 5, 4.0), ("16", 5, 2.0)]
)
def test_a_gpu_that_stops_is_told_from_its_mates_who_wait_for_it_inside_the_node(
    layout: str, victim: int, at_s: float
) -> None:
    found = diagnosed("gpu_error", layout, victim, at_s=at_s)
    best = found.findings[0]
    assert (best.culprits, best.component, best.kind) == (
        (victim,), Component.PROCESS, FaultKind.COMPUTATION_FAIL_STOP,
    )  # fmt: skip
    assert (best.subject.kind, best.grade) == ("gpu", Grade.MODERATE)
    assert len(found.victims) == LAYOUTS[layout].n_ranks - 1


@pytest.mark.parametrize(("layout", "victim", "at_s", "is_unscheduled"), [("8", 2, 2.0, True), ("8", 5, 2.0, False)])
def test_a_kernel_that_never_starts_though_all_before_it_has_run_is_said_to_be_unscheduled(
    layout: str, victim: int, at_s: float, is_unscheduled: bool
) -> None:
    sentence = diagnosed("gpu_error", layout, victim, at_s=at_s).findings[0].sentence
    assert ("launched and not scheduled" in sentence) is is_unscheduled


@pytest.mark.parametrize("victim", [8, 9, 10, 11])
def test_which_of_a_nodes_ranks_in_one_ring_stands_is_told_by_what_the_ring_took_and_sent(victim: int) -> None:
    best = diagnosed("gpu_error", "fours", victim).findings[0]
    assert (best.culprits, best.subject.kind, best.grade) == ((victim,), "gpu", Grade.MODERATE)


def test_a_tie_among_ranks_of_one_node_names_the_node_and_blames_no_rank() -> None:
    """One channel alone does not tell how far along a ring of four is."""
    physics = replace(TESTBED, n_channels=1)
    one_way = window_after("gpu_error", FOURS, 10, at_s=2.15, seconds=13.65, physics=physics)
    best = diagnose(one_way, look(one_way, Normal()).symptoms[0]).findings[0]
    assert (best.culprits, best.subject.kind, best.subject.node, best.grade) == ((), "node", "node2", Grade.WEAK)
    assert {rank for tied in best.tied for rank in tied.ranks} == {8, 9, 10, 11}


@pytest.mark.parametrize("victim", [4, 12, 20])
def test_ranks_of_which_only_receives_are_seen_are_not_blamed_beside_who_should_send_to_them(victim: int) -> None:
    """Nothing shows whether their kernels have begun; if so, they wait, and one GPU explains all."""
    layout, physics = Layout(tp=4, pp=2, dp=8, ranks_per_node=8), replace(TESTBED, n_channels=1)
    cut = window_after("gpu_error", layout, victim, at_s=2.0, seconds=13.5, physics=physics)
    found = diagnose(cut, look(cut, Normal()).symptoms[0])
    assert [one.culprits for one in found.findings] == [(victim,)]


# ---- how far it reaches, and since when ----


@pytest.mark.parametrize(("name", "n", "of"), [("nic_down", 1, 4), ("rank_killed", 1, 4), ("stuck_before", 1, 4)])
def test_a_finding_counts_what_it_covers_at_each_step_and_says_when_it_began(name: str, n: int, of: int) -> None:
    cut = window(name, "16")
    best = diagnosed(name, "16").findings[0]
    steps = {step.kind: step for step in best.cover}
    assert (steps["rank"].n, steps["rank"].of, steps["rank"].whole) == (n, of, "node1")
    assert (steps["node"].n, steps["node"].of) == (1, 4)
    assert 0 < steps["flow in progress"].n <= steps["flow in progress"].of
    assert abs(best.began_ns - (cut.end_ns - 11.5e9)) < 2e9


def test_a_silent_node_is_covered_by_all_its_ranks_and_began_when_it_was_last_heard() -> None:
    cut = window("node_silent", "16", 1, seconds=16.0)
    best = diagnose(cut, look(cut, Normal()).symptoms[0]).findings[0]
    assert [(step.kind, step.n, step.of) for step in best.cover if step.kind != "flow in progress"] == [
        ("rank", 4, 4),
        ("node", 1, 4),
    ]
    assert best.began_ns == cut.nodes["watermark_ns"][1]


# ---- trees, and exchanges inside a node ----


@pytest.mark.parametrize("name", ["nic_down", "rank_killed", "stuck_before", "proxy_stuck"])
@pytest.mark.parametrize("victim", [3, 9])
def test_in_trees_the_one_who_started_it_is_named_alone(name: str, victim: int) -> None:
    trees = replace(TESTBED, dp_reduce="tree", tree_from=4)
    cut = window_after(name, LAYOUTS["tensor and data"], victim, at_s=2.0, seconds=13.5, physics=trees)
    found = diagnose(cut, look(cut, Normal()).symptoms[0])
    assert (found.culprits, len(found.findings)) == ((victim,), 1)
    assert found.victims == tuple(rank for rank in range(16) if rank != victim)


def test_in_a_tree_a_rank_that_has_sent_nothing_up_does_not_wait_for_what_comes_down() -> None:
    trees = replace(TESTBED, dp_reduce="tree", tree_from=4)
    cut = window_after("gpu_error", LAYOUTS["data alone"], 6, at_s=2.0, seconds=13.5, physics=trees)
    state = state_of(cut, DEFAULT)
    down, pairs = comes_down(state.fronts, state.pairs), state.pairs
    assert down.any()
    assert not (pairs.sent[down, 2] > 0).any(), "nothing has come down there"
    waits = {(int(a), int(b)) for a, b in zip(state.certain.waiter, state.certain.target, strict=True)}
    assert not waits & {(int(a), int(b)) for a, b in zip(pairs.receiver[down], pairs.sender[down], strict=True)}


@pytest.mark.parametrize(
    ("name", "component"), [("stuck_before", Component.SOFTWARE), ("rank_frozen", Component.PROCESS)]
)
@pytest.mark.parametrize("victim", [1, 6])
def test_who_does_not_come_to_an_exchange_of_tokens_inside_the_node_is_named_and_its_mates_are_not(
    name: str, component: Component, victim: int
) -> None:
    found = diagnosed(name, "experts in a node", victim)
    assert (found.culprits, found.findings[0].component, len(found.findings)) == ((victim,), component, 1)
    assert found.victims == tuple(rank for rank in range(8) if rank != victim)


@pytest.mark.parametrize("victim", [1, 6])
def test_a_gpu_that_stops_before_an_exchange_of_tokens_is_named_or_tied_with_its_mates(victim: int) -> None:
    best = diagnosed("gpu_error", "experts in a node", victim).findings[0]
    assert best.culprits in ((), (victim,))
    assert victim in {*best.culprits, *(rank for tied in best.tied for rank in tied.ranks)}


@pytest.mark.parametrize("victim", range(8))
def test_a_gpu_that_stops_is_named_or_tied_and_no_mate_is_blamed(victim: int) -> None:
    best = diagnosed("gpu_error", "8", victim).findings[0]
    assert best.culprits in ((), (victim,))
    assert victim in {*best.culprits, *(rank for tied in best.tied for rank in tied.ranks)}


@pytest.mark.parametrize("layout", ["wide", "stages", "shared nics", "deep", "data alone"])
@pytest.mark.parametrize(("victim", "at_s"), [(1, 2.3), (4, 2.1), (13, 2.9)])
def test_ranks_that_wait_inside_the_node_before_their_op_has_begun_are_not_blamed(
    layout: str, victim: int, at_s: float
) -> None:
    found = diagnosed("gpu_error", layout, victim, at_s=at_s)
    best = found.findings[0]
    assert best.culprits in ((), (victim,))
    assert victim in {*best.culprits, *(rank for tied in best.tied for rank in tied.ranks)}
    assert len(found.findings) == 1
