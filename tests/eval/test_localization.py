"""The suite `localization` itself: cases follow from the seed, every row is as frequent, rows add up to the right numbers."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_instrument.simulate.faults import make_fault, truth
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import Physics
from rca.findings import Component, Diagnosis, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind
from tests.eval.localization import read_results
from tests.eval.localization_cases import (
    CASES_AT,
    HEALTHY,
    ROWS,
    _who_sends,
    draw_case,
    draw_layout,
    draw_odd_layout,
    draw_physics,
    fewer_replicas,
    iteration_seconds,
    planned,
)
from tests.eval.localization_report import misses, summary
from tests.eval.localization_run import result, run_case
from tests.eval.watching import Followed


def row(**more: Any) -> dict[str, Any]:
    """A faulty case that was named."""
    plain = {
        "gpus": 64, "number": 0, "healthy": False, "fault": "gpu_slow", "type": "comp_fail_slow", "amount": 2.0, "named": True,
        "component_right": True, "tied": False, "wrongly_blamed": 0, "blamed_beside": 0, "machine_level": True,
        "group_level": False,
        "misjudged": False, "false_incident": False, "detect_s": 9.0, "took_s": 8.0, "cpu_s": 6.0, "slowdown": 1.5,
        "said": ["slow"], "truth": [3], "true_positives": 1, "false_positives": 0, "false_negatives": 0, "true_negatives": 7,
        "layout": {"tp": 8, "pp": 1, "dp": 8, "ep": 1}, "transport": "IB", "dp_reduce": "ring", "command": "repeat it",
    }  # fmt: skip
    return {**plain, **more}


MISSED = row(
    named=False, component_right=False, machine_level=False, misjudged=True, wrongly_blamed=1, true_positives=0,
    false_positives=1, false_negatives=1, true_negatives=6,
)  # fmt: skip
NOBODY = {
    "wrongly_blamed": 0, "blamed_beside": 0,
    "true_positives": 0, "false_positives": 0, "false_negatives": 0, "true_negatives": 8,
}  # fmt: skip
HEALTHY_ROW = {
    "gpus": 64,
    "healthy": True,
    "fault": "overlap",
    "false_incident": False,
    "took_s": 5.0,
    "cpu_s": 4.0,
    "said": [],
    **NOBODY,
}


@pytest.mark.parametrize(("gpus", "n_cases"), CASES_AT.items())
def test_every_row_of_the_fault_table_is_as_frequent_and_half_the_jobs_are_healthy(gpus: int, n_cases: int) -> None:
    plans = planned(gpus, n_cases)
    counts = Counter(name for _, name, _ in plans)
    assert counts.pop("healthy") == n_cases >= 60
    assert set(counts) == set(ROWS) and len(set(counts.values())) == 1
    assert {fault for _, name, fault in plans if name == "healthy"} == set(HEALTHY)


def test_odd_jobs_have_shapes_and_faults_that_are_not_drawn_otherwise() -> None:
    plans = planned(64, 64, is_odd=True)
    assert {number for number, *_ in plans} == {number for number, *_ in planned(64, 64)}
    assert {"pcie_contended", "misaligned", "cuda_error"} <= {fault for *_, fault in plans}
    layouts = [draw_odd_layout(64, "gpu_slow", random.Random(seed)) for seed in range(60)]
    assert {one.ranks_per_node for one in layouts} == {2, 4, 8, 16} and {one.tp for one in layouts} == {1, 2, 4}
    assert any(one.n_nics_per_node < one.ranks_per_node for one in layouts) and any(one.ep > 1 for one in layouts)
    assert all(one.n_ranks == 64 and one.n_nodes >= 4 for one in layouts)
    case = draw_case(3, 32, 2 * 9, "execution error, frozen or killed", "cuda_error", is_odd=True)
    assert case.is_odd and case.command.endswith("--only 18 --odd")
    assert case == draw_case(3, 32, 2 * 9, "execution error, frozen or killed", "cuda_error", is_odd=True)


@pytest.mark.parametrize(("dp", "ep", "tried"), [(25, 1, 5), (25, 5, 5), (50, 1, 5), (50, 2, 10)])
def test_a_fault_of_a_very_large_job_is_tried_on_fewer_replicas(dp: int, ep: int, tried: int) -> None:
    physics = Physics(dp_kib=1_000_000)
    layout, alike = fewer_replicas(Layout(8, 25, dp, ep), physics)
    assert layout == Layout(8, 25, tried, ep)
    assert alike.dp_kib * (1 - 1 / tried) == pytest.approx(physics.dp_kib * (1 - 1 / dp), rel=1e-3)
    assert fewer_replicas(Layout(8, 2, 64), physics) == (Layout(8, 2, 64), physics)


def test_very_large_jobs_are_drawn_lighter() -> None:
    for seed in range(20):
        layout = draw_layout(10_000, "gpu_slow", random.Random(seed))
        physics = draw_physics(layout, random.Random(seed))
        assert layout.n_ranks == 10_000 and layout.pp in (25, 50)
        assert (physics.n_buckets, physics.slices, physics.n_microbatches) == (1, 1, layout.pp // 2)


def test_iterations_of_fewer_replicas_take_as_long() -> None:
    case = draw_case(7, 256, 10, "GPU power limit", "gpu_slow", Layout(2, 2, 64))
    few = replace(case.layout, dp=8)
    fault = make_fault("gpu_slow", few, 1.0, amount=case.fault.amount, seed=case.job_seed)
    usual_s, now_s = iteration_seconds(few, case.physics, fault, case.transport, case.job_seed)
    assert usual_s == pytest.approx(case.iteration_s, rel=0.2)
    assert now_s / usual_s == pytest.approx(case.slowdown, rel=0.2)


def test_a_case_follows_from_its_number() -> None:
    first, again = (draw_case(7, 16, 10, "GPU power limit", "gpu_slow") for _ in range(2))
    assert first == again
    assert first != draw_case(8, 16, 10, "GPU power limit", "gpu_slow")
    assert 1.25 <= first.slowdown <= 5


def test_a_proxy_that_sleeps_has_something_to_send() -> None:
    """Rank 14 of the first draw is in the middle of a tree's node, and sends nothing over the network."""
    case = draw_case(35791, 64, 48, "proxy sleeps", "proxy_sleeps")
    assert set(case.fault.ranks) <= set(_who_sends(case.layout, case.physics).tolist())
    tree = replace(case.physics, dp_reduce="tree", n_channels=1)
    assert set(_who_sends(Layout(2, 1, 32, 1, 8), tree).tolist()) < set(range(64))


