"""Op lag: how many collectives a rank has entered less than the furthest member of its communicator, at one moment.

    node A  ──●──────●──────●        progress is told once a second by each node, at times of its own
    node B  ─────●──────●──────●     the moment: the newest that every node which is heard has told
                        │ moment     between the rows before and after it a count is taken in proportion

What is compared are "entered" counts (Mycroft §5.1, MinOp): of a rank that never entered the op all wait in, it is less. Two
rows of different moments would make every rank of a fast job look late. A rank in several communicators shows the worst.
Sends and receives are left out, as their two ends count apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from console.incidents.pictures.layers import Floats, Ints, Notes, Values, nothing_known
from ingest.window import Rows, Window
from rca.keys import grouped, mix

SECOND: Final = 1_000_000_000
TABLES: Final = ("progress",)
BACK_NS: Final = 4 * SECOND
AHEAD_NS: Final = 2 * SECOND
"""Rows from so long before the moment to so long after it are read."""
HEARD_NS: Final = 3 * SECOND
"""A node whose newest row is older than the others' by so much is not waited for."""
WORTH_OPS: Final = 4.0
"""Hosts run ahead of their GPUs by a few ops: fewer are no full colour."""
NAMED_MAX: Final = 4096
NODES_AT_ONCE: Final = 1024
ROWS_MAX: Final = 6_000_000
"""Some 200 MB of columns, and as much again while they are grouped."""
NEVER_NS: Final = -(2**61)
"""Before any time, and with the other sign after any; half as far as numbers go, so that differences are numbers."""


def op_lag(window: Window, at_ns: int, n_ranks: int, ahead_ns: Mapping[str, int]) -> Values:
    """(n_ranks,) ops at the newest common moment not after at_ns. ahead_ns: node → what its clock is ahead."""
    told = _Told.of(window, n_ranks, _ahead(window, ahead_ns))
    if told is None:
        return nothing_known(n_ranks, f"more than {ROWS_MAX:,} counts were told in these seconds, too many to compare")
    moment_ns = _moment_ns(told, at_ns, len(window.nodes))
    if not moment_ns:
        return nothing_known(n_ranks, "no progress of any rank was told in these seconds")
    return _values(window, _Members(told, moment_ns), moment_ns, n_ranks)


def _ahead(window: Window, ahead_ns: Mapping[str, int]) -> Ints:
    return np.array([ahead_ns.get(str(name), 0) for name in window.nodes["name"]], np.int64)


@dataclass(frozen=True, slots=True)
class _Told:
    """(n,) columns of the rows of ranks of the job: 32 bytes of each row's 76."""

    node: npt.NDArray[np.int32]
    rank: npt.NDArray[np.int32]
    comm_id: npt.NDArray[np.uint64]
    tick_ns: Ints
    entered: Ints

    @classmethod
    def of(cls, window: Window, n_ranks: int, ahead_ns: Ints) -> _Told | None:
        """A handful of nodes at a time, so that no more than those are there as rows. None: more than ROWS_MAX.

        ahead_ns: (N,) what each node's clock is ahead.
        """
        parts, n = [_told(window.rows_on("progress", np.arange(0)), n_ranks, ahead_ns)], 0
        for start in range(0, len(window.nodes), NODES_AT_ONCE):
            nodes = np.arange(start, min(start + NODES_AT_ONCE, len(window.nodes)))
            parts.append(_told(window.rows_on("progress", nodes), n_ranks, ahead_ns))
            n += len(parts[-1][0])
            if n > ROWS_MAX:
                return None
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _told(rows: Rows, n_ranks: int, ahead_ns: Ints) -> tuple[npt.NDArray[Any], ...]:
    kept = np.flatnonzero((rows["rank"] >= 0) & (rows["rank"] < n_ranks) & (rows["node"] >= 0))
    node = rows["node"][kept].astype(np.int32)
    tick_ns = rows["tick_ns"][kept].astype(np.int64) - ahead_ns[node]
    rank, entered = rows["rank"][kept].astype(np.int32), rows["n_enqueued"][kept].astype(np.int64)
    return node, rank, rows["comm_id"][kept].astype(np.uint64), tick_ns, entered


def _moment_ns(told: _Told, at_ns: int, n_nodes: int) -> int:
    """The newest moment up to at_ns that all nodes that are heard have told; 0 without rows."""
    newest = np.zeros(n_nodes, np.int64)
    np.maximum.at(newest, told.node, told.tick_ns)
    heard = newest[(newest > 0) & (newest >= min(int(newest.max(initial=0)), at_ns) - HEARD_NS)]
    return min(at_ns, int(heard.min())) if len(heard) else 0


