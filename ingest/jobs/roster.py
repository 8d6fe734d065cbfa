"""Who belongs to a job: finds or makes the job, attempt, node and boot of a batch, and keeps ranks and communicators.

The slow path of ingest, taken when an agent starts, a communicator is made or a process appears; every other batch is
placed from memory. When a job starts, all its nodes come at once: those who wait are taken together, in the queries one
of them takes. One lock on the job's row makes the choice of an attempt the same in every ingest process. Runs in a
thread of its own: Django's models are not for an event loop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Count

from ingest.door import limits
from ingest.door.arrival import Arrival, Columns
from ingest.door.clock import BootClock
from ingest.door.listening import listening_since
from ingest.jobs.attempts import Declared, KnownAttempt, Process, choose_attempt
from ingest.jobs.endings import lives_of
from ingest.jobs.known_boots import as_members, find_again, pids_of
from ingest.jobs.members import Said, TakenPlaces, store_members
from ingest.jobs.takeover import split_if_taken_over, start_attempt
from ingest.models import Attempt, Boot, CommMember, Job, Node, Rank
from nccl_instrument.wire import TraceBatch

ATTEMPTS_LOOKED_AT: Final = 4
OVER_AFTER: Final = timedelta(minutes=10)
"""Processes never seen before start a new attempt when the job has been silent for so long."""
HEARD_WITHIN: Final = timedelta(seconds=10)
"""An attempt heard so lately, of processes that are not gone, lives on, even when another has begun."""
AWAY: Final = (OperationalError, InterfaceError)

Members = npt.NDArray[np.uint64]


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
    members: Members
    gone: dict[int, int]
    started_attempt: bool = False
    seen: set[int] = field(default_factory=set)
    judged: set[frozenset[int]] = field(default_factory=set)
    asked_at: float = 0.0


class Apart(Exception):
    """These arrivals do not go the same way: each has to be looked up alone."""


def find_berths(arrivals: Sequence[Arrival]) -> list[Berth | Exception]:
    """The berth of each arrival, with its comm rows stored; django.db.Error or OverLimit of those that have none.

    Creates what is missing.
    """
    found = _together(_find_again, arrivals)
    strangers = [place for place, berth in enumerate(found) if berth is None]
    for places in _by_job(strangers, arrivals):
        for place, berth in zip(places, _together(_join, [arrivals[place] for place in places]), strict=True):
            found[place] = berth
    return [berth for berth in found if berth is not None]


def member_keys(rows: Columns) -> Members:
    """(n,) one number for (comm_id, comm_rank), to compare sets of members without a loop."""
    return rows["comm_id"].astype(np.uint64) ^ (rows["comm_rank"].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))


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


def _together(
    work: Callable[[Sequence[Arrival]], Sequence[Berth | None]], arrivals: Sequence[Arrival]
) -> list[Berth | Exception | None]:
    """What `work` finds for all of them at once; where that fails, for each alone, so that none spoils another's."""
    try:
        return list(work(arrivals))
    except Exception as error:
        if not isinstance(error, Apart | TakenPlaces):
            connection.close()  # it may be broken, and nothing else would notice in this thread
        if len(arrivals) == 1 or isinstance(error, AWAY):
            return [error] * len(arrivals)
    return [found for arrival in arrivals for found in _together(work, [arrival])]


def _by_job(places: Sequence[int], arrivals: Sequence[Arrival]) -> Iterable[list[int]]:
    """Places of arrivals of one job, of each node at most one: its second may depend on what becomes of the first."""
    groups: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    nth: Counter[tuple[int, str, str]] = Counter()
    for place in places:
        team_id, job, node = arrivals[place].team_id, arrivals[place].batch.job, arrivals[place].batch.node
        groups[team_id, job, nth[team_id, job, node]].append(place)
        nth[team_id, job, node] += 1
    return groups.values()


def _find_again(arrivals: Sequence[Arrival]) -> list[Berth | None]:
    found: list[Berth | None] = []
    for known in find_again(arrivals):
        if known is None:
            found.append(None)
            continue
        ids = (known.job_id, known.attempt_id, known.node_id, known.boot_pk)
        found.append(_berth(*ids, known.clock, known.gone_ns, np.sort(member_keys(known.members))))
    return found


