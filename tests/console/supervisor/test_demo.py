"""When the demo's job ends, the person who watches reads who died, not how far the job came."""

from __future__ import annotations

import pytest

from console.supervisor.demo import how_it_ended

PROGRESS = "testbed: iteration 169 of 8 ranks, 6 s\n"


@pytest.mark.parametrize(
    ("code", "log", "sentence"),
    [
        (3, f"testbed: Rank 5 ended with code -9: it said nothing\n{PROGRESS}", "rank 5 was killed (signal 9)"),
        (3, f"testbed: Rank 2 ended with code 3: sum is wrong\n{PROGRESS}", "rank 2 ended (exit 3): sum is wrong"),
        (-9, PROGRESS, f"the testbed was killed (signal 9): {PROGRESS.strip()}"),
        (2, "", "the testbed ended (exit 2): it said nothing"),
    ],
)
def test_the_end_of_the_job_is_told_by_its_cause(code: int, log: str, sentence: str) -> None:
    assert how_it_ended(code, log) == sentence
