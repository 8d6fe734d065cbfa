"""A window that moved names somebody only by what moved it: not by one long step, and not a rank that is merely a little later
than the rest, or as late as ever. A job's normal does not creep away with a step that grows a little in every window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from ingest.window import Window
from nccl_instrument.tables import SYNCHRONOUS
from rca.findings import FaultKind, Finding
from rca.frontier.accounting import Seconds
from rca.frontier.labels import label
from rca.frontier.moved import Pace, Verdict, is_normal, moved
from rca.frontier.normal import Normal, Seen, late_s, normal_of
from rca.frontier.told import Told
from rca.rules.stage_delay import explain
from rca.settings import DEFAULT, Settings
from tests.rca.frontier.built import stage_window
from tests.rca.frontier.test_labels import BACKWARD, BASE, CALLBACK, DATA, FORWARD_AT, ddp, synchronised
from tests.rca.rules.test_stage_delay import as_told, judged

LONG = replace(DEFAULT, stage_steps=120, stage_warm_up=0)
WEAK_REPORT = label(ddp())
LIGHT = tried(deadline=None, max_examples=50)


def own(factor: float = 1.0, seed: int = 3) -> Seconds:
    """120 steps of 8 ranks, without what anybody waits."""
    return BASE * factor * np.random.default_rng(seed).normal(1.0, 0.02, (120, 8, len(BASE))).clip(0.8, 1.2)


def seen(durations: Seconds) -> Window:
    """Of programs that say they are one synchronous group."""
    window = stage_window(durations, groups=())
    recorder = window.rows("recorder").copy()
    recorder["flags"] = SYNCHRONOUS
    return replace(window, tables={**window.tables, "recorder": recorder})


def told(now: Seconds, usual: Seconds | None = None, settings: Settings = LONG) -> Told:
    window, before = seen(now), seen(synchronised(own()) if usual is None else usual)
    return as_told(judged(window, before, settings), window)


def named(now: Seconds, usual: Seconds | None = None) -> tuple[Finding, ...]:
    return explain(told(now, usual), stage_window(now), LONG)


def test_one_long_checkpoint_names_nobody_when_everything_became_slower() -> None:
    slower = synchronised(own(1.15))
    slower[7, 3, CALLBACK] += 30.0
    found = told(slower)
    assert found.verdict in (Verdict.ROUTED, Verdict.UNLOCALISED)
    assert found.stage != "callbacks.cpu_wall" and found.leader is None
    assert all(not one.culprits for one in explain(found, stage_window(slower), LONG))


def test_what_comes_every_ten_steps_still_names_its_rank_and_says_how_often() -> None:
    rare = synchronised(own())
    rare[::10, 3, CALLBACK] += 2.5
    (found,) = named(rare)
    assert found.culprits == (3,)
    assert "in 9 of 117 steps" in found.sentence and "every step" not in found.sentence


@pytest.mark.parametrize("stage", [DATA, FORWARD_AT])
def test_a_rank_a_little_later_than_the_rest_is_not_why_all_became_slower(stage: int) -> None:
    now = own()
    now[:, :, stage] += 0.150
    now[:, 5, stage] += 0.012
    (found,) = named(synchronised(now))
    assert (found.culprits, found.kind) == ((), FaultKind.GROUP_ANOMALY)
    assert "rank 5 is late by more, but that is" in found.sentence


def test_a_rank_that_has_always_been_late_is_not_why_all_became_slower() -> None:
    heavy, now = own(), own(1.5)
    heavy[:, 0, DATA] += 0.4
    now[:, 0, DATA] += 0.4
    now[:, :, DATA] += 0.2
    assert all(not one.culprits for one in named(synchronised(now), synchronised(heavy)))


def test_a_rank_that_is_later_by_what_was_added_is_named() -> None:
    now = own()
    now[:, 5, DATA] += 0.150
    (found,) = named(synchronised(now))
    assert found.culprits == (5,)
    shares = {one.what: one.value for one in found.evidence}
    assert 0.8 < float(shares["of what was added to the step"]) < 1.2


def test_ranks_that_are_late_in_turn_are_not_called_alike() -> None:
    now = own()
    for rank in range(3):
        now[40 * rank : 40 * (rank + 1), rank, DATA] += 0.2
    (found,) = named(synchronised(now))
    assert found.culprits == ()
    assert "late in turn" in found.sentence and "alike" not in found.sentence
    assert "Profile one of these ranks" in found.advice


def test_a_stage_that_is_longer_everywhere_is_alike() -> None:
    now = own()
    now[:, :, BACKWARD] += 0.150
    (found,) = named(synchronised(now))
    assert found.sentence.endswith("on all ranks alike.")


def paces(*steps: float) -> list[Seen]:
    return [Seen(Pace(one, 0.0005), {}, {}) for one in steps]


def judge_paces(steps: list[float]) -> list[Verdict]:
    """One window after the other, as they are judged."""
    usual, found = list[Seen](), []
    for step_s in steps:
        normal = normal_of(usual)
        held = [one.pace for one in normal.held]
        verdict = moved(WEAK_REPORT, Pace(step_s, 0.0005), normal.newest_paces, DEFAULT, held)
        found.append(verdict.verdict)
        usual += paces(step_s) if is_normal(verdict) else []
    return found


@LIGHT
@given(st.floats(0.001, 0.08), st.integers(0, 2**31))
def test_a_step_that_grows_is_told_before_it_has_doubled(rate: float, seed: int) -> None:
    n = int(np.ceil(np.log(2) / np.log1p(rate)))
    noise = np.random.default_rng(seed).normal(1.0, 0.001, n)
    assert Verdict.UNLOCALISED in judge_paces([0.2 * (1 + rate) ** k * noise[k] for k in range(n)])


@LIGHT
@given(st.floats(0.0, 0.03), st.integers(0, 2**31))
def test_windows_that_only_vary_are_hardly_ever_taken_for_a_growth(varies: float, seed: int) -> None:
    steps = 0.2 * np.random.default_rng(seed).normal(1.0, varies, 200).clip(0.9, 1.1)
    found = judge_paces(steps.tolist())
    assert sum(one is Verdict.UNLOCALISED for one in found[8:]) <= 0.02 * len(found)


def test_a_job_that_became_faster_is_compared_with_what_it_is_now() -> None:
    found = judge_paces([0.4] * 10 + [0.2] * 40 + [0.3])
    assert (found[-2], found[-1]) == (Verdict.USUAL, Verdict.UNLOCALISED)


def test_of_many_ranks_one_that_does_not_stand_out_is_not_late() -> None:
    table = {"rank": [3], "stages": ["a", "b"], "mean_ms": [[5.0, 9.0]], "median_ms": [1.0, 2.0], "n_ranks": 1000}
    assert (late_s(table, 3, "b"), late_s(table, 7, "b"), late_s(table, 3, "c")) == (0.011, 0.0, 0.0)
    assert Normal().late_s(3, "b") == 0.0
