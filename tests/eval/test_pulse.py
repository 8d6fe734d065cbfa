"""The suite `pulse` itself: all of Table 4 is drawn, an experiment follows from its number, rows add up."""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_instrument.simulate.faults import Scenario, make_fault
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import SimulatedJob
from rca.findings import Symptom, SymptomKind
from rca.settings import DEFAULT
from tests.eval.pulse import chosen_experiments, parser, read_results, shipped_unlike
from tests.eval.pulse_baseline import explain_by_ops
from tests.eval.pulse_cases import FAILURES, SETTINGS, TABLE, draw, planned, power_factor
from tests.eval.pulse_exact import _key, exact, told_and_true
from tests.eval.pulse_granularity import is_as_figure_9
from tests.eval.pulse_layouts import draw_layout
from tests.eval.pulse_report import is_at_machine, is_miss, summary, table
from tests.eval.pulse_run import scored, truth_of
from tests.replay import replayed

NODES = {"true_positives": 1, "false_positives": 0, "false_negatives": 0, "true_negatives": 7}


def row(**more: Any) -> dict[str, Any]:
    """An experiment that was found, which ops alone leave at the group."""
    ops = {
        **NODES,
        "true_positives": 0,
        "false_negatives": 1,
        "machine_level": False,
        "group_level": True,
        "misjudged": False,
    }
    plain = {
        **NODES, "number": 0, "failure": "PCIe downgrade", "severity": "50% left", "setting": "GPT-2 70B",
        "type": "comm_fail_slow",
        "machine_level": True, "group_level": False, "misjudged": False, "named": True, "component_right": True,
        "wrongly_blamed": 0, "false_incident": False, "detect_s": 9.0, "took_s": 10.0, "said": ["slow"], "ranks": [3],
        "command": "repeat it", "op_level": ops,
    }  # fmt: skip
    return {**plain, **more}


def chosen(*words: str) -> argparse.Namespace:
    return parser().parse_args(["--seed", "1", *words])


def test_a_job_that_loses_a_few_per_cent_has_run_long_enough_for_its_usual_to_be_known() -> None:
    starts = {
        plan[1].setting: draw(5, *plan).fault.start_s for plan in planned(1) if plan[1].failure == "GPU throttling"
    }
    assert starts["GPT-2 70B"] > 48 > starts["Mixtral"]


def test_every_failure_of_table_3_is_made_three_times_at_every_severity() -> None:
    plans = planned(3)
    assert len(FAILURES) == 12
    counts = Counter((plan[1], plan[2]) for plan in plans)
    assert set(counts.values()) == {3} and {key[0] for key in counts} == set(TABLE)
    assert len({number for number, _, _ in plans}) == len(plans)


@pytest.mark.parametrize("setting", ["GPT-2 70B", "Mixtral", "neighbour exchange"])
def test_pcie_is_limited_to_the_union_of_both_lists(setting: str) -> None:
    for failure in ("PCIe downgrade", "PCIe contention"):
        line = next(one for one in TABLE if one.failure == failure and one.setting == setting)
        assert [amount for _, amount in line.severities] == [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]


def test_scenarios_are_the_papers() -> None:
    sizes = {name: (one.layout.tp, one.layout.pp, one.layout.dp, one.layout.ep) for name, one in SETTINGS.items()}
    assert sizes["GPT-2 70B"] == (8, 2, 4, 1) and sizes["Mixtral"] == (8, 1, 4, 4)
    assert sizes["GPT-2 32B"] == (8, 2, 2, 1) and sizes["GPT-2 32B, four GPUs a node"] == (4, 1, 4, 1)


def test_an_experiment_follows_from_its_number_and_victims_are_drawn() -> None:
    plans = planned(3)
    assert draw(7, *plans[20]) == draw(7, *plans[20])
    victims = {draw(seed, *plans[20]).fault.ranks for seed in range(30)}
    assert len(victims) > 10


def test_the_root_of_a_one_sided_collective_is_no_victim() -> None:
    line = next(plan for plan in planned(1) if plan[1].setting == "all-to-one")
    assert all(0 not in draw(seed, *line).fault.ranks for seed in range(30))


def test_a_power_limit_slows_a_gpu_by_the_cube_root_of_what_is_left() -> None:
    assert power_factor(700) == 1 and power_factor(350) == pytest.approx(1.339, abs=0.001)


def test_a_part_can_be_chosen_and_keeps_its_numbers() -> None:
    quick = chosen_experiments(chosen("--quick"))
    assert 0 < len(quick) < len(chosen_experiments(chosen("--repeats", "1"))) < len(chosen_experiments(chosen()))
    assert [one.number for one in chosen_experiments(chosen("--only", "41"))] == [41]
    assert {one.failure for one in chosen_experiments(chosen("--failures", "NIC down"))} == {"NIC down"}
    with pytest.raises(SystemExit):
        chosen_experiments(chosen("--failures", "Nic down"))


def test_what_other_code_found_is_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    kept.write_text(
        json.dumps({"code": "new", **row()}) + "\n" + json.dumps({"code": "old", **row(number=1)}) + '\n{"code": '
    )
    assert set(read_results(kept, "new")) == {0}