def _join(arrivals: Sequence[Arrival]) -> list[Berth]:
    """The berths of different nodes of one job. Raises Apart and TakenPlaces when they cannot be found together."""
    batches = [arrival.batch for arrival in arrivals]
    names = [batch.node for batch in batches]
    with transaction.atomic():
        job = _job(arrivals[0].team_id, batches[0].job)
        attempt, is_new = _attempt(job, arrivals)
        nodes = _nodes(attempt, names)
        said = [Said(nodes[b.node], b.rows("comm"), b.wall_ns - b.mono_ns) for b in batches if len(b.rows("comm"))]
        if said and store_members(attempt, said):
            taken_over = split_if_taken_over(attempt, _received_at(arrivals[0]))
            if taken_over:
                attempt, is_new = taken_over, True
                nodes = _nodes(attempt, names)
        boots = _boots(job, batches)
        gone_ns, members = _processes(nodes.values()), _members(nodes.values())
    berths = []
    for batch in batches:
        node, boot = nodes[batch.node].pk, boots[batch.node, batch.boot_id]
        clock = BootClock(boot.sync_ns, boot.newest_mono_ns, boot.pace)
        berths.append(_berth(job.pk, attempt.pk, node, boot.pk, clock, gone_ns[node], members[node], is_new))
        is_new = False  # once said is enough: what is remembered of the others here is not void
    return berths


def _berth(
    job_id: int, attempt_id: int, node_id: int, boot_pk: int, clock: BootClock, gone_ns: dict[int, int],
    members: Members, is_new: bool = False,
) -> Berth:  # fmt: skip
    gone = {pid: at_ns for pid, at_ns in gone_ns.items() if at_ns}
    return Berth(job_id, attempt_id, node_id, boot_pk, clock, frozenset(gone_ns), members, gone, is_new)


def _received_at(arrival: Arrival) -> datetime:
    return datetime.fromtimestamp(arrival.received_ns / 1e9, UTC)


def _job(team_id: int, name: str) -> Job:
    """The job, locked."""
    jobs = Job.objects.filter(team_id=team_id)
    locked = jobs.filter(name=name).select_for_update()
    found = locked.first()
    if found is None:
        limits.check_room(jobs.count(), limits.JOBS_MAX, "jobs of this team")
        jobs.get_or_create(team_id=team_id, name=name)
        found = locked.get()
    return found


def _nodes(attempt: Attempt, names: Sequence[str]) -> dict[str, Node]:
    nodes = {node.name: node for node in attempt.nodes.filter(name__in=names)}
    new = [Node(attempt=attempt, name=name) for name in names if name not in nodes]
    if new:
        limits.check_room(attempt.nodes.count() + len(new) - 1, limits.NODES_MAX, "nodes of this attempt")
        Node.objects.bulk_create(new)
    return nodes | {node.name: node for node in new}


def _boots(job: Job, batches: Sequence[TraceBatch]) -> dict[tuple[str, bytes], Boot]:
    """By (node name, boot id)."""
    names, boot_ids = [batch.node for batch in batches], [batch.boot_id for batch in batches]
    of_nodes = job.boots.filter(node_name__in=names)
    boots = {(boot.node_name, bytes(boot.boot_id)): boot for boot in of_nodes.filter(boot_id__in=boot_ids)}
    new = [Boot(job=job, node_name=node, boot_id=boot_id)
           for node, boot_id in zip(names, boot_ids, strict=True) if (node, boot_id) not in boots]  # fmt: skip
    if new:
        counted = of_nodes.values("node_name").annotate(n=Count("pk")).filter(n__gte=limits.BOOTS_MAX)
        for node in counted.values_list("node_name", flat=True):
            _forget_oldest(job, node)
        Boot.objects.bulk_create(new)
    return boots | {(boot.node_name, bytes(boot.boot_id)): boot for boot in new}