class _Members:
    """Arrays of (M,), one per member of a communicator that is known at the moment: comm_id, rank, entered (NaN not told)."""

    def __init__(self, told: _Told, moment_ns: int) -> None:
        _, first, of = grouped(mix(told.comm_id, told.rank))
        self.comm_id, self.rank = told.comm_id[first], told.rank[first].astype(np.int64)
        self.entered = _at_moment(of, told.tick_ns, told.entered, moment_ns, len(first))


def _at_moment(of: Ints, ticks: Ints, counts: Ints, moment_ns: int, n: int) -> Floats:
    """(n,) each member's count at the moment. of, ticks, counts: of each row."""
    is_before = ticks <= moment_ns
    before_ns, after_ns = np.full(n, NEVER_NS), np.full(n, -NEVER_NS)
    np.maximum.at(before_ns, of[is_before], ticks[is_before])
    np.minimum.at(after_ns, of[~is_before], ticks[~is_before])
    before, after = np.zeros(n), np.zeros(n)
    for found, at_ns in ((before, before_ns), (after, after_ns)):
        told = np.flatnonzero(ticks == at_ns[of])
        found[of[told]] = counts[told]
    is_known, goes_on = moment_ns - before_ns <= HEARD_NS, after_ns < -NEVER_NS
    share = np.where(is_known & goes_on, (moment_ns - before_ns) / np.maximum(after_ns - before_ns, 1), 0.0)
    return np.where(is_known, before + share * np.where(goes_on, np.maximum(after - before, 0.0), 0.0), np.nan)


def _values(window: Window, member: _Members, moment_ns: int, n_ranks: int) -> Values:
    told = np.isfinite(member.entered)
    comm_id, rank, entered = member.comm_id[told], member.rank[told], member.entered[told]
    comms, _, of = grouped(comm_id)
    furthest = np.zeros(len(comms))
    np.maximum.at(furthest, of, entered)
    is_compared = np.bincount(of, minlength=len(comms))[of] > 1
    lag = np.round(furthest[of] - entered)
    value, worst = np.full(n_ranks, np.nan), np.full(n_ranks, -1)
    order = np.argsort(lag, kind="stable")
    order = order[is_compared[order]]
    value[rank[order]], worst[rank[order]] = lag[order], of[order]  # of a rank's communicators the worst stays
    notes = Notes(n_ranks, "")
    _say_unknown(notes, window, rank, value)
    names = _names(window)
    _say_where(notes, names, comms, value, worst)
    _say_alone(notes, names, comm_id[~is_compared], rank[~is_compared], value)
    says = "Collectives entered, compared with the furthest member of the communicator; the worst of a rank's communicators."
    return Values(value, notes.at, notes.texts, moment_ns, says, full_min=WORTH_OPS)


def _say_unknown(notes: Notes, window: Window, told: Ints, value: Floats) -> None:
    is_known = np.zeros(len(value), bool)
    ranks = window.ranks["rank"]
    is_known[ranks[(ranks >= 0) & (ranks < len(value))]] = True
    is_told = np.zeros(len(value), bool)
    is_told[told] = True
    without = np.isnan(value)
    notes.mark(np.flatnonzero(without & ~is_known), "never reported")
    notes.mark(np.flatnonzero(without & is_known & ~is_told), "how far it was is not known: nothing came from it then")
    notes.mark(np.flatnonzero(without & is_told), "of its communicators no other member was heard then")


def _names(window: Window) -> dict[int, str]:
    """Communicator → how people call it; "" of one that has a single member: there nobody is missing."""
    ids, first = np.unique(window.members["comm_id"], return_index=True)
    known = window.members[first]
    told = zip(ids.tolist(), known["name"].tolist(), known["n_ranks"].tolist(), strict=True)
    return {one: "" if n_ranks == 1 else name or f"{one:016x}" for one, name, n_ranks in told}


def _say_where(notes: Notes, names: Mapping[int, str], comms: Rows, value: Floats, worst: Ints) -> None:
    """In which communicator a rank is behind."""
    behind = np.flatnonzero(value > 0)
    for at in np.unique(worst[behind]).tolist()[:NAMED_MAX]:
        one = int(comms[at])
        notes.mark(behind[worst[behind] == at], f"in {names.get(one, f'{one:016x}')}")


def _say_alone(
    notes: Notes, names: Mapping[int, str], comm_id: npt.NDArray[np.uint64], rank: Ints, value: Floats
) -> None:
    """Who is behind nobody, though of one of its communicators no other was heard, may be behind there."""
    is_front = value[rank] == 0
    comm_id, rank = comm_id[is_front], rank[is_front]
    for one in np.unique(comm_id).tolist()[:NAMED_MAX]:
        name = names.get(one, f"{one:016x}")
        if name:
            notes.mark(rank[comm_id == one], f"but in {name} nobody else was heard")