def test_a_failure_counts_only_when_every_run_of_it_is_at_machine_level() -> None:
    missed = row(machine_level=False, group_level=True, true_positives=0, false_negatives=1)
    assert is_at_machine([row()]) and not is_at_machine([row(), missed]) and not is_at_machine([])
    found = summary([row(), missed, row(failure="NIC down", type="comm_fail_stop")], 1, [])
    assert found["failures"] == 2 and found["failures_at_machine_level"] == 1
    assert (found["machine_level"], found["recall"], found["precision"]) == (0.6667, 0.666667, 1.0)
    assert found["op_level"]["failures_at_machine_level"] == 0 and found["op_level"]["group_level"] == 1.0
    assert "1 of 3 experiments" in table([row(), missed, row(failure="NIC down")])


def test_everything_the_evaluation_asks_for_is_in_the_object() -> None:
    keys = {"experiments", "machine_level", "group_level", "misjudged", "precision", "recall", "false_positive_rate", "by_type",
            "failures_at_machine_level", "op_level"}  # fmt: skip
    assert keys <= set(summary([row()], 1, []))
    assert keys - {"by_type"} <= set(summary([], 1, []))


@pytest.mark.parametrize("change", [{"wrongly_blamed": 1}, {"component_right": False}, {"false_incident": True}])
def test_a_right_machine_with_something_wrong_beside_it_is_shown(change: dict[str, Any]) -> None:
    assert is_miss(row(**change)) and not is_miss(row())


def test_no_answer_scores_as_a_miss_of_the_true_node() -> None:
    one = draw(1, *planned(1)[18])
    assert one.fault.name == "nic_down"
    assert scored(one, truth_of(one), [])["false_negatives"] == 1


def test_an_op_whose_bounds_are_off_by_more_than_an_epoch_is_not_exact() -> None:
    settings = replace(_small("").settings, scenario=Scenario((), 3))
    found = told_and_true(settings)
    told = {key: one for one in found.rows if one["flags"] & 1 and (key := _key(one)) in found.moved}
    key, row = next(iter(told.items()))
    one, epoch_ns = found.moved[key], 32_000
    assert exact(row, one, epoch_ns)
    assert not exact(row, replace(one, began_ns=one.began_ns - 2 * epoch_ns), epoch_ns)
    assert not exact(row, replace(one, n_bytes=one.n_bytes // 2), epoch_ns)


def test_random_layouts_have_several_nodes_and_at_most_512_ranks() -> None:
    made = random.Random(3)
    sizes = [draw_layout(made).n_ranks for _ in range(200)]
    assert min(sizes) >= 16 and max(sizes) == 512


def _small(fault: str, amount: float | None = None) -> SimulatedJob:
    """A neighbour exchange with less to move, that goes wrong after four seconds."""
    setting = SETTINGS["neighbour exchange"]
    physics = replace(setting.physics, ep_kib=256 * 1024, slices_every=1)
    faults = (make_fault(fault, setting.layout, 4.0, None, 2, amount),) if fault else ()
    plan = draw(1, *planned(1)[0])
    return SimulatedJob(replace(plan.job, layout=setting.layout, physics=physics, scenario=Scenario(faults, 3)))


def _answer(fault: str, amount: float | None, kind: SymptomKind, seconds: float) -> dict[str, Any]:
    job = _small(fault, amount)
    try:
        batches = [(sent.arrives_ns, sent.encoded) for sent in in_order(job.batches(seconds))]
    finally:
        job.close()
    window = replayed(batches).window(seconds)
    symptom = Symptom(kind, "simulated", 1, window.start_ns + int(4.2e9), window.end_ns, 0, (), "slow", {})
    return explain_by_ops(window, symptom)


def test_ops_alone_find_the_slow_rank_of_an_exchange_without_computing() -> None:
    """D.10: all kernels start together, so the observed rate is the rank's own."""
    found = _answer("nic_pcie_slow", 0.4, SymptomKind.STRAGGLER, 8.0)["findings"]
    assert found and 2 in found[0]["culprits"]


def test_ops_alone_say_nothing_of_a_healthy_job() -> None:
    assert _answer("", None, SymptomKind.STRAGGLER, 8.0)["findings"] == []


def test_ops_alone_find_who_never_starts() -> None:
    found = _answer("gpu_error", None, SymptomKind.FAILURE, 8.0)["findings"]
    assert found and 2 in found[0]["culprits"]


def test_what_is_not_shipped_is_said() -> None:
    assert shipped_unlike(DEFAULT, type(DEFAULT)()) == dict.fromkeys(shipped_unlike(DEFAULT, DEFAULT), False)
    other = replace(DEFAULT, findings_max=DEFAULT.findings_max + 1)
    assert [name for name, value in shipped_unlike(other, DEFAULT).items() if value] == ["findings_max"]


@pytest.mark.parametrize(
    ("slow", "normal", "is_as"),
    [
        ((24.0, 24.0, 25.0), (14.0, 18.0, 25.0), True),
        ((24.0, 24.0, 25.0), (14.0, 14.0, 25.0), False),  # nothing folded at 64 µs
        ((24.0, 24.0, 25.0), (14.0, 18.0, 19.0), False),  # 1 ms still tells them apart
        ((14.0, 24.0, 25.0), (14.0, 18.0, 25.0), False),  # the straggler's own time depends on the epoch
    ],
)
def test_figure_9_is_judged(slow: tuple[float, ...], normal: tuple[float, ...], is_as: bool) -> None:
    epochs = {
        str(epoch): {"slow_ms": a, "normal_ms": b} for epoch, a, b in zip((32, 64, 1000), slow, normal, strict=True)
    }
    assert is_as_figure_9(epochs) is is_as
