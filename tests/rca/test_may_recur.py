"""Long iterations of a job that is not known for long: a habit, or somebody's fault; whom a look and a diagnosis then name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ingest.window import Window
from nccl_instrument.simulate.faults import Fault, make_fault
from nccl_instrument.simulate.job import ORIGIN_NS
from rca.diagnose import diagnose
from rca.findings import HABIT, Component, Diagnosis, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind
from rca.rules import actual_time
from rca.settings import DEFAULT
from rca.triggers import look as triggers
from rca.triggers.look import is_halved, look
from rca.triggers.may_recur import may_recur
from rca.triggers.normal import Normal
from rca.triggers.pace import Pace, Slowing
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_of

MS = 1_000_000
AT_S = 8.0


def after(*lengths_ms: int, usual: tuple[int, ...] = (500,) * 60) -> Slowing | None:
    """What is said once these iterations have followed the usual ones."""
    began, at = [], 0
    for length in lengths_ms:
        began.append((at, length * MS))
        at += length * MS
    return may_recur(Pace(usual_ns=tuple(one * MS for one in usual), recent=tuple(began), seen_ns=at), DEFAULT)


SPELLS = (500, 1500, 500, 500, 1500, 500, 500, 1500, 500)


@pytest.mark.parametrize(
    "usual",
    [(*(500,) * 51, *(1500, 500, 500) * 3), (500,) * 10],
    ids=["as many were always there", "hardly anything is known"],
)
def test_long_iterations_of_a_job_that_has_them_or_is_not_known_are_nothing(usual: tuple[int, ...]) -> None:
    assert after(*SPELLS, usual=usual) is None


@pytest.mark.parametrize(
    "lengths",
    [
        (500, 1500, 1500, 1500, 500), (500, 1500, 500), (500, 1200, 500, 1200, 500), (*SPELLS, *(500,) * 110),
        (500, 700, 500, 700, 500, 700),
    ],
    ids=["in one spell", "one of them", "two that cost little", "hardly any time is lost", "not much longer"],
)  # fmt: skip
def test_what_does_not_come_back_or_costs_little_is_nothing(lengths: tuple[int, ...]) -> None:
    assert after(*lengths) is None


@pytest.mark.parametrize("before", [(500,), (1500, 500, 1500), (1500, 500, 1500, 2400, 1500)])
def test_spells_of_which_a_young_job_has_had_two_may_recur_from_the_first_on(before: tuple[int, ...]) -> None:
    found = after(*SPELLS, usual=(*(500,) * 50, *before))
    assert found is not None and (found.kind, found.since_ns, found.n_iterations) == ("recurring", 500 * MS, 3)


@pytest.mark.parametrize(("n_between", "is_told"), [(4, True), (30, True), (80, False)])
def test_two_of_them_may_recur_where_they_cost_enough_of_the_time_since_the_first(
    n_between: int, is_told: bool
) -> None:
    found = after(500, 1400, *(500,) * n_between, 1400, 500)
    assert (found is not None) == is_told
    assert found is None or (found.since_ns, found.n_iterations) == (500 * MS, 2)


def symptom_of(window: Window) -> Symptom:
    onset_ns = ORIGIN_NS + int(AT_S * 1e9)
    numbers = {"iteration_usual_s": 0.1, "iteration_s": 0.9, HABIT: 3.0}
    return Symptom(SymptomKind.STRAGGLER, window.job, 1, onset_ns, window.end_ns, 0, (0,), "slow", numbers)


def pauses(name: str) -> tuple[Fault, ...]:
    """Four pauses of a second, each another rank's (or everybody's)."""
    made = (make_fault(name, EIGHT, AT_S + 4 * at, victim=2 * at) for at in range(4))
    return tuple(replace(one, amount=1.0, end_s=one.start_s + 1) for one in made)


@cache
def diagnosed(name: str) -> Diagnosis:
    faults = (make_fault(name, EIGHT, AT_S, victim=5, amount=1.0),) if name == "proxy_sleeps" else pauses(name)
    window = window_of(run(EIGHT, *faults, seconds=26.0))
    return diagnose(window, symptom_of(window))


@pytest.mark.parametrize("name", ["checkpoint", "stuck_before", "recompile", "proxy_stuck"])
def test_pauses_of_a_job_that_may_always_have_had_them_blame_nobody(name: str) -> None:
    found = diagnosed(name)
    assert found.compared and not found.findings


def test_a_proxy_that_is_caught_asleep_is_named_whatever_the_habit() -> None:
    best = diagnosed("proxy_sleeps").findings[0]
    assert (best.component, best.culprits) == (Component.PROXY, (5,))


@pytest.mark.parametrize("is_habit", [True, False])
def test_what_may_be_a_habit_is_not_told_by_what_was_measured_of_everybody(
    is_habit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject("communicator", "world", tuple(range(8)))
    longer = Finding(
        "actual_time", 1, subject, Component.PROXY, FaultKind.GROUP_ANOMALY, (), 0.7, Grade.MODERATE, "Ops last longer."
    )
    monkeypatch.setattr(actual_time, "explain", lambda *_: (longer,))
    window = window_of(run(EIGHT, *pauses("proxy_stuck"), seconds=26.0))
    symptom = symptom_of(window)
    if not is_habit:
        symptom = replace(symptom, numbers={name: one for name, one in symptom.numbers.items() if name != HABIT})
    found = diagnose(window, symptom).findings
    assert found == () if is_habit else "actual_time" in [one.rule for one in found]


def test_a_look_says_that_it_may_be_habit_and_that_is_never_the_papers_threshold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window = window_of(run(EIGHT, seconds=4.0))
    slow = Slowing("recurring", window.start_ns, 100 * MS, 400 * MS, 3)
    monkeypatch.setattr(triggers, "may_recur", lambda *_: slow)
    (symptom,) = look(window, Normal()).symptoms
    assert symptom.may_be_habit and symptom.numbers[HABIT] == 3
    assert "not known for long enough" in symptom.sentence and not is_halved(symptom, DEFAULT)
