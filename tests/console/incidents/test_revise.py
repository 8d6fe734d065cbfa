"""What an incident says follows its newest diagnosis, also when that takes a verdict back."""

from __future__ import annotations

import dataclasses
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from console.incidents.models import DiagnosisRevision, Incident
from console.incidents.watching import revise
from ingest.models import Attempt, Node
from ingest.window import Window
from rca.findings import Diagnosis, FaultKind, Grade, Symptom, SymptomKind
from rca.holes import NOT_READ
from rca.settings import DEFAULT
from tests.console.incidents.making import SECOND, make_diagnosis, make_incident, make_symptom
from tests.windows import make_window


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


def revise_as(incident: Incident, diagnosis: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> Incident:
    """A revision with this diagnosis, whatever the rules would say."""
    monkeypatch.setattr(revise, "_evidence", lambda *_: (make_window(), diagnosis))
    revise.revise(incident, diagnosis.symptom, make_window(), DEFAULT)
    return Incident.objects.get(pk=incident.pk)


def test_a_weak_verdict_that_is_taken_back_leaves_a_suspicion_that_blames_nobody(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    symptom = make_symptom(incident.attempt)
    weak = revise_as(incident, make_diagnosis(symptom, grade=Grade.WEAK), monkeypatch)
    assert (weak.certainty, weak.culprits, weak.grade) == ("diagnosed", [3], "weak")
    after = revise_as(weak, make_diagnosis(symptom, culprits=()), monkeypatch)
    assert (after.certainty, after.culprits, after.n_culprits) == ("suspected", [], 0)
    assert (after.grade, after.component, after.fault_kind, after.root_caused_at) == ("", "", "", None)
    assert after.headline.startswith("Suspected hang")
    assert "Rank" not in after.headline


def test_a_verdict_after_one_taken_back_is_shown_again(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    symptom = make_symptom(incident.attempt)
    for diagnosis in (make_diagnosis(symptom, grade=Grade.WEAK), make_diagnosis(symptom, culprits=())):
        incident = revise_as(incident, diagnosis, monkeypatch)
    again = revise_as(incident, make_diagnosis(symptom, culprits=(5,)), monkeypatch)
    assert (again.certainty, again.culprits, again.headline) == ("diagnosed", [5], "Rank (5,) never started op 7.")


def test_an_entry_tells_what_a_revision_changed(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_diagnosis(make_symptom(incident.attempt), grade=Grade.MODERATE)
    late = dataclasses.replace(first, missing=("Still catching up: n3.",), victims=(0, 1))
    strong = dataclasses.replace(make_diagnosis(first.symptom), victims=(0, 2))
    for diagnosis in (first, late, strong):
        incident = revise_as(incident, diagnosis, monkeypatch)
    notes = list(incident.timeline.filter(verb="revised").order_by("id").values_list("note", flat=True))
    assert notes == [
        "2 ranks wait instead of 3. Now unknown: Still catching up: n3.",
        "Strong evidence instead of moderate. Other ranks wait. Settled: Still catching up: n3.",
    ]


@pytest.mark.parametrize(("is_catching_up", "missing"), [(True, ["Still catching up: n3."]), (False, [])])
def test_what_was_missing_for_a_moment_is_taken_back_once_nodes_have_caught_up(
    incident: Incident, monkeypatch: pytest.MonkeyPatch, is_catching_up: bool, missing: list[str]
) -> None:
    whole = make_diagnosis(make_symptom(incident.attempt))
    revise_as(incident, dataclasses.replace(whole, missing=("Still catching up: n3.",)), monkeypatch)
    late_ns = time.time_ns()
    Node.objects.create(
        attempt=incident.attempt, name="n3", late_received_ns=late_ns, catching_up=is_catching_up, received_ns=late_ns
    )
    resolved = {"state": "resolved", "resolved_at": timezone.now(), "resolution": "rebooted"}
    Incident.objects.update(analysed_at=timezone.now() - timedelta(seconds=6), **resolved)
    monkeypatch.setattr(revise, "diagnose", lambda *_: whole)
    monkeypatch.setattr(revise, "read_evidence", lambda *_, **__: make_window())
    revise.revise_late(incident.attempt_id)
    newest = incident.revisions.latest("number")
    assert newest.body["missing"] == missing


def test_a_strong_verdict_is_not_taken_back_by_evidence_that_scrolled_away(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    strong = revise_as(incident, make_diagnosis(make_symptom(incident.attempt)), monkeypatch)
    nobody = dataclasses.replace(make_diagnosis(make_symptom(incident.attempt)), findings=())
    assert revise_as(strong, nobody, monkeypatch).culprits == [3]


def slower(incident: Incident, lasted_s: float) -> Symptom:
    """A slowdown to iterations of a second that began so long before the trigger."""
    numbers = {"iteration_usual_s": 0.4, "iteration_s": 1.0}
    at_ns = incident.triggered_ns - int(lasted_s * SECOND)
    return make_symptom(incident.attempt, kind=SymptomKind.STRAGGLER, at_ns=at_ns, numbers=numbers)


@pytest.mark.parametrize(("lasted_s", "since_s", "kept_back"), [
    (3, 1, ("nobody", "weak", "moderate")), (3, 10, ()), (7, 1, ("nobody",)), (7, 9, ("nobody",)), (7, 10, ()),
], ids=["three iterations", "ten seconds later", "eight iterations", "nine seconds", "ten seconds"])  # fmt: skip
@pytest.mark.parametrize(
    ("named", "grade", "culprits"),
    [("nobody", Grade.STRONG, ()), ("weak", Grade.WEAK, (3,)), ("moderate", Grade.MODERATE, (3,))],
    ids=["nobody", "weak", "moderate"],
)
def test_a_first_diagnosis_without_a_name_waits_ten_seconds_and_one_that_is_not_strong_for_some_slow_iterations(
    incident: Incident, named: str, grade: Grade, culprits: tuple[int, ...], lasted_s: float, since_s: int,
    kept_back: tuple[str, ...],
) -> None:  # fmt: skip
    found, is_kept_back = make_diagnosis(slower(incident, lasted_s), culprits=culprits, grade=grade), named in kept_back
    assert revise.is_early(found, incident.triggered_ns, incident.triggered_ns + since_s * SECOND) is is_kept_back


@pytest.mark.parametrize(("lasted_s", "is_kept_back"), [(2.5, True), (4, False)])
def test_a_slow_nic_is_named_first_when_its_counters_were_read_often_enough_to_tell_others_traffic(
    incident: Incident, lasted_s: float, is_kept_back: bool
) -> None:
    sure = make_diagnosis(slower(incident, lasted_s))
    kind = FaultKind.COMMUNICATION_FAIL_SLOW
    slow_nic = dataclasses.replace(sure, findings=(dataclasses.replace(sure.findings[0], kind=kind),))
    assert revise.is_early(slow_nic, incident.triggered_ns, incident.triggered_ns) is is_kept_back


def test_a_name_that_is_sure_and_a_standstill_do_not_wait(incident: Incident) -> None:
    sure = make_diagnosis(slower(incident, 3))
    standing = make_diagnosis(make_symptom(incident.attempt), culprits=())
    now_ns = incident.triggered_ns + SECOND
    assert not any(revise.is_early(one, incident.triggered_ns, now_ns) for one in (sure, standing))


def test_an_incident_whose_first_diagnosis_is_kept_back_stands_as_suspected_and_is_diagnosed_in_the_next_look(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revise, "is_early", lambda *_: True)
    waiting = revise_as(incident, make_diagnosis(slower(incident, 3), culprits=()), monkeypatch)
    assert (waiting.certainty, waiting.revisions.count(), waiting.analysed_at) == ("suspected", 0, None)
    monkeypatch.setattr(revise, "is_early", lambda *_: False)
    named = revise_as(waiting, make_diagnosis(slower(incident, 3)), monkeypatch)
    assert (named.certainty, named.culprits, named.revisions.count()) == ("diagnosed", [3], 1)


def part_of(whole: Diagnosis) -> Diagnosis:
    return dataclasses.replace(whole, missing=(*whole.missing, NOT_READ))


def revise_reading(
    incident: Incident, part: Diagnosis, whole: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> list[DiagnosisRevision]:
    """The revisions after one more, of which a part of the nodes says `part` and all of them `whole`."""

    def read(*_: object, everything: bool = False) -> tuple[Window, Diagnosis]:
        return make_window(), whole if everything else part

    monkeypatch.setattr(revise, "_evidence", read)
    revise.revise(Incident.objects.get(pk=incident.pk), whole.symptom, make_window(), DEFAULT)
    return list(incident.revisions.order_by("number"))


def test_how_many_nodes_were_read_is_no_other_answer(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_diagnosis(make_symptom(incident.attempt))
    part = part_of(whole)
    assert revise.answer(part) == revise.answer(whole)
    assert len(revise_reading(incident, part, whole, monkeypatch)) == 1
    assert len(revise_reading(incident, whole, whole, monkeypatch)) == 1


def test_what_all_nodes_told_is_taken_back_by_all_of_them_only(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    symptom = make_symptom(incident.attempt)
    first, other, third = (make_diagnosis(symptom, culprits=(rank,)) for rank in (3, 5, 6))
    revise_as(incident, first, monkeypatch)
    assert len(revise_reading(incident, part_of(other), first, monkeypatch)) == 1
    kept = revise_reading(incident, part_of(other), third, monkeypatch)
    assert [(one.culprits, NOT_READ in one.body["missing"]) for one in kept] == [([3], False), ([6], False)]


def test_an_entry_says_that_all_nodes_were_read_for_another_answer_than_a_part_gave(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_diagnosis(make_symptom(incident.attempt))
    revise_as(incident, part_of(first), monkeypatch)
    revise_as(incident, dataclasses.replace(first, victims=(0, 1)), monkeypatch)
    assert incident.timeline.get(verb="revised").note == "2 ranks wait instead of 3. All nodes were read."


def test_nodes_that_were_left_out_are_not_waited_for_like_late_ones(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, late_ns = part_of(make_diagnosis(make_symptom(incident.attempt))), time.time_ns()
    revise_as(incident, part, monkeypatch)
    Node.objects.create(attempt=incident.attempt, name="n3", late_received_ns=late_ns, received_ns=late_ns)
    before = timezone.now() - timedelta(seconds=6)
    Incident.objects.update(analysed_at=before)
    monkeypatch.setattr(revise, "read_evidence", lambda *_, **__: pytest.fail("diagnosed again"))
    revise.revise_late(incident.attempt_id)
    assert Incident.objects.get(pk=incident.pk).analysed_at == before
