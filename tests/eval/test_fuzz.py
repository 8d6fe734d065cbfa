"""The verdict of suite `fuzz`: what makes it fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.eval.fuzz import RSS_GROWTH_MB_MAX, faults_in
from tests.eval.fuzz_endpoint import Tally
from tests.rawhttp import Heard

GOOD: dict[str, Any] = {
    "crashes": 0, "server_errors": 0, "hung": 0, "unanswered": 0, "abuses_failed": {}, "failed_looks": 0,
    "rss_growth_mb": 3.0,
}  # fmt: skip


def test_a_run_without_faults_passes() -> None:
    assert faults_in(GOOD) == []


@pytest.mark.parametrize(
    "fault",
    [
        {"crashes": 1},
        {"server_errors": 2},
        {"hung": 1},
        {"unanswered": 1},
        {"abuses_failed": {"bombs": "500"}},
        {"failed_looks": 1},
        {"rss_growth_mb": RSS_GROWTH_MB_MAX + 1},
    ],
    ids=str,
)
def test_whatever_was_wrong_fails_the_run(fault: dict[str, Any]) -> None:
    assert len(faults_in({**GOOD, **fault})) == 1


def test_a_request_that_ends_without_an_answer_is_counted_and_shown() -> None:
    tally = Tally()
    tally.note(b"POST", Heard(0), 0.1)
    tally.note(b"", Heard(0), 0.1, is_broken=True)  # nothing was asked
    tally.note(b"POST /\r\n", Heard(0), 0.1, is_broken=True)
    tally.note(b"POST", Heard(-1), 0.1)
    assert (tally.unanswered, tally.cut_off, tally.hung, len(tally.errors)) == (1, 1, 1, 3)
