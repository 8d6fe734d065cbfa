"""What people tell us about a job: thresholds with their history, pauses, reports; who may and who may not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.utils import timezone

from console.accounts.models import Role
from console.accounts.secrets import make_api_token
from console.incidents.acts import asking
from console.incidents.acts.wanted_pace import DECLARED_MAX, LATELY_NS
from console.incidents.models import ConditionState, DeclaredPause, Incident, SettingChange, TimelineEntry
from console.incidents.rows import iso_from_ns
from console.incidents.watching.thresholds import settings_of
from ingest.door.marks import take_heard
from ingest.models import Attempt, Node, Team
from rca.settings import DEFAULT
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident

NOW_NS = 1_800_000_000_000_000_000


@pytest.fixture
def heard(attempt: Attempt) -> Attempt:
    """The attempt, with a node that has sent something."""
    Node.objects.create(attempt=attempt, name="node0", watermark_ns=NOW_NS)
    return attempt


def change(persona: Persona, attempt: Attempt, changes: Any, reason: str = "long ops") -> Any:
    body = {"changes": changes, "reason": reason}
    return persona.browser.patch(
        f"/api/v1/jobs/{attempt.job_id}/settings", body, format="json", headers={"If-Match": "*"}
    )


def report(persona: Persona, attempt: Attempt, key: str = "", **body: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return persona.browser.post(
        f"/api/v1/jobs/{attempt.job_id}/triggers", {"note": "loss is flat", **body}, format="json", headers=headers
    )


def test_without_changes_the_papers_defaults_are_shown_and_in_force(viewer: Persona, attempt: Attempt) -> None:
    shown = viewer.browser.get(f"/api/v1/jobs/{attempt.job_id}/settings").json()
    delta = next(one for one in shown["settings"] if one["name"] == "delta_max_s")
    assert (delta["value"], delta["default"], delta["unit"], delta["overridden"]) == (10.0, 10.0, "s", False)
    assert (shown["overridden"], shown["history"], shown["may"]) == ([], [], [])
    assert settings_of(attempt.job_id) == DEFAULT


def test_a_change_is_in_force_at_once_and_its_history_says_who_when_what_and_why(
    responder: Persona, attempt: Attempt
) -> None:
    shown = change(responder, attempt, {"delta_max_s": 30, "halved_iterations": 5}).json()
    assert shown["overridden"] == ["delta_max_s=30", "halved_iterations=5"]
    in_force = settings_of(attempt.job_id)
    assert (in_force.delta_max_ns, in_force.halved_iterations) == (30_000_000_000, 5)
    change(responder, attempt, {"delta_max_s": None}, reason="as it was")
    assert settings_of(attempt.job_id).delta_max_ns == DEFAULT.delta_max_ns
    newest = responder.browser.get(f"/api/v1/jobs/{attempt.job_id}/settings").json()["history"][0]
    assert {name: newest[name] for name in ("actor", "name", "before", "after", "unit", "reason")} == {
        "actor": "rita", "name": "delta_max_s", "before": 30.0, "after": None, "unit": "s", "reason": "as it was",
    }  # fmt: skip


def test_who_did_not_see_a_colleagues_change_is_told_of_it_instead_of_overwriting_it(
    responder: Persona, admin: Persona, attempt: Attempt
) -> None:
    seen = responder.browser.get(f"/api/v1/jobs/{attempt.job_id}/settings").json()["version"]
    change(admin, attempt, {"delta_max_s": 30}, reason="long ops")
    body = {"changes": {"delta_max_s": 20, "halved_iterations": 5}, "reason": "flapping", "version": seen}
    answer = responder.browser.patch(f"/api/v1/jobs/{attempt.job_id}/settings", body, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_version")
    assert answer.json()["error"] == "Meanwhile ada set delta_max_s to 30 s; you wanted 20 s. Nothing was changed."
    (late,) = answer.json()["overtaken"]
    assert (late["theirs"], late["yours"], late["changed_by"], late["reason"]) == (30.0, 20.0, "ada", "long ops")
    assert settings_of(attempt.job_id).delta_max_ns == 30_000_000_000
    assert settings_of(attempt.job_id).halved_iterations == DEFAULT.halved_iterations, "all or none"
    again = {**body, "version": answer.json()["settings"]["version"]}
    assert responder.browser.patch(f"/api/v1/jobs/{attempt.job_id}/settings", again, format="json").status_code == 200
    assert settings_of(attempt.job_id).delta_max_ns == 20_000_000_000


def test_who_says_nothing_of_what_was_seen_changes_nothing(responder: Persona, attempt: Attempt) -> None:
    body = {"changes": {"delta_max_s": 20}, "reason": "flapping"}
    answer = responder.browser.patch(f"/api/v1/jobs/{attempt.job_id}/settings", body, format="json")
    assert (answer.status_code, SettingChange.objects.count()) == (400, 0)
    assert "refused only when somebody acted since" in answer.json()["error"]


def test_if_match_refuses_when_anybody_changed_any_threshold_since(
    responder: Persona, admin: Persona, attempt: Attempt
) -> None:
    address = f"/api/v1/jobs/{attempt.job_id}/settings"
    etag = responder.browser.get(address)["ETag"]
    change(admin, attempt, {"delta_max_s": 30})
    body = {"changes": {"halved_iterations": 5}, "reason": "flapping"}
    late = responder.browser.patch(address, body, format="json", headers={"If-Match": etag})
    assert (late.status_code, late.json()["error"]) == (
        412, "Meanwhile ada set delta_max_s to 30 s. Nothing was changed.",
    )  # fmt: skip
    etag = responder.browser.get(address)["ETag"]
    done = responder.browser.patch(address, body, format="json", headers={"If-Match": etag})
    assert done.status_code == 200 and done["ETag"] not in ("", etag)


def test_changes_of_other_thresholds_and_to_the_same_value_are_in_nobodys_way(
    responder: Persona, admin: Persona, attempt: Attempt
) -> None:
    change(admin, attempt, {"delta_max_s": 30})
    for changes in ({"halved_iterations": 5}, {"delta_max_s": 30}):
        body = {"changes": changes, "reason": "flapping", "version": 0}
        answer = responder.browser.patch(f"/api/v1/jobs/{attempt.job_id}/settings", body, format="json")
        assert answer.status_code == 200, answer.json()


def test_what_is_so_already_is_no_change(responder: Persona, attempt: Attempt) -> None:
    for _ in range(2):
        change(responder, attempt, {"delta_max_s": 30})
    change(responder, attempt, {"small_share": None})
    assert SettingChange.objects.count() == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"delta_max_s": 30, "small_share": 7}, "small_share must be between 0.01 and 1 share, not 7."),
        ({"delta_min_s": 30}, "delta_min_s (30 s) must not be above delta_max_s (10 s)."),
        ({"no_such": None}, "There is no setting 'no_such' that can be changed."),
        ({"delta_max_s": "30"}, "delta_max_s must be a number (s)."),
        ({}, "Name at least one setting to change."),
    ],
)
def test_a_change_that_cannot_be_is_refused_whole_with_a_sentence(
    responder: Persona, attempt: Attempt, changes: Any, says: str
) -> None:
    answer = change(responder, attempt, changes)
    assert (answer.status_code, answer.json()["error"]) == (400, says)
    assert not SettingChange.objects.exists()


def test_two_thresholds_may_be_changed_together_that_could_not_be_alone(responder: Persona, attempt: Attempt) -> None:
    assert change(responder, attempt, {"delta_max_s": 1, "delta_min_s": 0.5}).status_code == 200
    assert settings_of(attempt.job_id).delta_max_ns == 1_000_000_000


def test_the_session_names_what_is_overridden_for_the_callers_jobs_only(
    responder: Persona, stranger: Persona, attempt: Attempt
) -> None:
    change(responder, attempt, {"delta_max_s": 30})
    told = [one.browser.get("/api/v1/session").json()["settings_overridden"] for one in (responder, stranger)]
    assert told == [["llama-70b: delta_max_s=30"], []]


def test_a_stored_value_that_todays_limits_refuse_is_not_used_and_said_so(responder: Persona, attempt: Attempt) -> None:
    SettingChange.objects.create(
        job=attempt.job, at=timezone.now(), actor="rita", actor_kind="user", name="slow_factor", after=0.5, reason="x"
    )
    shown = responder.browser.get(f"/api/v1/jobs/{attempt.job_id}/settings").json()
    assert settings_of(attempt.job_id) == DEFAULT
    assert (shown["overridden"], len(shown["ignored"])) == ([], 1)


def test_the_history_cannot_be_rewritten(responder: Persona, attempt: Attempt) -> None:
    change(responder, attempt, {"delta_max_s": 30})
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute("UPDATE incidents_settingchange SET actor = 'nobody'")


@pytest.mark.parametrize("path", ["settings", "pause", "triggers", "wanted-pace"])
def test_viewers_may_not_and_for_another_team_the_job_is_not_there(
    viewer: Persona, stranger: Persona, heard: Attempt, path: str
) -> None:
    bodies = {
        "settings": {"changes": {"delta_max_s": 30}, "reason": "x"},
        "pause": {"reason": "x", "minutes": 5},
        "wanted-pace": {"reason": "x"},
        "triggers": {"note": "x"},
    }
    for persona, status in ((viewer, 403), (stranger, 404)):
        send = persona.browser.patch if path == "settings" else persona.browser.post
        assert send(f"/api/v1/jobs/{heard.job_id}/{path}", bodies[path], format="json").status_code == status
    assert not (SettingChange.objects.exists() or DeclaredPause.objects.exists() or Incident.objects.exists())


def test_a_pause_is_shown_with_the_job_until_it_is_replaced_or_ended(responder: Persona, attempt: Attempt) -> None:
    path = f"/api/v1/jobs/{attempt.job_id}"
    for minutes in (5, 60):
        made = responder.browser.post(f"{path}/pause", {"reason": "new switch", "minutes": minutes}, format="json")
    shown = responder.browser.get(path).json()
    assert shown["pause"] == made.json()["pause"]
    assert (shown["pause"]["declared_by"], shown["may"]) == ("rita", ["configure", "pause", "trigger"])
    assert responder.browser.delete(f"{path}/pause").json() == {"pause": None}
    assert responder.browser.get(path).json()["pause"] is None
    assert DeclaredPause.objects.count() == 2


@pytest.mark.parametrize("body", [{"minutes": 5}, {"reason": "x", "minutes": 0}, {"reason": " ", "minutes": 5}])
def test_a_pause_needs_a_reason_and_an_end(responder: Persona, attempt: Attempt, body: Any) -> None:
    path = f"/api/v1/jobs/{attempt.job_id}/pause"
    assert responder.browser.post(path, body, format="json").status_code == 400


def test_a_job_that_has_ended_cannot_be_paused_or_reported(responder: Persona, heard: Attempt) -> None:
    heard.state = Attempt.State.ENDED
    heard.ended_at = timezone.now()
    heard.save()
    path = f"/api/v1/jobs/{heard.job_id}/pause"
    assert responder.browser.post(path, {"reason": "x", "minutes": 5}, format="json").status_code == 400
    assert report(responder, heard).json()["error"] == "This job has ended, so nothing can be reported of it."


def test_a_wanted_pace_is_shown_with_the_job_with_who_why_and_since_when(
    responder: Persona, heard: Attempt, django_capture_on_commit_callbacks: Any
) -> None:
    take_heard()
    path = f"/api/v1/jobs/{heard.job_id}"
    assert responder.browser.get(path).json()["wanted_pace"] is None
    with django_capture_on_commit_callbacks(execute=True):
        answer = responder.browser.post(f"{path}/wanted-pace", {"reason": "batch doubled"}, format="json")
    made = answer.json()["wanted_pace"]
    assert responder.browser.get(path).json()["wanted_pace"] == made
    assert (made["declared_by"], made["reason"], made["attempt"]) == ("rita", "batch doubled", heard.number)
    assert made["since"] == iso_from_ns(NOW_NS - LATELY_NS), "no slowdown is open: a minute ago"
    assert take_heard() == {heard.pk}, "the next look is at once"


def test_a_pace_cannot_be_wanted_without_a_reason_of_a_job_that_ended_or_too_often(
    responder: Persona, heard: Attempt
) -> None:
    path = f"/api/v1/jobs/{heard.job_id}/wanted-pace"
    assert responder.browser.post(path, {"reason": " "}, format="json").status_code == 400
    codes = [responder.browser.post(path, {"reason": "x"}, format="json").status_code for _ in range(DECLARED_MAX + 1)]
    assert codes == [200] * DECLARED_MAX + [429]
    Attempt.objects.update(state=Attempt.State.ENDED, ended_at=timezone.now())
    assert responder.browser.post(path, {"reason": "x"}, format="json").status_code == 400


def test_a_report_opens_an_incident_that_waits_for_its_diagnosis(
    responder: Persona, heard: Attempt, django_capture_on_commit_callbacks: Any
) -> None:
    take_heard()
    with django_capture_on_commit_callbacks(execute=True):
        answer = report(responder, heard).json()
    assert (answer["opened"], answer["incident"]["symptom"], answer["incident"]["state"]) == (True, "external", "open")
    assert answer["incident"]["headline"] == "Reported by hand: loss is flat"
    assert (answer["entry"]["actor"], answer["entry"]["note"]) == ("rita", "loss is flat")
    incident = Incident.objects.get()
    assert incident.asked_at is not None
    assert incident.condition == ConditionState.CLEAR  # no trigger sees anything, and nobody pretends it does
    assert take_heard() == {heard.pk}


def test_a_report_on_a_job_in_trouble_attaches_to_its_incident(responder: Persona, heard: Attempt) -> None:
    incident = make_incident(heard)
    answer = report(responder, heard).json()
    assert (answer["opened"], answer["incident"]["number"]) == (False, incident.pk)
    assert incident.timeline.filter(verb="reported", actor="rita", note="loss is flat").exists()
    assert Incident.objects.get().asked_at is not None


def test_the_same_report_sent_twice_is_one(responder: Persona, heard: Attempt) -> None:
    first, second = (report(responder, heard, key="w-1").json() for _ in range(2))
    assert first["entry"]["id"] == second["entry"]["id"]
    assert TimelineEntry.objects.filter(actor="rita").count() == 1


def test_a_watchdog_that_reports_too_often_is_told_to_wait(heard: Attempt, team: Team, client: Any) -> None:
    headers = {"Authorization": f"Token {make_api_token(team, 'watchdog', Role.RESPONDER)[1]}"}
    path = f"/api/v1/jobs/{heard.job_id}/triggers"
    said = [
        client.post(path, {"note": f"late {n}"}, "application/json", headers=headers)
        for n in range(asking.ASKED_MAX + 1)
    ]
    assert [one.status_code for one in said] == [200] * asking.ASKED_MAX + [429]
    assert said[-1].json()["code"] == "too_many" and said[-1].headers["Retry-After"]
    assert Incident.objects.count() == 1


def test_a_report_says_since_when_within_a_day(responder: Persona, heard: Attempt) -> None:
    for ago in (timedelta(hours=25), timedelta(hours=-1)):
        assert report(responder, heard, since=(timezone.now() - ago).isoformat()).status_code == 400
    hour_ago = timezone.now() - timedelta(hours=1)
    Node.objects.update(watermark_ns=int(timezone.now().timestamp() * 1e9))
    report(responder, heard, since=hour_ago.isoformat())
    assert Incident.objects.get().first_symptom_ns == int(hour_ago.timestamp() * 1e9)


def test_nothing_can_be_reported_of_a_job_never_heard_of(responder: Persona, attempt: Attempt) -> None:
    assert report(responder, attempt).json()["error"].startswith("Nothing was ever heard of this job")


def test_asking_again_is_noted_once_and_refused_when_too_often(responder: Persona, heard: Attempt) -> None:
    path = f"/api/v1/incidents/{make_incident(heard).pk}/diagnose"
    same = [responder.browser.post(path, {}, format="json", headers={"Idempotency-Key": "a"}) for _ in range(3)]
    assert len({one.json()["entry"]["id"] for one in same}) == 1
    assert same[0].json()["entry"]["verb"] == "asked again"
    more = [responder.browser.post(path, {}, format="json").status_code for _ in range(asking.ASKED_MAX)]
    assert more == [200] * (asking.ASKED_MAX - 1) + [429]
