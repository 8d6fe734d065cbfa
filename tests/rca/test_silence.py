"""The silence rule: who sends nothing any more, and when that means nothing."""

from __future__ import annotations

import pytest

from rca.diagnose import diagnose
from rca.findings import Component, FaultKind, Finding, Grade, Symptom, SymptomKind
from rca.progress import state_of
from rca.rules import silence
from rca.settings import DEFAULT
from tests.windows import make_window


def findings(kind: SymptomKind = SymptomKind.SILENCE, **scenario) -> tuple[Finding, ...]:  # type: ignore[no-untyped-def]
    state = state_of(make_window(**scenario), DEFAULT)
    return silence.explain(state, Symptom(kind, "job", 1, 1, 2, 0, (), ""), DEFAULT)


@pytest.mark.parametrize(
    "scenario", [{}, {"catching_up": [1]}, {"silent": range(4)}, {"frozen": 2}], ids=["healthy", "spool", "all", "hang"]
)
def test_nobody_is_silent(scenario: dict) -> None:  # type: ignore[type-arg]
    assert findings(**scenario) == ()


def test_a_failure_is_not_answered_with_silence() -> None:
    assert findings(SymptomKind.FAILURE, silent=[1]) == ()


def test_a_silent_node_is_named_with_its_ranks() -> None:
    (found,) = findings(silent=[1])
    assert (found.culprits, found.component, found.kind) == ((2, 3), Component.NODE, FaultKind.SILENCE)
    assert found.subject.name == "node1"


def test_a_silent_node_that_others_wait_for_is_surer() -> None:
    window = make_window(frozen=3, silent=[1])
    found = diagnose(window, Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), ""))
    node = next(finding for finding in found.findings if finding.rule == "silence")
    assert node.grade is Grade.STRONG
    assert any("silent" in sentence for sentence in found.missing)
