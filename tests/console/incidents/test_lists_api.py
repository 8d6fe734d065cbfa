"""Lists over REST: facets, search, cursors, neighbours, views, bulk acts, preconditions, the scorecard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.incidents.acts.handling import Found, assign, attach, review
from console.incidents.lifecycle import DETECTOR, Actor, move, observe
from console.incidents.lists.scorecard import read_card
from console.incidents.models import ActorKind, Certainty, DiagnosisRevision, Incident, SavedView
from console.silences.acts import make_silence
from ingest.models import Attempt, Job, Node, Rank, Team
from rca.findings import to_json
from tests.console.conftest import Persona
from tests.console.incidents.making import blaming, make_diagnosis, make_incident, make_symptom

RITA = Actor("rita", ActorKind.USER)


def another(team: Team, name: str, **changes: Any) -> Incident:
    """An incident of a job of its own."""
    now = timezone.now()
    job = Job.objects.create(team=team, name=name)
    attempt = Attempt.objects.create(job=job, number=0, started_at=now, last_received_at=now)
    return make_incident(attempt, key=f"v1:{name}", **changes)


def numbers(persona: Persona, query: str) -> list[int]:
    answer = persona.browser.get(f"/api/v1/incidents?{query}").json()
    return [row["number"] for row in answer["incidents"]]


@pytest.fixture
def many(team: Team, responder: Persona) -> dict[str, Incident]:
    """One incident in each of the states a list shows."""
    made = {name: another(team, name) for name in ("open", "acknowledged", "resolved", "silenced", "attached")}
    move(made["acknowledged"].pk, "acknowledge", RITA)
    move(made["resolved"].pk, "resolve", RITA, note="done")
    make_silence(team.pk, RITA, [{"field": "job", "values": ["silenced"]}], "why", 60)
    attach(made["attached"].pk, RITA, made["open"].pk)
    return made


@pytest.mark.parametrize("state", ["open", "acknowledged", "resolved", "silenced", "attached"])
def test_every_incident_is_in_one_of_the_shown_states(
    many: dict[str, Incident], responder: Persona, state: str
) -> None:
    assert numbers(responder, f"state={state}") == [many[state].pk]
    facets = responder.browser.get(f"/api/v1/incidents?state={state}").json()["facets"]
    assert facets["state"] == {"open": 1, "acknowledged": 1, "resolved": 1, "silenced": 1, "attached": 1}
    assert facets["job"] == {state: 1}


def test_who_handles_it_is_who_is_assigned_or_acknowledged(many: dict[str, Incident], responder: Persona) -> None:
    assign(many["open"].pk, RITA, "rita")
    assert numbers(responder, "who=me") == [many["acknowledged"].pk, many["open"].pk]
    assert many["attached"].pk in numbers(responder, "who=nobody")
    move(many["acknowledged"].pk, "resolve", RITA, note="done")
    assert many["acknowledged"].pk in numbers(responder, "who=me"), "who handled it"
    assert many["resolved"].pk in numbers(responder, "who=nobody"), "whom nobody had acknowledged"


def test_culprits_nodes_are_a_facet_and_are_found(attempt: Attempt, responder: Persona) -> None:
    node = Node.objects.create(attempt=attempt, name="r1n3")
    Rank.objects.create(attempt=attempt, node=node, pid=1, process_started=1, rank=4)
    incident = make_incident(attempt)
    assert responder.browser.get("/api/v1/incidents").json()["facets"]["node"] == {}
    observe(incident, "diagnosed", blaming(4))
    assert responder.browser.get("/api/v1/incidents").json()["facets"]["node"] == {"r1n3": 1}
    for query in ("node=r1n3", "q=r1n3", "q=rank 4", f"q=%23{incident.pk}"):
        assert numbers(responder, query) == [incident.pk]
    assert numbers(responder, "node=r1n4") == numbers(responder, "q=rank 5") == []
    observe(incident, "revised", blaming(40, headline="Rank 40 is stopped."))
    assert numbers(responder, "q=rank 4") == []
    assert numbers(responder, "q=rank 40") == numbers(responder, "q=rank 40 is") == [incident.pk]


def test_whoever_may_have_started_it_is_found_though_nobody_is_blamed(attempt: Attempt, responder: Persona) -> None:
    node = Node.objects.create(attempt=attempt, name="r1n3")
    for rank in (4, 5):
        Rank.objects.create(attempt=attempt, node=node, pid=rank, process_started=1, rank=rank)
    incident = make_incident(attempt)
    observe(incident, "diagnosed", {"certainty": Certainty.DIAGNOSED, "suspects": [4, 5], "n_suspects": 2})
    row = responder.browser.get(f"/api/v1/incidents/{incident.pk}").json()["incident"]
    assert (row["culprits"], row["suspects"], row["n_suspects"], row["nodes"]) == ([], [4, 5], 2, ["r1n3"])
    for query in ("node=r1n3", "q=rank 4", "q=rank 5"):
        assert numbers(responder, query) == [incident.pk]


def test_clusters_and_culprits_racks_are_facets_and_what_nobody_declared_is_unknown(
    attempt: Attempt, responder: Persona
) -> None:
    def facets() -> dict[str, dict[str, int]]:
        return responder.browser.get("/api/v1/incidents").json()["facets"]

    old = another(attempt.job.team, "of before nodes were known")
    for rank, cluster, rack in ((1, "north", "r1"), (2, "north", ""), (3, "south", "r1")):
        node = Node.objects.create(attempt=attempt, name=f"n{rank}", cluster=cluster, rack=rack)
        Rank.objects.create(attempt=attempt, node=node, pid=rank, process_started=1, rank=rank)
    incident = make_incident(attempt)
    assert (facets()["cluster"], facets()["rack"]) == ({"north": 1, "south": 1, "unknown": 1}, {})
    observe(incident, "diagnosed", blaming(1, 2))
    assert facets()["rack"] == {"r1": 1, "unknown": 1}
    assert numbers(responder, "cluster=south") == numbers(responder, "rack=r1") == [incident.pk]
    assert numbers(responder, "rack=unknown") == [incident.pk]
    assert numbers(responder, "cluster=unknown") == [old.pk]
    assert numbers(responder, "cluster=north,unknown") == [incident.pk, old.pk]
    assert numbers(responder, "cluster=west") == numbers(responder, "cluster=south&rack=r2") == []


def test_cursors_lead_through_the_list_and_back(attempt: Attempt, responder: Persona) -> None:
    for number in range(120):
        made = make_incident(attempt, key=f"v1:{number}")
        move(made.pk, "resolve", DETECTOR, note="over")
    pages, cursor = [], ""
    for _ in range(3):
        page = responder.browser.get(f"/api/v1/incidents?cursor={cursor}").json()
        pages.append([row["number"] for row in page["incidents"]])
        cursor = page["older"]
    assert cursor is None
    assert [len(page) for page in pages] == [50, 50, 20]
    shown = [number for one in pages for number in one]
    assert shown == sorted(shown, reverse=True)
    back = responder.browser.get(f"/api/v1/incidents?cursor={page['newer']}").json()
    assert [row["number"] for row in back["incidents"]] == pages[1]
    first = responder.browser.get(f"/api/v1/incidents?cursor={back['newer']}").json()
    assert ([row["number"] for row in first["incidents"]], first["newer"]) == (pages[0], None)


def test_neighbours_follow_the_list_one_came_from(
    many: dict[str, Incident], responder: Persona, stranger: Persona
) -> None:
    open_ones = [many[name].pk for name in ("open", "acknowledged")]
    path = f"/api/v1/incidents/{open_ones[0]}/neighbours"
    assert responder.browser.get(f"{path}?state=open,acknowledged").json() == {"previous": None, "next": open_ones[1]}
    assert stranger.browser.get(path).status_code == 404


def test_views_are_kept_by_name_for_oneself_or_the_team(responder: Persona, viewer: Persona, stranger: Persona) -> None:
    def save(persona: Persona, **body: Any) -> Any:
        return persona.browser.post("/api/v1/views", body, format="json")

    assert save(responder, name="mine", query="?who=me&state=open").json()["view"]["query"] == "who=me&state=open"
    assert save(responder, name="mine", query="who=me").status_code == 200
    assert save(viewer, name="ours", query="", shared=True).status_code == 403
    assert save(responder, name="ours", query="state=open", shared=True).status_code == 200
    assert SavedView.objects.count() == 2
    seen = viewer.browser.get("/api/v1/views").json()["views"]
    assert [(view["name"], view["shared"], view["mine"]) for view in seen] == [("ours", True, False)]
    assert stranger.browser.get("/api/v1/views").json()["views"] == []
    number = seen[0]["id"]
    assert viewer.browser.delete(f"/api/v1/views/{number}").status_code == 403
    assert stranger.browser.delete(f"/api/v1/views/{number}").status_code == 404
    assert responder.browser.delete(f"/api/v1/views/{number}").status_code == 204


# ---- acts over REST ---------------------------------------------------------------------------------------------------


def test_a_bulk_act_does_what_it_can_and_says_what_it_could_not(
    many: dict[str, Incident], responder: Persona, stranger: Persona
) -> None:
    theirs = another(Team.objects.get(name="others"), "theirs")
    targets = [{"number": one.pk} for one in (many["open"], many["resolved"], many["silenced"], theirs)]
    targets[2]["version"] = 99
    body = {"verb": "acknowledge", "targets": targets, "minutes": 15}
    answer = responder.browser.post("/api/v1/incidents/acts", body, format="json").json()
    assert [one["code"] for one in answer["outcomes"]] == ["", "illegal_move", "stale_version", "not_found"]
    assert answer["n_done"] == 1
    assert answer["outcomes"][0]["incident"]["acknowledged_until"] is not None
    assert Incident.objects.get(pk=theirs.pk).version == 1


def test_of_two_of_one_attempt_a_bulk_act_reopens_the_first_and_says_why_not_the_other(
    incident: Incident, responder: Persona, attempt: Attempt
) -> None:
    move(incident.pk, "resolve", DETECTOR, note="over")
    other = make_incident(attempt, key="v1:another")
    move(other.pk, "resolve", DETECTOR, note="over")
    body = {"verb": "reopen", "targets": [{"number": one.pk} for one in (incident, other)]}
    answer = responder.browser.post("/api/v1/incidents/acts", body, format="json").json()
    assert [one["code"] for one in answer["outcomes"]] == ["", "illegal_move"]
    assert f"incident {incident.pk} of the same attempt is open" in answer["outcomes"][1]["error"]
    assert [one["incident"]["state"] for one in answer["outcomes"]] == ["open", "resolved"]


def test_a_bulk_act_repeated_with_its_key_acts_once(many: dict[str, Incident], responder: Persona) -> None:
    targets = [{"number": many[name].pk} for name in ("open", "silenced")]
    body = {"verb": "comment", "targets": targets, "note": "the same switch"}
    for _ in range(2):
        answer = responder.browser.post(
            "/api/v1/incidents/acts", body, format="json", headers={"Idempotency-Key": "k-1"}
        )
        assert answer.json()["n_done"] == 2
    assert many["open"].timeline.filter(verb="commented").count() == 1


@pytest.mark.parametrize(
    "body",
    [
        {}, {"verb": "acknowledge", "targets": []}, {"verb": "delete", "targets": [{"number": 1}]},
        {"verb": "resolve", "targets": [{"number": 1}]}, {"verb": "acknowledge", "targets": [{"number": 1}] * 201},
        {"verb": "acknowledge", "targets": [{"numbr": 1}]}, [1],
    ],
)  # fmt: skip
def test_a_bulk_act_that_cannot_be_understood_is_refused(incident: Incident, responder: Persona, body: Any) -> None:
    assert responder.browser.post("/api/v1/incidents/acts", body, format="json").status_code == 400


@pytest.fixture
def incident(attempt: Attempt) -> Incident:
    return make_incident(attempt)


def test_a_viewer_does_nothing_in_bulk(incident: Incident, viewer: Persona) -> None:
    body = {"verb": "acknowledge", "targets": [{"number": incident.pk}]}
    assert viewer.browser.post("/api/v1/incidents/acts", body, format="json").status_code == 403


def test_the_etag_is_a_precondition_that_holds_or_refuses(incident: Incident, responder: Persona) -> None:
    path = f"/api/v1/incidents/{incident.pk}"
    etag = responder.browser.get(path).headers["ETag"]
    observe(incident, "clearing", {"condition": "clearing"})

    def acknowledge(if_match: str) -> Any:
        return responder.browser.post(f"{path}/acknowledge", {}, format="json", headers={"If-Match": if_match})

    refused = acknowledge(etag)
    assert (refused.status_code, refused.json()["incident"]["version"]) == (412, 2)
    assert acknowledge("whatever").status_code == 400
    done = acknowledge(responder.browser.get(path).headers["ETag"])
    assert (done.status_code, done.headers["ETag"]) == (200, '"3"')


ACTS = [
    ("assign", {"version": 1, "assignee": "rita"}),
    ("attach", {"version": 1, "root": 1}),
    ("detach", {"version": 1}),
    ("review", {"alarm": "real", "verdict": "right"}),
]


@pytest.mark.parametrize(("verb", "body"), ACTS)
def test_who_may_only_look_or_is_a_stranger_does_none_of_it(
    incident: Incident, viewer: Persona, stranger: Persona, verb: str, body: dict[str, Any]
) -> None:
    path = f"/api/v1/incidents/{incident.pk}/{verb}"
    assert viewer.browser.post(path, body, format="json").status_code == 403
    assert stranger.browser.post(path, body, format="json").status_code == 404


def test_what_was_found_out_is_shown(incident: Incident, responder: Persona) -> None:
    path = f"/api/v1/incidents/{incident.pk}"
    assert responder.browser.get(path).json()["review"] is None
    body = {"alarm": "noise", "verdict": "partly", "cause": "planned", "culprits": [3], "node": "node-1"}
    assert responder.browser.post(f"{path}/review", body, format="json").status_code == 200
    answer = responder.browser.get(path).json()
    assert (answer["incident"]["review"], answer["review"]["cause"], answer["review"]["culprits"]) == (
        "noise",
        "planned",
        [3],
    )


# ---- the scorecard ----------------------------------------------------------------------------------------------------


def told(incident: Incident, found: Found | None, culprits: tuple[int, ...] = (3,), seconds: float = 4.0) -> None:
    """Diagnosed by the hang rule so many seconds after its trigger fired, and perhaps reviewed."""
    diagnosis = make_diagnosis(make_symptom(incident.attempt), culprits)
    DiagnosisRevision.objects.create(
        incident=incident, number=1, at=timezone.now(), body=to_json(diagnosis), verdict="x", window_start_ns=0,
        window_end_ns=1,
    )  # fmt: skip
    if culprits:
        triggered_at = datetime.fromtimestamp(incident.triggered_ns / 1e9, UTC)
        Incident.objects.filter(pk=incident.pk).update(root_caused_at=triggered_at + timedelta(seconds=seconds))
    if found:
        review(incident.pk, RITA, found)


def test_a_scorecard_of_nothing_claims_nothing(team: Team) -> None:
    card = read_card([team.pk], 30)
    assert (card.total.incidents, card.total.precision, card.total.verdict_s_median, card.rules) == (0, None, None, [])


def test_precision_counts_what_was_reviewed_and_says_how_much_was_not(team: Team, responder: Persona) -> None:
    told(another(team, "a"), Found("real", "right"), seconds=2)
    told(another(team, "b"), Found("real", "wrong"), seconds=4)
    told(another(team, "c"), Found("false", "unknown"), seconds=9)
    told(another(team, "d", symptom="straggler"), None, culprits=())
    card = responder.browser.get("/api/v1/scorecard?days=7").json()
    total = card["total"]
    assert (total["incidents"], total["reviewed"], total["false_alarms"], total["precision"]) == (4, 3, 1, 0.6667)
    assert (total["right_share"], total["verdict_s_median"]) == (0.5, 4.0)
    assert [(rule["of"], rule["incidents"]) for rule in card["rules"]] == [("hang", 3), ("nobody named", 1)]
    assert {one["of"]: one["precision"] for one in card["symptoms"]} == {"failure": 0.6667, "straggler": None}


def test_the_newest_review_counts(team: Team) -> None:
    incident = another(team, "a")
    told(incident, Found("false", "unknown"))
    review(incident.pk, RITA, Found("real", "right"))
    assert read_card([team.pk], 7).total.precision == 1.0


def test_another_teams_incidents_are_not_in_the_scorecard(team: Team, stranger: Persona) -> None:
    told(another(team, "a"), Found("real", "right"))
    assert stranger.browser.get("/api/v1/scorecard").json()["total"]["incidents"] == 0
    assert stranger.browser.get("/api/v1/scorecard?days=0").status_code == 400
