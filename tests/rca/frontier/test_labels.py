"""Each label where the paper says it belongs, each downgrade with its reason, and none on a healthy window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nccl_instrument.stage_schema import DEFAULT
from rca.frontier.accounting import Seconds
from rca.frontier.gates import DEFAULT as GATES
from rca.frontier.labels import label
from rca.frontier.report import STRONG, Label, StageWindow

DEFAULT_STAGES = DEFAULT.stages
BASE = np.array([0.005, 0.060, 0.100, 0.004, 0.020, 0.003])
DATA, FORWARD_AT, BACKWARD, CALLBACK, OPTIMIZER = range(5)


def ddp(n_ranks: int = 8, n_steps: int = 120, seed: int = 1, **changes: Any) -> StageWindow:
    """A healthy window of synchronous data parallelism: everybody leaves backward together."""
    rng = np.random.default_rng(seed)
    own = BASE * rng.normal(1.0, 0.02, (n_steps, n_ranks, len(BASE))).clip(0.8, 1.2)
    return StageWindow(synchronised(own), DEFAULT_STAGES, tuple(range(n_ranks)), **changes)


def synchronised(own: Seconds, at: int = BACKWARD) -> Seconds:
    """All ranks' own work with the wait that the stage `at` ends with."""
    done = np.cumsum(own, axis=2)[:, :, at]
    waited = own.copy()
    waited[:, :, at] += done.max(axis=1, keepdims=True) - done
    return waited


def stalled(stage: int, seconds: float, rank: int = 3, every: int = 1, **changes: Any) -> StageWindow:
    rng = np.random.default_rng(5)
    own = BASE * rng.normal(1.0, 0.02, (120, 8, len(BASE))).clip(0.8, 1.2)
    own[::every, rank, stage] += seconds
    return StageWindow(synchronised(own), DEFAULT_STAGES, tuple(range(8)), **changes)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fits", [False, True])
def test_a_healthy_window_gets_no_strong_label(seed: int, fits: bool) -> None:
    report = label(ddp(seed=seed, fits_wait_model=fits))
    assert not report.is_strong
    assert report.leader is None or report.lead_s < 0.01


def test_a_data_stall_of_one_rank_routes_to_data_and_the_rank() -> None:
    report = label(stalled(DATA, 0.3, fits_wait_model=True))
    assert report.routing[0] == "data.next_wait"
    assert (report.leader, round(report.lead_s, 1)) == (3, 0.3)
    assert {Label.SYNC_WAIT_DEPENDENT, Label.LIKELY_SYNC_WAIT} <= set(report.labels)


def test_without_a_wait_model_the_same_window_is_co_critical_and_says_why() -> None:
    report = label(stalled(DATA, 0.3))
    assert not report.is_strong
    assert Label.CO_CRITICAL in report.labels
    assert "data.next_wait" in report.co_critical_stages
    assert {"data.next_wait", "model.backward_cpu_wall"} <= set(report.co_critical_stages)
    assert "nothing shows that the others wait" in report.downgrades[0]


def test_a_stage_at_the_end_that_nobody_waits_for_is_exposed_directly() -> None:
    report = label(stalled(OPTIMIZER, 0.3))
    assert Label.DIRECT_EXPOSURE in report.labels
    assert report.gains["optim.step_cpu_wall"] > 0.1


def test_a_periodic_stall_that_a_median_hides_has_its_share() -> None:
    report = label(stalled(CALLBACK, 3.0, every=10))
    assert report.routing[0] == "callbacks.cpu_wall"
    assert report.shares["callbacks.cpu_wall"] > 0.5
    assert report.leader == 3


def test_two_stages_that_are_tied_are_named_both() -> None:
    window = ddp()
    window.durations[:, :, DATA] = window.durations[:, :, BACKWARD] = 0.2
    report = label(window)
    assert not report.is_strong
    assert set(report.co_critical_stages) == {"data.next_wait", "model.backward_cpu_wall"}


