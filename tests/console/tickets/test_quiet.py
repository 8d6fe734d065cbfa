"""What is told of incidents that are silenced, or were there before the destination."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from console.incidents.lifecycle import move, observe
from console.silences.acts import end_silence, make_silence
from console.tickets.acts import make_destination
from console.tickets.models import Delivery, Destination, Ticket
from console.tickets.promises import TOLD_AT_ONCE_MAX
from console.tickets.sender import send_due
from ingest.models import Attempt, Job
from tests.console.incidents.making import make_incident
from tests.console.tickets.places import place
from tests.console.tickets.test_sending import RITA, actions, pagerduty, soon, states


def test_when_a_silence_ends_what_was_found_out_under_it_is_told(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        soon()
        send_due()
        silence = make_silence(attempt.job.team_id, RITA, [{"field": "job", "values": ["llama-*"]}], "work", 60)
        incident.refresh_from_db()
        observe(incident, "diagnosed", {"headline": "Rank 7 hangs"})
        soon()
        send_due()
        assert len(here.asked) == 1
        end_silence(silence, RITA)
        soon()
        send_due()
        assert [one.json["payload"]["summary"].endswith("Rank 7 hangs") for one in here.asked] == [False, True]


def test_who_resolves_a_silenced_incident_wakes_nobody_and_reopening_it_is_told_when_the_silence_ends(
    attempt: Attempt, settings: Any
) -> None:
    with place() as here:
        pagerduty(attempt, here, settings)
        incident = make_incident(attempt)
        soon()
        send_due()
        silence = make_silence(attempt.job.team_id, RITA, [{"field": "job", "values": ["llama-*"]}], "work", 60)
        move(incident.pk, "resolve", RITA, note="over")
        soon()
        send_due()
        assert states() == [("open", "sent"), ("resolve", "sent")]
        assert actions(here) == ["trigger", "resolve"]
        move(incident.pk, "reopen", RITA)
        soon()
        send_due()
        assert (states()[2:], len(here.asked)) == ([("reopen", "skipped")], 2)
        end_silence(silence, RITA)
        soon()
        send_due()
        assert (states()[3:], here.asked[-1].json["event_action"]) == ([("reopen", "sent")], "trigger")


def test_a_new_destination_is_told_of_the_open_incidents_that_nobody_has_taken(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        incident = make_incident(attempt)
        pagerduty(attempt, here, settings)
        soon()
        send_due()
        assert states() == [("open", "sent")]
        move(incident.pk, "acknowledge", RITA)
        Destination.objects.update(removed_at=timezone.now())
        pagerduty(attempt, here, settings)
        assert Delivery.objects.filter(destination__removed_at=None).count() == 0


def test_a_new_destination_counts_the_open_incidents_it_is_not_told_of_at_once(attempt: Attempt) -> None:
    made = [make_incident(one, key=f"v1:{one.pk}") for one in attempts(attempt, TOLD_AT_ONCE_MAX + 5)]
    for taken in made[-2:]:
        move(taken.pk, "acknowledge", RITA)
    destination = make_destination(attempt.job.team_id, "list", "email", {"to": "a@b.example"}, "ada", "low")
    told = Ticket.objects.filter(destination=destination).values_list("incident", flat=True)
    assert set(told) == {one.pk for one in made[3:-2]}  # the newest of those that nobody has taken
    assert Destination.objects.get(pk=destination.pk).n_left_out == 3
    observe(made[0], "diagnosed", {"headline": "Rank 7 hangs"})
    assert Ticket.objects.filter(destination=destination, incident=made[0]).exists()


def test_a_calm_days_new_destination_leaves_nothing_out(attempt: Attempt) -> None:
    make_incident(attempt)
    destination = make_destination(attempt.job.team_id, "list", "email", {"to": "a@b.example"}, "ada", "low")
    assert (destination.n_left_out, destination.deliveries.count()) == (0, 1)


def attempts(like: Attempt, n: int) -> list[Attempt]:
    """So many more, each of a job of its own: an attempt has one unresolved incident."""
    jobs = [Job.objects.create(team=like.job.team, name=f"{like.job.name}-{number}") for number in range(n)]
    at = like.started_at
    return [Attempt.objects.create(job=job, number=0, started_at=at, last_received_at=at) for job in jobs]
