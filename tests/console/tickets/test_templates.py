"""Templates of tickets: what they may name, what they cannot do, how they arrive, and who may see a preview."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from console.tickets.acts import make_destination, send_test
from console.tickets.kinds import email, jira, pagerduty, slack
from console.tickets.message import Config, Refused
from console.tickets.models import Delivery, Destination, DestinationChange
from console.tickets.telling import EXAMPLE, message_of
from console.tickets.templates import BODY_CHARS_MAX, BODY_USUAL, TITLE_USUAL, check_template, with_templates
from console.tickets.wording import lines_of
from ingest.models import Attempt
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident

API = "/api/v1/destinations"
GIVEN = {"name": "duty", "kind": "pagerduty", "settings": {"routing_key": "a" * 32}}


def test_without_a_template_nothing_changes() -> None:
    assert with_templates(EXAMPLE, "", " ") == EXAMPLE
    assert with_templates(EXAMPLE, TITLE_USUAL, BODY_USUAL).title == EXAMPLE.title
    assert lines_of(with_templates(EXAMPLE, "", BODY_USUAL)) == lines_of(EXAMPLE)


@pytest.mark.parametrize(
    "bad",
    ["{jobb}", "{job.team}", "{job!r}", "{0}", "{}", "{job:>999999999}", "{ job }", "{", "}", "a } b", "{{{", "x" * 4001],
)  # fmt: skip
def test_what_a_template_cannot_name_is_refused(bad: str) -> None:
    with pytest.raises(Refused):
        check_template("body", bad, BODY_CHARS_MAX)


def test_a_line_whose_names_are_all_empty_is_left_out_and_braces_can_stand() -> None:
    body = "Nodes: {nodes}\nsaid by {actor}\n{{not a name}} {job}\nplain"
    check_template("body", body, BODY_CHARS_MAX)
    nowhere = dataclasses.replace(EXAMPLE, nodes=(), job="two\nlines {url}")
    assert lines_of(with_templates(nowhere, "", body)) == ["{not a name} two lines {url}", "plain"]


def test_a_long_value_is_bounded_and_said_to_be_cut() -> None:
    long = dataclasses.replace(EXAMPLE, note="n" * 4000)
    lines = lines_of(with_templates(long, "{note}", "{note}\n" * 5))
    assert lines[-1] == "… cut off" and sum(map(len, lines)) < 8100
    assert len(with_templates(long, "{note}{note}", "").title) == 300


def test_every_kind_with_text_sends_the_teams_words() -> None:
    told = with_templates(EXAMPLE, "{job} is down", "Call {nodes} <!channel>")
    assert pagerduty.body_of(told, "k")["payload"]["summary"] == "llama-70b is down"
    assert "llama-70b is down" in str(slack.body_of(told)) and "<!channel>" not in str(slack.body_of(told))
    fields = jira.issue_of(told, Config("", {"project": "OPS"}, {}))["fields"]
    assert fields["summary"] == "llama-70b is down" and "Call node-1" in str(fields["description"])
    assert email.mail_of(told, ["a@b.c"]).subject == "llama-70b is down"


@pytest.mark.django_db
def test_a_test_message_shows_the_template(attempt: Attempt) -> None:
    made = make_destination(
        attempt.job.team_id, "duty", "pagerduty", GIVEN["settings"], "ada", "low",  # type: ignore[arg-type]
        templates={"title_template": "T {job}", "body_template": "B {symptom}"},
    )  # fmt: skip
    told = message_of(Delivery.objects.get(pk=send_test(made).pk))
    assert told.title == "T test" and lines_of(told)[-1] == "B test"


def test_templates_are_kept_changed_noted_and_refused_with_the_reason(admin: Persona, responder: Persona) -> None:
    made = send(admin, API, {**GIVEN, "title_template": "{job}!"}).json()["destination"]
    assert (made["title_template"], made["body_template"]) == ("{job}!", "")
    wrong = send(admin, API, {**GIVEN, "name": "b", "body_template": "{secret}"})
    assert wrong.status_code == 400 and "there is no {secret}" in wrong.json()["error"]
    at = f"{API}/{made['id']}"
    assert admin.browser.patch(at, {"title_template": "{x}"}, format="json").status_code == 400
    assert responder.browser.patch(at, {"title_template": "{job}"}, format="json").status_code == 403
    assert (
        admin.browser.patch(at, {"body_template": "on {nodes}", "version": made["version"]}, format="json").status_code
        == 200
    )
    kept = Destination.objects.get()
    assert (kept.title_template, kept.body_template) == ("{job}!", "on {nodes}")
    assert DestinationChange.objects.order_by("-id")[0].changed == ["body_template"]


def test_a_preview_is_of_the_teams_own_incidents(
    attempt: Attempt, admin: Persona, viewer: Persona, stranger: Persona
) -> None:
    assert send(admin, f"{API}/preview", {"title_template": "{job}"}).json()["title"] == "llama-70b"  # the example
    incident = make_incident(attempt, headline="It hangs")
    shown = send(
        admin, f"{API}/preview", {"title_template": "{number} {headline}", "body_template": "{symptom}"}
    ).json()
    assert (shown["title"], shown["lines"], shown["incident"]) == (f"{incident.pk} It hangs", ["Hang"], incident.pk)
    assert set(shown["usual"]) == {"title_template", "body_template"} and "headline" in shown["names"]
    assert [send(who, f"{API}/preview", {}).status_code for who in (viewer, stranger)] == [403, 403]
    assert send(admin, f"{API}/preview", {"incident": 10**9}).status_code == 404


def send(who: Persona, path: str, body: Any) -> Any:
    return who.browser.post(path, body, format="json")
