"""What stages add to a look and to a diagnosis, beside what ops show: nothing to what a job may always have done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.stages import joining
from rca.findings import HABIT, Diagnosis, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.triggers.look import Look
from rca.triggers.normal import Normal
from tests.windows import make_window

OF_OPS = Symptom(SymptomKind.STRAGGLER, "job", 1, 5, 9, 0, (0,), "slower", {"iteration_usual_s": 1.0, "iteration_s": 2})
OF_HABIT = replace(OF_OPS, numbers={**OF_OPS.numbers, HABIT: 3.0})
OF_STAGES = replace(OF_OPS, sentence="The stage data grew.")


def seen(symptom: Symptom, monkeypatch: pytest.MonkeyPatch) -> tuple[Symptom, ...]:
    """What a look says that saw this in ops, where stages have a symptom too."""
    monkeypatch.setattr(joining, "stage_symptom", lambda *_: OF_STAGES)
    attempt: Any = None
    return joining.seen_in_stages(attempt, make_window(), Look((symptom,), Normal(), (), 0)).symptoms


def test_what_ops_show_goes_before_what_stages_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(OF_OPS, monkeypatch) == (OF_OPS,)


def test_what_may_be_the_jobs_habit_hides_nothing_that_stages_show(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(OF_HABIT, monkeypatch) == (OF_STAGES,)


@pytest.mark.parametrize(("symptom", "n_asked"), [(OF_OPS, 1), (OF_HABIT, 0)])
def test_stages_are_not_asked_about_what_may_be_a_habit(
    symptom: Symptom, n_asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(joining, "told_around", lambda attempt_id, *_: asked.append(attempt_id))
    monkeypatch.setattr(joining, "with_stages", lambda diagnosis, *_: diagnosis)
    found = Diagnosis(symptom, (), (), (), {}, (), (), {}, 0)
    assert joining.staged(7, found, make_window(), DEFAULT) is found
    assert len(asked) == n_asked
