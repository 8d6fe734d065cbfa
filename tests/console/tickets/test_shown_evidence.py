"""Places, evidence and advice are read from the database for the messages that show them, and for no others."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from typing import Any, get_args

import pytest
from django.core import mail

from console.incidents.models import Incident
from console.tickets import telling
from console.tickets.acts import make_destination
from console.tickets.destinations import KINDS, parted
from console.tickets.http import poster
from console.tickets.message import Config, Verb
from console.tickets.models import Delivery, Destination, Ticket
from console.tickets.telling import EXAMPLE, message_of
from ingest.models import Attempt
from tests.console.incidents.making import make_incident
from tests.console.tickets.places import Asked, Said, fine, place
from tests.console.tickets.trackers import ANSWERS, SETTINGS, System

SIGNED = "whsec_" + base64.b64encode(b"k" * 24).decode()
GIVEN: dict[str, dict[str, str]] = {
    "pagerduty": {"routing_key": "a" * 32}, "webhook": {"secret": SIGNED}, "email": {"to": "a@b.example"}, **SETTINGS,
}  # fmt: skip
TOLD = dataclasses.replace(EXAMPLE, places=("here-is-where",), evidence=("here-is-why",), advice="here-is-what")
VERBS: tuple[Verb, ...] = tuple(verb for verb in get_args(Verb) if verb != "test")


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_kind_says_of_which_messages_it_shows_the_evidence(name: str) -> None:
    kind = KINDS[name]
    told = [verb for verb in VERBS if verb not in kind.untold and (verb != "pictures" or kind.takes_pictures)]
    for verb, external_id in itertools.product(told, ("", "7")):
        sent: list[bytes] = []
        system = System(ANSWERS[name]) if name in ANSWERS else None

        def answer(asked: Asked, system: System | None = system, sent: list[bytes] = sent) -> Said:
            sent.append(asked.body)
            return system(asked) if system else fine(asked)

        with place(answer) as here:
            address = {} if name == "email" else {"url": here.url}
            config = parted(kind, {**GIVEN.get(name, {}), **address}, Config("", {}, {}))
            message = dataclasses.replace(TOLD, verb=verb, external_id=external_id)
            kind.send(message, config, poster({here.name}))
        shown = b"".join(sent).decode() + "".join(str(one.body) for one in mail.outbox)
        mail.outbox.clear()
        expected = [kind.shows_evidence(verb, external_id)] * 3
        assert [text in shown for text in ("here-is-where", "here-is-why", "here-is-what")] == expected, (
            verb,
            external_id,
        )


def test_what_a_message_does_not_show_is_not_read(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def known(incident: Incident) -> dict[str, Any]:
        read.append(incident.pk)
        return {"advice": "Look at node-1."}

    monkeypatch.setattr(telling, "known_of", known)
    incident = make_incident(attempt)
    given = {**SETTINGS["jira"], "url": "https://jira.example"}
    destination = make_destination(attempt.job.team_id, "jira", "jira", given, "ada", "low")
    ticket = Ticket.objects.get(incident=incident, destination=destination)
    delivery = Delivery.objects.get(ticket=ticket, verb="open")
    assert (message_of(delivery).advice, read) == ("Look at node-1.", [incident.pk])
    ticket.external_id = "OPS-7"
    comment = Delivery(destination=destination, ticket=ticket, verb="comment", made_at=delivery.made_at)
    assert (message_of(comment).advice, read) == ("", [incident.pk])
    Destination.objects.filter(pk=destination.pk).update(kind="slack")
    comment.destination = Destination.objects.get(pk=destination.pk)
    assert message_of(comment).advice == "Look at node-1."
