"""What people do to incidents beside moving their state: who may, what follows, and that a repeated act is one."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone
from pytest_django import Settings

from console.incidents import lifecycle, record
from console.incidents.acts import handling
from console.incidents.acts.handling import Found, assign, attach, detach, review
from console.incidents.lifecycle import (
    DETECTOR,
    Actor,
    BadAct,
    IllegalMove,
    StaleVersion,
    end_acknowledgements,
    move,
    observe,
)
from console.incidents.lists.listing import Wanted, read_page
from console.incidents.models import ActorKind, Certainty, DiagnosisRevision, Incident, Review, Severity, TimelineEntry
from console.incidents.record import Seen
from console.incidents.rows import is_quiet
from console.incidents.watching.suspicion import UNDIAGNOSED
from ingest.models import Attempt, Job, Team
from tests.console.conftest import Persona
from tests.console.incidents.making import blaming, make_incident

RITA = Actor("rita", ActorKind.USER)
OLAF = Actor("olaf", ActorKind.USER)


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


@pytest.fixture
def other(team: Team) -> Incident:
    """An incident of another job of the team."""
    now = timezone.now()
    job = Job.objects.create(team=team, name="mistral")
    return make_incident(
        Attempt.objects.create(job=job, number=0, started_at=now, last_received_at=now), key="v1:other"
    )


def diagnosed(incident: Incident, n_culprits: int, n_victims: int, **more: Any) -> None:
    fields = {"certainty": Certainty.DIAGNOSED, "n_suspects": n_culprits, "n_victims": n_victims, **more}
    observe(incident, "diagnosed", fields)


# ---- acknowledgements end ---------------------------------------------------------------------------------------------


def test_an_acknowledgement_that_was_not_limited_stays(incident: Incident) -> None:
    move(incident.pk, "acknowledge", RITA)
    assert end_acknowledgements() == 0
    assert Incident.objects.get(pk=incident.pk).state == "acknowledged"


def test_an_acknowledgement_ends_by_time(incident: Incident) -> None:
    moved, _ = move(incident.pk, "acknowledge", RITA, minutes=30)
    assert moved.acknowledged_until is not None
    assert end_acknowledgements() == 0
    Incident.objects.update(acknowledged_until=timezone.now() - timedelta(seconds=1))
    assert (end_acknowledgements(), end_acknowledgements()) == (1, 0)
    entry = incident.timeline.latest("id")
    assert (entry.verb, entry.actor_kind, entry.after) == ("unacknowledged", "detector", "open")
    assert "rita" in entry.note


def test_the_settings_say_how_long_an_acknowledgement_lasts_and_an_act_may_differ(
    incident: Incident, other: Incident, settings: Settings
) -> None:
    settings.ACKNOWLEDGED_MINUTES = 15
    assert move(incident.pk, "acknowledge", RITA)[0].acknowledged_until is not None
    assert move(other.pk, "acknowledge", RITA, minutes=0)[0].acknowledged_until is None
    with pytest.raises(BadAct):
        move(incident.pk, "unacknowledge", RITA) and move(incident.pk, "acknowledge", RITA, minutes=-1)


def test_the_first_diagnosis_is_no_worsening(incident: Incident) -> None:
    move(incident.pk, "acknowledge", RITA)
    diagnosed(incident, 1, 400)
    assert incident.state == "acknowledged"
    diagnosed(incident, 1, 500)
    assert incident.state == "acknowledged"


def test_a_few_more_ranks_are_no_worsening(incident: Incident) -> None:
    diagnosed(incident, 1, 2)
    move(incident.pk, "acknowledge", RITA)
    diagnosed(incident, 1, 7)
    assert Incident.objects.get(pk=incident.pk).state == "acknowledged"


def test_a_blast_radius_that_doubled_takes_the_acknowledgement_back(incident: Incident) -> None:
    diagnosed(incident, 1, 31)
    move(incident.pk, "acknowledge", RITA)
    diagnosed(incident, 1, 63)
    entry = incident.timeline.latest("id")
    assert (incident.state, incident.acknowledged_by, entry.verb) == ("open", None, "unacknowledged")
    assert entry.note == "It got worse: 64 ranks are concerned instead of 32."


def revised(incident: Incident, number: int, *culprits: int) -> None:
    """A diagnosis that blames these ranks."""
    now = timezone.now()
    DiagnosisRevision.objects.create(
        incident=incident, number=number, at=now, body={}, verdict="", culprits=list(culprits), window_start_ns=0, window_end_ns=1
    )  # fmt: skip
    fields = blaming(*culprits)
    observe(incident, "diagnosed", fields, suspects=culprits)


@pytest.mark.parametrize(
    ("culprits", "is_new", "state"),
    [((6,), True, "open"), ((5,), True, "acknowledged"), ((5, 6), True, "acknowledged"), ((6,), False, "acknowledged")],
    ids=["another rank", "the same again", "the same and another", "another answer to the same trouble"],
)
def test_another_trouble_in_an_acknowledged_incident_takes_the_acknowledgement_back(
    incident: Incident, culprits: tuple[int, ...], is_new: bool, state: str
) -> None:
    began_at = timezone.now() - timedelta(minutes=1)
    observe(incident, "fired again", {"first_symptom_ns": int(began_at.timestamp() * 1e9)})
    revised(incident, 1, 5)
    move(incident.pk, "acknowledge", RITA)
    if is_new:  # what was acknowledged was over, and it fired again
        later_ns = int((timezone.now() + timedelta(seconds=1)).timestamp() * 1e9)
        observe(incident, "fired again", {**UNDIAGNOSED, "first_symptom_ns": later_ns})
        assert incident.state == "acknowledged"
    revised(incident, 2, *culprits)
    assert incident.state == state
    if state == "open":
        assert incident.timeline.latest("id").note == "It is another trouble: rank 6 instead of rank 5."


def test_a_worse_symptom_takes_the_acknowledgement_back(attempt: Attempt) -> None:
    incident = make_incident(attempt, symptom="straggler")
    assert incident.severity == Severity.MEDIUM
    move(incident.pk, "acknowledge", RITA)
    observe(incident, "attached", {"severity": Severity.HIGH})
    assert (incident.state, incident.timeline.latest("id").note) == (
        "open",
        "It got worse: high severity instead of medium.",
    )


# ---- two at once ------------------------------------------------------------------------------------------------------


def test_what_the_machine_found_out_meanwhile_makes_no_act_stale(incident: Incident) -> None:
    diagnosed(incident, 1, 7)
    assert move(incident.pk, "acknowledge", RITA, version=1)[0].state == "acknowledged"


def test_who_asks_for_this_very_version_gets_it_or_nothing(incident: Incident) -> None:
    diagnosed(incident, 1, 7)
    with pytest.raises(StaleVersion) as refused:
        move(incident.pk, "acknowledge", RITA, seen=Seen(1, exact=True))
    assert refused.value.exact
    assert move(incident.pk, "acknowledge", RITA, seen=Seen(2, exact=True))[0].version == 3


def test_a_version_that_is_still_to_come_is_none_anybody_saw(incident: Incident) -> None:
    with pytest.raises(StaleVersion):
        move(incident.pk, "acknowledge", RITA, version=5)


# ---- who handles it ---------------------------------------------------------------------------------------------------


def test_an_incident_is_assigned_to_who_may_act(incident: Incident, responder: Persona, viewer: Persona) -> None:
    changed, entry = assign(incident.pk, OLAF, responder.name)
    assert (changed.assignee, entry.verb, entry.before, entry.after) == ("rita", "assigned", "", "rita")
    for name in (viewer.name, "nobody-we-know"):
        with pytest.raises(BadAct):
            assign(incident.pk, OLAF, name)
    changed, entry = assign(incident.pk, OLAF, "")
    assert (changed.assignee, entry.verb, entry.before) == ("", "unassigned", "rita")


def test_who_may_act_in_another_team_is_not_assignable(incident: Incident, stranger: Persona) -> None:
    with pytest.raises(BadAct):
        assign(incident.pk, OLAF, stranger.name)


def test_a_repeated_assignment_is_one_act(incident: Incident, responder: Persona) -> None:
    entries = [assign(incident.pk, OLAF, "rita", request_key="k")[1].pk for _ in range(2)]
    assert entries[0] == entries[1]


# ---- attached ---------------------------------------------------------------------------------------------------------


def test_what_people_do_to_a_root_is_done_to_what_is_attached(incident: Incident, other: Incident) -> None:
    attach(other.pk, RITA, incident.pk)
    assert Incident.objects.get(pk=incident.pk).n_attached == 1
    move(incident.pk, "acknowledge", RITA)
    assert Incident.objects.get(pk=other.pk).acknowledged_by == "rita"
    move(incident.pk, "resolve", RITA, note="new cable")
    child = Incident.objects.get(pk=other.pk)
    assert (child.state, child.resolution) == ("resolved", "new cable")
    assert child.timeline.latest("id").note == f"With incident {incident.pk}."


def test_when_the_detector_resolves_a_root_what_is_attached_is_free(incident: Incident, other: Incident) -> None:
    attach(other.pk, RITA, incident.pk)
    move(incident.pk, "resolve", DETECTOR, note="condition cleared")
    child = Incident.objects.get(pk=other.pk)
    assert (child.state, child.attached_to, Incident.objects.get(pk=incident.pk).n_attached) == ("open", None, 0)


def test_what_comes_back_after_its_root_was_resolved_by_a_person_wakes_people(
    incident: Incident, other: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, bool]] = []
    attach(other.pk, RITA, incident.pk)
    assert is_quiet(Incident.objects.get(pk=other.pk))
    move(incident.pk, "resolve", RITA, note="new cable")
    monkeypatch.setattr(record, "_LISTENERS", [lambda of, entry: told.append((entry.verb, is_quiet(of)))])
    child, _ = move(other.pk, "reopen", DETECTOR, note="it hangs again", regressed=True)
    root = Incident.objects.get(pk=incident.pk)
    assert (child.state, child.attached_to, root.n_attached, root.state) == ("open", None, 0, "resolved")
    assert told == [("detached", False), ("let go", False), ("reopened", False)]
    move(incident.pk, "reopen", RITA)
    move(incident.pk, "acknowledge", RITA)
    assert Incident.objects.get(pk=other.pk).state == "open"  # it is one of its own now


def test_a_person_who_reopens_a_root_reopens_what_is_attached(incident: Incident, other: Incident) -> None:
    attach(other.pk, RITA, incident.pk)
    move(incident.pk, "resolve", RITA, note="new cable")
    move(incident.pk, "reopen", RITA)
    child = Incident.objects.get(pk=other.pk)
    assert (child.state, child.attached_to_id, is_quiet(child)) == ("open", incident.pk, True)


def test_reopening_a_root_leaves_alone_what_has_another_open_incident_in_its_attempt(
    incident: Incident, other: Incident
) -> None:
    attach(other.pk, RITA, incident.pk)
    move(incident.pk, "resolve", RITA, note="done")
    newer = make_incident(other.attempt, key="v1:newer")
    assert move(incident.pk, "reopen", RITA)[0].state == "open"
    assert [Incident.objects.get(pk=one.pk).state for one in (other, newer)] == ["resolved", "open"]


def test_attached_to_what_is_resolved_keeps_nobody_asleep(incident: Incident, other: Incident, team: Team) -> None:
    attach(other.pk, RITA, incident.pk)
    Incident.objects.filter(pk=incident.pk).update(state="resolved", resolved_at=timezone.now(), resolution="old row")
    assert not is_quiet(Incident.objects.get(pk=other.pk))
    assert read_page([team.pk], Wanted({})).facets["state"] == {"open": 1, "resolved": 1}


def test_detached_it_is_one_of_its_own(incident: Incident, other: Incident) -> None:
    attach(other.pk, RITA, incident.pk)
    detach(other.pk, RITA)
    move(incident.pk, "acknowledge", RITA)
    assert Incident.objects.get(pk=other.pk).state == "open"
    with pytest.raises(BadAct, match="attached to none"):
        detach(other.pk, RITA)


def test_there_are_no_chains_and_no_circles(incident: Incident, other: Incident, team: Team) -> None:
    with pytest.raises(BadAct):
        attach(incident.pk, RITA, incident.pk)
    attach(other.pk, RITA, incident.pk)
    for number, root in ((incident.pk, other.pk), (other.pk, incident.pk)):
        with pytest.raises(BadAct):
            attach(number, RITA, root)


def test_what_is_resolved_is_attached_to_nothing(incident: Incident, other: Incident) -> None:
    move(other.pk, "resolve", RITA, note="over")
    with pytest.raises(IllegalMove):
        attach(other.pk, RITA, incident.pk)
    with pytest.raises(IllegalMove, match=f"Incident {other.pk} is resolved: nothing"):
        attach(incident.pk, RITA, other.pk)


def test_another_teams_incident_is_no_root(incident: Incident, stranger: Persona) -> None:
    now = timezone.now()
    job = Job.objects.create(team=Team.objects.get(name="others"), name="theirs")
    theirs = make_incident(Attempt.objects.create(job=job, number=0, started_at=now, last_received_at=now), key="v1:t")
    with pytest.raises(Incident.DoesNotExist):
        attach(incident.pk, RITA, theirs.pk)


@pytest.mark.django_db(transaction=True)
def test_of_two_who_attach_each_others_incident_one_wins(incident: Incident, other: Incident) -> None:
    outcomes: list[Any] = []
    together = threading.Barrier(2)

    def run(number: int, root: int) -> None:
        together.wait()
        try:
            outcomes.append(attach(number, RITA, root))
        except BadAct as refused:
            outcomes.append(refused)
        finally:
            connection.close()

    pairs = ((incident.pk, other.pk), (other.pk, incident.pk))
    threads = [threading.Thread(target=run, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(outcome, BadAct) for outcome in outcomes) == 1
    assert Incident.objects.exclude(attached_to=None).count() == 1


# ---- afterwards -------------------------------------------------------------------------------------------------------


def test_a_review_says_whether_it_was_real_and_what_it_was(incident: Incident) -> None:
    found = Found("real", "wrong", cause="cable between", component="network", culprits=(5,), node="node-2")
    changed, entry = review(incident.pk, RITA, found)
    assert (changed.review, changed.state, entry.verb) == ("real", "open", "reviewed")
    assert entry.note == ("Real trouble. The verdict was wrong. True cause: ranks 5, node-2, network. cable between")
    assert Review.objects.get().rule == ""  # nobody was named


@pytest.mark.parametrize(
    "found",
    [
        Found("maybe", "right"),
        Found("real", ""),
        Found("real", "right", component="cable"),
        Found("real", "right", culprits=(-1,)),
    ],
)
def test_a_review_that_cannot_be_counted_is_refused(incident: Incident, found: Found) -> None:
    with pytest.raises(BadAct):
        review(incident.pk, RITA, found)
    assert not Review.objects.exists()


def test_a_review_names_ranks_that_the_job_has(incident: Incident) -> None:
    found = Found(alarm="real", verdict="partly", culprits=(3, 8))
    with pytest.raises(BadAct, match="The job has ranks 0 to 7"):
        review(incident.pk, RITA, found)
    assert not incident.timeline.filter(verb="reviewed").exists()
    Attempt.objects.filter(pk=incident.attempt_id).update(world_size=0)
    review(incident.pk, RITA, found)


def test_reviews_are_append_only_in_the_database(incident: Incident) -> None:
    review(incident.pk, RITA, Found("real", "right"))
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Review.objects.update(alarm="false")


# ---- who is told ------------------------------------------------------------------------------------------------------


def test_a_listener_hears_of_every_entry_in_its_transaction(
    incident: Incident, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(record, "_LISTENERS", [lambda of, entry: heard.append(f"{of.pk} {entry.verb}")])
    lifecycle.comment(incident.pk, RITA, "hm")
    move(incident.pk, "acknowledge", RITA)
    assert heard == [f"{incident.pk} commented", f"{incident.pk} acknowledged"]


def test_what_a_listener_cannot_promise_does_not_happen(incident: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(of: Incident, entry: TimelineEntry) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(record, "_LISTENERS", [refuse])
    with pytest.raises(RuntimeError):
        handling.assign(incident.pk, RITA, "")
    assert Incident.objects.get(pk=incident.pk).version == 1
