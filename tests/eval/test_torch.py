"""The suite `torch` draws what it says and scores as the evaluation defines; real dumps of its hangs keep their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rca.findings import to_json
from tests.eval.torch_cases import CULPRITS, HEALTHY, UNLISTED, draw_case
from tests.eval.torch_dumps import diagnosis_of, kept
from tests.eval.torch_scoring import score_torch

DUMPS = Path(__file__).with_name("torch_dumps")
KEPT = sorted(DUMPS.glob("*.tar.xz"))


def said(*ranks: int, sentence: str = "", layer: str = "out of sync", tied: tuple[int, ...] = ()) -> dict[str, Any]:
    best = {"culprits": list(ranks), "tied": [{"ranks": [rank]} for rank in tied], "sentence": sentence, "evidence": []}
    return {"findings": [best], "layer": layer}


@pytest.mark.parametrize("fault", [*CULPRITS, HEALTHY, *UNLISTED])
def test_every_draw_has_victims_in_the_job_and_a_truth(fault: str) -> None:
    for seed in range(50):
        case = draw_case(fault, seed)
        assert 4 <= case.n_ranks <= 8
        assert set(case.victims) <= set(range(case.n_ranks))
        assert case.layers or fault == HEALTHY
        assert fault != "data_loader" or case.victims[0] % case.tp == 0
        assert not case.sides or (all(case.sides) and not case.sides[0] & case.sides[1])
    assert draw_case(fault, 7) == draw_case(fault, 7)


def test_only_exactly_the_culprit_is_named() -> None:
    case = draw_case("stopped", 1)
    (victim,), other = case.victims, (case.victims[0] + 1) % case.n_ranks
    assert score_torch(case, said(victim)).named
    assert not score_torch(case, said(victim, other)).named
    assert score_torch(case, said(victim, other)).wrongly_blamed == 1
    assert not score_torch(case, said(victim, layer="data loader")).layer_right
    assert not score_torch(case, None).named


def test_opposite_order_needs_both_groups_and_both_sides() -> None:
    case = next(case for case in (draw_case("opposite_order", seed) for seed in range(99)) if case.n_ranks == 4)
    column, (first, second) = sorted(case.truth[0]), case.groups
    sides = [f"rank {min(side)}" for side in case.sides]
    whole = f"{sides[0]} in {first}, {sides[1]} in {second}"
    assert score_torch(case, said(*column, sentence=whole)).named
    assert score_torch(case, said(*case.victims, sentence=whole)).named
    assert not score_torch(case, said(*column, sentence=f"{sides[0]} and {sides[1]} in {first}")).named
    assert not score_torch(case, said(*column, sentence=f"{sides[0]} in {first} and {second}")).named


def test_of_two_sizes_a_tie_of_both_is_right_and_one_of_three_is_not() -> None:
    cases = [draw_case("mismatched_size", seed) for seed in range(50)]
    two = next(case for case in cases if case.tie)
    assert score_torch(two, said(tied=tuple(two.tie))).named
    assert not score_torch(two, said(tied=(*two.tie, 99))).named
    assert not any(case.tie for case in cases if case.n_ranks // case.tp > 2)


@pytest.mark.parametrize("path", KEPT, ids=[path.name.partition(".")[0] for path in KEPT])
def test_real_dumps_of_a_hang_name_the_culprit_and_the_layer(path: Path) -> None:
    fault, n_ranks, tp, seed = path.name.partition(".")[0].rsplit("-", 3)
    case = draw_case(fault, int(seed), (int(n_ranks), int(tp)) if fault in UNLISTED else None)
    score = score_torch(case, to_json(diagnosis_of(kept(path))))
    assert (score.named, score.layer_right, score.wrongly_blamed) == (True, True, 0)