def test_a_leader_that_keeps_changing_is_no_single_cause() -> None:
    rng = np.random.default_rng(2)
    own = np.tile(BASE, (120, 8, 1))
    own[np.arange(120), rng.integers(0, 8, 120), DATA] += 0.4
    report = label(StageWindow(synchronised(own), DEFAULT_STAGES, tuple(range(8)), fits_wait_model=True))
    assert not report.is_strong
    assert any("leading rank changed" in why for why in report.downgrades)


@pytest.mark.parametrize(
    ("changes", "expected", "why"),
    [
        ({"n_missing": 1}, Label.TELEMETRY_LIMITED, "sent nothing"),
        ({"trouble": ("The gather failed.",)}, Label.TELEMETRY_LIMITED, "gather failed"),
        ({"overlap_s": np.full((120, 8), 0.2)}, Label.TELEMETRY_LIMITED, "counted in two stages"),
        ({"roles": ("first stage",) * 4 + ("last stage",) * 4}, Label.ROLE_AWARE_NEEDED, "several roles"),
        ({"accumulation": 4}, Label.GRADIENT_ACCUMULATION_AMBIGUOUS, "4 micro-steps"),
    ],
)
def test_what_limits_the_evidence_takes_the_strong_labels_away(changes: Any, expected: Label, why: str) -> None:
    window = stalled(DATA, 0.3, fits_wait_model=True)
    assert label(window).is_strong
    report = label(replace(window, **changes))
    assert expected in report.labels
    assert not report.is_strong
    assert any(why in said for said in report.downgrades)


def test_time_outside_all_stages_takes_them_away_too() -> None:
    report = label(stalled(DEFAULT_STAGES.index("step.other_cpu_wall"), 1.0))
    assert Label.TELEMETRY_LIMITED in report.labels
    assert not report.is_strong


def test_accumulation_with_indexed_stages_is_not_ambiguous() -> None:
    report = label(stalled(DATA, 0.3, accumulation=4, is_indexed=True, fits_wait_model=True))
    assert Label.GRADIENT_ACCUMULATION_AMBIGUOUS not in report.labels


def test_micro_steps_are_told_apart_first_and_folded_afterwards() -> None:
    stages = DEFAULT.accumulated(4)
    rng = np.random.default_rng(9)
    own = np.array([0.002, 0.015, 0.02] * 4 + [0.004, 0.02, 0.003]) * rng.normal(1, 0.02, (120, 8, 15)).clip(0.8, 1.2)
    own[:, 3, [0, 3, 6, 9]] += 0.06
    window = StageWindow(
        synchronised(own, at=11), stages.stages, tuple(range(8)), accumulation=4, is_indexed=True, fits_wait_model=True
    )
    report = label(window)
    assert report.routing[0] == "data.next_wait"
    assert set(report.shares) == set(DEFAULT_STAGES)
    assert report.shares["data.next_wait"] > 0.5
    assert (report.leader, report.is_strong) == (3, True)


def test_a_stage_of_all_ranks_is_exposed_only_against_what_it_usually_takes() -> None:
    window = ddp(fits_wait_model=True)
    usual = np.median(window.durations, axis=(0, 1))
    window.durations[:, :, BACKWARD] += 0.2
    alone = label(window)
    assert not alone.is_strong
    assert any("end the leading stage together" in why for why in alone.downgrades)
    compared = label(replace(window, reference_s=usual))
    assert Label.DIRECT_EXPOSURE in compared.labels
    assert compared.gain_baseline == "reference"
    assert set(compared.all_gains) == {"rank_median", "cohort_median", "reference"}


def test_the_ranks_tied_at_the_boundary_are_named() -> None:
    window = stalled(DATA, 0.3, fits_wait_model=True)
    window.durations[:, 4] = window.durations[:, 3]
    report = label(window)
    assert report.leader is None
    assert (report.at.tied, report.at.n_tied) == ((3, 4), 2)
    assert report.at.lag_s > 0.25


