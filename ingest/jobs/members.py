"""Ranks and members of communicators as comm rows declare them; inferring.py adds what they leave open.

A row with comm_id 0 declares a process alone: one whose communicators nobody traces.

A process is a row of Rank; which rank it is may be declared by its launcher, follow from the communicators later, or
stay unknown. When a process takes a place that another holds, the younger one has it: the older is marked `replaced`,
and takeover.py decides whether so many were that this is another attempt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.db import connection
from django.db.models import F, Q, QuerySet

from ingest.door import limits
from ingest.jobs.infer import AXES
from ingest.jobs.known_boots import DIGEST_BYTES, TABLES_KEPT, digest_of
from ingest.jobs.takeover import note_change
from ingest.models import Attempt, CommMember, Communicator, Node, Rank
from nccl_instrument.wire import Rows

_NUMBERS = ("local_rank", *AXES, "transport", "abi", "counters_seen", "library_version")
_TEXTS = ("ip", "gpu_bus_id", "gpu_uuid", "nic", "gid")

Place = tuple[int, int, int]
"""(node id, pid, process_started): whose process it is."""


@dataclass(frozen=True, slots=True)
class Said:
    """The comm rows of a batch of one node; adding shift_ns makes their times unix ns."""

    node: Node
    rows: Rows
    shift_ns: int


class TakenPlaces(Exception):
    """Processes of several nodes want places that are taken: who gets them is decided for one node after the other."""


def store_members(attempt: Attempt, said: Sequence[Said]) -> bool:
    """Add what these comm rows of different nodes declare to `attempt`; whether a process took over another's rank.

    Rows beyond limits.py are left out and counted at the node. Raises TakenPlaces.
    """
    processes, added = _store_processes(attempt, said)
    of_members = [replace(one, rows=one.rows[one.rows["comm_id"] != 0]) for one in said]
    communicators, sized = _store_communicators(attempt, np.concatenate([one.rows for one in of_members]))
    joined, left_out = _store_memberships(communicators, processes, of_members)
    for node_id, n in left_out.items():
        Node.objects.filter(pk=node_id).update(rows_dropped=F("rows_dropped") + n)
    if added or joined or sized:
        note_change([attempt.pk])
    with connection.cursor() as cursor:
        nodes, digests = [one.node.pk for one in said], [digest_of(one.rows) for one in said]
        clusters, racks = ([text(one.rows[name][-1]) for one in said] for name in ("cluster", "rack"))
        cursor.execute(_NOTE_TABLES, [nodes, digests, clusters, racks, TABLES_KEPT * DIGEST_BYTES])
    return any(rank.replaces for rank in added)


_NOTE_TABLES = """
WITH heard AS (
    SELECT n.id, g.digest, g.cluster, g.rack
    FROM unnest(%s::bigint[], %s::bytea[], %s::text[], %s::text[]) AS g(id, digest, cluster, rack)
    JOIN ingest_node n ON n.id = g.id ORDER BY n.id FOR NO KEY UPDATE OF n
)
UPDATE ingest_node n SET comm_tables = substr(heard.digest || n.comm_tables, 1, %s), cluster = heard.cluster, rack = heard.rack
FROM heard WHERE n.id = heard.id
"""
"""Newest first. Commits lock their nodes by id too: in another order the two could wait for each other."""


def _store_processes(attempt: Attempt, said: Sequence[Said]) -> tuple[dict[Place, Rank], list[Rank]]:
    """Every process of the nodes, and those that were new."""
    nodes = [one.node for one in said]
    known = {(rank.node_id, rank.pid, rank.process_started): rank for rank in Rank.objects.filter(node__in=nodes)}
    declared: dict[Place, tuple[Node, Any]] = {}
    for one in said:
        for row in one.rows:
            place = (one.node.pk, int(row["pid"]), int(row["process_started"]))
            if place not in known and (place not in declared or declared[place][1]["global_rank"] < 0):
                declared[place] = one.node, row
    room = max(limits.PROCESSES_MAX - attempt.ranks.count(), 0) if declared else 0
    added = [_rank_of(attempt, *of) for of in list(declared.values())[:room]]
    holders = list(_holders(attempt, nodes, added)) if added else []
    if len(said) == 1:
        for older in _give_places(nodes[0], added, holders):
            older.save(update_fields=["replaced"])
    elif holders or _wanted_twice(added):
        raise TakenPlaces
    Rank.objects.bulk_create(added)
    return known | {(rank.node_id, rank.pid, rank.process_started): rank for rank in added}, added


def _rank_of(attempt: Attempt, node: Node, row: Any) -> Rank:
    new = Rank(attempt=attempt, node=node, pid=int(row["pid"]), process_started=int(row["process_started"]))
    new.rank = max(int(row["global_rank"]), -1)
    for name in _NUMBERS:
        setattr(new, name, int(row[name]))
    for name in _TEXTS:
        setattr(new, name, text(row[name]))
    return new


def _holders(attempt: Attempt, nodes: list[Node], added: list[Rank]) -> QuerySet[Rank]:
    """Processes that may have a place one of `added` wants: its rank or, where none is declared, its GPU."""
    gpus = [rank.gpu_bus_id for rank in added if rank.rank < 0 and rank.gpu_bus_id]
    wanted = Q(rank__in=[rank.rank for rank in added if rank.rank >= 0]) | Q(node__in=nodes, gpu_bus_id__in=gpus)
    return attempt.ranks.filter(wanted, replaced=False)


def _wanted_twice(added: list[Rank]) -> bool:
    return any(n > 1 for n in Counter(rank.rank for rank in added if rank.rank >= 0).values())


def _give_places(node: Node, added: list[Rank], holders: list[Rank]) -> list[Rank]:
    """Let the younger of two processes have the place both want; the holders that lost theirs.

    Two processes of one batch may claim the same rank, too (a launcher's mistake): the first keeps it.
    """
    lost = []
    by_rank = {holder.rank: holder for holder in holders if holder.rank >= 0}
    by_gpu = {holder.gpu_bus_id: holder for holder in holders if holder.node_id == node.pk}
    for new in added:
        held = by_rank.get(new.rank) if new.rank >= 0 else by_gpu.get(new.gpu_bus_id)
        if held is not None:
            younger = held.pk is not None and (held.node_id != node.pk or held.process_started <= new.process_started)
            new.replaces, new.replaced = younger, not younger
            if younger:
                held.replaced = True
                lost.append(held)
        if new.rank >= 0 and not new.replaced:
            by_rank[new.rank] = new
    return lost


def _store_communicators(attempt: Attempt, rows: Rows) -> tuple[dict[int, Communicator], bool]:
    """The communicators of the rows that are kept, and whether the size of one has become known."""
    largest_first = rows[np.argsort(-np.maximum(rows["n_ranks"], 0), kind="stable")]
    first_rows = largest_first[np.unique(largest_first["comm_id"], return_index=True)[1]]
    kept = Communicator.objects.filter(attempt=attempt)
    of_rows = kept.filter(comm_id__in=[signed(comm_id) for comm_id in first_rows["comm_id"].tolist()])
    found = {c.comm_id: c for c in of_rows}
    new = [row for row in first_rows if signed(int(row["comm_id"])) not in found]
    room = max(limits.COMMUNICATORS_MAX - kept.count(), 0) if new else 0
    Communicator.objects.bulk_create([_communicator_of(attempt, row) for row in new[:room]], ignore_conflicts=True)
    sized = []
    for row in first_rows:
        known = found.get(signed(int(row["comm_id"])))
        if known is not None and known.n_ranks == 0 < row["n_ranks"]:
            known.n_ranks = int(row["n_ranks"])
            sized.append(known)
    Communicator.objects.bulk_update(sized, ["n_ranks"], batch_size=1000)
    return ({c.comm_id: c for c in of_rows.all()} if new else found), bool(sized)


def _communicator_of(attempt: Attempt, row: Any) -> Communicator:
    return Communicator(
        attempt=attempt,
        comm_id=signed(int(row["comm_id"])),
        n_ranks=max(int(row["n_ranks"]), 0),
        n_nodes=int(row["n_nodes"]),
        name=text(row["name"]),
    )


def _store_memberships(
    communicators: dict[int, Communicator], processes: dict[Place, Rank], said: Sequence[Said]
) -> tuple[bool, Counter[int]]:
    """Add the memberships that are new; whether there were any, and node → rows beyond the limits."""
    known: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
    of_nodes = CommMember.objects.filter(process__node__in=[one.node for one in said])
    for node_id, *held in of_nodes.values_list("process__node_id", "communicator_id", "comm_rank", "process_id"):
        known[node_id].add((held[0], held[1], held[2]))
    members: dict[tuple[int, int], CommMember] = {}
    left_out: Counter[int] = Counter()
    for one in said:
        n_before, room = len(members), limits.MEMBERS_MAX - len(known[one.node.pk])
        for row in one.rows:
            communicator = communicators.get(signed(int(row["comm_id"])))
            process = processes.get((one.node.pk, int(row["pid"]), int(row["process_started"])))
            place = int(row["comm_rank"])
            if communicator is None or process is None:
                left_out[one.node.pk] += 1
                continue
            if process.replaced or 0 < communicator.n_ranks <= place:
                continue
            if (communicator.pk, place, process.pk) in known[one.node.pk]:
                continue
            if len(members) - n_before >= room:
                left_out[one.node.pk] += 1
                continue
            member = CommMember(communicator=communicator, comm_rank=place, process=process)
            member.joined_ns = int(row["joined_ns"]) + one.shift_ns if row["joined_ns"] else 0
            members[communicator.pk, place] = member
    CommMember.objects.bulk_create(
        members.values(),
        update_conflicts=True,
        unique_fields=["communicator", "comm_rank"],
        update_fields=["process", "joined_ns"],
    )
    return bool(members), left_out


def signed(comm_id: int) -> int:
    """A communicator's 64-bit hash as the bigint with the same bits."""
    return comm_id - 2**64 if comm_id >= 2**63 else comm_id


def unsigned(comm_id: int) -> int:
    """Back from the database's bigint."""
    return comm_id % 2**64


def text(raw: bytes) -> str:
    """Printable text of a fixed-size column, whatever the bytes."""
    return "".join(c for c in bytes(raw).decode(errors="replace") if c.isprintable())
