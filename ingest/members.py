"""Ranks and members of communicators: stores what comm rows declare, infers what they leave open.

A process is a row of Rank; which rank it is may be declared by its launcher, follow from the communicators later, or
stay unknown. When a process takes a place that another holds, the younger one has it: the older is marked `replaced`,
and roster.py decides whether so many were that this is another attempt.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from django.db import transaction
from django.db.models import F

from ingest.attempts import Process
from ingest.infer import AXES, MEMBERSHIP, infer_coordinates, infer_ranks
from ingest.models import Attempt, CommMember, Communicator, Node, Rank
from nccl_instrument.wire import Rows, TraceBatch

COMMUNICATORS_MAX: Final = 100_000
"""Of one attempt; later ones are not kept, and their rows show rank -1."""

_NUMBERS = ("local_rank", *AXES, "transport", "abi", "counters_seen", "library_version")
_TEXTS = ("ip", "gpu_bus_id", "gpu_uuid", "nic", "gid")


def store_members(attempt: Attempt, node: Node, batch: TraceBatch) -> None:
    """Add the processes, communicators and memberships of the batch's comm rows to `attempt`."""
    rows = batch.rows("comm")
    n_before = (attempt.ranks.count(), CommMember.objects.filter(communicator__attempt=attempt).count())
    processes = _store_processes(attempt, node, rows)
    communicators = _store_communicators(attempt, rows)
    _store_memberships(communicators, processes, rows, batch.wall_ns - batch.mono_ns)
    n_after = (attempt.ranks.count(), CommMember.objects.filter(communicator__attempt=attempt).count())
    if n_after != n_before:
        Attempt.objects.filter(pk=attempt.pk).update(roster_version=F("roster_version") + 1)


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


def _store_processes(attempt: Attempt, node: Node, rows: Rows) -> dict[Process, Rank]:
    known = {(rank.pid, rank.process_started): rank for rank in node.ranks.all()}
    declared: dict[Process, Any] = {}
    for row in rows:
        process = (int(row["pid"]), int(row["process_started"]))
        if process not in declared or declared[process]["global_rank"] < 0:
            declared[process] = row
    for process, row in declared.items():
        if process not in known:
            known[process] = _add_process(attempt, node, process, row)
    return known


def _add_process(attempt: Attempt, node: Node, process: Process, row: Any) -> Rank:
    new = Rank(attempt=attempt, node=node, pid=process[0], process_started=process[1])
    new.rank = max(int(row["global_rank"]), -1)
    for name in _NUMBERS:
        setattr(new, name, int(row[name]))
    for name in _TEXTS:
        setattr(new, name, text(row[name]))
    held = _holder(attempt, node, new)
    if held is not None:
        younger = held.node_id != node.pk or held.process_started <= new.process_started
        new.replaces, new.replaced = younger, not younger
        if younger:
            held.replaced = True
            held.save(update_fields=["replaced"])
    new.save()
    return new


def _holder(attempt: Attempt, node: Node, new: Rank) -> Rank | None:
    """The process that has the place `new` wants: its rank or, where none is declared, its GPU."""
    current = attempt.ranks.filter(replaced=False)
    if new.rank >= 0:
        return current.filter(rank=new.rank).first()
    return current.filter(node=node, gpu_bus_id=new.gpu_bus_id).first() if new.gpu_bus_id else None


def _store_communicators(attempt: Attempt, rows: Rows) -> dict[int, Communicator]:
    if Communicator.objects.filter(attempt=attempt).count() < COMMUNICATORS_MAX:
        first_rows = rows[np.unique(rows["comm_id"], return_index=True)[1]]
        Communicator.objects.bulk_create(
            [
                Communicator(
                    attempt=attempt,
                    comm_id=signed(int(row["comm_id"])),
                    n_ranks=int(row["n_ranks"]),
                    n_nodes=int(row["n_nodes"]),
                    name=text(row["name"]),
                )
                for row in first_rows
            ],
            ignore_conflicts=True,
        )
    ids = [signed(comm_id) for comm_id in np.unique(rows["comm_id"]).tolist()]
    return {c.comm_id: c for c in Communicator.objects.filter(attempt=attempt, comm_id__in=ids)}


def _store_memberships(
    communicators: dict[int, Communicator], processes: dict[Process, Rank], rows: Rows, shift_ns: int
) -> None:
    members: dict[tuple[int, int], CommMember] = {}
    for row in rows:
        communicator = communicators.get(signed(int(row["comm_id"])))
        process = processes[int(row["pid"]), int(row["process_started"])]
        if communicator is None or process.replaced or int(row["comm_rank"]) >= communicator.n_ranks:
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
