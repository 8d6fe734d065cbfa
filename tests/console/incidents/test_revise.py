"""What an incident says follows its newest diagnosis, also when that takes a verdict back."""

from __future__ import annotations

import dataclasses

import pytest

from console.incidents import revise
from console.incidents.models import Incident
from ingest.models import Attempt
from rca.findings import Diagnosis, Grade
from tests.console.incidents.making import make_diagnosis, make_incident, make_symptom
from tests.windows import make_window


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


def revise_as(incident: Incident, diagnosis: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> Incident:
    """A revision with this diagnosis, whatever the rules would say."""
    monkeypatch.setattr(revise, "diagnose", lambda *_: diagnosis)
    monkeypatch.setattr(revise, "_evidence", lambda *_: make_window())
    revise.revise(incident, diagnosis.symptom, make_window())
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


def test_a_strong_verdict_is_not_taken_back_by_evidence_that_scrolled_away(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    strong = revise_as(incident, make_diagnosis(make_symptom(incident.attempt)), monkeypatch)
    nobody = dataclasses.replace(make_diagnosis(make_symptom(incident.attempt)), findings=())
    assert revise_as(strong, nobody, monkeypatch).culprits == [3]
