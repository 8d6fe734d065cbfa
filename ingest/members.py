"""Ranks and members of communicators: stores what comm rows declare, infers what they leave open.

A process is a row of Rank; which rank it is may be declared by its launcher, follow from the communicators later, or
stay unknown. When a process takes a place that another holds, the younger one has it: the older is marked `replaced`,
and roster.py decides whether so many were that this is another attempt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import F, Q, QuerySet

from ingest import limits
from ingest.attempts import Process
from ingest.infer import AXES, MEMBERSHIP, infer_coordinates, infer_ranks
from ingest.models import Attempt, CommMember, Communicator, Node, Rank
from nccl_instrument.wire import Rows, TraceBatch

_NUMBERS = ("local_rank", *AXES, "transport", "abi", "counters_seen", "library_version")
_TEXTS = ("ip", "gpu_bus_id", "gpu_uuid", "nic", "gid")


def store_members(attempt: Attempt, node: Node, batch: TraceBatch) -> bool:
    """Add what the batch's comm rows declare to `attempt`; whether a process took over another's rank.

    Rows beyond limits.py are left out and counted at the node.
    """
    rows = batch.rows("comm")
    processes, added = _store_processes(attempt, node, rows)
    communicators, sized = _store_communicators(attempt, rows)
    room = limits.MEMBERS_MAX - CommMember.objects.filter(process__node=node).count()
    joined, n_left_out = _store_memberships(communicators, processes, rows, batch.wall_ns - batch.mono_ns, room)
    if n_left_out:
        Node.objects.filter(pk=node.pk).update(rows_dropped=F("rows_dropped") + n_left_out)
    if added or joined or sized:
        Attempt.objects.filter(pk=attempt.pk).update(roster_version=F("roster_version") + 1)
    return any(rank.replaces for rank in added)


def infer_roster(attempt_id: int) -> bool:
    """Fill in ranks and coordinates that nobody declared, for the whole attempt; whether anything changed."""
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=attempt_id)
        processes = list(Rank.objects.filter(attempt_id=attempt_id, replaced=False).order_by("pk"))
        if all(_is_declared(process) and _has_coordinates(process) for process in processes):
            return False
        members = _membership(attempt_id, {process.pk: i for i, process in enumerate(processes)})
        changed = _apply(processes, members)
        if changed:
            # The ranks may be permuted: take all places away before giving them out again.
            Rank.objects.filter(pk__in=[p.pk for p in changed]).update(rank=-1)
            Rank.objects.bulk_update(changed, ["rank", "rank_inferred", "coordinates_inferred", *AXES], batch_size=1000)
            Attempt.objects.filter(pk=attempt_id).update(roster_version=F("roster_version") + 1)
        return bool(changed)


def _store_processes(attempt: Attempt, node: Node, rows: Rows) -> tuple[dict[Process, Rank], list[Rank]]:
    """Every process of the node, and those that were new."""
    known = {(rank.pid, rank.process_started): rank for rank in node.ranks.all()}
    declared: dict[Process, Any] = {}
    for row in rows:
        process = (int(row["pid"]), int(row["process_started"]))
        if process not in known and (process not in declared or declared[process]["global_rank"] < 0):
            declared[process] = row
    room = max(limits.PROCESSES_MAX - attempt.ranks.count(), 0) if declared else 0
    added = [_rank_of(attempt, node, process, row) for process, row in list(declared.items())[:room]]
    for older in _give_places(node, added, list(_holders(attempt, node, added))):
        older.save(update_fields=["replaced"])
    Rank.objects.bulk_create(added)
    return known | {(rank.pid, rank.process_started): rank for rank in added}, added


def _rank_of(attempt: Attempt, node: Node, process: Process, row: Any) -> Rank:
    new = Rank(attempt=attempt, node=node, pid=process[0], process_started=process[1])
    new.rank = max(int(row["global_rank"]), -1)
    for name in _NUMBERS:
        setattr(new, name, int(row[name]))
    for name in _TEXTS:
        setattr(new, name, text(row[name]))
    return new


def _holders(attempt: Attempt, node: Node, added: list[Rank]) -> QuerySet[Rank]:
    """Processes that may have a place one of `added` wants: its rank or, where none is declared, its GPU."""
    gpus = [rank.gpu_bus_id for rank in added if rank.rank < 0 and rank.gpu_bus_id]
    wanted = Q(rank__in=[rank.rank for rank in added if rank.rank >= 0]) | Q(node=node, gpu_bus_id__in=gpus)
    return attempt.ranks.filter(wanted, replaced=False)


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
    communicators: dict[int, Communicator], processes: dict[Process, Rank], rows: Rows, shift_ns: int, room: int
) -> tuple[bool, int]:
    """Add the memberships that are new; whether there were any, and how many rows were beyond the limits."""
    known = set(
        CommMember.objects.filter(communicator__in=communicators.values(), process__in=processes.values()).values_list(
            "communicator_id", "comm_rank", "process_id"
        )
    )
    members: dict[tuple[int, int], CommMember] = {}
    n_left_out = 0
    for row in rows:
        communicator = communicators.get(signed(int(row["comm_id"])))
        process = processes.get((int(row["pid"]), int(row["process_started"])))
        if communicator is None or process is None:
            n_left_out += 1
            continue
        if process.replaced or 0 < communicator.n_ranks <= int(row["comm_rank"]):
            continue
        if (communicator.pk, int(row["comm_rank"]), process.pk) in known:
            continue
        if len(members) >= room:
            n_left_out += 1
            continue
        joined = int(row["joined_ns"])
        members[communicator.pk, int(row["comm_rank"])] = CommMember(
            communicator=communicator,
            comm_rank=int(row["comm_rank"]),
            process=process,
            joined_ns=joined + shift_ns if joined else 0,
        )
    CommMember.objects.bulk_create(
        members.values(),
        update_conflicts=True,
        unique_fields=["communicator", "comm_rank"],
        update_fields=["process", "joined_ns"],
    )
    return bool(members), n_left_out


def _membership(attempt_id: int, index: dict[int, int]) -> Any:
    found = CommMember.objects.filter(communicator__attempt_id=attempt_id, process__in=list(index)).values_list(
        "communicator__comm_id", "comm_rank", "process_id", "communicator__n_ranks", "communicator__name"
    )
    rows = [(unsigned(comm_id), place, index[pk], n, name) for comm_id, place, pk, n, name in found]
    return np.array(rows, MEMBERSHIP)


def _apply(processes: list[Rank], members: Any) -> list[Rank]:
    before = [_inferable(process) for process in processes]
    inferred = infer_ranks(members, len(processes))
    taken = {process.rank for process in processes if _is_declared(process)}
    for process, rank in zip(processes, inferred.tolist(), strict=True):
        if not _is_declared(process):
            process.rank = rank if rank not in taken else -1
            process.rank_inferred = process.rank >= 0
    ranks = np.array([process.rank for process in processes], np.int32)
    coordinates = infer_coordinates(members, ranks)
    for i, process in enumerate(processes):
        if not _has_coordinates(process):
            for axis in AXES:
                setattr(process, axis, int(coordinates[axis][i]))
            process.coordinates_inferred = any(getattr(process, axis) >= 0 for axis in AXES)
    return [process for process, was in zip(processes, before, strict=True) if _inferable(process) != was]


def _is_declared(process: Rank) -> bool:
    return process.rank >= 0 and not process.rank_inferred


def _has_coordinates(process: Rank) -> bool:
    return not process.coordinates_inferred and any(getattr(process, axis) >= 0 for axis in AXES)


def _inferable(process: Rank) -> tuple[Any, ...]:
    axes = (getattr(process, axis) for axis in AXES)
    return (process.rank, process.rank_inferred, process.coordinates_inferred, *axes)


def signed(comm_id: int) -> int:
    """A communicator's 64-bit hash as the bigint with the same bits."""
    return comm_id - 2**64 if comm_id >= 2**63 else comm_id


def unsigned(comm_id: int) -> int:
    """Back from the database's bigint."""
    return comm_id % 2**64


def text(raw: bytes) -> str:
    """Printable text of a fixed-size column, whatever the bytes."""
    return "".join(c for c in bytes(raw).decode(errors="replace") if c.isprintable())
