"""What the timeline says of a revision: answers to a request for dumps make one sentence, not a wall of negations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.incidents.watching.changes import changes
from rca.findings import Diagnosis, Symptom, SymptomKind

NOBODY = Diagnosis(
    symptom=Symptom(SymptomKind.FAILURE, "job", 0, 1, 2, 0, (), ""), findings=(), victims=(), path=(), communicators={},
    missing=(), downgraded=(), thresholds={}, analysed_ns=2,
)  # fmt: skip
WAITED = ("No stacks of ranks 0, 1, 2 and 3: its node has not answered.",)
NONE = ("No stacks of ranks 0, 1, 2 and 3: it is no Python process.",)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (WAITED, NONE, "All nodes answered; no stacks of ranks 0, 1, 2 and 3: it is no Python process."),
        (WAITED, (), "All nodes answered."),
        (NONE, (), "Arrived: Stacks of ranks 0, 1, 2 and 3."),
        ((), NONE, "No stacks of ranks 0, 1, 2 and 3: it is no Python process."),
        (WAITED, (*NONE, "No stacks of rank 4: its node has not answered."),
         "No stacks of ranks 0, 1, 2 and 3: it is no Python process; no stacks of rank 4: its node has not answered."),
        (("Still catching up: n3.",), NONE,
         "No stacks of ranks 0, 1, 2 and 3: it is no Python process. Settled: Still catching up: n3."),
    ],
)  # fmt: skip
def test_what_is_not_seen_is_said_once(before: tuple[str, ...], after: tuple[str, ...], said: str) -> None:
    assert changes(replace(NOBODY, missing=before), replace(NOBODY, missing=after)) == said
