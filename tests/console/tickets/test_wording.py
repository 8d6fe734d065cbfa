"""What a ticket says of an incident: who, where they run, why, and what to do next, in the words of the page."""

from __future__ import annotations

import dataclasses

import pytest
from django.utils import timezone

from console.incidents.models import DiagnosisRevision, Incident
from console.tickets.kinds import pagerduty
from console.tickets.telling import sample_of
from console.tickets.templates import BODY_USUAL, TITLE_USUAL, with_templates
from console.tickets.wording import lines_of
from ingest.models import Attempt, Node, Rank
from rca.findings import Evidence, to_json
from tests.console.incidents.making import START_NS, make_diagnosis, make_incident, make_symptom

pytestmark = pytest.mark.django_db


def test_who_reads_the_ticket_knows_where_to_go_and_what_to_do(attempt: Attempt) -> None:
    incident = diagnosed(attempt, (3,), "Look at `ip -s link show mlx5_1`.")
    told = lines_of(sample_of(incident))
    assert told[0] == f"Incident {incident.pk} of job llama-70b, attempt 0: Hang, high severity."
    assert "rank 3: node-9, GPU 0000:3b:00.0, NIC mlx5_1, process 4711" in told
    assert "Evidence: last op entered: 811 (rank 3); bytes on the wire: 12 KiB." in told
    assert "What to do next: Look at `ip -s link show mlx5_1`." in told
    assert any(line.startswith("It is open, still happening; since ") for line in told)
    details = pagerduty.body_of(sample_of(incident), "k")["payload"]["custom_details"]
    assert details["places"] == ["rank 3: node-9, GPU 0000:3b:00.0, NIC mlx5_1, process 4711"]
    assert details["advice"] == "Look at `ip -s link show mlx5_1`."


def test_of_many_culprits_it_says_how_many_more(attempt: Attempt) -> None:
    assert "and 3 more" in lines_of(sample_of(diagnosed(attempt, tuple(range(7)), "")))


def test_of_a_rack_of_which_the_first_ranks_are_kept_it_says_how_many_there_are(attempt: Attempt) -> None:
    rack = make_incident(attempt, culprits=[4, 5], n_culprits=32, culprit_nodes=["node-1"], grade="strong")
    assert "Started by ranks 4, 5 and 30 more on node-1 (strong evidence)." in lines_of(sample_of(rack))


def test_while_nobody_is_named_it_says_neither_where_nor_what_to_do(attempt: Attempt) -> None:
    nobody = lines_of(dataclasses.replace(sample_of(make_incident(attempt)), culprits=()))
    assert "Nobody is blamed yet." in nobody
    assert not [line for line in nobody if line.startswith(("What to do", "Evidence", "rank "))]


def diagnosed(attempt: Attempt, culprits: tuple[int, ...], advice: str) -> Incident:
    incident = make_incident(attempt)
    node = Node.objects.create(attempt=attempt, name="node-9")
    Rank.objects.create(
        attempt=attempt, node=node, pid=4711, process_started=1, rank=3, gpu_bus_id="0000:3b:00.0", nic="mlx5_1"
    )
    found = make_diagnosis(make_symptom(attempt), culprits)
    evidence = (
        Evidence("last op entered", 811, "", "progress", 3), Evidence("bytes on the wire", 12, "KiB", "flow", None),
    )  # fmt: skip
    first = dataclasses.replace(found.findings[0], advice=advice, evidence=evidence)
    found = dataclasses.replace(found, findings=(first,))
    DiagnosisRevision.objects.create(
        incident=incident, number=1, at=timezone.now(), body=to_json(found), verdict=found.verdict,
        culprits=list(culprits), grade="strong", window_start_ns=START_NS, window_end_ns=START_NS + 1,
    )  # fmt: skip
    return incident


def test_of_a_tie_it_is_told_who_may_have_started_it(attempt: Attempt) -> None:
    tied = sample_of(make_incident(attempt, suspects=[4, 5], n_suspects=2, culprit_nodes=["node-1"], grade="weak"))
    assert "Started by one of ranks 4, 5 on node-1 (weak evidence)." in lines_of(tied)
    assert (
        "Started by rank 4 or 5 on node-1 (weak evidence)." in with_templates(tied, TITLE_USUAL, BODY_USUAL).own_lines
    )
