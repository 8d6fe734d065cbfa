"""Flow lanes: how far each flow had come at every tick, for culprits and the first who wait.

A pure function of a window. A lane is a flow: a rank's communicator, channel, peer and direction. Ranks whose ops stay
inside their node have no flows; they are listed as not visible instead of being left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.window import Rows, Window
from nccl_instrument.tables import DIRECTIONS, FUNCS, TRANSPORTS

TABLES: Final = ("flow",)
LANES_MAX: Final = 64
LANES_ASKED_MAX: Final = 1024
TICKS_MAX: Final = 600
LANE: Final = ("comm_id", "channel", "peer", "direction")


@dataclass(frozen=True, slots=True)
class Lane:
    """One flow over time; the arrays are parallel. posted … done: the four counters in the order a chunk passes them.

    Of a receiving flow `ready` is received, `transmitted` flushed and `done` consumed.
    """

    id: str
    rank: int
    peer_rank: int
    comm_id: str
    comm_name: str
    channel: int
    direction: str
    func: str
    op: int
    transport: str
    total_chunks: int
    t_ns: list[int]
    posted: list[int]
    ready: list[int]
    transmitted: list[int]
    done: list[int]
    stuck_ms: list[int]
    ops: list[int]


@dataclass(frozen=True, slots=True)
class NotVisible:
    rank: int
    comm_name: str
    why: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes of [from_ns, to_ns). newest_ns: end of what is known, perhaps later. omitted: flows beyond the limit, and ranks."""

    from_ns: int
    to_ns: int
    newest_ns: int
    first_symptom_ns: int | None
    triggered_ns: int | None
    lanes: list[Lane]
    omitted: int
    not_visible: list[NotVisible]


def make_lanes(
    window: Window, ranks: Sequence[int], first_symptom_ns: int, triggered_ns: int, limit: int = LANES_MAX
) -> Lanes:
    """At most `limit` lanes of these ranks' flows, in the order of `ranks`; of a rank, what is stuck in mid-op comes first."""
    names = _comm_names(window)
    lanes: list[Lane] = []
    omitted = 0
    for rank in dict.fromkeys(ranks):
        flows = _flows_of(window.rows("flow"), rank)
        room = limit - len(lanes)
        lanes += [_lane(window, rows, names) for rows in flows[:room]]
        omitted += max(len(flows) - room, 0)
    return Lanes(
        window.start_ns, window.end_ns, window.end_ns, first_symptom_ns, triggered_ns,
        lanes, omitted, _not_visible(window, ranks),
    )  # fmt: skip


def _flows_of(flow: Rows, rank: int) -> list[Rows]:
    """The rank's flows, each ordered by tick; of several ops in progress on one the oldest, which holds the others."""
    rows = flow[flow["rank"] == rank]
    if not len(rows):
        return []
    rows = rows[np.lexsort((rows["op"], rows["tick_ns"], *(rows[name] for name in reversed(LANE))))]
    rows = rows[_changes(rows, (*LANE, "tick_ns"))]
    flows = np.split(rows, np.flatnonzero(_changes(rows, LANE))[1:])
    return sorted((one for one in flows if len(one)), key=_telling_first)


def _changes(rows: Rows, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """(n,) mask of the rows that differ from the row above in one of the columns, the first row included."""
    changed = np.ones(len(rows), np.bool_)
    changed[1:] = False
    for name in columns:
        changed[1:] |= rows[name][1:] != rows[name][:-1]
    return changed


def _telling_first(rows: Rows) -> tuple[bool, int]:
    """Flows that began and rest come first, the longest stuck before others; those not begun tell the least."""
    last = rows[-1]
    return bool(last["counters"][0] == 0), -int(last["stuck_ns"])


def _lane(window: Window, rows: Rows, names: dict[int, str]) -> Lane:
    rows = rows[-TICKS_MAX:]
    last = rows[-1]
    comm_id, direction = int(last["comm_id"]), DIRECTIONS[int(last["direction"])]
    counters = rows["counters"]
    return Lane(
        id=f"{last['rank']}-{comm_id:016x}-{last['channel']}-{last['peer']}-{direction}",
        rank=int(last["rank"]),
        peer_rank=_global_rank(window, comm_id, int(last["peer"])),
        comm_id=f"{comm_id:016x}",
        comm_name=names.get(comm_id, ""),
        channel=int(last["channel"]),
        direction=direction,
        func=FUNCS[int(last["func"])],
        op=int(last["op"]),
        transport=TRANSPORTS[int(last["transport"])],
        total_chunks=int(last["total_chunks"]),
        t_ns=rows["tick_ns"].tolist(),
        posted=counters[:, 0].tolist(),
        ready=counters[:, 1].tolist(),
        transmitted=counters[:, 2].tolist(),
        done=counters[:, 3].tolist(),
        stuck_ms=(rows["stuck_ns"] // 1_000_000).tolist(),
        ops=rows["op"].tolist(),
    )


def _comm_names(window: Window) -> dict[int, str]:
    return {int(member["comm_id"]): str(member["name"]) for member in window.members}


def _global_rank(window: Window, comm_id: int, comm_rank: int) -> int:
    members = window.members
    found: Any = members["rank"][(members["comm_id"] == np.uint64(comm_id)) & (members["comm_rank"] == comm_rank)]
    return int(found[0]) if len(found) else -1


def _not_visible(window: Window, ranks: Sequence[int]) -> list[NotVisible]:
    """Communicators of these ranks whose ops never leave the node."""
    members = window.members[np.isin(window.members["rank"], list(ranks)) & (window.members["n_nodes"] == 1)]
    why = "inside the node: NCCL reports no progress for shared memory and NVLink"
    return [NotVisible(int(one["rank"]), str(one["name"]), why) for one in members[:LANES_MAX]]
