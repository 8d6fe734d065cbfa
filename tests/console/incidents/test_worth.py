"""Which slowdowns open an incident before the pace has halved: small ones only for somebody or a link, large ones for any tie."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.incidents.watching.revise import is_worth
from rca.findings import HABIT, Component, Diagnosis, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind
from rca.settings import DEFAULT, SECOND_NS, settings_with


def slower(times: float, lasted_s: float) -> Symptom:
    numbers = {"iteration_usual_s": 0.4, "iteration_s": 0.4 * times}
    return Symptom(SymptomKind.STRAGGLER, "job", 1, 0, int(lasted_s * SECOND_NS), 0, (0,), "slower", numbers)


def said(symptom: Symptom, *grades: Grade) -> Diagnosis:
    subject = Subject("link", "link rank 0 to rank 1", (0, 1))
    findings = tuple(
        Finding("slow_nic", 1, subject, Component.NIC, FaultKind.COMMUNICATION_FAIL_SLOW, (), 0.5, grade, "slow")
        for grade in grades
    )
    return Diagnosis(symptom, findings, (), (), {}, (), (), {}, 0)


@pytest.mark.parametrize("times", [1.06, 1.2])
def test_a_small_slowdown_that_is_nobodys_for_sure_opens_none_however_long_it_lasts(times: float) -> None:
    symptom = slower(times, 600)
    assert not is_worth(symptom, said(symptom), DEFAULT)
    assert not is_worth(symptom, said(symptom, Grade.WEAK), DEFAULT)


def test_a_large_slowdown_without_anybody_in_sight_opens_none_until_it_has_lasted() -> None:
    early, late = slower(1.5, 12), slower(1.5, 25)
    assert not is_worth(early, said(early), DEFAULT)
    assert is_worth(late, said(late), DEFAULT)


def test_a_large_slowdown_opens_one_for_a_tie() -> None:
    symptom = slower(1.5, 12)
    assert is_worth(symptom, said(symptom, Grade.WEAK), DEFAULT)


def test_a_small_slowdown_that_is_surely_somebodys_opens_one() -> None:
    symptom = slower(1.06, 12)
    assert is_worth(symptom, said(symptom, Grade.MODERATE), DEFAULT)


def test_what_counts_as_large_is_the_jobs_own_threshold_and_stored_with_the_diagnosis() -> None:
    patient, symptom = settings_with({"large_factor": 1.8}), slower(1.5, 60)
    assert is_worth(symptom, said(symptom), DEFAULT) and not is_worth(symptom, said(symptom), patient)
    assert patient.thresholds()["large_factor"] == 1.8


def link(symptom: Symptom, n_ends: int, score: float) -> Diagnosis:
    ends = tuple(Subject("nic", f"rank {rank}", (rank,)) for rank in range(n_ends))
    found = said(symptom, Grade.WEAK)
    return replace(found, findings=(replace(found.findings[0], tied=ends, score=score),))


@pytest.mark.parametrize(("n_ends", "score"), [(2, 0.6), (3, 0.95)], ids=["half of it unexplained", "three ends"])
def test_a_small_slowdown_of_what_may_be_some_link_opens_none(n_ends: int, score: float) -> None:
    symptom = slower(1.2, 600)
    assert not is_worth(symptom, link(symptom, n_ends, score), DEFAULT)


def test_a_small_slowdown_that_is_one_links_for_sure_opens_one_whichever_end_it_is() -> None:
    symptom = slower(1.2, 12)
    assert is_worth(symptom, link(symptom, 2, 0.9), DEFAULT)


def test_what_may_be_a_habit_opens_one_for_nothing_but_somebody_caught() -> None:
    symptom = slower(1.9, 600)
    symptom = replace(symptom, numbers={**symptom.numbers, HABIT: 3.0})
    assert not is_worth(symptom, said(symptom), DEFAULT) and not is_worth(symptom, said(symptom, Grade.WEAK), DEFAULT)
    assert is_worth(symptom, said(symptom, Grade.STRONG), DEFAULT)
