"""Who belongs to a job: finds or makes the job, attempt, node and boot of a batch, and keeps ranks and communicators.

The slow path of ingest, taken when an agent starts, a communicator is made or a process appears; every other batch is
placed from memory. One lock on the job's row makes the choice of an attempt the same in every ingest process. Runs in
a thread of its own: Django's models are not for an event loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction
from django.db.models import F

from ingest import limits
from ingest.arrival import Arrival, Columns
from ingest.attempts import Declared, KnownAttempt, Process, choose_attempt, is_taken_over
from ingest.clock import BootClock
from ingest.endings import end_for_restart, lives_of
from ingest.known_boots import find_again
from ingest.listening import listening_since
from ingest.members import store_members
from ingest.models import Attempt, Boot, CommMember, Communicator, Job, Node, Rank
from nccl_instrument.wire import TraceBatch

ATTEMPTS_LOOKED_AT: Final = 4
OVER_AFTER: Final = timedelta(minutes=10)
"""Processes never seen before start a new attempt when the job has been silent for so long."""
HEARD_WITHIN: Final = timedelta(seconds=10)
"""An attempt heard so lately, of processes that are not gone, lives on, even when another has begun."""


@dataclass(slots=True)
class Berth:
    """Where the batches of one boot of one job go, remembered between batches.

    pids, members: processes and (comm_id, comm_rank) keys known on this node. gone: pid → Rank.gone_ns of
    the dead. seen: hashes of comm rows already stored.
    started_attempt: this look-up began a new attempt, so what is remembered of the job's other nodes is void.
    """

    job_id: int
    attempt_id: int
    node_id: int
    boot_pk: int
    clock: BootClock
    pids: frozenset[int]
    members: npt.NDArray[np.uint64]
    gone: dict[int, int]
    started_attempt: bool = False
    seen: set[int] = field(default_factory=set)
    judged: set[frozenset[int]] = field(default_factory=set)
    asked_at: float = 0.0


def find_berth(arrival: Arrival) -> Berth:
    """The berth of `arrival`, with its comm rows stored. Creates what is missing; raises django.db.Error, OverLimit."""
    try:
        known = find_again(arrival, pids_of(arrival.batch))
        if known is not None:
            ids = (known.job_id, known.attempt_id, known.node_id, known.boot_pk)
            return _berth(*ids, known.clock, known.gone_ns, np.sort(member_keys(known.members)))
        with transaction.atomic():
            return _find_berth(arrival)
    except Exception:
        connection.close()  # it may be broken, and nothing else would notice in this thread
        raise


def member_keys(rows: Columns) -> npt.NDArray[np.uint64]:
    """(n,) one number for (comm_id, comm_rank), to compare sets of members without a loop."""
    return rows["comm_id"].astype(np.uint64) ^ (rows["comm_rank"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def pids_of(batch: TraceBatch) -> frozenset[int]:
    """Processes the batch speaks of."""
    return frozenset(batch.rows("process")["pid"].tolist() + batch.rows("comm")["pid"].tolist())


def declared_of(batch: TraceBatch) -> Declared:
    """What the batch says of its processes."""
    comm = batch.rows("comm")
    pids = pids_of(batch)
    if len(comm) == 0:
        return Declared(pids=pids)
    return Declared(
        restart_count=int(comm["restart_count"].max()),
        world_size=max(int(comm["world_size"].max()), 0),
        processes=frozenset(zip(comm["pid"].tolist(), comm["process_started"].tolist(), strict=True)),
        pids=pids,
    )


def _find_berth(arrival: Arrival) -> Berth:
    batch, at = arrival.batch, datetime.fromtimestamp(arrival.received_ns / 1e9, UTC)
    declared = declared_of(batch)
    job = _job(arrival.team_id, batch.job)
    Job.objects.select_for_update().get(pk=job.pk)
    attempt, is_new = _attempt(job, batch, declared, at)
    node = _node(attempt, batch.node)
    if len(batch.rows("comm")) and store_members(attempt, node, batch):
        taken_over = _split_if_taken_over(attempt, at)
        if taken_over:
            attempt, is_new = taken_over, True
            node = _node(attempt, batch.node)
    boot = _boot(job, batch.node, batch.boot_id)
    clock = BootClock(boot.sync_ns, boot.newest_mono_ns, boot.pace)
    gone_ns = dict(Rank.objects.filter(node=node).order_by("-replaced", "pk").values_list("pid", "gone_ns"))
    return _berth(job.pk, attempt.pk, node.pk, boot.pk, clock, gone_ns, _members(node), is_new)


def _berth(
    job_id: int, attempt_id: int, node_id: int, boot_pk: int, clock: BootClock, gone_ns: dict[int, int],
    members: npt.NDArray[np.uint64], is_new: bool = False,
) -> Berth:  # fmt: skip
    gone = {pid: at_ns for pid, at_ns in gone_ns.items() if at_ns}
    return Berth(job_id, attempt_id, node_id, boot_pk, clock, frozenset(gone_ns), members, gone, is_new)


def _job(team_id: int, name: str) -> Job:
    jobs = Job.objects.filter(team_id=team_id)
    if not jobs.filter(name=name).exists():
        limits.check_room(jobs.count(), limits.JOBS_MAX, "jobs of this team")
    return jobs.get_or_create(team_id=team_id, name=name)[0]


def _node(attempt: Attempt, name: str) -> Node:
    found = attempt.nodes.filter(name=name).first()
    if found is None:
        limits.check_room(attempt.nodes.count(), limits.NODES_MAX, "nodes of this attempt")
        found = Node.objects.create(attempt=attempt, name=name)
    return found


def _boot(job: Job, node_name: str, boot_id: bytes) -> Boot:
    boots = job.boots.filter(node_name=node_name)
    found = boots.filter(boot_id=boot_id).first()
    if found is None:
        # An agent that crashes all day must not be shut out: the life silent for longest makes room.
        oldest = boots.order_by("-last_received_at", "-pk").values_list("pk", flat=True)[limits.BOOTS_MAX - 1 :]
        Boot.objects.filter(pk__in=list(oldest)).delete()
        found = Boot.objects.create(job=job, node_name=node_name, boot_id=boot_id)
    return found


def _attempt(job: Job, batch: TraceBatch, declared: Declared, at: datetime) -> tuple[Attempt, bool]:
    attempts = list(job.attempts.order_by("-number")[:ATTEMPTS_LOOKED_AT])
    processes: dict[int, set[Process]] = {}
    rows = Rank.objects.filter(attempt__in=attempts, node__name=batch.node)
    for attempt_id, *process in rows.values_list("attempt_id", "pid", "process_started"):
        processes.setdefault(attempt_id, set()).add((process[0], process[1]))
    known = [_known(attempt, processes.get(attempt.pk, set()), at) for attempt in attempts]
    chosen = choose_attempt(declared, known)
    if chosen is None:
        return start_attempt(job, declared, at), True
    attempt = next(a for a in attempts if a.pk == chosen)
    lives = lives_of(batch.rows("process")).values()
    is_alive = not lives or any(alive for alive, _ in lives)
    _adopt(attempt, declared, may_run=attempt is attempts[0] and is_alive)
    return attempt, False


def _known(attempt: Attempt, processes: set[Process], at: datetime) -> KnownAttempt:
    heard_at = max(attempt.last_received_at, listening_since(at) or at)  # while nobody listened, it was not silent
    over = attempt.state == Attempt.State.ENDED or at - heard_at > OVER_AFTER
    is_heard = at - attempt.last_received_at < HEARD_WITHIN
    lives = is_heard and attempt.ranks.filter(replaced=False, gone_ns=0).exists()
    return KnownAttempt(attempt.pk, attempt.restart_count, attempt.world_size, frozenset(processes), over, lives)


def start_attempt(job: Job, declared: Declared, at: datetime) -> Attempt:
    """End the job's running attempt and begin the next."""
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


