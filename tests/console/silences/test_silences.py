"""Silences of incidents: what they cover, that they hide nothing, and that they end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.incidents import silenced
from console.incidents.lifecycle import DETECTOR, Actor, BadAct, move, observe
from console.incidents.models import ActorKind, Incident
from console.incidents.record import TooMany
from console.incidents.rows import CULPRITS_SHOWN_MAX, is_quiet
from console.incidents.watching.revise import store
from console.silences import acts
from console.silences.acts import end_silence, make_silence, preview_silence, settle_due
from console.silences.models import Silence
from ingest.models import Attempt, Job, Node, Rank, Team
from ingest.read import read_window
from tests.console.conftest import Persona
from tests.console.incidents.making import SECOND, START_NS, blaming, make_diagnosis, make_incident, make_symptom

RITA = Actor("rita", ActorKind.USER, 7)
JOB = [{"field": "job", "values": ["llama-*"]}]
NODE = [{"field": "node", "values": ["node-1"]}]


def blame(incident: Incident, *ranks: int) -> None:
    """The detector names culprits."""
    observe(incident, "diagnosed", blaming(*ranks))


def place(attempt: Attempt, rack: str = "", cluster: str = "", **ranks: int) -> None:
    """Where ranks run: place(attempt, node_1=3) is rank 3 on node-1."""
    for name, rank in ranks.items():
        node = Node.objects.create(attempt=attempt, name=name.replace("_", "-"), rack=rack, cluster=cluster)
        Rank.objects.create(attempt=attempt, node=node, pid=rank + 1, process_started=1, rank=rank)


def verbs(incident: Incident) -> list[str]:
    return list(incident.timeline.order_by("id").values_list("verb", flat=True))


def test_what_no_silence_covers_stays_loud(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    make_silence(incident.team_id, RITA, [{"field": "job", "values": ["mistral"]}], "another job", 60)
    incident.refresh_from_db()
    assert (incident.silence, is_quiet(incident), verbs(incident)) == (None, False, ["opened"])


def test_a_silence_begins_now_or_later_unless_its_form_lay_open_a_little(team: Team) -> None:
    now = timezone.now()
    with pytest.raises(BadAct, match="in the past"):
        make_silence(team.pk, RITA, JOB, "a typing error", 60, starts_at=now - timedelta(days=1))
    late = make_silence(team.pk, RITA, JOB, "a slow typist", 60, starts_at=now - timedelta(minutes=3))
    assert late.starts_at >= now


def test_a_silence_covers_open_and_new_incidents_and_says_so_in_their_timelines(attempt: Attempt) -> None:
    first = make_incident(attempt)
    silence = make_silence(first.team_id, RITA, JOB, "switch is replaced", 60)
    first.refresh_from_db()
    assert (first.silence, first.silenced_until, first.state) == (silence, silence.ends_at, "open")
    assert is_quiet(first)
    move(first.pk, "resolve", DETECTOR, note="over")
    second = make_incident(attempt)
    assert second.silence == silence
    entry = second.timeline.get(verb="silenced")
    assert "switch is replaced" in entry.note and "rita" in entry.note


def test_another_teams_incidents_are_not_silenced(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    make_silence(Team.objects.create(name="others").pk, RITA, JOB, "ours", 60)
    assert Incident.objects.get(pk=incident.pk).silence is None


def test_a_maintenance_covers_a_node_once_it_alone_is_blamed(attempt: Attempt) -> None:
    place(attempt, node_1=3, node_2=5)
    make_silence(attempt.job.team_id, RITA, NODE, "new NIC", 60, kind="maintenance")
    incident = make_incident(attempt)
    assert incident.silence is None  # nobody is blamed yet
    blame(incident, 3)
    assert (incident.culprit_nodes, incident.silence is not None) == (["node-1"], True)
    blame(incident, 3, 5)
    assert (incident.culprit_nodes, incident.silence) == (["node-1", "node-2"], None)
    assert verbs(incident)[-2:] == ["diagnosed", "unsilenced"]


def test_a_culprit_whose_node_is_unknown_is_in_no_maintenance(attempt: Attempt) -> None:
    place(attempt, node_1=3)
    make_silence(attempt.job.team_id, RITA, NODE, "new NIC", 60, kind="maintenance")
    incident = make_incident(attempt)
    blame(incident, 3, 99)
    assert (incident.culprit_nodes, incident.silence) == (["node-1"], None)
    observe(incident, "diagnosed", blaming(3, n=500))  # of the others not even the rank is known
    assert (incident.culprit_nodes, incident.silence) == (["node-1"], None)
    blame(incident, 3)
    assert incident.silence is not None


def test_all_culprits_count_and_not_only_those_that_are_shown(attempt: Attempt) -> None:
    shown = tuple(range(CULPRITS_SHOWN_MAX))
    place(attempt, node_2=CULPRITS_SHOWN_MAX)
    node = Node.objects.create(attempt=attempt, name="node-1")
    for rank in shown:
        Rank.objects.create(attempt=attempt, node=node, pid=rank + 1, process_started=1, rank=rank)
    make_silence(attempt.job.team_id, RITA, NODE, "new NIC", 60, kind="maintenance")
    incident, window = make_incident(attempt), read_window(attempt.pk, START_NS, START_NS + SECOND, ())
    store(incident, make_diagnosis(make_symptom(attempt), (*shown, CULPRITS_SHOWN_MAX)), 1, window, None)
    assert (incident.culprits, incident.culprit_nodes) == (list(shown), ["node-1", "node-2"])
    assert incident.silence is None
    store(incident, make_diagnosis(make_symptom(attempt), shown), 2, window, incident.revisions.get())
    assert incident.silence is not None


def test_culprits_on_more_nodes_than_are_kept_are_not_silenced(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silenced, "NODES_MAX", 1)
    place(attempt, node_1=3, node_2=5)
    make_silence(attempt.job.team_id, RITA, NODE, "new NIC", 60, kind="maintenance")
    incident = make_incident(attempt)
    blame(incident, 3, 5)
    assert (incident.culprit_nodes, incident.silence) == (["node-1"], None)


def test_a_maintenance_names_nodes(team: Team) -> None:
    with pytest.raises(BadAct, match="nodes"):
        make_silence(team.pk, RITA, JOB, "why", 60, kind="maintenance")


def test_a_silence_that_runs_out_makes_its_incidents_loud_again(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    silence = make_silence(incident.team_id, RITA, JOB, "short", 1)
    ago = timezone.now() - timedelta(minutes=5)
    Silence.objects.filter(pk=silence.pk).update(starts_at=ago, ends_at=ago + timedelta(minutes=1))
    Incident.objects.update(silenced_until=ago + timedelta(minutes=1))
    settle_due()
    incident.refresh_from_db()
    assert (incident.silence, verbs(incident)[-1]) == (None, "unsilenced")
    version = incident.version
    settle_due()
    assert Incident.objects.get(pk=incident.pk).version == version


def test_a_silence_that_has_run_out_keeps_nobody_asleep_until_it_is_settled(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    make_silence(incident.team_id, RITA, JOB, "short", 1)
    Incident.objects.update(silenced_until=timezone.now() - timedelta(seconds=1))
    assert not is_quiet(Incident.objects.get(pk=incident.pk))


def test_of_very_many_incidents_all_are_settled(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "PAGE_SIZE", 2)
    made = [make_incident(attempt, key="v1:0")]
    for number in range(1, 5):
        job = Job.objects.create(team=attempt.job.team, name=f"llama-{number}")
        now = timezone.now()
        own = Attempt.objects.create(job=job, number=0, started_at=now, last_received_at=now)
        made.append(make_incident(own, key=f"v1:{number}"))
    silence = make_silence(attempt.job.team_id, RITA, JOB, "switch", 60)
    assert Incident.objects.filter(silence=silence).count() == 5
    ago = timezone.now() - timedelta(minutes=5)
    Silence.objects.update(starts_at=ago, ends_at=ago + timedelta(minutes=1))
    Incident.objects.update(silenced_until=ago + timedelta(minutes=1))
    settle_due()
    assert Incident.objects.filter(silence=None, silenced_until=None).count() == 5
    assert made[-1].timeline.latest("id").note == "Its silence ran out."


def test_a_silence_that_was_ahead_begins(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    silence = make_silence(incident.team_id, RITA, JOB, "tonight", 60, starts_at=timezone.now() + timedelta(hours=2))
    settle_due()
    assert Incident.objects.get(pk=incident.pk).silence is None
    Silence.objects.filter(pk=silence.pk).update(starts_at=timezone.now() - timedelta(seconds=5))
    settle_due()
    assert Incident.objects.get(pk=incident.pk).silence == silence


def test_a_silence_begins_however_late_somebody_looks_and_is_settled_once(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = make_incident(attempt)
    silence = make_silence(incident.team_id, RITA, JOB, "tonight", 60, starts_at=timezone.now() + timedelta(hours=2))
    Silence.objects.filter(pk=silence.pk).update(starts_at=timezone.now() - timedelta(minutes=20))
    settle_due()
    assert Incident.objects.get(pk=incident.pk).silence == silence
    again: list[int] = []
    monkeypatch.setattr(acts, "settle_team", again.append)
    settle_due()
    assert again == []


def test_ending_a_silence_leaves_what_another_one_still_covers(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    short = make_silence(incident.team_id, RITA, JOB, "short", 10)
    long = make_silence(incident.team_id, RITA, JOB, "long", 60)
    end_silence(long, RITA)
    assert Incident.objects.get(pk=incident.pk).silence == short
    end_silence(short, RITA)
    ended = end_silence(short, Actor("olaf", ActorKind.USER))
    assert (Incident.objects.get(pk=incident.pk).silence, ended.ended_by) == (None, "rita")


def test_the_preview_says_what_the_silence_then_covers(attempt: Attempt) -> None:
    incident = make_incident(attempt)
    found = preview_silence(incident.team_id, JOB)
    assert ([one.pk for one in found.now], found.lately, found.checked) == ([incident.pk], 1, 1)
    assert preview_silence(incident.team_id, NODE).now == []
    assert Silence.objects.count() == 0


def test_a_repeated_request_is_one_silence(team: Team) -> None:
    made = [make_silence(team.pk, RITA, JOB, "why", 60, request_key="k") for _ in range(2)]
    assert made[0] == made[1]
    assert make_silence(team.pk, Actor("rita", ActorKind.API, 7), JOB, "why", 60, request_key="k") != made[0]


def test_there_is_an_end_to_how_many_are_in_force(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "IN_FORCE_MAX", 1)
    make_silence(team.pk, RITA, JOB, "why", 60)
    with pytest.raises(TooMany, match="end one"):
        make_silence(team.pk, RITA, JOB, "why", 60)


@pytest.mark.parametrize("broken", [{"reason": ""}, {"kind": "nap"}, {"ends_at": timezone.now() - timedelta(days=1)}])
def test_the_database_refuses_silences_that_cannot_be(team: Team, broken: dict[str, Any]) -> None:
    now = timezone.now()
    fields = {"team": team, "matchers": JOB, "reason": "x", "starts_at": now, "ends_at": now, "made_at": now}
    with pytest.raises(IntegrityError), transaction.atomic():
        Silence.objects.create(**fields | broken)


def test_the_preview_counts_open_incidents_it_did_not_look_at(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_incident(attempt)
    Attempt.objects.filter(pk=attempt.pk).update(
        state=Attempt.State.ENDED, ended_at=timezone.now(), end_reason="silent"
    )
    attempt.pk, attempt.number = None, attempt.number + 1
    attempt.save(force_insert=True)
    second = make_incident(attempt)
    assert preview_silence(first.team_id, JOB).left_out == 0
    monkeypatch.setattr(acts, "CONCERNED_MAX", 1)
    found = preview_silence(first.team_id, JOB)
    assert ([one.pk for one in found.now], found.left_out) == ([second.pk], 1)


def test_the_api_previews_makes_lists_and_ends(attempt: Attempt, responder: Persona) -> None:
    incident = make_incident(attempt)
    send = {"matchers": JOB, "minutes": 120, "reason": "switch"}
    preview = responder.browser.post("/api/v1/silences/preview", {"matchers": JOB}, format="json").json()
    assert (preview["words"], preview["total"]) == ("job is llama-*", 1)
    made = responder.browser.post("/api/v1/silences", send, format="json")
    assert (made.status_code, made.json()["silence"]["n_incidents"]) == (201, 1)
    number = made.json()["silence"]["id"]
    row = responder.browser.get(f"/api/v1/incidents/{incident.pk}").json()["incident"]
    assert (row["silence"], row["silenced_until"]) == (number, made.json()["silence"]["ends_at"])
    listed = responder.browser.get("/api/v1/silences").json()["silences"][0]
    assert (listed["made_by"], listed["reason"], listed["state"], listed["may_end"]) == (
        "rita",
        "switch",
        "in force",
        True,
    )
    ended = responder.browser.delete(f"/api/v1/silences/{number}").json()["silence"]
    assert (ended["state"], ended["ended_by"], ended["n_incidents"]) == ("over", "rita", 0)


def test_a_viewer_sees_silences_and_makes_none(attempt: Attempt, viewer: Persona, stranger: Persona) -> None:
    silence = make_silence(attempt.job.team_id, RITA, JOB, "switch", 60)
    assert viewer.browser.get("/api/v1/silences").json()["silences"][0]["may_end"] is False
    body = {"matchers": JOB, "minutes": 5, "reason": "x"}
    assert viewer.browser.post("/api/v1/silences", body, format="json").status_code == 403
    assert viewer.browser.delete(f"/api/v1/silences/{silence.pk}").status_code == 403
    assert stranger.browser.get("/api/v1/silences").json()["silences"] == []
    assert stranger.browser.delete(f"/api/v1/silences/{silence.pk}").status_code == 404


@pytest.mark.parametrize(
    "broken",
    [
        {"matchers": []}, {"matchers": [{"field": "job", "values": ["*"]}]}, {"minutes": 0}, {"reason": " "},
        {"matchers": "job"}, {"starts_at": "soon"}, {"kind": "nap"}, {"team": "nobody's"}, {"matchers": [[]]},
    ],
)  # fmt: skip
def test_a_silence_that_cannot_be_understood_is_refused(responder: Persona, broken: dict[str, Any]) -> None:
    body = {"matchers": JOB, "minutes": 5, "reason": "x", **broken}
    answer = responder.browser.post("/api/v1/silences", body, format="json")
    assert (answer.status_code, Silence.objects.count()) == (400, 0)
    assert answer.json()["error"]
