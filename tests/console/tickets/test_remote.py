"""What became of tickets where they are: shown, noted once, acting on nothing; unknown is unknown; limits are obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.incidents.lifecycle import Actor, move
from console.incidents.models import ActorKind, Incident
from console.tickets import http
from console.tickets.acts import make_destination
from console.tickets.models import Delivery, Destination, Ticket
from console.tickets.remote import PER_RUN_MAX, look_around
from console.tickets.sender import send_due
from ingest.models import Attempt
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident
from tests.console.tickets.places import Place, place
from tests.console.tickets.trackers import ANSWERS, SETTINGS, System

RITA = Actor("rita", ActorKind.USER, 7)
EVERY = pytest.mark.parametrize("kind", list(ANSWERS))


@contextmanager
def told(kind: str, attempt: Attempt, settings: Any) -> Iterator[tuple[System, Place, Incident]]:
    """A system that was told of an incident."""
    there = System(ANSWERS[kind])
    with place(there) as here:
        settings.TICKETS_HOSTS = {here.name}
        given = {**SETTINGS[kind], "url": here.url}
        make_destination(attempt.job.team_id, "tracker", kind, given, "ada", "low")
        incident = make_incident(attempt)
        deliver()
        here.asked.clear()
        yield there, here, incident


def deliver() -> None:
    Delivery.objects.filter(state="waiting").update(due_at=timezone.now() - timedelta(seconds=1))
    send_due()
    assert not Delivery.objects.exclude(state="sent").exists()


def another(attempt: Attempt, n: int) -> Attempt:
    """A later start of the job: each has one unresolved incident at most."""
    now = timezone.now()
    made: Attempt = Attempt.objects.create(
        job=attempt.job,
        number=attempt.number + 1 + n,
        started_at=now,
        last_received_at=now,
        ended_at=now,
        state="ended",
    )
    return made


def left_alone() -> timedelta:
    """For how long the destination is asked nothing."""
    until = Destination.objects.get().looks_not_before
    assert until is not None
    return until - timezone.now()


def look() -> int:
    """As if every pause were over."""
    Ticket.objects.update(look_at=None)
    Destination.objects.update(looks_not_before=None)
    return look_around()


def row(viewer: Persona, incident: Incident) -> dict[str, Any]:
    answer = viewer.browser.get(f"/api/v1/incidents/{incident.pk}/tickets").json()
    found: dict[str, Any] = answer["tickets"][0]
    return found


def noted(incident: Incident) -> list[tuple[str, str]]:
    """What was written down of elsewhere."""
    found = incident.timeline.filter(verb__endswith="elsewhere").order_by("id")
    return list(found.values_list("verb", "note"))


@EVERY
def test_the_state_there_its_assignee_and_when_it_was_seen_are_shown(
    kind: str, attempt: Attempt, viewer: Persona, settings: Any
) -> None:
    with told(kind, attempt, settings) as (there, _, incident):
        before = row(viewer, incident)
        assert before["unknown_why"] == "it has not been looked at yet"
        assert before["unknown_since"] == before["told_at"] is not None
        there.issue.change(assignee="jo", word="Open")
        assert look() == 1
        seen = row(viewer, incident)
        assert (seen["remote_state"], seen["remote_assignee"], seen["differs"]) == ("open", "jo", False)
        assert seen["seen_at"] is not None and seen["unknown_since"] is None
        assert seen["remote_at"].startswith("2026-11-23T08:0")
        assert noted(incident) == []


@EVERY
def test_a_close_there_is_noted_once_and_never_resolves_what_fires_here(
    kind: str, attempt: Attempt, viewer: Persona, settings: Any
) -> None:
    with told(kind, attempt, settings) as (there, _, incident):
        there.issue.change(is_closed=True, word="Done", closed_by="jo")
        for _ in range(3):
            look()
        incident.refresh_from_db()
        assert (incident.state, row(viewer, incident)["differs"]) == ("open", True)
        (entry,) = noted(incident)
        assert entry[0] == "closed elsewhere" and "Nothing changes here." in entry[1]
        assert Delivery.objects.count() == 1  # and nobody is told of it


@EVERY
def test_comments_of_people_there_are_noted_once_and_our_own_never(kind: str, attempt: Attempt, settings: Any) -> None:
    with told(kind, attempt, settings) as (there, _, incident):
        there.issue.say("jo", "I pulled the cable.")
        look()
        move(incident.pk, "acknowledge", RITA, note="mine")
        deliver()
        assert any("acknowledged" in text for _, _, text in there.issue.remarks)
        there.issue.say("jo", "And put it back.\x00")
        for _ in range(3):
            look()
        assert [note for _, note in noted(incident)] == ["jo: I pulled the cable.", "jo: And put it back."]
        assert Delivery.objects.count() == 2


@EVERY
def test_what_we_closed_and_reopened_ourselves_is_not_told_as_somebody_elses(
    kind: str, attempt: Attempt, settings: Any
) -> None:
    with told(kind, attempt, settings) as (_, _, incident):
        look()
        move(incident.pk, "resolve", RITA, note="over")
        deliver()
        look()
        assert Ticket.objects.get().remote_state == "closed"
        move(incident.pk, "reopen", RITA)
        deliver()
        look()
        assert noted(incident) == []


@EVERY
def test_a_ticket_reopened_there_after_the_end_here_is_noted(kind: str, attempt: Attempt, settings: Any) -> None:
    with told(kind, attempt, settings) as (there, _, incident):
        move(incident.pk, "resolve", RITA, note="over")
        deliver()
        look()
        there.issue.change(is_closed=False, word="Open")
        look()
        look()
        assert [verb for verb, _ in noted(incident)] == ["reopened elsewhere"]


@EVERY
def test_a_ticket_that_was_deleted_is_shown_as_gone_and_comes_back(
    kind: str, attempt: Attempt, viewer: Persona, settings: Any
) -> None:
    with told(kind, attempt, settings) as (there, _, incident):
        there.issue.is_deleted = True
        look()
        look()
        gone = row(viewer, incident)
        assert (gone["remote_state"], gone["differs"], gone["unknown_since"]) == ("gone", False, None)
        assert [verb for verb, _ in noted(incident)] == ["gone elsewhere"]
        assert Destination.objects.get().n_looks_failed == 0
        there.issue.is_deleted = False
        look()
        assert row(viewer, incident)["remote_state"] == "open"


def test_a_github_issue_that_was_transferred_is_followed_on_the_same_server_only(
    attempt: Attempt, viewer: Persona, settings: Any
) -> None:
    with told("github", attempt, settings) as (there, here, incident):
        with place() as elsewhere:
            settings.TICKETS_HOSTS = {here.name, elsewhere.name}
            there.issue.moved_to = f"{elsewhere.url}/repositories/5/issues/7"
            look()
            assert elsewhere.asked == []
        assert row(viewer, incident)["remote_state"] == "moved"
        there.issue.moved_to = f"{here.url}/repositories/5/issues/7"
        look()
        assert row(viewer, incident)["url"] == "https://github.example/new/7"
        assert [verb for verb, _ in noted(incident)] == ["moved elsewhere"]


def test_a_moved_jira_issue_is_known_by_its_new_key(attempt: Attempt, viewer: Persona, settings: Any) -> None:
    with told("jira", attempt, settings) as (there, _, incident):
        there.issue.change(moved_to="NET-3")
        look()
        found = row(viewer, incident)
        assert (found["external_id"], found["remote_state"]) == ("NET-3", "open")
        assert found["url"].endswith("/browse/NET-3")


def test_a_moved_gitlab_issue_says_so(attempt: Attempt, viewer: Persona, settings: Any) -> None:
    with told("gitlab", attempt, settings) as (there, _, incident):
        there.issue.change(moved_to="elsewhere", is_closed=True)
        look()
        assert row(viewer, incident)["remote_state"] == "moved"


@EVERY
@pytest.mark.parametrize(
    "trouble", [(500, {}, "oh"), (401, {}, "who?"), (200, {}, b"<html>"), (200, {}, ["odd"]), (200, {}, {"state": 1})]
)
def test_what_cannot_be_read_is_unknown_since_it_was_last_seen(
    kind: str, trouble: Any, attempt: Attempt, viewer: Persona, settings: Any
) -> None:
    with told(kind, attempt, settings) as (there, here, incident):
        look()
        seen_at = row(viewer, incident)["seen_at"]
        there.trouble = trouble
        Ticket.objects.update(etag="")
        look()
        failed = row(viewer, incident)
        assert (failed["remote_state"], failed["unknown_since"]) == ("open", seen_at)
        assert failed["unknown_why"]
        assert Destination.objects.get().n_looks_failed == 1 and Destination.objects.get().n_failures == 0
        here.asked.clear()
        Ticket.objects.update(look_at=None)
        assert (look_around(), here.asked) == (0, [])  # left alone for a while
        there.trouble = None
        look()
        assert (row(viewer, incident)["unknown_since"], Destination.objects.get().n_looks_failed) == (None, 0)


def test_no_answer_in_time_is_unknown_and_holds_no_message_back(
    attempt: Attempt, viewer: Persona, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with told("github", attempt, settings) as (_, here, incident):
        monkeypatch.setattr(http, "DELIVERY_SECONDS_MAX", 0.3)
        here.sleep_s = 1.0
        look()
        assert "no answer" in row(viewer, incident)["unknown_why"] or "no time" in row(viewer, incident)["unknown_why"]
        monkeypatch.undo()
        here.sleep_s = 0.0
        move(incident.pk, "acknowledge", RITA)
        deliver()


@pytest.mark.parametrize("asked", ["1800", "date"])
def test_an_asked_pause_is_kept(asked: str, attempt: Attempt, settings: Any) -> None:
    with told("jira", attempt, settings) as (there, here, _):
        later = (timezone.now() + timedelta(seconds=1800)).strftime("%a, %d %b %Y %H:%M:%S GMT")
        there.trouble = 429, {"Retry-After": later if asked == "date" else asked}, {}
        look()
        assert timedelta(seconds=1700) < left_alone() < timedelta(seconds=1900)
        here.asked.clear()
        Ticket.objects.update(look_at=None)
        assert (look_around(), here.asked) == (0, [])


def test_when_most_of_the_hours_requests_are_used_the_rest_is_left_to_people(attempt: Attempt, settings: Any) -> None:
    with told("github", attempt, settings) as (there, _, _):
        reset = str(int(timezone.now().timestamp()) + 900)
        there.limits = {"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "499", "X-RateLimit-Reset": reset}
        look()
        assert timedelta(seconds=800) < left_alone() < timedelta(seconds=910)
        assert Ticket.objects.get().remote_state == "open"


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_what_has_not_changed_is_asked_with_its_mark_and_costs_one_request(
    kind: str, attempt: Attempt, viewer: Persona, settings: Any
) -> None:
    with told(kind, attempt, settings) as (there, here, incident):
        there.issue.say("jo", "hm")
        look()
        first = row(viewer, incident)
        here.asked.clear()
        look()
        assert (len(here.asked), there.n_marked) == (1, 1)
        again = row(viewer, incident)
        assert again["remote_state"] == "open" and again["seen_at"] > first["seen_at"]


@pytest.mark.parametrize("kind", ["jira", "servicenow"])
def test_comments_are_read_only_where_something_changed(kind: str, attempt: Attempt, settings: Any) -> None:
    with told(kind, attempt, settings) as (there, here, incident):
        there.issue.say("jo", "hm")
        look()
        here.asked.clear()
        look()
        assert len(here.asked) == 1
        there.issue.say("jo", "aha")
        look()
        assert [note for _, note in noted(incident)] == ["jo: hm", "jo: aha"]


def test_a_servicenow_journal_that_may_not_be_read_leaves_the_state(
    attempt: Attempt, viewer: Persona, settings: Any
) -> None:
    with told("servicenow", attempt, settings) as (there, _, incident):
        there.hides_journal = True
        there.issue.say("jo", "hm")
        look()
        assert row(viewer, incident)["unknown_since"] is None and noted(incident) == []


@pytest.mark.parametrize("kind", ["github", "gitlab", "jira"])
def test_of_very_many_comments_none_is_noted_twice_and_what_is_left_out_is_said(
    kind: str, attempt: Attempt, settings: Any
) -> None:
    with told(kind, attempt, settings) as (there, _, incident):
        for n in range(70):
            there.issue.say("jo", f"line {n}.")
        for _ in range(5):
            look()
        notes = [note for _, note in noted(incident)]
        lines = [note for note in notes if note.startswith("jo: ")]
        assert len(lines) == len(set(lines))
        assert len(lines) == 70 if kind == "github" else "There are more comments there than are noted here." in notes


def test_only_open_and_recently_resolved_incidents_are_looked_at_and_a_few_at_a_time(
    attempt: Attempt, settings: Any, viewer: Persona
) -> None:
    with told("github", attempt, settings) as (_, here, incident):
        assert look_around() == 1
        assert look_around() == 0  # not again before its time
        move(incident.pk, "resolve", RITA, note="over")
        deliver()
        assert look() == 1
        Incident.objects.update(resolved_at=timezone.now() - timedelta(days=2))
        assert look() == 0
        assert row(viewer, incident)["unknown_since"] is None
        for n in range(PER_RUN_MAX + 4):
            other = make_incident(another(attempt, n), key=f"v1:{n}")
            ticket = Ticket.objects.get_or_create(incident=other, destination=Destination.objects.get())[0]
            Ticket.objects.filter(pk=ticket.pk).update(told_at=timezone.now(), external_id="7")
        Delivery.objects.filter(state="waiting").delete()
        here.asked.clear()
        assert [look_around(), look_around(), look_around()] == [PER_RUN_MAX, 4, 0]


def test_switched_off_it_asks_nobody_and_says_so(attempt: Attempt, viewer: Persona, settings: Any) -> None:
    with told("github", attempt, settings) as (_, here, incident):
        settings.TICKETS_LOOK_SECONDS = 0.0
        assert (look(), here.asked) == (0, [])
        assert row(viewer, incident)["unknown_why"] == "looking at tickets is switched off"
        settings.TICKETS_LOOK_SECONDS = 60.0
        Destination.objects.update(enabled=False)
        assert (look(), here.asked) == (0, [])
        assert row(viewer, incident)["unknown_why"] == "the destination is switched off"
        Destination.objects.update(enabled=True, sealed="nonsense")
        assert (look(), here.asked) == (0, [])
        assert row(viewer, incident)["unknown_since"] is not None


def test_a_look_during_which_a_message_was_sent_is_thrown_away(attempt: Attempt, settings: Any) -> None:
    with told("github", attempt, settings) as (there, _, incident):
        there.issue.say("jo", "hm")
        Delivery.objects.update(done_at=timezone.now() + timedelta(seconds=30))  # it ends while the look is under way
        look()
        assert (noted(incident), Ticket.objects.get().seen_at) == ([], None)
        Delivery.objects.update(done_at=timezone.now() - timedelta(seconds=30))
        look()
        assert len(noted(incident)) == 1


def test_one_ticket_that_is_always_refused_does_not_keep_the_others_unseen(attempt: Attempt, settings: Any) -> None:
    with told("github", attempt, settings) as (there, _, incident):
        answer = there.answer_of
        there.answer_of = lambda here, asked: (422, {}, "") if "/issues/8" in asked.path else answer(here, asked)
        Ticket.objects.update(look_at=timezone.now() - timedelta(hours=1))
        other = make_incident(another(attempt, 1), key="v1:other")
        Delivery.objects.filter(state="waiting").delete()
        bad = Ticket.objects.get_or_create(incident=other, destination=Destination.objects.get())[0]
        past = timezone.now() - timedelta(hours=2)
        Ticket.objects.filter(pk=bad.pk).update(told_at=past, external_id="8", look_at=past)
        look_around()
        Destination.objects.update(looks_not_before=None)
        look_around()
        assert Ticket.objects.get(incident=incident).seen_at is not None