def test_an_empty_window_says_nothing_about_shares() -> None:
    report = label(StageWindow(np.zeros((3, 2, 6)), DEFAULT_STAGES, (0, 1)))
    assert (report.routing, report.leader) == ((), None)
    assert Label.TELEMETRY_LIMITED in report.labels


def test_the_same_window_always_gets_the_same_report() -> None:
    window = stalled(DATA, 0.3, fits_wait_model=True)
    assert label(window) == label(window)
    assert all(one in Label for one in STRONG)


def test_a_rank_whose_spans_do_not_close_limits_the_window_however_many_close() -> None:
    """Of 32 ranks one spends its time in no stage, or has it counted twice: a mean over all would hide it."""
    own = np.random.default_rng(5).normal(BASE, 0.02 * BASE, (120, 32, 6)).clip(0)
    own[:, 3, DEFAULT_STAGES.index("step.other_cpu_wall")] += 0.3
    report = label(StageWindow(own, DEFAULT_STAGES, tuple(range(32)), fits_wait_model=True))
    assert Label.TELEMETRY_LIMITED in report.labels and not report.is_strong
    assert any(why.startswith("On rank 3, ") and "in no stage" in why for why in report.downgrades)
    twice = stalled(DATA, 0.3, fits_wait_model=True)
    overlap = np.zeros((120, 8))
    overlap[:, 3] = 0.3
    report = label(replace(twice, overlap_s=overlap))
    assert not report.is_strong and any(why.startswith("On rank 3, ") for why in report.downgrades)


def test_what_is_in_no_stage_is_never_called_the_cause() -> None:
    window = stalled(DEFAULT_STAGES.index("step.other_cpu_wall"), 1.0)
    assert not label(window, replace(GATES, residual_share=1.0)).is_strong


@pytest.mark.parametrize("n_steps", [1, 4])
def test_of_very_few_steps_nothing_strong_is_said(n_steps: int) -> None:
    window = stalled(DATA, 0.3, fits_wait_model=True)
    few = replace(window, durations=window.durations[:n_steps])
    assert Label.TELEMETRY_LIMITED in label(few).labels
    assert label(replace(few, is_mean=True)).is_strong
    assert label(replace(window, durations=window.durations[:5])).is_strong


@pytest.mark.parametrize("fits", [False, True])
@pytest.mark.parametrize("stage", [DATA, FORWARD_AT, BACKWARD, OPTIMIZER])
def test_one_rank_alone_gets_no_strong_label(stage: int, fits: bool) -> None:
    """R = 1 gives no cross-rank evidence (StageFrontier §3)."""
    own = np.tile(BASE, (120, 1, 1))
    own[:, :, stage] += 0.5
    report = label(StageWindow(own, DEFAULT_STAGES, (0,), fits_wait_model=fits, reference_s=BASE))
    assert not report.is_strong and Label.CO_CRITICAL in report.labels
    assert "nobody to compare it with" in report.downgrades[0]


@pytest.mark.parametrize("stage", [FORWARD_AT, BACKWARD, OPTIMIZER])
def test_a_stage_in_which_a_role_may_wait_for_another_is_not_its_own_doing(stage: int) -> None:
    """Clipping it inside this group would not take away what another group makes it wait (Equation 4)."""
    window = ddp(fits_wait_model=True, reference_s=BASE)
    window.durations[:, :, stage] += 0.2
    assert label(window).is_strong
    report = label(replace(window, has_other_roles=True))
    assert not report.is_strong
    assert any("waiting for ranks of another role" in why for why in report.downgrades)


def test_a_role_s_own_data_and_its_own_late_rank_are_its_own_doing() -> None:
    window = ddp(reference_s=BASE, has_other_roles=True)
    window.durations[:, :, DATA] += 0.2
    assert Label.DIRECT_EXPOSURE in label(window).labels
    late = stalled(OPTIMIZER, 0.3, reference_s=BASE, has_other_roles=True)
    assert Label.DIRECT_EXPOSURE in label(late).labels
