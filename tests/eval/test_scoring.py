"""The scoring rules themselves: what counts as named, tied and wrongly blamed, and that the worse diagnosis counts."""

from __future__ import annotations

import pytest

from tests.eval.scoring import NOTHING, Truth, quantiles, score_diagnosis, worse

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


def test_a_tie_that_holds_the_truth_is_tied() -> None:
    score = score_diagnosis(TRUTH, diagnosis([], tied=[[3, 5]]))
    assert (score.named, score.tied, score.wrongly_blamed) == (False, True, 0)


def test_another_component_is_not_right() -> None:
    assert not score_diagnosis(TRUTH, diagnosis([3], component="gpu")).component_right


def test_the_worse_of_two_counts() -> None:
    good, bad = score_diagnosis(TRUTH, diagnosis([3])), score_diagnosis(TRUTH, diagnosis([5]))
    assert worse(good, bad) == worse(bad, good) == bad


def test_quantiles_of_nothing_are_unknown() -> None:
    assert quantiles([]) == {"p50": None, "p90": None, "max": None}
    assert quantiles([1, 2, 3]) == {"p50": 2, "p90": 3, "max": 3}
