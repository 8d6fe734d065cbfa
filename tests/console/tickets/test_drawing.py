"""Pictures of tickets: drawn once, after the ticket was made, and sent as the destination takes them."""

from __future__ import annotations

import email
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from console.incidents.models import ActorKind, Incident
from console.incidents.record import Actor
from console.silences.acts import make_silence
from console.tickets import drawing
from console.tickets.acts import make_destination, replay
from console.tickets.drawing import draw_due
from console.tickets.drawing import pictures_of as really_drawn
from console.tickets.models import Delivery, Destination, Ticket, TicketPicture
from console.tickets.sender import send_due, tidy
from console.tickets.telling import note_uploaded
from ingest.models import Attempt
from tests.console.incidents.making import make_incident
from tests.console.tickets.places import Asked, Said, place
from tests.console.tickets.trackers import ANSWERS, SETTINGS, System

PNG = b"\x89PNG\r\n\x1a\n" + b"\0--boundary\r\n" * 40
FILES = [("incident-1-topology.png", PNG), ("incident-1-waits.png", PNG + b"2")]
TAKERS = ("jira", "servicenow", "gitlab")


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of which incidents pictures were drawn."""
    found: list[int] = []

    def draw(incident: Incident) -> list[tuple[str, bytes]]:
        found.append(incident.pk)
        return FILES

    monkeypatch.setattr(drawing, "pictures_of", draw)
    return found


def settle() -> None:
    """Send what is due, as if the ten seconds were over."""
    Delivery.objects.filter(state="waiting").update(due_at=timezone.now() - timedelta(seconds=1))
    send_due()
    Ticket.objects.exclude(told_at=None).update(told_at=timezone.now() - timedelta(seconds=30))


def files_of(asked: Asked) -> list[tuple[str, bytes]]:
    """What was uploaded, read by another's reader of forms."""
    kind = asked.headers["content-type"]
    if kind == "image/png":
        return [(asked.path.rpartition("file_name=")[2], asked.body)]
    form = email.message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + asked.body)
    parts: Any = form.get_payload()
    return [(part.get_filename(), part.get_payload(decode=True)) for part in parts]


@dataclass
class Tracker:
    """A ticket system that takes files and keeps what was uploaded."""

    system: System
    uploads: list[Asked] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Said:
        if not any(word in asked.path for word in ("/attachments", "/attachment/", "/uploads")):
            return self.system(asked)
        self.uploads.append(asked)
        return 201, {}, {"markdown": f"![p](/uploads/{len(self.uploads)}.png)"}


@pytest.mark.parametrize("kind", TAKERS)
def test_each_that_holds_files_gets_the_pictures_once_as_they_were_drawn(
    kind: str, attempt: Attempt, settings: Any, drawn: list[int]
) -> None:
    there = Tracker(System(ANSWERS[kind]))
    with place(there) as here:
        settings.TICKETS_HOSTS = {here.name}
        make_destination(attempt.job.team_id, "tracker", kind, {**SETTINGS[kind], "url": here.url}, "ada", "low")
        make_incident(attempt)
        assert draw_due() == 0  # it was not told yet
        settle()
        assert draw_due() == 1
        settle()
        assert draw_due() == 0 and drawn == [Ticket.objects.get().incident_id]
        assert [one for asked in there.uploads for one in files_of(asked)] == FILES
        assert list(Delivery.objects.values_list("verb", "state").order_by("id")) == [
            ("open", "sent"),
            ("pictures", "sent"),
        ]
        if kind == "jira":
            assert there.uploads[0].headers["x-atlassian-token"] == "no-check"
        if kind == "gitlab":
            assert [text.count("![p](/uploads/") for _, _, text in there.system.issue.remarks] == [2]
            assert Ticket.objects.get().own_remarks == [there.system.issue.remarks[0][0]]


def test_pictures_wake_nobody_once_the_incident_is_silenced(attempt: Attempt) -> None:
    make_destination(attempt.job.team_id, "list", "email", {"to": "a@b.example"}, "ada", "low")
    incident = make_incident(attempt)
    settle()
    make_silence(
        incident.team_id, Actor("rita", ActorKind.USER), [{"field": "job", "values": [incident.job.name]}], "known", 60
    )
    assert draw_due() == 0


def test_mails_show_them_and_hold_the_text_for_who_reads_no_html(attempt: Attempt) -> None:
    make_destination(attempt.job.team_id, "list", "email", {"to": "a@b.example"}, "ada", "low")
    make_incident(attempt)
    settle()
    assert draw_due() == 1
    settle()
    first, second = mail.outbox
    assert second.extra_headers["References"] == first.extra_headers["Message-ID"]
    sent: Any = second.message()
    found = {part.get_content_type(): part for part in sent.walk()}
    assert "Nobody is blamed yet." in found["text/plain"].get_payload(decode=True).decode()
    shown = found["text/html"].get_payload(decode=True).decode()
    images = [part for part in sent.walk() if part.get_content_type() == "image/png"]
    assert [part.get_payload(decode=True) for part in images] == [body for _, body in FILES]
    for part in images:
        assert f'src="cid:{part["Content-ID"].strip("<>")}"' in shown


