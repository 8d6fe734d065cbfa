"""The suite's own pieces: the mechanism does what a synchronous job does, rows are scored by their truth, the last line has
every key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nccl_instrument.stage_schema import BACKWARD, DATA, FORWARD
from rca.settings import DEFAULT
from tests.bench.stages_overhead import judged, said, verdict
from tests.eval.stages import summary, table
from tests.eval.stages_cases import POSITIVE, Case, cases
from tests.eval.stages_model import NAMES, Fault, Job, Run, run
from tests.eval.stages_profiled import reduced
from tests.eval.stages_rows import Row, row

QUICK = replace(DEFAULT, stage_steps=40, stage_warm_up=5)
KEYS = {
    "suite", "seed", "settings_overridden", "rows", "top1", "top2", "candidate_hit", "avg_candidates", "e3_top1", "e3_top2",
    "fused_rows", "fused_stage_top1", "fused_top1", "forward_device_supported", "controls", "controls_routed",
    "subthreshold", "subthreshold_wrong", "no_fault_rows", "false_strong_labels", "baselines",
}  # fmt: skip


def made(fault: Fault | None = None, **job: object) -> Run:
    return run(Job(**{"hiccups": 0.0, **job}), fault or Fault(), 30, np.random.default_rng(1))  # type: ignore[arg-type]


def stage(found: Run, name: str) -> np.ndarray:
    """(R,) mean of a stage."""
    mean: np.ndarray = found.durations[5:, :, NAMES.index(name)].mean(axis=0)
    return mean


def test_an_undisturbed_job_takes_about_the_step_it_is_given_and_ranks_are_alike() -> None:
    found = made()
    step = found.durations[5:].sum(axis=2)
    assert 0.95 < step.mean() / Job().step_s < 1.15
    assert np.ptp(step.mean(axis=0)) < 0.01


def test_ranks_leave_backward_together_and_wait_there_for_the_one_that_is_late() -> None:
    found = made(Fault("data", 2, 0.12))
    others = np.arange(8) != 2
    assert stage(found, "data")[2] - stage(found, "data")[others].mean() == pytest.approx(0.12, abs=0.005)
    assert stage(found, "backward")[others].mean() - stage(found, "backward")[2] == pytest.approx(0.12, abs=0.01)
    ends = found.began + found.durations[:, :, :3].sum(axis=2)
    assert np.ptp(ends, axis=1).max() < 1e-9


def test_a_slow_device_in_forward_shows_in_backward_on_every_rank_and_in_its_own_clock() -> None:
    slow, usual = made(Fault("forward_device", 2, 0.12)), made()
    assert abs(stage(slow, "forward")[2] - stage(usual, "forward")[2]) < 0.002
    assert (stage(slow, "backward") - stage(usual, "backward")).min() > 0.08
    assert slow.device_s[:, 2].mean() - usual.device_s[:, 2].mean() == pytest.approx(0.12, abs=0.005)


def test_a_callback_that_nobody_waits_for_is_paid_in_the_next_steps_backward() -> None:
    found, usual = made(Fault("callback", 2, 0.1)), made()
    others = np.arange(8) != 2
    assert (stage(found, "backward") - stage(usual, "backward"))[others].mean() == pytest.approx(0.1, abs=0.01)
    synced = made(Fault("callback", 2, 0.1), barrier="callback")
    assert stage(synced, "callback").min() > 0.1


def scored(family: str, fault: Fault, **job: object) -> Row:
    return row(Case(family, Job(**job), fault, 3), QUICK)  # type: ignore[arg-type]


def test_rows_are_scored_by_their_truth_alone() -> None:
    data = scored("e3", Fault("data", 5, 0.2))
    assert (data.truth, data.ranked()[0], data.named, data.rank) == (DATA, DATA, 5, 5)
    device = scored("e3", Fault("forward_device", 5, 0.2), events=0.3)
    assert (device.ranked()[0], device.fused, device.by_ops, device.truth) == (BACKWARD, FORWARD, FORWARD, FORWARD)
    assert "forward_device_supported" in device.labels
    control, healthy = scored("control", Fault("optimizer", 5, 0.18)), scored("no_fault", Fault())
    assert (control.is_strong, control.truth in control.ranked()[:2]) == (False, False)
    assert not healthy.is_strong
    found = summary([data, device, control, healthy], 1)
    assert found.keys() >= KEYS
    assert (found["rows"], found["e3_top1"], found["fused_top1"], found["controls_routed"]) == (2, 1, 2, 0)
    assert found["settings_overridden"] == ["stage_steps", "stage_warm_up"]  # QUICK's; the suite's own are none
    assert {one.settings for one in (data, control)} == {QUICK}
    assert "e3 8 ranks, data 200 ms" in table([data])


def test_what_is_gone_is_back_where_it_was() -> None:
    assert scored("e6", Fault("callback", 5, 0.12), barrier="callback").has_recovered


def test_the_suite_holds_the_papers_rows_and_seeds_change_them() -> None:
    planned = list(cases(1))
    count = {family: sum(one.family == family for one in planned) for family in {one.family for one in planned}}
    assert (count["e3"], count["no_fault"], sum(one.n_windows for one in planned if one.family == "no_fault")) == (
        50,
        105,
        315,
    )
    assert set(POSITIVE) <= set(count)
    assert planned != list(cases(2))
    delays = [one.fault.delay_s / one.job.step_s for one in planned if one.family == "e3"]
    assert min(delays) > 0.48 and max(delays) < 0.61


def turns(machine: float, recorded: float, blocks: int = 40) -> list[list[float]]:
    """Seconds of four kinds of turns; machine: what two that are alike differ by, recorded: what recording adds, shares."""
    draw = np.random.default_rng(3)
    off = 1 + machine * draw.standard_normal((2, blocks))
    return [off[0].tolist(), (off[0] * (1 + recorded)).tolist(), (off[0] * (1 + recorded)).tolist(), off[1].tolist()]


def test_what_recording_costs_counts_only_where_the_machine_is_quieter_than_the_gate() -> None:
    quiet, heavy, loud = judged(turns(0.002, 0.001)), judged(turns(0.002, 0.05)), judged(turns(0.3, 0.001))
    assert (quiet["wall"]["counts"], quiet["wall"]["holds"]) == (True, True)
    assert (heavy["wall"]["counts"], heavy["wall"]["holds"]) == (True, False)
    assert not loud["wall"]["counts"] and not loud["events"]["counts"]
    assert verdict([quiet]) == "held" and verdict([heavy]) == "over the gate"
    assert verdict([quiet, loud]).startswith("the machine is too busy: 2 of 4")
    assert "does not count" in said({"road": "agent", "ranks": 2, **loud})
    assert verdict([{"error": "did not train"}, quiet]).startswith("the machine is too busy")


def test_ranges_that_another_tool_reads_are_reduced_to_the_same_stages() -> None:
    """Two ranks, two steps of 10 ms: 4 ms of data, 3 of forward, the rest in no stage; what is in no step is left out."""
    ranges = [[rank, "step", 20_000.0 * step, 10_000.0] for rank in (0, 1) for step in (0, 1)]
    ranges += [[rank, "data", 20_000.0 * step + 10, 4_000.0] for rank in (0, 1) for step in (0, 1)]
    ranges += [[1, "forward", 20_000.0 * step + 5_000, 3_000.0] for step in (0, 1)]
    ranges += [[0, "forward", 15_000.0, 3_000.0], [0, "elsewhere", 5_000.0, 1_000.0]]
    found = reduced(ranges, 2, ["data", "forward", "rest"])
    assert np.allclose(found[:, 0], [[0.004, 0, 0.006]] * 2)
    assert np.allclose(found[:, 1], [[0.004, 0.003, 0.003]] * 2)
