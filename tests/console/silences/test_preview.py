"""What a preview says is what the silence then does, for matchers of every field and incidents of every kind."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from console.incidents.lifecycle import Actor, observe
from console.incidents.models import ActorKind, Certainty, Incident
from console.silences.acts import BadAct, make_silence, preview_silence
from ingest.models import Attempt, Job, Node, Rank, Team
from tests.console.incidents.making import blaming, make_incident

RITA = Actor("rita", ActorKind.USER, 7)
VALUES = {
    "job": ["llama-1", "llama-*", "*", "mistral-7"],
    "node": ["r1-n1", "r1-*", "r2-n3", "*n1"],
    "rack": ["r1", "r*", "r2", "*"],
    "cluster": ["north", "south", "*th", "*"],
    "symptom": ["failure", "straggler", "fail*"],
    "component": ["nic", "process", "*"],
}
# Of each node of a job: (rack, cluster), "" where its agent did not say.
JOBS = {
    "llama-1": [("r1", "north"), ("r1", "north"), ("r2", "north")],
    "llama-2": [("r1", "north"), ("", "north"), ("r2", "south")],
    "mistral-7": [("r2", "south"), ("r1", "")],
    "phi": [("", ""), ("", "")],
}


def make_job(team: Team, name: str) -> Attempt:
    now = timezone.now()
    job = Job.objects.create(team=team, name=name)
    attempt = Attempt.objects.create(job=job, number=0, started_at=now, last_received_at=now)
    for rank, (rack, cluster) in enumerate(JOBS[name]):
        node = Node.objects.create(attempt=attempt, name=f"{rack or 'x'}-n{rank}", rack=rack, cluster=cluster)
        Rank.objects.create(attempt=attempt, node=node, pid=rank + 1, process_started=1, rank=rank)
    return attempt


def make_world(team: Team, drawn: random.Random) -> list[Incident]:
    """An incident of each job, with as many culprits as chance has it; one of them runs nowhere that is known."""
    made = []
    for name in JOBS:
        attempt = make_job(team, name)
        incident = make_incident(attempt, key=f"v1:{name}", symptom=drawn.choice(["failure", "straggler"]))
        culprits = sorted(drawn.sample([*range(len(JOBS[name])), 99], drawn.randrange(3)))
        said = blaming(*culprits, component=drawn.choice(["", "nic", "process"]))
        observe(incident, "diagnosed", {**said, "certainty": Certainty.DIAGNOSED})
        made.append(incident)
    return made


def draw_matchers(drawn: random.Random) -> list[dict[str, Any]]:
    fields = drawn.sample(sorted(VALUES), drawn.randint(1, 3))
    return [
        {"field": one, "values": drawn.sample(VALUES[one], drawn.randint(1, 2)), "is_not": drawn.random() < 0.3}
        for one in fields
    ]


def is_covered(matchers: list[dict[str, Any]], incident: Incident) -> bool:
    """The rule as docs/incidents.md has it, from the roster and not from the incident's columns."""
    nodes = JOBS[incident.job.name]
    blamed = [nodes[rank] if rank < len(nodes) else None for rank in incident.culprits]
    names = [f"{one[0] or 'x'}-n{rank}" if one else "" for rank, one in zip(incident.culprits, blamed, strict=True)]
    said = {
        "job": [incident.job.name],
        "symptom": [incident.symptom],
        "component": [incident.component],
        "node": names,
        "rack": [one[0] if one else "" for one in blamed],
        "cluster": [cluster for _, cluster in nodes],
    }
    for matcher in matchers:
        values = said[matcher["field"]]
        if not values or "" in values:
            return False  # unknown is never silenced
        fit = [any(re.fullmatch(v.replace("*", ".*"), one) for v in matcher["values"]) for one in values]
        if any(fit) if matcher["is_not"] else not all(fit):
            return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_a_preview_says_what_the_silence_then_covers(team: Team, seed: int) -> None:
    drawn = random.Random(seed)
    world = make_world(team, drawn)
    n_understood, n_covered = 0, 0
    for _ in range(60):
        matchers = draw_matchers(drawn)
        with transaction.atomic():
            try:
                found = preview_silence(team.pk, matchers)
            except BadAct:
                with pytest.raises(BadAct):
                    make_silence(team.pk, RITA, matchers, "why", 60)
                continue
            silence = make_silence(team.pk, RITA, matchers, "why", 60)
            silenced = set(Incident.objects.filter(silence=silence).values_list("pk", flat=True))
            transaction.set_rollback(True)
        assert {one.pk for one in found.now} == silenced
        assert silenced == {one.pk for one in world if is_covered(matchers, one)}, matchers
        assert found.lately == len(silenced)
        n_understood, n_covered = n_understood + 1, n_covered + bool(silenced)
    assert n_understood >= 30 and n_covered >= 3


@pytest.mark.parametrize("field", ["rack", "cluster"])
def test_a_maintenance_may_be_of_a_rack_or_of_a_cluster(team: Team, field: str) -> None:
    value = {"rack": "r2", "cluster": "north"}[field]
    matchers = [{"field": field, "values": [value]}]
    silence = make_silence(team.pk, RITA, matchers, "new switch", 60, kind="maintenance")
    incident = make_incident(make_job(team, "llama-1"))
    observe(incident, "diagnosed", blaming(2))
    assert incident.silence == silence
    with pytest.raises(BadAct, match="names the nodes, racks or clusters"):
        make_silence(
            team.pk, RITA, [{"field": field, "values": ["*"]}, {"field": "job", "values": ["a"]}], "x", 60,
            kind="maintenance",
        )  # fmt: skip
