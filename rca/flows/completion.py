"""What had been sent when all stood still (Pulse §6.2, communication fail-stop): volumes of the op that stopped first.

    ring:   0 ══▶ 1 ═▶ 2 ══▶ 3      2's ways have moved least, and everybody else runs dry behind them: 2
    sends:  0 ─▶ 2, 2 ─▶ 1 open, all others done: whoever all open ones touch

Of a built-in collective the least volume counts, of its own expected one (Appendix B), connection by connection: whoever
the two least have in common. Of sends and receives the completion status: actual against expected volume of each. Agents tell
once what an op in progress had moved when nothing came any more; whose op they have not told of is not known: nobody is named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.flows.expected import OpShape, moved_to
from nccl_instrument.tables import (
    ALGOS,
    FUNC_RECV,
    FUNC_SEND,
    FUNCS,
    PROTOS,
    SEND,
    TRAFFIC_FINISHED,
    TRAFFIC_INCOMPLETE,
    TRAFFIC_P2P,
)  # fmt: skip
from rca.keys import Rows

WHOLE: Final = 0.999
"""Of its expected volume: a send with more is complete; chunks are rounded."""
TOLD_MIN: Final = 0.99
"""Of the members that are in the op, told of what they had sent: with fewer nobody is named."""
GROUP_NS: Final = 1_000_000
"""Sends enqueued this close are of one group."""

Edge = tuple[int, int]
"""Global ranks: who sends to whom."""


class Said(StrEnum):
    """Why nobody is named."""

    NOTHING = "What the standing ops had moved was not measured."
    ENTERED = "Not everybody has entered the op that stopped first: what was sent of it says nothing."
    TOLD = "What the op that stopped first had moved was not measured at all of its members."
    ALIKE = "All that the op that stopped first had moved is alike."


@dataclass(frozen=True, slots=True)
class Stopped:
    """The op that stopped first. sent: of each connection (bytes, bytes expected, 0 unknown), the least part first. is_p2p: a
    group of sends, of which the open ones alone are in `sent`. ranks: who is named, () nobody, and why not. is_alone: all others
    are through with the op, so what was sent to them has come. members: global ranks.
    """

    comm_id: int
    op: int
    is_p2p: bool
    sent: dict[Edge, tuple[float, float]]
    ranks: tuple[int, ...]
    why: Said | None
    is_alone: bool = False
    members: tuple[int, ...] = ()


NOBODY: Final = Stopped(0, 0, False, {}, (), Said.NOTHING)


def stopped_first(window: Window) -> Stopped:
    """Of a job that stands still: the op whose bytes ended first, and who has sent least of it."""
    rows = window.rows("traffic")
    rows = rows[(rows["flags"] & (TRAFFIC_FINISHED | TRAFFIC_INCOMPLETE)) == 0]
    live = _newest(window.rows("live_op"))
    rows = rows[(rows["direction"] == SEND) & (rows["rank"] >= 0) & np.isin(rows["comm_id"], live["comm_id"])]
    if not len(rows):
        return NOBODY
    is_p2p = (rows["flags"] & TRAFFIC_P2P) != 0
    ended = dict[tuple[int, int, bool], int]()
    for (comm, op, end_ns), p2p in zip(rows[["comm_id", "op", "end_ns"]].tolist(), is_p2p.tolist(), strict=True):
        key = (comm, -1 if p2p else op, p2p)  # sends of a group are numbered by peer
        ended[key] = max(ended.get(key, 0), end_ns)
    comm_id, op, p2p = min(ended, key=lambda key: ended[key])
    mine = rows[(rows["comm_id"] == np.uint64(comm_id)) & (is_p2p == p2p) & (p2p | (rows["op"] == op))]
    ops = live[(live["comm_id"] == np.uint64(comm_id)) & (_are_sends(live) == p2p) & (live["func"] != FUNC_RECV)]
    ops = ops if p2p else ops[ops["op"] == op]
    members = _members(window, comm_id)
    found = Stopped(comm_id, op, p2p, {}, (), None, members=tuple(members.values()))
    if p2p:
        return _of_sends(found, mine, ops, members)
    return _of_collective(found, mine, ops, members, _entered(window, live, comm_id, op))


def _entered(window: Window, live: Rows, comm_id: int, op: int) -> dict[int, bool]:
    """Rank → whether it is through with this collective, of those that have entered it."""
    told = window.rows("progress")
    told = told[(told["comm_id"] == np.uint64(comm_id)) & (told["n_enqueued"] >= op) & (told["rank"] >= 0)]
    mine = live[(live["comm_id"] == np.uint64(comm_id)) & (live["op"] == op) & ~_are_sends(live)]
    inside = set(mine["rank"].tolist())
    return {rank: rank not in inside for rank in (*told["rank"].tolist(), *inside)}


# ---- built-in collectives: the least volume ----


def _of_collective(found: Stopped, rows: Rows, ops: Rows, members: dict[int, int], entered: dict[int, bool]) -> Stopped:
    found = replace(found, sent=_parts(rows, ops, members))
    if set(members.values()) - entered.keys():
        return replace(found, why=Said.ENTERED)
    open_ = {rank for rank, is_through in entered.items() if not is_through}
    if len(open_ & {edge[0] for edge in found.sent}) < TOLD_MIN * len(open_):
        return replace(found, why=Said.TOLD)
    slack = max(int(rows["slice_bytes"].max()), 1)
    is_alone = len(open_) == 1 < len(members)
    ranks = _least(found.sent, slack, is_alone=is_alone)
    return replace(found, ranks=ranks, why=None if ranks else Said.ALIKE, is_alone=is_alone)


def _least(sent: dict[Edge, tuple[float, float]], slack: float, *, is_alone: bool) -> tuple[int, ...]:
    """Whom the connections that moved least have in common; of one alone that end whose other connection moved less.

    is_alone: all others are through with the op, so it is the one who is in it, if it is seen to owe several.
    """
    behind = {
        edge: moved - (whole if whole else max(one for one, _ in sent.values()))
        for edge, (moved, whole) in sent.items()
    }
    least = min(behind.values())
    low = [edge for edge, one in behind.items() if one < least + slack]
    if is_alone or len(low) == len(behind):
        shared = set.intersection(*(set(edge) for edge in low)) if is_alone else set[int]()
        return tuple(sorted(shared)) if len(shared) == 1 else ()
    shared = set.intersection(*(set(edge) for edge in low))
    if len(shared) < 2:
        return tuple(sorted(shared))
    other = {
        end: min((one for edge, one in behind.items() if end in edge and edge not in low), default=np.inf)
        for end in shared
    }
    first, second = sorted(shared, key=lambda end: other[end])
    return (first,) if other[first] + slack <= other[second] else ()


# ---- groups of sends: which are complete ----


def _of_sends(found: Stopped, rows: Rows, ops: Rows, members: dict[int, int]) -> Stopped:
    parts = _parts(rows, ops, members)
    found = replace(found, sent={edge: one for edge, one in parts.items() if one[0] < WHOLE * one[1]})
    still = found.sent.keys() | _beside(ops, {edge[0] for edge in found.sent}, members)
    shared = set.intersection(*(set(edge) for edge in still)) if found.sent else set()
    is_one = len(shared) == 1 and len(still) > 1
    return replace(found, ranks=tuple(shared) if is_one else (), why=None if is_one else Said.ALIKE)


def _beside(ops: Rows, senders: set[int], members: dict[int, int]) -> set[Edge]:
    """The other open sends of the oldest group that each of these ranks is in: they have moved nothing yet."""
    found = set[Edge]()
    for rank in senders:
        mine = ops[ops["rank"] == rank]
        mine = mine[mine["enqueued_ns"] <= mine["enqueued_ns"].min(initial=2**62) + GROUP_NS]
        found |= {(rank, members.get(peer, -1)) for peer in mine["peer"].tolist()}
    return found


# ---- what both need ----


def _parts(rows: Rows, ops: Rows, members: dict[int, int]) -> dict[Edge, tuple[float, float]]:
    """Connection → bytes moved of bytes expected, the least part first."""
    channels: dict[Edge, set[int]] = {}
    moved: dict[Edge, float] = {}
    place = {rank: at for at, rank in members.items()}
    for rank, peer, channel, n_bytes in rows[["rank", "peer", "channel", "n_bytes"]].tolist():
        edge = rank, members.get(peer, -1)
        channels.setdefault(edge, set()).add(channel)
        moved[edge] = moved.get(edge, 0.0) + n_bytes
    found = {}
    for edge, n_bytes in moved.items():
        mine = ops[ops["rank"] == edge[0]]
        mine = mine[(mine["peer"] == place.get(edge[1], -1)) | ~_are_sends(mine)]
        whole = _expected(mine[0], members, place.get(edge[1], -1), len(channels[edge])) if len(mine) else n_bytes
        found[edge] = n_bytes, whole
    return dict(sorted(found.items(), key=lambda one: one[1][0] / one[1][1] if one[1][1] else 1.0))


def _expected(op: np.void, members: dict[int, int], peer: int, n_channels: int) -> float:
    """Bytes the op moves to this peer; 0 where its algorithm is not known."""
    shape = OpShape(
        FUNCS[op["func"]], int(op["bytes"]), len(members), ALGOS[op["algo"]] if op["algo"] < len(ALGOS) else "",
        PROTOS[op["proto"]] if op["proto"] < len(PROTOS) else "", peer if op["func"] == FUNC_SEND else -1, int(op["comm_rank"]),
    )  # fmt: skip
    most = max(int(op["channels"]), n_channels)
    return moved_to(shape, {peer: most if ALGOS[op["algo"]] == "RING" else n_channels}, most).get(peer, 0.0)


def _members(window: Window, comm_id: int) -> dict[int, int]:
    """Place in the communicator → global rank."""
    mine = window.members[window.members["comm_id"] == np.uint64(comm_id)]
    return dict(zip(mine["comm_rank"].tolist(), mine["rank"].tolist(), strict=True))


def _newest(rows: Rows) -> Rows:
    """What each rank told last of its ops in progress."""
    rows = rows[rows["rank"] >= 0]
    last = np.zeros(int(rows["rank"].max(initial=0)) + 1, np.int64)
    np.maximum.at(last, rows["rank"], rows["tick_ns"])
    found: Rows = rows[rows["tick_ns"] == last[rows["rank"]]]
    return found


def _are_sends(ops: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(ops["func"], (FUNC_SEND, FUNC_RECV))
