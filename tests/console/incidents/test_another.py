"""A job that stood still, went on, and is slow now: two troubles, two incidents, each with its own culprit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from console.incidents.models import ConditionState, Incident, State
from console.incidents.watching import watch
from console.incidents.watching.revise import Judged
from ingest.models import Attempt
from rca.findings import Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.triggers.look import Look
from rca.triggers.normal import Normal
from tests.console.incidents.making import make_incident, make_symptom
from tests.console.incidents.stalling import StallingJob
from tests.console.incidents.test_watch import job, look, quick, recover, stall, the_incident
from tests.ingest.conftest import ingest, no_traces
from tests.windows import make_window

__all__ = ["ingest", "job", "no_traces", "quick"]  # fixtures
Follow = Callable[[Symptom], None]


@pytest.fixture
def follow(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """What becomes of a look that saw the symptom; nothing is diagnosed, which needs traces."""
    for name in ("keep_evidence", "ask_for", "revise"):
        monkeypatch.setattr(watch, name, lambda *_: None)
    monkeypatch.setattr(watch, "judged", lambda *_: Judged(is_worth=True))
    return lambda symptom: watch._follow(attempt, make_window(), Look((symptom,), Normal(), (), 0), DEFAULT)


def the_incidents() -> list[tuple[Any, ...]]:
    return list(Incident.objects.order_by("pk").values_list("symptom", "state", "culprits"))


def test_a_slowdown_after_a_hang_that_is_clear_is_an_incident_of_its_own(attempt: Attempt, follow: Follow) -> None:
    make_incident(attempt, condition=ConditionState.CLEAR, culprits=[3])
    follow(make_symptom(attempt, kind=SymptomKind.STRAGGLER))
    assert the_incidents() == [("failure", State.RESOLVED, [3]), ("straggler", State.OPEN, [])]


def test_and_a_hang_after_a_slowdown_that_is_clear(attempt: Attempt, follow: Follow) -> None:
    make_incident(attempt, symptom="straggler", key="slow", condition=ConditionState.CLEAR, culprits=[3])
    follow(make_symptom(attempt))
    assert the_incidents() == [("straggler", State.RESOLVED, [3]), ("failure", State.OPEN, [])]


@pytest.mark.parametrize(
    ("symptom", "condition", "kind"),
    [
        ("failure", ConditionState.FIRING, SymptomKind.STRAGGLER),
        ("failure", ConditionState.CLEARING, SymptomKind.STRAGGLER),
        ("failure", ConditionState.CLEAR, SymptomKind.FAILURE),
        ("silence", ConditionState.CLEAR, SymptomKind.FAILURE),
        ("external", ConditionState.CLEAR, SymptomKind.STRAGGLER),
    ],
    ids=["still there", "not clear yet", "the same", "silence and a hang are one", "a person said so"],
)
def test_else_it_is_the_same_trouble(
    attempt: Attempt, follow: Follow, symptom: str, condition: ConditionState, kind: SymptomKind
) -> None:
    make_incident(attempt, symptom=symptom, condition=condition)
    follow(make_symptom(attempt, kind=kind))
    assert Incident.objects.count() == 1 and Incident.objects.get().state == State.OPEN


async def test_a_hang_of_another_node_soon_after_one_that_was_resolved_has_an_incident_of_its_own(
    job: StallingJob,
) -> None:
    first = await stall(job)
    await recover(job)
    job.missing = 6
    second = await stall(job)
    assert (second.pk != first.pk, second.culprits, second.recurrence_of_id, second.regressed) == (
        True,
        [6],
        None,
        False,
    )
    before = await Incident.objects.aget(pk=first.pk)
    assert (before.state, before.culprits) == ("resolved", [3])


async def test_and_after_one_that_is_clear_which_is_resolved_then(job: StallingJob) -> None:
    first = await stall(job)
    job.go_on()
    while (await the_incident()).condition != ConditionState.CLEAR:
        await job.run(3)
        await look()
    job.missing = 6
    second = await stall(job)
    before = await Incident.objects.aget(pk=first.pk)
    assert (before.state, before.culprits, second.culprits) == ("resolved", [3], [6])
    assert before.resolution == "clear; another trouble began"


async def test_but_one_of_the_same_node_is_its_return(job: StallingJob) -> None:
    first = await stall(job)
    await recover(job)
    job.missing = 2
    again = await stall(job)
    assert (again.pk, again.culprits, again.regressed) == (first.pk, [2], True)
