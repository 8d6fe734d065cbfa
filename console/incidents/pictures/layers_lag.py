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
from typing import Final

import numpy as np

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


def op_lag(window: Window, at_ns: int, n_ranks: int, ahead_ns: Mapping[str, int]) -> Values:
    """(n_ranks,) ops at the newest common moment not after at_ns. ahead_ns: node → what its clock is ahead."""
    rows = window.rows("progress")
    rows = rows[(rows["rank"] >= 0) & (rows["rank"] < n_ranks) & (rows["node"] >= 0)]
    tick_ns = rows["tick_ns"] - _ahead(window, ahead_ns)[rows["node"]]
    moment_ns = _moment_ns(rows, tick_ns, at_ns, len(window.nodes))
    if not moment_ns:
        return nothing_known(n_ranks, "no progress of any rank was told in these seconds")
    member = _Members(rows, tick_ns, moment_ns)
    return _values(window, member, moment_ns, n_ranks)


def _ahead(window: Window, ahead_ns: Mapping[str, int]) -> Ints:
    return np.array([ahead_ns.get(str(name), 0) for name in window.nodes["name"]], np.int64)


def _moment_ns(rows: Rows, tick_ns: Ints, at_ns: int, n_nodes: int) -> int:
    """The newest moment up to at_ns that all nodes that are heard have told; 0 without rows."""
    newest = np.zeros(n_nodes, np.int64)
    np.maximum.at(newest, rows["node"], tick_ns)
    heard = newest[(newest > 0) & (newest >= min(int(newest.max(initial=0)), at_ns) - HEARD_NS)]
    return min(at_ns, int(heard.min())) if len(heard) else 0


class _Members:
    """Arrays of (M,), one per member of a communicator that is known at the moment: comm_id, rank, entered (NaN not told)."""

    def __init__(self, rows: Rows, tick_ns: Ints, moment_ns: int) -> None:
        order = np.argsort(tick_ns, kind="stable")
        _, first, of = grouped(mix(rows["comm_id"], rows["rank"])[order])
        ticks, counts = tick_ns[order], rows["n_enqueued"][order].astype(np.float64)
        self.comm_id, self.rank = rows["comm_id"][order][first], rows["rank"][order][first].astype(np.int64)
        self.entered = _at_moment(of, ticks, counts, moment_ns, len(first))


def _at_moment(of: Ints, ticks: Ints, counts: Floats, moment_ns: int, n: int) -> Floats:
    """(n,) each member's count at the moment. of, ticks, counts: rows in order of time."""
    is_before = ticks <= moment_ns
    before, after = np.full(n, -1), np.full(n, -1)
    at = np.flatnonzero(is_before)
    before[of[at]] = at  # the last, newest, one stays
    at = np.flatnonzero(~is_before)[::-1]
    after[of[at]] = at
    known, goes_on = before >= 0, (before >= 0) & (after >= 0)
    known &= moment_ns - ticks[before] <= HEARD_NS
    found = np.where(known, counts[before], np.nan)
    span = np.maximum(ticks[after] - ticks[before], 1)
    share = np.where(goes_on, (moment_ns - ticks[before]) / span, 0.0)
    return found + share * np.where(goes_on, np.maximum(counts[after] - counts[before], 0.0), 0.0)


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


def _say_alone(notes: Notes, names: Mapping[int, str], comm_id: Rows, rank: Ints, value: Floats) -> None:
    """Who is behind nobody, though of one of its communicators no other was heard, may be behind there."""
    is_front = value[rank] == 0
    comm_id, rank = comm_id[is_front], rank[is_front]
    for one in np.unique(comm_id).tolist()[:NAMED_MAX]:
        name = names.get(one, f"{one:016x}")
        if name:
            notes.mark(rank[comm_id == one], f"but in {name} nobody else was heard")
