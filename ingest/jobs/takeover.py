"""How an attempt begins: with the first processes of a job, or when others have taken over most places of the last one.

Where no launcher counts restarts, a job that was started again shows only by its processes, which take the ranks (or the
GPUs) of earlier ones, node by node. When they hold most of them, they, their ranks and their communicators become the
next attempt. Called by roster.py under the job's lock.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection
from django.db.models import F

from ingest.door import limits
from ingest.jobs.attempts import Declared, is_taken_over
from ingest.jobs.endings import end_for_restart
from ingest.models import Attempt, Communicator, Job, Node, Rank


def start_attempt(job: Job, declared: Declared, at: datetime) -> Attempt:
    """End the job's running attempt and begin the next. Raises OverLimit."""
    last = job.attempts.order_by("-number").first()
    limits.check_room(last.number if last else 0, limits.ATTEMPTS_MAX, "attempts of this job")
    end_for_restart(job.pk, at)
    return Attempt.objects.create(
        job=job,
        number=last.number + 1 if last else 1,
        restart_count=declared.restart_count,
        world_size=declared.world_size,
        started_at=at,
        last_received_at=at,
    )


def split_if_taken_over(attempt: Attempt, at: datetime) -> Attempt | None:
    """A new attempt of the processes that took over most ranks of `attempt`; None when they are still few."""
    current = attempt.ranks.filter(replaced=False)
    successors = current.filter(replaces=True)
    if not is_taken_over(successors.count(), current.count()):
        return None
    moved = list(successors.select_related("node"))
    new = start_attempt(attempt.job, Declared(attempt.restart_count, attempt.world_size), at)
    nodes = {old.node.name: old.node for old in moved}
    Node.objects.bulk_create(
        [Node(attempt=new, name=name, cluster=old.cluster, rack=old.rack) for name, old in sorted(nodes.items())]
    )
    by_name = {node.name: node for node in new.nodes.all()}
    for rank in moved:
        rank.attempt, rank.node, rank.replaces = new, by_name[rank.node.name], False
    Rank.objects.bulk_update(moved, ["attempt", "node", "replaces"], batch_size=1000)
    _give_places_back(attempt)
    _move_members(attempt, new)
    note_change([attempt.pk, new.pk])
    return new


def note_change(attempt_ids: list[int]) -> None:
    """Ranks or members of these attempts are others now: readers must not go on with what they remember."""
    Attempt.objects.filter(pk__in=attempt_ids).update(roster_version=F("roster_version") + 1, to_infer=True)


def _give_places_back(attempt: Attempt) -> None:
    """Who lost a place to a process that has moved on has it again; of several that claimed a rank, the newest."""
    taken = set(attempt.ranks.filter(replaced=False, rank__gte=0).values_list("rank", flat=True))
    back = {rank if rank >= 0 else -pk: pk for pk, rank in _replaced(attempt) if rank not in taken}
    attempt.ranks.filter(pk__in=list(back.values())).update(replaced=False)


def _replaced(attempt: Attempt) -> list[tuple[int, int]]:
    return list(attempt.ranks.filter(replaced=True).order_by("process_started", "pk").values_list("pk", "rank"))


def _move_members(old: Attempt, new: Attempt) -> None:
    moved = Communicator.objects.filter(attempt=old, members__process__attempt=new).distinct()
    Communicator.objects.bulk_create(
        [Communicator(attempt=new, comm_id=c.comm_id, n_ranks=c.n_ranks, n_nodes=c.n_nodes, name=c.name) for c in moved]
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ingest_commmember m SET communicator_id = b.id"
            " FROM ingest_communicator a JOIN ingest_communicator b ON b.comm_id = a.comm_id AND b.attempt_id = %s"
            " WHERE m.communicator_id = a.id AND a.attempt_id = %s"
            " AND m.process_id IN (SELECT id FROM ingest_rank WHERE attempt_id = %s)",
            [new.pk, old.pk, new.pk],
        )
    Communicator.objects.filter(attempt=old, members=None).delete()