def _adopt(attempt: Attempt, declared: Declared, may_run: bool) -> None:
    """Fill in what the attempt did not know; an attempt that was given up and shows a living process is running."""
    changed = []
    if attempt.restart_count < 0 <= declared.restart_count:
        attempt.restart_count = declared.restart_count
        changed.append("restart_count")
    if not attempt.world_size and declared.world_size:
        attempt.world_size = declared.world_size
        changed.append("world_size")
    if attempt.state == Attempt.State.ENDED and may_run:
        attempt.state, attempt.ended_at, attempt.end_reason = Attempt.State.RUNNING, None, ""
        changed += ["state", "ended_at", "end_reason"]
    if changed:
        attempt.save(update_fields=changed)


def _split_if_taken_over(attempt: Attempt, at: datetime) -> Attempt | None:
    """A new attempt of the processes that took over most ranks of `attempt`; None when they are still few."""
    current = attempt.ranks.filter(replaced=False)
    successors = current.filter(replaces=True)
    if not is_taken_over(successors.count(), current.count()):
        return None
    moved = list(successors.select_related("node"))
    new = start_attempt(attempt.job, Declared(attempt.restart_count, attempt.world_size), at)
    nodes = {old.node.name for old in moved}
    Node.objects.bulk_create([Node(attempt=new, name=name) for name in sorted(nodes)])
    by_name = {node.name: node for node in new.nodes.all()}
    for rank in moved:
        rank.attempt, rank.node, rank.replaces = new, by_name[rank.node.name], False
    Rank.objects.bulk_update(moved, ["attempt", "node", "replaces"], batch_size=1000)
    _give_places_back(attempt)
    _move_members(attempt, new)
    Attempt.objects.filter(pk__in=[attempt.pk, new.pk]).update(roster_version=F("roster_version") + 1)
    return new


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


def _members(node: Node) -> npt.NDArray[np.uint64]:
    rows = CommMember.objects.filter(process__node=node).values_list("communicator__comm_id", "comm_rank")
    ids = np.array([comm_id for comm_id, _ in rows], np.int64).view(np.uint64)
    keys = np.zeros(len(ids), [("comm_id", "<u8"), ("comm_rank", "<i4")])
    keys["comm_id"], keys["comm_rank"] = ids, [comm_rank for _, comm_rank in rows]
    return np.sort(member_keys(keys))