def _forget_oldest(job: Job, node: str) -> None:
    """An agent that crashes all day must not be shut out: the life silent for longest makes room."""
    of_node = job.boots.filter(node_name=node).order_by("-last_received_at", "-pk")
    oldest = of_node.values_list("pk", flat=True)[limits.BOOTS_MAX - 1 :]
    Boot.objects.filter(pk__in=list(oldest)).delete()


def _attempt(job: Job, arrivals: Sequence[Arrival]) -> tuple[Attempt, bool]:
    """The attempt all of them belong to, and whether it is new. Raises Apart, OverLimit."""
    attempts = list(job.attempts.order_by("-number")[:ATTEMPTS_LOOKED_AT])
    processes = _processes_by_attempt(attempts, [arrival.batch.node for arrival in arrivals])
    lives = [attempt is not attempts[0] and _lives(attempt, _received_at(arrivals[0])) for attempt in attempts]
    since = listening_since(_received_at(arrivals[0])) if attempts else None
    chosen, is_new = set[int](), False
    for arrival in arrivals:
        declared, at = declared_of(arrival.batch), _received_at(arrival)
        ours = [processes.get((attempt.pk, arrival.batch.node), set()) for attempt in attempts]
        known = [_known(*of, since, at) for of in zip(attempts, ours, lives, strict=True)]
        pk = choose_attempt(declared, known)
        if pk is None:
            attempts.insert(0, start_attempt(job, declared, at))
            lives, is_new, pk = [False, *lives], True, attempts[0].pk
        attempt = next(a for a in attempts if a.pk == pk)
        alive = lives_of(arrival.batch.rows("process")).values()
        is_alive = not alive or any(lives_now for lives_now, _ in alive)
        _adopt(attempt, declared, may_run=attempt is attempts[0] and is_alive)
        chosen.add(pk)
        if len(chosen) > 1:
            raise Apart
    return attempt, is_new


def _processes_by_attempt(attempts: list[Attempt], nodes: list[str]) -> dict[tuple[int, str], set[Process]]:
    processes: dict[tuple[int, str], set[Process]] = defaultdict(set)
    rows = Rank.objects.filter(attempt__in=attempts, node__name__in=nodes) if attempts else Rank.objects.none()
    for attempt_id, node, pid, started in rows.values_list("attempt_id", "node__name", "pid", "process_started"):
        processes[attempt_id, node].add((pid, started))
    return processes


def _known(
    attempt: Attempt, processes: set[Process], lives: bool, listening: datetime | None, at: datetime
) -> KnownAttempt:
    heard_at = max(attempt.last_received_at, listening or at)  # while nobody listened, it was not silent
    over = attempt.state == Attempt.State.ENDED or at - heard_at > OVER_AFTER
    return KnownAttempt(attempt.pk, attempt.restart_count, attempt.world_size, frozenset(processes), over, lives)


def _lives(attempt: Attempt, at: datetime) -> bool:
    is_heard = at - attempt.last_received_at < HEARD_WITHIN
    return is_heard and attempt.ranks.filter(replaced=False, gone_ns=0).exists()


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


def _processes(nodes: Iterable[Node]) -> dict[int, dict[int, int]]:
    """Node → pid → Rank.gone_ns; of two processes with one pid the one that was not replaced."""
    found: dict[int, dict[int, int]] = {node.pk: {} for node in nodes}
    ranks = Rank.objects.filter(node__in=list(found)).order_by("-replaced", "pk")
    for node_id, pid, gone_ns in ranks.values_list("node_id", "pid", "gone_ns"):
        found[node_id][pid] = gone_ns
    return found


def _members(nodes: Iterable[Node]) -> dict[int, Members]:
    """Node → its member_keys, sorted."""
    of_node: dict[int, list[list[int]]] = {node.pk: [] for node in nodes}
    rows = CommMember.objects.filter(process__node__in=list(of_node))
    for node_id, *member in rows.values_list("process__node_id", "communicator__comm_id", "comm_rank"):
        of_node[node_id].append(member)
    return {node_id: np.sort(member_keys(as_members(members))) for node_id, members in of_node.items()}
