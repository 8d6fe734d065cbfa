"""A window moves against its own job's normal, by a share that matters and beyond what windows vary by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rca.frontier.labels import label
from rca.frontier.moved import Pace, Verdict, is_normal, moved, next_look, pace_of
from rca.frontier.report import Label
from rca.settings import DEFAULT
from tests.rca.frontier.test_labels import DATA, ddp, stalled

STRONG = label(stalled(DATA, 0.3, fits_wait_model=True))
WEAK = label(ddp())
USUAL = [Pace(0.192, 0.0005), Pace(0.193, 0.0005), Pace(0.191, 0.0005)]


def test_without_a_normal_nothing_has_moved() -> None:
    found = moved(STRONG, Pace(10.0, 0.1), USUAL[:1], DEFAULT)
    assert (found.verdict, found.usual_s) == (Verdict.LEARNING, 0.0)
    assert next_look(found, STRONG) == ""


@pytest.mark.parametrize(
    ("step_s", "verdict"),
    [(0.192, Verdict.USUAL), (0.2005, Verdict.USUAL), (0.21, Verdict.ROUTED), (0.15, Verdict.FASTER)],
)
def test_a_share_that_matters_moves_the_step(step_s: float, verdict: Verdict) -> None:
    found = moved(STRONG, Pace(step_s, 0.0005), USUAL, DEFAULT)
    assert found.verdict is verdict
    assert is_normal(found) is (verdict is not Verdict.ROUTED)


def test_what_windows_vary_by_moves_nothing() -> None:
    restless = [Pace(0.19, 0.001), Pace(0.24, 0.001), Pace(0.16, 0.001), Pace(0.21, 0.001)]
    assert moved(STRONG, Pace(0.26, 0.001), restless, DEFAULT).verdict is Verdict.USUAL
    unsure = [replace(one, error_s=0.02) for one in USUAL]
    assert moved(STRONG, Pace(0.26, 0.02), unsure, DEFAULT).verdict is Verdict.USUAL


def test_one_long_step_moves_nothing_and_one_in_ten_does() -> None:
    exposed = np.full(120, 0.2)
    exposed[40] = 9.0
    assert pace_of(STRONG, exposed).step_s == pytest.approx(0.2)
    exposed[::10] = 1.0
    assert pace_of(STRONG, exposed).step_s > 0.25
    assert pace_of(STRONG, np.full(2, 0.2)).step_s == pytest.approx(0.2)


def test_a_slow_step_without_a_stage_is_unlocalised_and_says_what_to_look_at() -> None:
    found = moved(WEAK, Pace(0.3, 0.0005), USUAL, DEFAULT)
    assert found.verdict is Verdict.UNLOCALISED
    plain = replace(WEAK, labels=(Label.FRONTIER_ACCOUNTING,))
    assert "CPU contention" in next_look(found, plain)
    limited = replace(WEAK, labels=(Label.TELEMETRY_LIMITED,))
    assert "Restore the recording" in next_look(found, limited)


def test_what_was_added_is_a_hint_where_no_stage_passes_the_gate() -> None:
    usual = [pace_of(WEAK, np.full(120, WEAK.step_s))] * 3
    exposed = {**usual[0].exposed_s, "data.next_wait": usual[0].exposed_s["data.next_wait"] + 0.12}
    step_s = sum(exposed.values())
    report = replace(WEAK, shares={stage: by / step_s for stage, by in exposed.items()}, step_s=step_s)
    found = moved(report, pace_of(report, np.full(120, step_s)), usual, DEFAULT)
    assert found.verdict is Verdict.UNLOCALISED
    assert found.growth["data.next_wait"] > 0.9
    assert "100% of what was added to the step is in data.next_wait: look there first" in next_look(found, report)


def test_a_routed_window_says_whom_to_profile() -> None:
    found = moved(STRONG, Pace(0.3, 0.0005), USUAL, DEFAULT)
    assert next_look(found, STRONG) == "Profile rank 3 in data.next_wait; it leads the exposed time of the group."
