"""The scoring rules themselves: what counts as named, tied and wrongly blamed, and what either diagnosis has wrong."""

from __future__ import annotations

import pytest

from nccl_instrument.simulate.faults import KINDS
from tests.eval.localization_cases import HEALTHY, ROWS
from tests.eval.scoring import FAULTS, LIVE_FAULTS, NOTHING, Truth, quantiles, score_diagnosis, score_false, worse

TRUTH = Truth("nic_down", frozenset({3}))


def diagnosis(culprits: list[int], tied: list[list[int]] = [], component: str = "nic") -> dict:  # noqa: B006
    finding = {
        "culprits": culprits,
        "component": component,
        "kind": "communication_fail_stop",
        "tied": [{"ranks": ranks} for ranks in tied],
    }
    return {"findings": [finding]}


@pytest.mark.parametrize("nothing", [None, {"findings": []}])
def test_no_diagnosis_scores_nothing(nothing: dict | None) -> None:
    assert score_diagnosis(TRUTH, nothing) == NOTHING


def test_the_exact_set_is_named() -> None:
    score = score_diagnosis(TRUTH, diagnosis([3]))
    assert (score.named, score.component_right, score.tied, score.wrongly_blamed) == (True, True, False, 0)


def test_a_larger_set_is_tied_and_blames_wrongly() -> None:
    score = score_diagnosis(TRUTH, diagnosis([3, 4]))
    assert (score.named, score.tied, score.wrongly_blamed) == (False, True, 1)


def test_whom_later_findings_name_outside_the_truth_is_counted_unless_they_are_weak() -> None:
    def beside(culprits: list[int], grade: str) -> dict:
        return {**diagnosis(culprits)["findings"][0], "grade": grade}

    best = diagnosis([3])["findings"]
    later = [beside([3, 5], "moderate"), beside([6], "strong"), beside([7], "weak")]
    score = score_diagnosis(TRUTH, {"findings": best + later})
    assert (score.named, score.wrongly_blamed, score.blamed_beside) == (True, 0, 2)


def test_a_tie_that_holds_the_truth_is_tied() -> None:
    score = score_diagnosis(TRUTH, diagnosis([], tied=[[3, 5]]))
    assert (score.named, score.tied, score.wrongly_blamed) == (False, True, 0)


def test_another_component_is_not_right() -> None:
    assert not score_diagnosis(TRUTH, diagnosis([3], component="gpu")).component_right


def test_the_worse_of_two_counts() -> None:
    good, bad = score_diagnosis(TRUTH, diagnosis([3])), score_diagnosis(TRUTH, diagnosis([5]))
    assert worse(good, bad) == worse(bad, good) == bad


def test_what_either_of_two_has_wrong_counts() -> None:
    tie = score_diagnosis(TRUTH, diagnosis([], tied=[[3, 5]], component="gpu"))
    bad = score_diagnosis(TRUTH, diagnosis([4, 5, 6, 7]))
    both = worse(tie, bad)
    assert (both.named, both.component_right, both.wrongly_blamed) == (False, False, 4)
    assert (both.right_nodes, both.wrong_nodes) == (set(), {"rank 4", "rank 5", "rank 6", "rank 7"})
    assert worse(NOTHING, bad).wrongly_blamed == worse(bad, NOTHING).wrongly_blamed == 4


def test_whoever_is_named_where_nothing_happened_is_blamed_wrongly() -> None:
    score = score_false(said([2, 3]), on_node)
    assert (score.named, score.wrongly_blamed, score.right_nodes, score.wrong_nodes) == (False, 2, set(), {"node1"})
    assert score_false({"findings": []}) == score_false(None) == NOTHING


def test_quantiles_of_nothing_are_unknown() -> None:
    assert quantiles([]) == {"p50": None, "p90": None, "max": None}
    assert quantiles([1, 2, 3]) == {"p50": 2, "p90": 3, "max": 3}


def said(culprits: list[int], **more: object) -> dict:
    """A diagnosis with one finding, a dead NIC's unless told otherwise."""
    plain = {
        "component": "nic",
        "kind": "communication_fail_stop",
        "tied": [],
        "subject": {"kind": "rank", "ranks": []},
    }
    return {"findings": [{**plain, "culprits": culprits, **more}]}


def on_node(rank: int) -> str:
    return f"node{rank // 2}"


def link(*ends: int) -> dict:
    tied = [{"ranks": [end]} for end in ends]
    return said([], tied=tied, subject={"kind": "link", "ranks": list(ends)})


def test_a_link_with_the_dead_nic_at_one_end_is_right() -> None:
    assert score_diagnosis(TRUTH, link(3, 7)).named


