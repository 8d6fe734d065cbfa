"""Earlier culprits on the same GPU, NIC or node: found over jobs and attempts, within a month and a team."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.incidents.models import Incident
from console.incidents.watching import seen_before
from console.incidents.watching.seen_before import read_seen_before
from ingest.models import Attempt, Job, Node, Rank, Team
from tests.console.conftest import Persona
from tests.console.incidents.making import make_incident

pytestmark = pytest.mark.django_db


def place(attempt: Attempt, rank: int, node: str, local_rank: int = -1, nic: str = "", gpu_uuid: str = "") -> None:
    """Rank `rank` of the attempt runs there."""
    there, _ = Node.objects.get_or_create(attempt=attempt, name=node)
    Rank.objects.create(
        attempt=attempt, node=there, pid=1000 + rank, process_started=1, rank=rank, local_rank=local_rank, nic=nic,
        gpu_uuid=gpu_uuid,
    )  # fmt: skip


def other_attempt(team: Team) -> Attempt:
    """Of another job each time."""
    now = timezone.now()
    job = Job.objects.create(team=team, name=f"job {Job.objects.count()}")
    return Attempt.objects.create(job=job, number=0, world_size=8, started_at=now, last_received_at=now)


def blamed(attempt: Attempt, *ranks: int, **changes: Any) -> Incident:
    """An incident in which these ranks were blamed, resolved since."""
    made = make_incident(attempt, culprits=list(ranks), n_culprits=len(ranks), **changes)
    Incident.objects.filter(pk=made.pk).update(state="resolved", resolved_at=timezone.now(), resolution="restarted")
    return made


def whats(incident: Incident) -> list[tuple[int, str, list[int]]]:
    return [(one.incident, one.what, one.ranks) for one in read_seen_before(incident)]


def test_nobody_blamed_or_nothing_known_of_the_culprit_is_no_recurrence(attempt: Attempt) -> None:
    assert read_seen_before(blamed(attempt, 3)) == []
    assert read_seen_before(make_incident(attempt)) == []


def test_others_on_other_machines_are_no_recurrence(attempt: Attempt, team: Team) -> None:
    before = other_attempt(team)
    place(before, 3, "node-1", 1, "mlx5_1")
    place(attempt, 3, "node-7", 1, "mlx5_1")
    blamed(before, 3)
    assert whats(blamed(attempt, 3)) == []


def test_the_same_gpu_and_nic_in_another_job_are_told_with_the_ranks_of_then(attempt: Attempt, team: Team) -> None:
    before = other_attempt(team)
    place(before, 12, "node-7", 2, "mlx5_2")
    place(attempt, 3, "node-7", 2, "mlx5_2")
    earlier = blamed(before, 12)
    assert whats(blamed(attempt, 3)) == [(earlier.pk, "GPU 2 of node-7, NIC mlx5_2 of node-7", [12])]


def test_a_shared_nic_is_told_without_the_gpu_and_a_shared_node_without_both(attempt: Attempt, team: Team) -> None:
    place(attempt, 3, "node-7", 2, "mlx5_1")
    nic, node = other_attempt(team), other_attempt(team)
    place(nic, 1, "node-7", 3, "mlx5_1")
    place(node, 2, "node-7", 5, "mlx5_4")
    first, second = blamed(nic, 1), blamed(node, 2)
    assert whats(blamed(attempt, 3)) == [(second.pk, "node node-7", [2]), (first.pk, "NIC mlx5_1 of node-7", [1])]


def test_a_gpu_that_was_moved_is_recognised_and_another_gpu_in_its_slot_is_not(attempt: Attempt, team: Team) -> None:
    place(attempt, 3, "node-7", 2, gpu_uuid="GPU-a")
    moved, swapped = other_attempt(team), other_attempt(team)
    place(moved, 0, "node-2", 6, gpu_uuid="GPU-a")
    place(swapped, 4, "node-7", 2, gpu_uuid="GPU-b")
    first, second = blamed(moved, 0), blamed(swapped, 4)
    assert whats(blamed(attempt, 3)) == [
        (second.pk, "node node-7", [4]), (first.pk, "GPU 2 of node-7, then in node-2", [0]),
    ]  # fmt: skip


def test_only_culprits_count_not_whoever_else_ran_there(attempt: Attempt, team: Team) -> None:
    before = other_attempt(team)
    place(before, 0, "node-7", 0)
    place(before, 1, "node-9", 0)
    place(attempt, 3, "node-7", 0)
    blamed(before, 1)
    assert whats(blamed(attempt, 3)) == []


def test_an_earlier_incident_of_the_same_attempt_counts_and_a_later_one_does_not(attempt: Attempt) -> None:
    place(attempt, 3, "node-7", 2)
    first, second = blamed(attempt, 3), blamed(attempt, 3)
    assert whats(first) == []
    assert [number for number, _, _ in whats(second)] == [first.pk]


def test_what_is_older_than_a_month_is_forgotten(attempt: Attempt) -> None:
    place(attempt, 3, "node-7", 2)
    first, second = blamed(attempt, 3), blamed(attempt, 3)
    Incident.objects.filter(pk=first.pk).update(opened_at=second.opened_at - timedelta(days=29))
    assert len(read_seen_before(second)) == 1
    Incident.objects.filter(pk=first.pk).update(opened_at=second.opened_at - timedelta(days=31))
    assert read_seen_before(second) == []


def test_other_teams_incidents_are_not_told(attempt: Attempt) -> None:
    others = other_attempt(Team.objects.create(name="others"))
    place(others, 3, "node-7", 2)
    place(attempt, 3, "node-7", 2)
    blamed(others, 3)
    assert whats(blamed(attempt, 3)) == []


def test_a_node_of_a_rack_of_whose_ranks_not_all_are_kept_is_told(attempt: Attempt, team: Team) -> None:
    before = other_attempt(team)
    place(before, 0, "node-1", 0)
    place(before, 8, "node-7", 0)
    place(attempt, 3, "node-7", 0)
    rack = make_incident(before, culprits=[0], n_culprits=32, culprit_nodes=["node-1", "node-7"])
    node = blamed(attempt, 3)
    assert whats(node) == [(rack.pk, "node node-7", [])]
    assert whats(make_incident(attempt, culprits=[9], n_culprits=32, culprit_nodes=["node-7"])) == [
        (node.pk, "node node-7", [3]), (rack.pk, "node node-7", []),
    ]  # fmt: skip


def test_no_more_are_told_than_fit(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_before, "SHOWN_MAX", 2)
    place(attempt, 3, "node-7", 2)
    made = [blamed(attempt, 3) for _ in range(4)]
    assert [number for number, _, _ in whats(made[-1])] == [made[2].pk, made[1].pk]


def test_it_is_part_of_an_incident_and_takes_few_queries(
    attempt: Attempt, viewer: Persona, django_assert_max_num_queries: Any
) -> None:
    place(attempt, 3, "node-7", 2)
    first, second = blamed(attempt, 3), blamed(attempt, 3)
    answer = viewer.browser.get(f"/api/v1/incidents/{second.pk}").json()
    (told,) = answer["seen_before"]
    assert (told["incident"], told["what"], told["ranks"]) == (first.pk, "GPU 2 of node-7", [3])
    with django_assert_max_num_queries(3):
        read_seen_before(second)
