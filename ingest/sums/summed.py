"""Roll-ups over longer times: summed into steps by the database, and with their bins where quantiles are asked for.

read.py answers in the roll-ups' own 10 s for a page that shows half an hour; here days are asked about, so the database adds up.
Every question has a limit on the roll-ups it may read, and says how many they would be.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from django.db.models import F, Max, QuerySet, Sum

from ingest.models import Communicator, OpRollup
from ingest.sums.rollup import BIN, BUCKET_NS, N_BINS, bus_share, quantiles_ns

ROWS_MAX: Final = 400_000
BINNED_ROWS_MAX: Final = 60_000


class TooMuch(Exception):
    """n: roll-ups that would have to be read; most: what may be."""

    def __init__(self, n: int, most: int) -> None:
        super().__init__(f"This asks about {n:,} roll-ups; at most {most:,} are read at once.")


@dataclass(frozen=True, slots=True)
class Asked:
    """Roll-ups of an attempt in [start_ns, end_ns), of these communicators (as stored) and kinds of op; None for all.

    step_ns: a multiple of 10 s; 0 for one sum over all the time. by_comm: whether communicators are kept apart.
    """

    attempt_id: int
    start_ns: int
    end_ns: int
    step_ns: int = 0
    comm_ids: Collection[int] | None = None
    funcs: Collection[int] | None = None
    by_comm: bool = True


@dataclass(frozen=True, slots=True)
class Summed:
    """What finished in [at_ns, at_ns + step). comm_id: as stored, 0 where communicators are added up. bins: (N_BINS,) counts,
    empty where they were not asked for. bus_bytes: bytes_timed as NCCL's tests count them; bus_ns: the time of those of which
    that can be said."""

    comm_id: int
    func: int
    at_ns: int
    n_ops: int
    n_timed: int
    bytes: int
    bytes_timed: int
    duration_sum_ns: int
    duration_max_ns: int
    bus_bytes: float = 0.0
    bus_ns: int = 0
    bins: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def quantile_ns(self, q: float) -> int | None:
        """None where no end is known or bins were not asked for."""
        found = np.flatnonzero(self.bins) if len(self.bins) else np.zeros(0, np.int64)
        if not len(found):
            return None
        packed = np.zeros(len(found), [("bin", "<u2"), ("n", "<i8")])
        packed["bin"], packed["n"] = found, self.bins[found]
        return quantiles_ns(packed, (q,), self.duration_max_ns)[0]

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes of the calls over the time they took."""
        return self.bytes_timed * 1e9 / self.duration_sum_ns if self.duration_sum_ns else None

    @property
    def bus_bytes_per_s(self) -> float | None:
        """The same as NCCL's tests state it, comparable with a link's speed."""
        return self.bus_bytes * 1e9 / self.bus_ns if self.bus_ns else None


def read_summed(asked: Asked, *, with_bins: bool = False) -> list[Summed]:
    """By time, communicator and kind; times are told from the whole ten seconds in which it begins. Raises TooMuch."""
    asked = replace(asked, start_ns=asked.start_ns // BUCKET_NS * BUCKET_NS)
    rows, most = _rows(asked), BINNED_ROWS_MAX if with_bins else ROWS_MAX
    if (n := rows.count()) > most:
        raise TooMuch(n, most)
    at: Any = F("bucket_ns") - (F("bucket_ns") - asked.start_ns) % asked.step_ns if asked.step_ns else None
    keyed = rows.annotate(at_ns=at) if at is not None else rows
    key = ("comm_id", "func", *(("at_ns",) if at is not None else ()))
    sums = {name: Sum(name) for name in ("n_ops", "n_timed", "bytes", "bytes_timed", "duration_sum_ns")}
    found = keyed.values(*key).annotate(
        longest=Max("duration_max_ns"), **{f"s_{name}": one for name, one in sums.items()}
    )
    sizes = dict(Communicator.objects.filter(attempt_id=asked.attempt_id).values_list("comm_id", "n_ranks"))
    bins = _bins(rows, asked) if with_bins else {}
    made = [_summed(row, asked, sizes.get(row["comm_id"], 0)) for row in found]
    return sorted(_added(made, asked, bins), key=lambda one: (one.at_ns, one.comm_id, one.func))


def funcs_of(attempt_id: int, start_ns: int, end_ns: int) -> list[int]:
    """Kinds of op that finished in this time."""
    return sorted(_rows(Asked(attempt_id, start_ns, end_ns)).order_by().values_list("func", flat=True).distinct())


def _rows(asked: Asked) -> QuerySet[OpRollup]:
    start_ns = asked.start_ns // BUCKET_NS * BUCKET_NS
    rows = OpRollup.objects.filter(attempt_id=asked.attempt_id, bucket_ns__gte=start_ns, bucket_ns__lt=asked.end_ns)
    if asked.comm_ids is not None:
        rows = rows.filter(comm_id__in=asked.comm_ids)
    return rows if asked.funcs is None else rows.filter(func__in=asked.funcs)


def _summed(row: dict[str, Any], asked: Asked, n_ranks: int) -> Summed:
    share = bus_share(row["func"], n_ranks)
    timed, took = int(row["s_bytes_timed"]), int(row["s_duration_sum_ns"])
    return Summed(
        row["comm_id"], row["func"], int(row.get("at_ns", asked.start_ns)), int(row["s_n_ops"]), int(row["s_n_timed"]),
        int(row["s_bytes"]), timed, took, int(row["longest"]),
        0.0 if share is None else timed * share, 0 if share is None else took,
    )  # fmt: skip


def _bins(rows: QuerySet[OpRollup], asked: Asked) -> dict[tuple[int, int, int], npt.NDArray[np.int64]]:
    """(communicator or 0, kind, step) → how many ops took how long."""
    found: dict[tuple[int, int, int], npt.NDArray[np.int64]] = {}
    for comm_id, func, bucket_ns, raw in rows.values_list("comm_id", "func", "bucket_ns", "bins").iterator():
        at_ns = bucket_ns - (bucket_ns - asked.start_ns) % asked.step_ns if asked.step_ns else asked.start_ns
        counted = np.frombuffer(raw, BIN)
        sums = found.setdefault((comm_id if asked.by_comm else 0, func, at_ns), np.zeros(N_BINS, np.int64))
        np.add.at(sums, counted["bin"], counted["n"])
    return found


def _added(made: list[Summed], asked: Asked, bins: dict[tuple[int, int, int], npt.NDArray[np.int64]]) -> list[Summed]:
    """Communicators added up where they are not kept apart, each with its bins."""
    sums: dict[tuple[int, int, int], list[Summed]] = {}
    for one in made:
        sums.setdefault((one.comm_id if asked.by_comm else 0, one.func, one.at_ns), []).append(one)
    none = np.zeros(0, np.int64)
    return [_one(key, same, bins.get(key, none)) for key, same in sums.items()]


def _one(key: tuple[int, int, int], same: list[Summed], bins: npt.NDArray[np.int64]) -> Summed:
    comm_id, func, at_ns = key
    names = ("n_ops", "n_timed", "bytes", "bytes_timed", "duration_sum_ns", "bus_bytes", "bus_ns")
    sums = {name: sum(getattr(one, name) for one in same) for name in names}
    return Summed(
        comm_id=comm_id,
        func=func,
        at_ns=at_ns,
        duration_max_ns=max(one.duration_max_ns for one in same),
        bins=bins,
        **sums,
    )
