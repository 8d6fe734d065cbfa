"""The REST API of destinations and deliveries, and PagerDuty's webhook back: who may do what, and what changes nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.test import Client
from django.utils import timezone

from console.incidents.lifecycle import Actor, move
from console.incidents.models import ActorKind, Incident
from console.tickets.acts import change_destination, make_destination, remove_destination
from console.tickets.models import Delivery, Destination, DestinationChange, Ticket
from console.tickets.sender import send_due
from ingest.models import Attempt
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident
from tests.console.tickets.places import Place, place

API = "/api/v1"
RITA = Actor("rita", ActorKind.USER, 7)
GIVEN = {"name": "duty", "kind": "pagerduty", "settings": {"routing_key": "a" * 32, "hook_secret": "hush-hush"}}


def post(who: Persona, path: str, body: Any = None) -> Any:
    return who.browser.post(API + path, body or {}, format="json")


def test_administrators_make_destinations_and_nobody_reads_their_secrets(
    admin: Persona, responder: Persona, viewer: Persona, stranger: Persona
) -> None:
    assert [post(who, "/destinations", GIVEN).status_code for who in (viewer, responder, stranger)] == [403, 403, 403]
    made = post(admin, "/destinations", GIVEN)
    assert made.status_code == 201
    number = made.json()["destination"]["id"]
    for who in (admin, responder, viewer):
        listed = who.browser.get(f"{API}/destinations")
        assert [one["id"] for one in listed.json()["destinations"]] == [number]
        assert "hush-hush" not in listed.content.decode() and "a" * 32 not in listed.content.decode()
    assert "hush-hush" not in Destination.objects.get().sealed
    assert stranger.browser.get(f"{API}/destinations").json()["destinations"] == []
    assert stranger.browser.delete(f"{API}/destinations/{number}").status_code == 404
    assert responder.browser.delete(f"{API}/destinations/{number}").status_code == 403
    version = made.json()["destination"]["version"]
    changed = admin.browser.patch(f"{API}/destinations/{number}", {"enabled": False, "version": version}, format="json")
    assert changed.json()["destination"]["enabled"] is False
    assert post(admin, f"/destinations/{number}/test").status_code == 400
    assert admin.browser.delete(f"{API}/destinations/{number}").status_code == 204
    assert Destination.objects.get().sealed == ""


@pytest.mark.parametrize(
    ("address", "said"),
    [("http://192.168.3.4:8080/", "only https"), ("https://169.254.169.254/", "169.254.169.254 is no public address"),
     ("https://events.example.org/", "")],
)  # fmt: skip
def test_an_address_that_nothing_will_be_sent_to_says_so_at_once_and_how_to_name_it(
    admin: Persona, settings: Any, address: str, said: str
) -> None:
    given = {**GIVEN, "settings": {"routing_key": "a" * 32, "url": address}}
    why = post(admin, "/destinations", given).json()["destination"]["not_sent_why"]
    assert why.startswith(said) or said in why
    assert bool(why) == bool(said) == ("into DIOGENES_TICKETS_HOSTS" in why)
    settings.TICKETS_HOSTS = {"192.168.3.4:8080", "169.254.169.254"}
    (shown,) = admin.browser.get(f"{API}/destinations").json()["destinations"]
    assert shown["not_sent_why"] == ""


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "fax"}, {"settings": {"routing_key": "short"}}, {"settings": {"nonsense": "1"}}, {"severity_min": "x"},
     {"settings": {"routing_key": "a" * 32, "url": "file:///etc"}}, {"settings": 7}, {"name": ""}],
)  # fmt: skip
def test_wrong_settings_are_refused(admin: Persona, wrong: dict[str, Any]) -> None:
    assert post(admin, "/destinations", GIVEN | wrong).status_code == 400
    assert post(admin, "/destinations", GIVEN).status_code == 201
    assert post(admin, "/destinations", GIVEN).status_code == 400  # the same name


def test_deliveries_are_listed_with_their_tries_and_replayed(
    admin: Persona, responder: Persona, viewer: Persona, stranger: Persona, attempt: Attempt, settings: Any
) -> None:
    with place(lambda asked: (400, {}, {"message": "bad key"})) as here:
        told(attempt, here, settings)
        delivery = Delivery.objects.get()
        row = viewer.browser.get(f"{API}/deliveries?state=dead").json()["deliveries"][0]
        assert (row["id"], row["state"], row["may_replay"]) == (delivery.pk, "dead", False)
        assert viewer.browser.get(f"{API}/deliveries/{delivery.pk}").json()["attempts"][0]["status"] == 400
        assert viewer.browser.get(f"{API}/deliveries?before=x").status_code == 400
        assert stranger.browser.get(f"{API}/deliveries").json()["deliveries"] == []
        assert stranger.browser.get(f"{API}/deliveries/{delivery.pk}").status_code == 404
        replays = [post(who, f"/deliveries/{delivery.pk}/replay").status_code for who in (viewer, stranger, responder)]
        assert replays == [403, 404, 201]
        assert post(responder, f"/deliveries/{delivery.pk}/replay").status_code == 429
        assert post(admin, f"/destinations/{Destination.objects.get().pk}/test").status_code == 201


def told(attempt: Attempt, here: Place, settings: Any) -> Incident:
    """An incident that PagerDuty was told of."""
    settings.TICKETS_HOSTS = {here.name}
    given = {**GIVEN["settings"], "url": here.url}  # type: ignore[dict-item]
    make_destination(attempt.job.team_id, "duty", "pagerduty", given, "ada", "low")
    incident = make_incident(attempt)
    Delivery.objects.update(due_at=timezone.now())
    send_due()
    return incident


def call(kind: str, call_id: str = "E1", minutes_ago: float = 0, person: bool = True, key: str = "") -> bytes:
    agent = {"type": "user_reference" if person else "inbound_integration_reference", "summary": "Jane"}
    ticket = Ticket.objects.get()
    at = (timezone.now() - timedelta(minutes=minutes_ago)).isoformat()
    found = {"id": "P1", "type": "incident", "incident_key": key or f"{ticket.incident.key}:{ticket.key.hex}"}
    return json.dumps(
        {"event": {"id": call_id, "event_type": kind, "occurred_at": at, "agent": agent, "data": found}}
    ).encode()


def ring(body: bytes, secret: str | None = "hush-hush") -> int:
    signed = hmac.new((secret or "").encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-PagerDuty-Signature": f"v1={'0' * 64}, v1={signed}"} if secret else {}
    path = f"/hooks/pagerduty/{Destination.objects.get().key}"
    answer = Client(enforce_csrf_checks=True).post(path, body, content_type="application/json", headers=headers)
    return int(answer.status_code)


def test_an_acknowledgement_there_acknowledges_here_once_and_is_not_told_back(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        incident = told(attempt, here, settings)
        body = call("incident.acknowledged")
        assert ring(body) == 202
        incident.refresh_from_db()
        assert (incident.state, incident.acknowledged_by) == ("acknowledged", "duty")
        entry = incident.timeline.get(verb="acknowledged")
        assert (entry.actor_kind, entry.note) == ("ticket", "By Jane.")
        move(incident.pk, "unacknowledge", Actor("rita", ActorKind.USER))
        assert ring(body) == 202  # replayed
        incident.refresh_from_db()
        assert (incident.state, Destination.objects.get().hooks_refused) == ("open", {"repeated": 1})
        assert list(Delivery.objects.order_by("id").values_list("verb", flat=True)) == ["open", "unacknowledge"]


def test_a_close_there_never_resolves_what_fires_here(viewer: Persona, attempt: Attempt, settings: Any) -> None:
    with place() as here:
        incident = told(attempt, here, settings)
        assert ring(call("incident.resolved")) == 202
        incident.refresh_from_db()
        assert incident.state == "open"
        row = viewer.browser.get(f"{API}/incidents/{incident.pk}/tickets").json()["tickets"][0]
        assert (row["remote_state"], row["differs"]) == ("resolved", True)
        assert incident.timeline.filter(verb="resolved elsewhere", actor_kind="ticket").count() == 1


def test_what_is_not_signed_wrong_old_or_broken_changes_nothing_and_is_counted(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        incident = told(attempt, here, settings)
        body = call("incident.acknowledged")
        refused = [
            ring(body, None), ring(body, "guess"), ring(call("incident.acknowledged", minutes_ago=90)), ring(b"[]"),
            ring(b'{"event": 1}'), ring(b"\xff"),
        ]  # fmt: skip
        assert refused == [401, 401, 400, 400, 400, 400]
        counted = Destination.objects.get().hooks_refused
        assert counted == {"not signed": 1, "wrong signature": 1, "too old": 1, "not understood": 3}
        assert [
            ring(call("incident.acknowledged", "E7", person=False)),
            ring(call("incident.acknowledged", "E8", key="x")),
        ] == [202, 202]
        incident.refresh_from_db()
        assert (incident.state, Destination.objects.get().n_hooks) == ("open", 2)
        assert (
            Client().post("/hooks/pagerduty/6f9619ff-8b86-d011-b42d-00cf4fc964ff", b"{}", content_type="x").status_code
            == 404
        )


def test_who_changes_a_destination_that_was_removed_meanwhile_does_not_bring_it_back(
    attempt: Attempt, admin: Persona
) -> None:
    made = make_destination(attempt.job.team_id, "duty", "pagerduty", GIVEN["settings"], "ada", "low")  # type: ignore[arg-type]
    seen = Destination.objects.get(pk=made.pk)
    remove_destination(made, RITA)
    with pytest.raises(Destination.DoesNotExist):
        change_destination(seen, {"settings": {"hook_secret": "another"}, "enabled": True}, RITA)
    with pytest.raises(Destination.DoesNotExist):
        remove_destination(seen, RITA)
    seen.refresh_from_db()
    assert (seen.removed_at is not None, seen.enabled, seen.sealed) == (True, False, "")


def test_a_change_leaves_alone_what_it_does_not_name(attempt: Attempt) -> None:
    made = make_destination(attempt.job.team_id, "duty", "pagerduty", GIVEN["settings"], "ada", "low")  # type: ignore[arg-type]
    seen = Destination.objects.get(pk=made.pk)
    change_destination(made, {"name": "nights"}, RITA)
    Destination.objects.update(n_refused=3)
    changed = change_destination(seen, {"severity_min": "high"}, RITA)
    assert (changed.name, changed.severity_min, changed.n_refused) == ("nights", "high", 3)


def test_calls_that_come_late_do_not_undo_what_is_newer(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        incident = told(attempt, here, settings)
        assert ring(call("incident.resolved", "E2")) == 202
        assert ring(call("incident.acknowledged", "E1", minutes_ago=50)) == 202
        ticket = Ticket.objects.get()
        incident.refresh_from_db()
        assert (ticket.remote_state, incident.state) == ("resolved", "open")
        assert Destination.objects.get().hooks_refused == {"out of date": 1}


def test_an_acknowledgement_of_before_it_got_worse_does_not_count(attempt: Attempt, settings: Any) -> None:
    with place() as here:
        incident = told(attempt, here, settings)
        early = call("incident.acknowledged", "E1")
        move(incident.pk, "acknowledge", Actor("rita", ActorKind.USER))
        move(incident.pk, "unacknowledge", Actor("rita", ActorKind.USER))
        assert ring(early) == 202
        incident.refresh_from_db()
        assert (incident.state, Destination.objects.get().hooks_refused) == ("open", {"out of date": 1})
        assert ring(call("incident.acknowledged", "E2")) == 202
        incident.refresh_from_db()
        assert incident.state == "acknowledged"


@pytest.mark.parametrize("call_id", ["a\0b", "a\ud800"])
def test_a_signed_call_with_text_that_cannot_be_stored_is_not_understood(
    attempt: Attempt, settings: Any, call_id: str
) -> None:
    with place() as here:
        told(attempt, here, settings)
        assert ring(call("incident.acknowledged", call_id)) == 400
        assert Destination.objects.get().hooks_refused == {"not understood": 1}


def test_who_changed_a_destination_is_kept_by_name_and_never_by_value(admin: Persona, responder: Persona) -> None:
    number = post(admin, "/destinations", GIVEN).json()["destination"]["id"]
    path = f"{API}/destinations/{number}"
    change = {"severity_min": "high", "settings": {"hook_secret": "sesame-sesame", "routing_key": ""}}
    assert admin.browser.patch(path, change, format="json", HTTP_IF_MATCH="*").status_code == 200
    found = admin.browser.get(path)
    assert [(one["act"], one["actor_kind"], one["changed"]) for one in found.json()["changes"]] == [
        ("changed", "user", ["hook_secret", "severity_min"]),
        ("made", "user", ["hook_secret", "routing_key"]),
    ]
    assert "sesame" not in found.content.decode()
    assert responder.browser.get(path).status_code == 403
    assert admin.browser.delete(path).status_code == 204
    removed = DestinationChange.objects.get(act="removed")
    with pytest.raises(DatabaseError, match=r"append-only|refuse|never"), transaction.atomic():
        removed.delete()


def test_what_is_heard_back_is_shown_with_whose_it_is_and_when_it_was_heard(
    viewer: Persona, attempt: Attempt, settings: Any
) -> None:
    with place() as here:
        incident = told(attempt, here, settings)
        path = f"{API}/incidents/{incident.pk}/tickets"
        before = viewer.browser.get(path).json()["tickets"][0]
        assert (before["unknown_why"], before["seen_at"]) == (
            "it has not called back: its webhook may not be set up",
            None,
        )
        named = json.loads(call("incident.reassigned", "E1"))
        named["event"]["data"]["assignees"] = [{"type": "user_reference", "summary": "Jane"}]
        assert ring(json.dumps(named).encode()) == 202
        after = viewer.browser.get(path).json()["tickets"][0]
        assert (after["remote_assignee"], after["unknown_since"]) == ("Jane", None)
        assert after["seen_at"] is not None
        named["event"] |= {"id": "E2", "data": {**named["event"]["data"], "assignees": [7]}}
        assert ring(json.dumps(named).encode()) == 400
