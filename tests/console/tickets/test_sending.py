"""From a timeline entry to somebody else's system: what is promised, in which order it is sent, and what a failure does."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from console.incidents.lifecycle import DETECTOR, Actor, comment, move, observe
from console.incidents.models import ActorKind, Incident
from console.incidents.record import record
from console.silences.acts import make_silence
from console.tickets import promises, sender, tasks
from console.tickets.acts import make_destination, replay, send_test
from console.tickets.guard import place_of
from console.tickets.http import poster
from console.tickets.message import Again
from console.tickets.models import Attempt as Try
from console.tickets.models import Delivery, Destination, Ticket
from console.tickets.rows import untold_why
from console.tickets.sender import pause_s, send_due
from ingest.models import Attempt
from tests.console.incidents.making import make_incident
from tests.console.tickets.places import Asked, Place, Said, Tracker, fine, place

RITA = Actor("rita", ActorKind.USER, 7)
ROUTING_KEY = "a" * 32


def pagerduty(attempt: Attempt, here: Place, settings: Any, name: str = "duty", **changes: Any) -> Destination:
    settings.TICKETS_HOSTS = {*settings.TICKETS_HOSTS, here.name}
    given = {"routing_key": ROUTING_KEY, "url": here.url, "hook_secret": "hush", **changes}
    return make_destination(attempt.job.team_id, name, "pagerduty", given, "ada", "low")


def soon() -> None:
    """As if the ten seconds were over."""
    Delivery.objects.filter(state="waiting").update(due_at=timezone.now() - timedelta(seconds=1))


def again() -> None:
    """As if the pause after a failure were over."""
    Destination.objects.update(not_before=None)


def states() -> list[tuple[str, str]]:
    return list(Delivery.objects.order_by("id").values_list("verb", "state"))


def actions(here: Place) -> list[str]:
    return [one.json["event_action"] for one in here.asked]


def test_without_destinations_nothing_is_promised(attempt: Attempt) -> None:
    make_incident(attempt)
    assert (states(), Ticket.objects.count(), send_due()) == ([], 0, 0)


@pytest.mark.parametrize("changes", [{"pages": False}, {"severity": "low"}])
def test_nobody_is_told_of_what_should_wake_nobody(attempt: Attempt, settings: Any, changes: dict[str, Any]) -> None:
    with place() as here:
        Destination.objects.filter(pk=pagerduty(attempt, here, settings).pk).update(severity_min="medium")
        make_incident(attempt, **changes)
        soon()
        send_due()
        assert (states(), here.asked) == ([], [])


def test_silenced_or_over_before_its_time_is_not_told_and_later_it_is(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        make_silence(attempt.job.team_id, RITA, [{"field": "job", "values": ["llama-*"]}], "work", 60)
        incident = make_incident(attempt)
        soon()
        send_due()
        assert (states(), here.asked) == ([("open", "skipped")], [])
        move(incident.pk, "resolve", RITA, note="over")
        soon()
        send_due()
        assert here.asked == []


def test_an_incident_is_told_after_ten_seconds_or_when_its_evidence_is_strong(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        assert send_due() == 0
        observe(incident, "diagnosed", {"grade": "strong", "culprits": [3], "suspects": [3]})
        assert send_due() == 1
        body = here.asked[0].json
        assert body["dedup_key"] == f"{incident.key}:{Ticket.objects.get().key.hex}"
        assert (body["routing_key"], body["payload"]["custom_details"]["culprits"]) == (ROUTING_KEY, [3])


def test_what_happens_is_sent_in_order_and_news_is_merged(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        observe(incident, "diagnosed", {"grade": "weak"})
        move(incident.pk, "acknowledge", RITA)
        comment(incident.pk, RITA, "on it")
        move(incident.pk, "resolve", RITA, note="swapped the NIC")
        Incident.objects.filter(pk=incident.pk).update(state="acknowledged", resolved_at=None, resolution=None)
        soon()
        send_due()
        assert actions(here) == ["trigger", "acknowledge", "resolve"]
        assert len({one.json["dedup_key"] for one in here.asked}) == 1
        comments = Delivery.objects.filter(verb="comment").values_list("state", "said")
        assert list(comments) == [("skipped", "PagerDuty's events take no comments")]
        assert [one for one, _ in states()] == ["open", "acknowledge", "comment", "resolve"]
        assert Delivery.objects.get(verb="open").n_merged == 1


def test_an_act_that_is_undone_promises_nothing(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        before = states()
        with pytest.raises(RuntimeError), transaction.atomic():
            move(incident.pk, "acknowledge", RITA)
            raise RuntimeError
        assert states() == before


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failure_that_passes_holds_everything_back_and_is_tried_again(
    attempt: Attempt, settings: Any, status: int
) -> None:
    said: list[Said] = [(status, {"Retry-After": "120"}, {}), (202, {}, {}), (202, {}, {})]
    with place(lambda asked: said.pop(0)) as here:
        destination = pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        move(incident.pk, "acknowledge", RITA)
        soon()
        send_due()
        assert actions(here) == ["trigger"]
        assert untold_why(Ticket.objects.get()).startswith("1 try so far: ")
        destination.refresh_from_db()
        assert destination.not_before and destination.not_before > timezone.now() + timedelta(seconds=110)
        assert send_due() == 0
        again()
        send_due()
        assert actions(here) == ["trigger", "trigger", "acknowledge"]
        assert untold_why(Ticket.objects.get()) == ""
        assert list(Try.objects.order_by("id").values_list("status", flat=True)) == [status, 202, 202]


def test_what_can_never_work_is_given_up_at_once_and_holds_nothing_back(attempt: Attempt, settings: Any) -> None:
    with place(lambda asked: (400, {}, {"message": "bad key"})) as here:
        pagerduty(attempt, here, settings)
        make_incident(attempt)
        soon()
        send_due()
        dead = Delivery.objects.get()
        assert (dead.state, "bad key" in dead.said) == ("dead", True)
        assert untold_why(Ticket.objects.get()) == f"given up after 1 try: {dead.said}"
        here.answer = lambda asked: (202, {}, {})
        replay(dead)
        send_due()
        assert states() == [("open", "dead"), ("open", "sent")]


def test_a_server_that_does_not_answer_is_left_alone_after_a_while(
    attempt: Attempt, settings: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("console.tickets.http.poster.__defaults__", (0.2,))
    with place() as here:
        here.sleep_s = 1.0
        pagerduty(attempt, here, settings)
        make_incident(attempt)
        soon()
        send_due()
        assert states() == [("open", "waiting")]
        assert "no answer within 0." in Try.objects.get().said


def test_a_slow_destination_keeps_no_other_waiting(attempt: Attempt, settings: Any) -> None:
    with place(lambda asked: (500, {}, {})) as broken, place() as here:
        pagerduty(attempt, broken, settings, "a broken one")
        pagerduty(attempt, here, settings, "duty")
        make_incident(attempt)
        soon()
        send_due()
        assert sorted(states()) == [("open", "sent"), ("open", "waiting")]


def test_beyond_the_limit_of_waiting_messages_they_are_counted(
    attempt: Attempt, settings: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(promises, "WAITING_MAX", 1)
    with place() as here:
        destination = pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        move(incident.pk, "acknowledge", RITA)
        destination.refresh_from_db()
        assert (len(states()), destination.n_refused) == (1, 1)


def test_pauses_grow_and_end_at_half_an_hour() -> None:
    usual = [pause_s(n, None) for n in (1, 2, 3, 50)]
    assert [round(one / known) for one, known in zip(usual, (5, 15, 45, 1800), strict=True)] == [1, 1, 1, 1]
    assert pause_s(1, 100) == 100
    assert pause_s(1, 10**9) == 3600


def test_a_private_place_is_refused_unless_it_was_named(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        settings.TICKETS_HOSTS = frozenset()
        make_incident(attempt)
        soon()
        send_due()
        assert (states(), here.asked) == ([("open", "dead")], [])


def test_secrets_that_cannot_be_read_switch_it_off_and_lose_nothing(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        destination = pagerduty(attempt, here, settings)
        make_incident(attempt)
        soon()
        settings.TICKETS_KEY = settings.SECRET_KEY = "another"
        send_due()
        destination.refresh_from_db()
        assert (destination.enabled, states()) == (False, [("open", "waiting")])
        assert "key has changed" in destination.paused_why
        assert untold_why(Ticket.objects.get()) == destination.paused_why


def test_410_from_a_webhook_switches_it_off(attempt: Attempt, settings: Any) -> None:
    with place(lambda asked: (410, {}, {})) as here:
        settings.TICKETS_HOSTS = {here.name}
        given = {"url": here.url + "/in", "secret": "whsec_" + "QUFB" * 8}
        destination = make_destination(attempt.job.team_id, "hook", "webhook", given, "ada", "low")
        send_test(destination)
        send_due()
        destination.refresh_from_db()
        assert (destination.enabled, states()) == (False, [("test", "dead")])


TRACKERS: dict[str, dict[str, str]] = {
    "github": {"repository": "o/r", "token": "t"},
    "gitlab": {"project": "o/r", "token": "t"},
    "jira": {"email": "a@b.c", "token": "t", "project": "OPS"},
    "servicenow": {"user": "u", "password": "p"},
}


@pytest.mark.parametrize("kind", TRACKERS)
def test_a_lost_answer_makes_no_second_issue_and_the_end_closes_it(attempt: Attempt, settings: Any, kind: str) -> None:
    tracker, lost = Tracker(), [True]

    def answer(asked: Asked) -> Said:
        said: Said = getattr(tracker, kind)(asked)
        return (502, {}, b"gateway") if said[0] == 201 and lost and lost.pop() else said

    with place(answer) as here:
        settings.TICKETS_HOSTS = {here.name}
        given = {**TRACKERS[kind], "url": here.url}
        make_destination(attempt.job.team_id, kind, kind, given, "ada", "low")
        incident = make_incident(attempt, headline="Rank 3 of @everyone hangs")
        soon()
        send_due()
        again()
        send_due()
        assert (len(tracker.issues), Ticket.objects.get().external_id != "") == (1, True)
        assert "@everyone" not in str(tracker.issues[0].get("body"))
        move(incident.pk, "resolve", DETECTOR, note="condition cleared")
        soon()
        send_due()
        assert len(tracker.issues) == 1
        closing = {"github": "closed", "gitlab": "close", "jira": "31", "servicenow": "Solved (Permanently)"}[kind]
        assert closing in str(tracker.said[-1])
        assert list(incident.timeline.filter(verb="ticket opened").values_list("actor_kind", flat=True)) == ["ticket"]


def test_news_that_comes_while_a_message_is_on_its_way_is_told_after_it(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt, headline="Someone hangs")
        soon()
        delivery = sender._head(Destination.objects.get(), timezone.now())
        assert delivery
        prepared = sender._prepared(delivery)  # as if the request were under way
        assert prepared
        observe(incident, "diagnosed", {"headline": "Rank 7 hangs"})
        sender._send_all([(delivery, *prepared)])
        soon()
        send_due()
        assert [one.json["payload"]["summary"].partition("] ")[2] for one in here.asked] == [
            "Someone hangs",
            "Rank 7 hangs",
        ]
        assert states() == [("open", "sent"), ("update", "sent")]


def test_the_mark_of_a_sender_that_crashed_is_taken_back(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        soon()
        delivery = sender._head(Destination.objects.get(), timezone.now())
        assert delivery and sender._prepared(delivery)
        observe(incident, "diagnosed", {"headline": "Rank 7 hangs"})
        soon()
        send_due()
        assert states() == [("open", "sent"), ("update", "sent")]
        assert not Delivery.objects.filter(sending_at__isnull=False).exists()


def test_what_ended_is_written_although_the_others_of_its_round_never_end(
    attempt: Attempt, settings: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sender, "ROUND_SECONDS_MAX", 5.0)
    over = threading.Event()

    def hang(asked: Asked) -> Said:
        over.wait(60)
        return fine(asked)

    with place(hang) as slow, place() as here:
        pagerduty(attempt, slow, settings, "a slow one")
        pagerduty(attempt, here, settings, "duty")
        make_incident(attempt)
        soon()
        assert send_due() == 2
        assert Destination.objects.get(name="duty").deliveries.get().state == "sent"
        late = Destination.objects.get(name="a slow one").deliveries.get()
        assert (late.state, late.n_attempts, late.sending_at) == ("waiting", 1, None)
        assert "not over within 5 s" in late.said
        over.set()


def test_no_round_begins_that_could_not_end_in_time(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        make_incident(attempt)
        soon()
        assert send_due(seconds_max=sender.ROUND_SECONDS_MAX - 1) == 0
        assert here.asked == []
    assert sender.RUN_SECONDS < tasks.send_due.soft_time_limit < tasks.send_due.time_limit


def test_all_requests_of_a_try_share_one_deadline_and_names_are_looked_up_within_it(monkeypatch: Any) -> None:
    monkeypatch.setattr("console.tickets.http.DELIVERY_SECONDS_MAX", 1.0)
    with place() as here:
        post = poster({here.name})
        here.sleep_s = 2.0
        with pytest.raises(Again):
            post("GET", here.url, b"", {})
        with pytest.raises(Again):
            post("GET", here.url, b"", {})
        assert len(here.asked) == 1
    hangs = threading.Event()
    monkeypatch.setattr("console.tickets.guard.socket.getaddrinfo", lambda *given, **more: hangs.wait(60) and [])
    with pytest.raises(Again, match="does not resolve within"):
        place_of("https://example.org/", (), 0.2)
    hangs.set()


def test_what_fires_again_is_told_where_it_was_told(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        soon()
        send_due()
        observe(incident, "fired again", {"condition": "firing"}, before="cleared", after="firing")
        soon()
        send_due()
        assert states() == [("open", "sent"), ("update", "sent")]


def test_what_is_detached_is_told_again(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        soon()
        send_due()
        with transaction.atomic():
            record(incident, RITA, "detached", {"attached_to": None}, timezone.now())
        assert states() == [("open", "sent"), ("update", "waiting")]