def test_shares_and_node_counts() -> None:
    found = summary([row(), MISSED, HEALTHY_ROW], 1, [])
    assert (found["cases"], found["healthy"], found["rank_level"], found["misjudged"]) == (2, 1, 0.5, 1)
    assert (found["precision"], found["recall"], found["false_positive_rate"]) == (0.5, 0.5, round(1 / 22, 6))
    assert found["by_type"]["comp_fail_slow"]["recall"] == 0.5
    assert found["by_type"]["comm_fail_stop"]["recall"] is None
    assert found["by_size"]["64"]["cases"] == 2


def test_whom_an_incident_of_a_healthy_job_blames_counts_as_blamed_wrongly() -> None:
    false = {**HEALTHY_ROW, "false_incident": True, "wrongly_blamed": 2, "false_positives": 1, "true_negatives": 7}
    found = summary([row(), false], 1, [])
    assert (found["false_incidents"], found["wrongly_blamed"], found["precision"], found["recall"]) == (1, 2, 0.5, 1.0)
    assert found["by_size"]["64"]["wrongly_blamed"] == 0, "of its faulty cases"


def test_an_incident_before_the_fault_is_scored_as_blame_alone() -> None:
    case = draw_case(1, 16, 0, "NIC down", "nic_down")
    subject = Subject("rank", "rank 3", (3,))
    kind, grade = FaultKind.COMMUNICATION_FAIL_STOP, Grade.STRONG
    found = Finding("hang", 1, subject, Component.NIC, kind, (3,), 1.0, grade, "Rank 3.")
    symptom = Symptom(SymptomKind.FAILURE, "j", 1, 5, 6, 0, (0,), "No op.")
    answer = Diagnosis(symptom, (found,), (), (), {}, (), (), {}, 9)
    happened = {**truth(case.fault, case.layout, case.settings.origin_ns), "starts_ns": 10}
    told = result(case, Followed(symptom, 6, 6, answer=answer, first=answer), happened)
    assert (told["false_incident"], told["detect_s"], told["named"]) == (True, None, False)
    assert (told["wrongly_blamed"], told["true_positives"], told["false_positives"]) == (1, 0, 1)
    assert told["false_negatives"] == 1


def test_a_miss_is_told_with_the_command_that_repeats_it() -> None:
    assert "repeat it" in "\n".join(misses([row(), MISSED]))
    assert misses([row()]) == ["0 of 1 cases missed."]


def test_what_other_code_found_is_not_taken_over(tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    lines = [{"code": "old", **row()}, {"code": "new", **row(number=2)}]
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"code": "new", "cut o')
    assert set(read_results(kept, "new")) == {(64, 2)}


def test_a_dead_nic_goes_all_the_way_to_a_score() -> None:
    found = run_case(draw_case(1, 16, 0, "NIC down", "nic_down"))
    assert (found["named"], found["component_right"], found["wrongly_blamed"]) == (True, True, 0)
    assert found["detect_s"] < 13
