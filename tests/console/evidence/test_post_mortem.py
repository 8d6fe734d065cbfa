"""The draft of a post-mortem: facts in order, what is not known said so, and nothing from outside becomes markup."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from console.evidence.post_mortem import impact_of, post_mortem
from console.incidents.lifecycle import Actor, move
from console.incidents.models import ActorKind, DiagnosisRevision, Incident
from console.incidents.words import COMPONENT, CONDITION, SYMPTOM
from ingest.models import Attempt
from rca.findings import Alternative, Compared, Diagnosis, Subject, to_json
from tests.console.incidents.making import START_NS, make_diagnosis, make_incident, make_symptom

pytestmark = pytest.mark.django_db

FRONTEND = Path(__file__).parents[3] / "frontend" / "src"


def test_without_a_diagnosis_it_names_nobody_and_knows_no_end(attempt: Attempt) -> None:
    draft = post_mortem(make_incident(attempt))
    assert "Nobody has been named." in draft and "not over as far as is known" in draft
    assert "No other subject came into question." in draft and "Nobody acted on it here." in draft


def test_a_hang_costs_every_waiting_rank_all_of_its_time(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    Incident.objects.filter(pk=incident.pk).update(
        n_victims=6, n_culprits=1, condition="clear", cleared_at=moment(START_NS) + timedelta(hours=2)
    )
    incident.refresh_from_db()
    impact = impact_of(incident, None)
    assert (impact.rank_hours, impact.is_least) == (14.0, True)
    assert "**at least 14.0 rank-hours**: 7 ranks × 2.0 h" in post_mortem(incident)


def test_the_draft_says_it_in_the_words_of_the_page(attempt: Attempt) -> None:
    draft = post_mortem(make_incident(attempt))
    assert "| What | Hang, high severity |" in draft and "| State | open, still happening |" in draft
    words, bits = ((FRONTEND / name).read_text() for name in ("state/words.ts", "parts/bits.tsx"))
    for code, word in (*SYMPTOM.items(), *COMPONENT.items()):
        assert f'  {code}: "{word}",' in words
    for code, word in CONDITION.items():
        assert f'  {code}: {{ word: "{word}"' in bits


@pytest.mark.parametrize(("minutes", "said"), [(6, "0.7 rank-hours"), (60, "7.0 rank-hours"), (2, "0.23 rank-hours")])
def test_rank_hours_have_no_more_digits_than_are_known(attempt: Attempt, minutes: int, said: str) -> None:
    incident = make_incident(attempt)
    cleared = moment(START_NS) + timedelta(minutes=minutes)
    Incident.objects.filter(pk=incident.pk).update(n_victims=6, n_culprits=1, condition="clear", cleared_at=cleared)
    incident.refresh_from_db()
    assert f"**at least {said}**" in post_mortem(incident)


def test_a_slowdown_costs_as_much_as_iterations_are_longer_and_else_it_is_not_known(attempt: Attempt) -> None:
    incident = make_incident(attempt, symptom="straggler")
    Incident.objects.filter(pk=incident.pk).update(last_seen_ns=START_NS + 3600 * 10**9)
    incident.refresh_from_db()
    diagnosis = make_diagnosis(make_symptom(attempt))
    assert impact_of(incident, diagnosis).rank_hours is None
    slower = replace(diagnosis, compared=(Compared("iteration", 100.0, 125.0, "ms"),))
    assert impact_of(incident, slower).rank_hours == pytest.approx(8 * 0.2)


def test_who_did_what_and_what_was_ruled_out_stand_in_it_and_names_are_no_markup(attempt: Attempt) -> None:
    attempt.job.name = "<img src=x>|*llama*"
    attempt.job.save()
    incident = make_incident(attempt)
    other = Alternative(Subject("rank", "rank 5", (5,)), "it entered the op before the others | in time")
    found = replace(make_diagnosis(make_symptom(attempt)), alternatives=(other,))
    keep(incident, found)
    move(incident.pk, "acknowledge", Actor("rita", ActorKind.USER), version=incident.version, note="on it")
    draft = post_mortem(Incident.objects.get(pk=incident.pk))
    assert "\\<img src=x\\>\\|\\*llama\\*" in draft
    assert "- rank 5: it entered the op before the others \\| in time" in draft
    assert "- rita: acknowledged at " in draft and "**Rank (3,) never started op 7.**" in draft


def test_an_incident_that_goes_on_is_not_called_over(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    assert "when it was last seen; it is still happening." in post_mortem(incident)
    Incident.objects.filter(pk=incident.pk).update(condition="clearing")
    assert "since when it is over is not known" in post_mortem(Incident.objects.get(pk=incident.pk))


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        ("Look with `ip -s link show nic_1` at <it>.", "Look with `ip -s link show nic_1` at \\<it\\>."),
        ("Not a `pair, nor *bold*.", "Not a \\`pair, nor \\*bold\\*."),
        ("Two ``side`` by side.", "Two \\`\\`side\\`\\` by side."),
    ],
)
def test_a_command_can_be_copied_and_nothing_else_becomes_markup(attempt: Attempt, advice: str, said: str) -> None:
    incident = make_incident(attempt)
    found = make_diagnosis(make_symptom(attempt))
    keep(incident, replace(found, findings=(replace(found.findings[0], advice=advice),)))
    assert f"- [ ] {said}\n" in post_mortem(incident)


def moment(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns / 1e9, UTC)


def keep(incident: Incident, diagnosis: Diagnosis) -> None:
    DiagnosisRevision.objects.create(
        incident=incident, number=1, at=timezone.now(), body=to_json(diagnosis), verdict=diagnosis.verdict,
        culprits=list(diagnosis.culprits), grade="strong", window_start_ns=START_NS, window_end_ns=START_NS + 1,
    )  # fmt: skip