def test_a_link_elsewhere_is_not() -> None:
    score = score_diagnosis(TRUTH, link(1, 7))
    assert (score.named, score.tied, score.wrongly_blamed) == (False, False, 0)


def test_a_link_is_not_enough_where_the_truth_tells_its_ends_apart() -> None:
    score = score_diagnosis(Truth("nic_limited", frozenset({3})), link(3, 7))
    assert (score.named, score.tied) == (False, True)


def test_a_part_of_the_ranks_of_a_shared_nic_is_not_named() -> None:
    score = score_diagnosis(Truth("nic_down", frozenset({2, 3})), said([3]), on_node)
    assert (score.named, score.wrongly_blamed, score.machine_level) == (False, 0, True)


@pytest.mark.parametrize(("kind", "named"), [("node", True), ("process", False)])
def test_naming_the_node_is_as_right_as_naming_all_its_ranks(kind: str, named: bool) -> None:
    truth = Truth("cpu_contention", frozenset({2, 3}), whole="node")
    part = said([3], component="proxy", kind="computation_fail_slow", subject={"kind": kind, "ranks": [3]})
    assert score_diagnosis(truth, part, on_node).named is named


def test_victims_are_not_blamed() -> None:
    diagnosis = {**said([3]), "victims": [0, 1, 2, 4]}
    assert score_diagnosis(TRUTH, diagnosis).wrongly_blamed == 0


def test_the_right_node_with_another_rank_is_machine_level_and_blames_wrongly() -> None:
    score = score_diagnosis(TRUTH, said([2]), on_node)
    assert (score.named, score.machine_level, score.wrongly_blamed) == (False, True, 1)


def test_a_communicator_that_holds_the_truth_is_group_level() -> None:
    score = score_diagnosis(TRUTH, said([], subject={"kind": "communicator", "ranks": [1, 3, 5]}), on_node)
    assert (score.machine_level, score.group_level) == (False, True)


def test_a_tie_inside_one_node_names_the_node() -> None:
    tied = said([], tied=[{"ranks": [2]}, {"ranks": [3]}])
    score = score_diagnosis(TRUTH, tied, on_node)
    assert (score.named, score.tied, score.machine_level, score.right_nodes) == (False, True, True, {"node1"})


def test_computation_for_communication_is_misjudged() -> None:
    score = score_diagnosis(TRUTH, said([3], component="gpu", kind="computation_fail_slow"), on_node)
    assert (score.misjudged, score.is_kind_right, score.named) == (True, False, True)


def test_another_kind_of_the_same_family_is_not_misjudged_but_not_right() -> None:
    score = score_diagnosis(TRUTH, said([3], kind="communication_fail_slow"), on_node)
    assert (score.misjudged, score.is_kind_right, score.component_right) == (False, False, False)


@pytest.mark.parametrize(("culprits", "named", "blamed"), [([], True, 0), ([5], False, 1)])
def test_what_befell_everybody_is_nobodys(culprits: list[int], named: bool, blamed: int) -> None:
    score = score_diagnosis(Truth("links_slow", frozenset()), said(culprits, component="network", kind="group_anomaly"))
    assert (score.named, score.component_right, score.wrongly_blamed) == (named, True, blamed)
    assert not score.group_level, "there is no communicator to be right about"


@pytest.mark.parametrize(("culprits", "named"), [([4], True), ([4, 5, 6, 7], True), ([4, 5], False)])
def test_both_sides_of_a_cycle_are_as_right_as_the_rank_that_erred(culprits: list[int], named: bool) -> None:
    truth = Truth("different_order", frozenset({4}), others=(frozenset({4, 5, 6, 7}),))
    score = score_diagnosis(truth, said(culprits, component="software", kind="deadlock"))
    assert (score.named, score.component_right, score.wrongly_blamed) == (named, True, 0)


def test_two_that_contradict_each_other_without_a_majority_are_a_tie_that_counts() -> None:
    truth = Truth("different_op", frozenset({1}), group=frozenset({1, 3}))
    tied = said([], component="software", kind="mismatch", tied=[{"ranks": [1]}, {"ranks": [3]}])
    assert score_diagnosis(truth, tied).named
    assert not score_diagnosis(Truth("different_op", frozenset({1})), tied).named


def test_every_fault_of_the_simulator_has_a_row_of_the_truth_table() -> None:
    # The hang of a proxy is the live suites', slow data the suite on stages', other ways into the same rows the suite pulse's.
    elsewhere = {"proxy_stuck", "data_slow", "pcie_contended", "misaligned", "cuda_error"} | set(LIVE_FAULTS)
    assert {name for names in ROWS.values() for name in names} == set(FAULTS) - elsewhere
    assert all(KINDS[name].is_healthy for name in HEALTHY)
