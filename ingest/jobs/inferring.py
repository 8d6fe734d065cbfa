"""Fills in the ranks and coordinates that nobody declared, for a whole attempt (infer.py says which they are).

A look costs as much as the attempt is large, so it is taken only of attempts whose ranks or members have changed since
the last one (`Attempt.to_infer`, written together with them: what a killed process did not infer, another does).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction
from django.db.models import F

from ingest.jobs.infer import AXES, MEMBERSHIP, infer_coordinates, infer_ranks
from ingest.jobs.members import unsigned
from ingest.models import Attempt, CommMember, Rank

_COLUMNS: Final = ("pk", "rank", "rank_inferred", "coordinates_inferred", *AXES)
_PROCESS: Final = np.dtype(
    [("pk", "<i8"), ("rank", "<i4"), ("rank_inferred", "?"), ("coordinates_inferred", "?")]
    + [(axis, "<i2") for axis in AXES]
)
Processes = npt.NDArray[np.void]


def attempts_to_infer() -> list[int]:
    """Attempts whose ranks or members have changed since they were last inferred."""
    return list(Attempt.objects.filter(to_infer=True).values_list("pk", flat=True)[:1000])


def infer_roster(attempt_id: int) -> bool:
    """Infer what is open if it has not been done since the roster last changed; whether anything is other than before."""
    with transaction.atomic():
        waiting = Attempt.objects.filter(pk=attempt_id, to_infer=True)
        if not waiting.select_for_update(no_key=True).exists():
            return False  # done by another process, or deleted
        found = Rank.objects.filter(attempt_id=attempt_id, replaced=False).order_by("pk").values_list(*_COLUMNS)
        processes = np.array(list(found), _PROCESS)
        changed = processes[:0]
        if not (_is_declared(processes) & _has_coordinates(processes)).all():
            after = _inferred(processes, _membership(attempt_id, processes["pk"]))
            changed = after[after != processes]
            _write(changed)
        waiting.update(to_infer=False, roster_version=F("roster_version") + (1 if len(changed) else 0))
        return bool(len(changed))


def _inferred(processes: Processes, members: npt.NDArray[np.void]) -> Processes:
    """The processes with what infer.py says of those that declare nothing; a declared rank is nobody else's."""
    after, is_open = processes.copy(), ~_is_declared(processes)
    ranks = infer_ranks(members, len(processes))
    ranks[np.isin(ranks, processes["rank"][~is_open])] = -1
    after["rank"][is_open], after["rank_inferred"][is_open] = ranks[is_open], ranks[is_open] >= 0
    coordinates, is_open = infer_coordinates(members, after["rank"]), ~_has_coordinates(processes)
    for axis in AXES:
        after[axis][is_open] = coordinates[axis][is_open]
    after["coordinates_inferred"][is_open] = _any_axis(after)[is_open]
    return after


def _is_declared(processes: Processes) -> npt.NDArray[np.bool_]:
    declared: npt.NDArray[np.bool_] = (processes["rank"] >= 0) & ~processes["rank_inferred"]
    return declared


def _has_coordinates(processes: Processes) -> npt.NDArray[np.bool_]:
    return ~processes["coordinates_inferred"] & _any_axis(processes)


def _any_axis(processes: Processes) -> npt.NDArray[np.bool_]:
    return np.logical_or.reduce([processes[axis] >= 0 for axis in AXES])


def _membership(attempt_id: int, pks: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    found = CommMember.objects.filter(communicator__attempt_id=attempt_id, process__replaced=False).values_list(
        "communicator__comm_id", "comm_rank", "process_id", "communicator__n_ranks", "communicator__name"
    )
    index = {pk: i for i, pk in enumerate(pks.tolist())}
    rows = [(unsigned(comm_id), at, index[pk], n, name) for comm_id, at, pk, n, name in found if pk in index]
    return np.array(rows, MEMBERSHIP)


def _write(changed: Processes) -> None:
    """Ranks may be permuted: all places are taken away before they are given out again."""
    columns: list[Any] = [changed[name].tolist() for name in _COLUMNS]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ingest_rank SET rank = -1 WHERE id = ANY(%s) AND rank >= 0", [columns[0]])
        cursor.execute(_UPDATE, columns)


_UPDATE: Final = f"""
UPDATE ingest_rank r SET rank = g.rank, rank_inferred = g.rank_inferred, coordinates_inferred = g.coordinates_inferred,
    {", ".join(f"{axis} = g.{axis}" for axis in AXES)}
FROM unnest(%s::bigint[], %s::int[], %s::bool[], %s::bool[], {", ".join("%s::int2[]" for _ in AXES)})
    AS g({", ".join(("id", *_COLUMNS[1:]))})
WHERE r.id = g.id
"""
