"""The incident's state change: what is legal, who wins, what is written down."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.incidents import lifecycle
from console.incidents.lifecycle import (
    MOVES,
    Actor,
    BadAct,
    IllegalMove,
    StaleVersion,
    comment,
    move,
    observe,
    replay,
)
from console.incidents.models import ActorKind, ConditionState, Incident, OutboxRow, State, TimelineEntry
from ingest.models import Attempt
from tests.console.incidents.making import make_incident

RITA = Actor("rita", ActorKind.USER)
OLAF = Actor("olaf", ActorKind.USER)


def test_an_acknowledgement_says_who_and_when_in_row_timeline_and_outbox(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    moved, entry = move(incident.pk, "acknowledge", RITA, version=1, note="on it")
    assert (moved.state, moved.acknowledged_by, moved.version) == (State.ACKNOWLEDGED, "rita", 2)
    assert (entry.verb, entry.before, entry.after, entry.note) == ("acknowledged", "open", "acknowledged", "on it")
    assert OutboxRow.objects.filter(entry=entry, type="incident.changed").exists()


@pytest.mark.parametrize("state", State.values)
@pytest.mark.parametrize("verb", MOVES)
def test_only_legal_moves_change_the_state(attempt: Attempt, state: str, verb: str) -> None:
    incident = _in_state(make_incident(attempt), state)
    allowed, after = MOVES[verb]
    if state in allowed:
        assert move(incident.pk, verb, RITA, note="why")[0].state == after
    else:
        with pytest.raises(IllegalMove) as refused:
            move(incident.pk, verb, RITA, note="why")
        assert refused.value.incident.state == state


def test_a_stale_version_is_refused_with_the_current_row(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    move(incident.pk, "acknowledge", RITA, version=1)
    with pytest.raises(StaleVersion) as refused:
        move(incident.pk, "resolve", OLAF, version=1, note="done")
    assert refused.value.incident.acknowledged_by == "rita"


@pytest.mark.django_db(transaction=True)
def test_of_two_people_who_acknowledge_at_once_one_wins(attempt: Attempt) -> None:
    number = make_incident(attempt).pk
    outcomes = _at_once(lambda actor: move(number, "acknowledge", actor, version=1)[0].acknowledged_by, RITA, OLAF)
    losers = [outcome for outcome in outcomes if isinstance(outcome, StaleVersion)]
    assert len(losers) == 1
    assert Incident.objects.get(pk=number).acknowledged_by in ("rita", "olaf")
    assert TimelineEntry.objects.filter(incident=number, verb="acknowledged").count() == 1


def test_resolving_needs_a_reason(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    with pytest.raises(BadAct):
        move(incident.pk, "resolve", RITA, note="   ")
    assert move(incident.pk, "resolve", RITA, note="replaced the cable")[0].resolution == "replaced the cable"


def test_a_repeated_request_is_one_act(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    _, first = move(incident.pk, "acknowledge", RITA, version=1, request_key="r-1")
    again, second = move(incident.pk, "acknowledge", RITA, version=1, request_key="r-1")
    assert (first.pk, again.version) == (second.pk, 2)


def test_a_comment_leaves_the_version_alone(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    comment(incident.pk, RITA, "looking at the switch")
    assert move(incident.pk, "acknowledge", OLAF, version=1)[0].state == State.ACKNOWLEDGED


def test_what_the_machine_observes_never_touches_the_state(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    observe(incident, "clearing", {"condition": ConditionState.CLEARING}, before="firing", after="clearing")
    assert (incident.condition, incident.state, incident.version) == ("clearing", "open", 2)
    with pytest.raises(ValueError, match="move"):
        observe(incident, "resolved", {"state": State.RESOLVED})


def test_an_attempt_has_one_unresolved_incident_whatever_the_code_does(attempt: Attempt) -> None:
    first = make_incident(attempt)
    with pytest.raises(IntegrityError), transaction.atomic():
        make_incident(attempt, key="v1:another")
    move(first.pk, "resolve", RITA, note="done")
    make_incident(attempt)


def test_what_was_resolved_is_not_reopened_while_another_incident_of_the_attempt_is_open(attempt: Attempt) -> None:
    first = _in_state(make_incident(attempt), "resolved")
    other = make_incident(attempt, key="v1:another")
    with pytest.raises(IllegalMove, match=f"{first.pk} cannot be reopened while incident {other.pk} .* is open") as no:
        move(first.pk, "reopen", RITA)
    assert no.value.incident == other
    assert Incident.objects.get(pk=first.pk).version == first.version
    move(other.pk, "resolve", RITA, note="done")
    assert move(first.pk, "reopen", RITA)[0].state == State.OPEN


def test_who_opens_another_while_one_is_being_reopened_was_first(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _in_state(make_incident(attempt), "resolved")
    looks = iter([None])
    real = lifecycle._open_beside
    monkeypatch.setattr(lifecycle, "_open_beside", lambda incident: next(looks, real(incident)))
    other = make_incident(attempt, key="v1:another")
    with pytest.raises(IllegalMove) as no:
        move(first.pk, "reopen", RITA)
    assert no.value.incident == other


@pytest.mark.parametrize(
    "broken",
    [
        {"state": "closed"},
        {"state": "acknowledged"},
        {"state": "resolved"},
        {"condition": "maybe"},
        {"certainty": "sure"},
        {"resolution": "never resolved"},
        {"version": 0},
    ],
)
def test_the_database_refuses_rows_that_cannot_be(attempt: Attempt, broken: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        make_incident(attempt, **broken)


@pytest.mark.parametrize("statement", ["UPDATE {} SET note = 'x'", "DELETE FROM {}"])
def test_the_timeline_is_append_only_in_the_database(attempt: Attempt, statement: str) -> None:
    make_incident(attempt)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement.format("incidents_timelineentry"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verbs=st.lists(st.sampled_from([*MOVES, "comment", "clearing", "firing", "clear"]), max_size=12))
def test_replaying_a_timeline_gives_the_state(attempt: Attempt, verbs: list[str]) -> None:
    with transaction.atomic():
        incident = make_incident(attempt)
        for verb in verbs:
            _act(incident.pk, verb)
        found = Incident.objects.get(pk=incident.pk)
        assert replay(list(incident.timeline.order_by("id"))) == (found.state, found.condition)
        transaction.set_rollback(True)


def test_opening_is_the_first_entry(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    assert [(entry.verb, entry.actor_kind) for entry in incident.timeline.all()] == [("opened", "detector")]


def _act(number: int, verb: str) -> None:
    if verb == "comment":
        comment(number, RITA, "hm")
    elif verb in ConditionState.values:
        incident = Incident.objects.get(pk=number)
        observe(incident, verb, {"condition": verb}, before=incident.condition, after=verb)
    else:
        try:
            move(number, verb, RITA, note="why")
        except IllegalMove:
            return


def _in_state(incident: Incident, state: str) -> Incident:
    for verb in {"open": [], "acknowledged": ["acknowledge"], "resolved": ["resolve"]}[state]:
        incident, _ = move(incident.pk, verb, OLAF, note="setting the scene")
    return incident


def _at_once(act: Any, *actors: Actor) -> list[Any]:
    """What `act` returned or raised for each actor, started together in threads."""
    outcomes: list[Any] = []
    together = threading.Barrier(len(actors))

    def run(actor: Actor) -> None:
        together.wait()
        try:
            outcomes.append(act(actor))
        except StaleVersion as refused:
            outcomes.append(refused)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(actor,)) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