@pytest.mark.parametrize("kind", ["github"])
def test_who_takes_none_or_wants_none_gets_none(kind: str, attempt: Attempt, settings: Any, drawn: list[int]) -> None:
    there = System(ANSWERS[kind])
    with place(there) as here:
        settings.TICKETS_HOSTS = {here.name}
        make_destination(attempt.job.team_id, "tracker", kind, {**SETTINGS[kind], "url": here.url}, "ada", "low")
        wanted = {"to": "a@b.example", "pictures": "No"}
        make_destination(attempt.job.team_id, "list", "email", wanted, "ada", "low")
        make_incident(attempt)
        settle()
        assert (draw_due(), drawn) == (0, [])


def test_a_failed_upload_is_tried_again_and_a_replay_sends_the_same_until_they_are_dropped(
    attempt: Attempt, settings: Any
) -> None:
    there = System(ANSWERS["jira"])
    n_uploads = 0

    def answer(asked: Asked) -> Said:
        nonlocal n_uploads
        if "/attachments" not in asked.path:
            return there(asked)
        n_uploads += 1
        return (503, {}, {}) if n_uploads == 1 else (200, {}, [])

    with place(answer) as here:
        settings.TICKETS_HOSTS = {here.name}
        make_destination(attempt.job.team_id, "tracker", "jira", {**SETTINGS["jira"], "url": here.url}, "ada", "low")
        make_incident(attempt)
        settle()
        draw_due()
        settle()
        assert Delivery.objects.get(verb="pictures").state == "waiting"
        Destination.objects.update(not_before=None)
        settle()
        sent = Delivery.objects.get(verb="pictures")
        assert (sent.state, n_uploads) == ("sent", 2)
        replay(sent)
        settle()
        assert n_uploads == 3
        Delivery.objects.update(done_at=timezone.now() - timedelta(days=3))
        tidy()
        assert not TicketPicture.objects.exists()
        replay(sent)
        settle()
        assert n_uploads == 3
        assert Delivery.objects.order_by("-id")[0].said == "the pictures are not kept any more"


@pytest.mark.parametrize(
    ("kind", "word", "n_before", "n_there"),
    [
        ("servicenow", "/attachment/", 1, 1),  # the second picture fails
        ("gitlab", "/uploads", 1, 1),
        ("gitlab", "/notes", 0, 2),  # both are there, and the note that shows them fails
    ],
)
def test_what_was_uploaded_before_a_failure_is_not_uploaded_again(
    attempt: Attempt, settings: Any, kind: str, word: str, n_before: int, n_there: int
) -> None:
    there, asked_of = Tracker(System(ANSWERS[kind])), list[str]()

    def answer(asked: Asked) -> Said:
        if asked.method == "POST" and word in asked.path:
            asked_of.append(asked.path)
            if len(asked_of) == n_before + 1:
                return 503, {}, {}
        return there(asked)

    with place(answer) as here:
        settings.TICKETS_HOSTS = {here.name}
        make_destination(attempt.job.team_id, "tracker", kind, {**SETTINGS[kind], "url": here.url}, "ada", "low")
        make_incident(attempt)
        settle()
        draw_due()
        settle()
        delivery = Delivery.objects.get(verb="pictures")
        assert (delivery.state, delivery.pictures.exclude(uploaded_as=None).count()) == ("waiting", n_there)
        Destination.objects.update(not_before=None)
        settle()
        delivery.refresh_from_db()
        assert delivery.state == "sent"
        assert [one for asked in there.uploads for one in files_of(asked)] == FILES  # each once
        if kind == "gitlab":
            (note,) = [text for _, _, text in there.system.issue.remarks]
            assert "![p](/uploads/1.png)" in note and "![p](/uploads/2.png)" in note
        replay(delivery)  # somebody wants all of it once more
        settle()
        assert [one for asked in there.uploads for one in files_of(asked)] == FILES * 2


def test_a_name_that_cannot_be_kept_is_not_noted_and_stops_nothing(attempt: Attempt) -> None:
    make_destination(attempt.job.team_id, "list", "email", {"to": "a@b.example"}, "ada", "low")
    make_incident(attempt)
    settle()
    draw_due()
    delivery = Delivery.objects.get(verb="pictures")
    note_uploaded(delivery, {FILES[0][0]: "x" * 1001, FILES[1][0]: "a\0b"})
    assert list(delivery.pictures.values_list("uploaded_as", flat=True)) == [None, None]
    note_uploaded(delivery, {FILES[0][0]: "x" * 1000})
    assert delivery.pictures.exclude(uploaded_as=None).count() == 1


def test_an_incident_without_anything_to_draw_sends_nothing(
    attempt: Attempt, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "pictures_of", lambda incident: [])
    make_destination(attempt.job.team_id, "list", "email", {"to": "a@b.example"}, "ada", "low")
    make_incident(attempt)
    settle()
    assert (draw_due(), Delivery.objects.count()) == (0, 1)


def test_an_incident_whose_traces_are_gone_still_has_a_picture_of_its_ranks(attempt: Attempt) -> None:
    made = dict(really_drawn(make_incident(attempt)))
    assert all(body.startswith(b"\x89PNG") for body in made.values())
    assert not any("waits" in name for name in made)  # there is no diagnosis
