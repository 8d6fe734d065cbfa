"""A hang that begins while a lesser trouble still fires: the incident is about the hang from then on, and names its culprit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from console.dumps.wanted import began_at
from console.incidents import lifecycle
from console.incidents.models import ActorKind, ConditionState, Incident, State
from console.incidents.severity import severity_of
from console.incidents.watching import revise, watch
from console.incidents.watching.revise import Judged
from ingest.models import Attempt
from ingest.window import Window
from rca.findings import Diagnosis, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.triggers.look import Look
from rca.triggers.normal import Normal
from tests.console.incidents.making import SECOND, START_NS, blaming, make_diagnosis, make_incident, make_symptom
from tests.console.incidents.stalling import StallingJob
from tests.console.incidents.test_watch import job, look, quick, the_incident, verbs
from tests.ingest.conftest import ingest, no_traces
from tests.windows import make_window

__all__ = ["ingest", "job", "no_traces", "quick"]  # fixtures
RITA = lifecycle.Actor("rita", ActorKind.USER)
HEARD = (0, 1, 2)
"""Nodes whose agents live; that of node 3, with ranks 6 and 7, is lost."""


@pytest.fixture
async def silent(job: StallingJob, monkeypatch: pytest.MonkeyPatch) -> StallingJob:
    """A job that goes on, one agent of which was lost more than a minute ago."""
    monkeypatch.setattr("ingest.traces.frame.heard_since_ns", lambda *_: 0)  # though the job's clock is not ours
    for _ in range(5):
        await job.run(15, nodes=HEARD)
        await look()
    incident = await the_incident()
    assert (incident.symptom, incident.condition, incident.culprits) == ("silence", "firing", [6, 7])
    return job


async def hang(job: StallingJob) -> Incident:
    job.stall()
    for _ in range(5):
        await job.run(3, nodes=HEARD)
        await look()
    return await the_incident()


async def test_a_hang_under_an_old_silence_is_diagnosed_at_its_own_onset(silent: StallingJob) -> None:
    before = await the_incident()
    after = await hang(silent)
    assert (after.pk, after.symptom, after.certainty, after.culprits) == (before.pk, "failure", "diagnosed", [3])
    assert after.headline != before.headline
    assert after.first_symptom_ns > before.first_symptom_ns + 45 * SECOND
    told = await verbs(after)
    assert told.count("got worse") == 1
    said = [one.culprits async for one in after.revisions.order_by("number")]
    assert said[0] == [6, 7] and said[-1] == [3]


async def test_and_opens_an_incident_again_that_a_person_resolved_while_it_fired(silent: StallingJob) -> None:
    before = await the_incident()
    await sync_to_async(lifecycle.move)(before.pk, "resolve", RITA, note="the agent is known to be away")
    n_before = len(await verbs(before))
    after = await hang(silent)
    assert (await Incident.objects.acount(), after.state, after.culprits, after.regressed) == (1, "open", [3], False)
    assert (await verbs(after))[n_before : n_before + 2] == ["reopened", "got worse"]


Follow = Callable[..., Incident]


@pytest.fixture
def follow(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Follow:
    """What becomes of the incident by a look that saw these symptoms; nothing is diagnosed, which needs traces."""
    for name in ("keep_evidence", "ask_for", "revise"):
        monkeypatch.setattr(watch, name, lambda *_: None)

    def one_look(*symptoms: Symptom) -> Incident:
        watch._follow(attempt, make_window(), Look(symptoms, Normal(), (), 0), DEFAULT)
        return Incident.objects.latest("pk")

    return one_look


def make_firing(attempt: Attempt, kind: SymptomKind, **changes: Any) -> Incident:
    key = f"v1:{attempt.job_id}:0:{kind.value}:{0:016x}"
    fields = {"symptom": kind.value, "key": key, "severity": severity_of(kind), "comm_id": "", **blaming(3)}
    return make_incident(attempt, **fields | changes)


def later(attempt: Attempt, kind: SymptomKind, after_s: int = 300) -> Symptom:
    at_ns = START_NS + after_s * SECOND
    numbers = {"iteration_usual_s": 0.4, "iteration_s": 1.0}
    return make_symptom(attempt, kind=kind, at_ns=at_ns, seen_ns=at_ns + 2 * SECOND, comm_id=0, numbers=numbers)


KINDS = SymptomKind
GRAVER = [
    (KINDS.STRAGGLER, KINDS.FAILURE), (KINDS.SILENCE, KINDS.FAILURE), (KINDS.IDLE, KINDS.FAILURE),
    (KINDS.IDLE, KINDS.SILENCE), (KINDS.IDLE, KINDS.STRAGGLER),
]  # fmt: skip
NOT_GRAVER = [
    (KINDS.FAILURE, KINDS.STRAGGLER), (KINDS.FAILURE, KINDS.SILENCE), (KINDS.FAILURE, KINDS.IDLE),
    (KINDS.STRAGGLER, KINDS.SILENCE), (KINDS.SILENCE, KINDS.STRAGGLER), (KINDS.STRAGGLER, KINDS.IDLE),
    *((kind, kind) for kind in (KINDS.FAILURE, KINDS.STRAGGLER, KINDS.SILENCE, KINDS.IDLE)),
]  # fmt: skip


@pytest.mark.parametrize("condition", [ConditionState.FIRING, ConditionState.CLEARING])
@pytest.mark.parametrize(("kind", "graver"), GRAVER)
def test_a_graver_trouble_makes_a_firing_incident_its_own(
    attempt: Attempt, follow: Follow, kind: SymptomKind, graver: SymptomKind, condition: ConditionState
) -> None:
    before = make_firing(attempt, kind, condition=condition)
    after, symptom = follow(later(attempt, graver)), later(attempt, graver)
    assert (after.pk, after.symptom, after.condition) == (before.pk, graver.value, "firing")
    assert (after.certainty, after.culprits, after.analysed_at) == ("suspected", [], None)
    assert (after.first_symptom_ns, after.triggered_ns) == (symptom.at_ns, symptom.seen_ns)
    assert symptom.sentence in after.headline
    entry = after.timeline.latest("id")
    assert (entry.verb, entry.note) == ("got worse", symptom.sentence)
    assert began_at(after) == entry.at  # stacks taken of the lesser trouble tell nothing of this one


@pytest.mark.parametrize(("kind", "other"), NOT_GRAVER)
def test_any_other_symptom_restarts_nothing(
    attempt: Attempt, follow: Follow, kind: SymptomKind, other: SymptomKind
) -> None:
    before = make_firing(attempt, kind)
    after = follow(later(attempt, other))
    assert (after.symptom, after.culprits, after.first_symptom_ns) == (kind.value, [3], before.first_symptom_ns)
    assert not after.timeline.filter(verb="got worse").exists()


def test_what_comes_and_goes_makes_an_incident_worse_once(attempt: Attempt, follow: Follow) -> None:
    make_firing(attempt, KINDS.STRAGGLER)
    hang, slow = later(attempt, KINDS.FAILURE), later(attempt, KINDS.STRAGGLER, after_s=0)
    for symptom in (hang, slow, hang, slow, hang):
        after = follow(symptom)
    assert list(after.timeline.values_list("verb", flat=True).order_by("id")) == ["opened", "got worse"]


def test_a_small_slowdown_that_is_worth_no_incident_takes_none_over(
    attempt: Attempt, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "judged", lambda *_: Judged(is_worth=False))
    make_firing(attempt, KINDS.IDLE)
    assert follow(later(attempt, KINDS.STRAGGLER)).symptom == "idle"


def test_a_report_stays_a_report_and_is_diagnosed_anew_for_the_hang_that_follows(
    attempt: Attempt, follow: Follow
) -> None:
    make_firing(attempt, KINDS.EXTERNAL)
    for _ in range(2):
        after = follow(later(attempt, KINDS.FAILURE))
    assert (after.symptom, after.severity, after.culprits) == ("external", "high", [])
    assert list(after.timeline.values_list("verb", flat=True)).count("got worse") == 1


def test_who_acknowledged_the_lesser_trouble_is_asked_again(attempt: Attempt, follow: Follow) -> None:
    incident = make_firing(attempt, KINDS.STRAGGLER)
    lifecycle.move(incident.pk, "acknowledge", RITA)
    after = follow(later(attempt, KINDS.FAILURE))
    assert after.state == State.OPEN
    assert after.timeline.latest("id").note == "It got worse: high severity instead of medium."


def test_a_hang_that_comes_back_after_it_was_resolved_reopens_the_incident_that_had_become_its_own(
    attempt: Attempt, follow: Follow
) -> None:
    make_firing(attempt, KINDS.STRAGGLER)
    first = follow(later(attempt, KINDS.FAILURE))
    Incident.objects.update(condition=ConditionState.CLEAR)
    lifecycle.move(first.pk, "resolve", RITA, note="rebooted")
    again = follow(later(attempt, KINDS.FAILURE, after_s=600))
    assert (again.pk, again.state, again.regressed) == (first.pk, "open", True)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Diagnosis]:
    """What the rules will say, one after the other."""
    said: list[Diagnosis] = []

    def found(*_: Any, **__: Any) -> tuple[Window, Diagnosis]:
        return make_window(), said.pop(0)

    monkeypatch.setattr(revise, "_evidence", found)
    return said


def test_a_graver_trouble_that_names_nobody_is_on_record_and_does_not_show_the_name_of_the_lesser(
    attempt: Attempt, follow: Follow, told: list[Diagnosis]
) -> None:
    make_firing(attempt, KINDS.STRAGGLER)
    slow, hang = later(attempt, KINDS.STRAGGLER, after_s=0), later(attempt, KINDS.FAILURE)
    told += [make_diagnosis(slow), *[make_diagnosis(hang, culprits=())] * 2]
    revise.revise(Incident.objects.get(), slow, make_window(), DEFAULT)
    after = follow(hang)
    for _ in range(2):
        revise.revise(after, hang, make_window(), DEFAULT)
    assert (after.certainty, after.culprits) == ("suspected", [])
    assert list(after.revisions.order_by("number").values_list("culprits", flat=True)) == [[3], []]


def test_the_lesser_trouble_that_is_still_there_takes_nothing_back(
    attempt: Attempt, follow: Follow, told: list[Diagnosis]
) -> None:
    make_firing(attempt, KINDS.STRAGGLER)
    hang, slow = later(attempt, KINDS.FAILURE), later(attempt, KINDS.STRAGGLER, after_s=0)
    after = follow(hang)
    told += [make_diagnosis(hang, culprits=(6,)), make_diagnosis(slow)]
    revise.revise(after, hang, make_window(), DEFAULT)
    revise.revise(after, slow, make_window(), DEFAULT)
    assert (after.culprits, len(told)) == ([6], 1)
    revise.revise(after, replace(slow, at_ns=hang.at_ns + SECOND), make_window(), DEFAULT)  # it began afterwards
    assert not told
