"""Whom a slowdown reaches: every other rank, communicator by communicator, away from those who may have started it."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from rca.findings import WaitEdge
from rca.keys import Rows


def reached(members: Rows, suspects: Set[int], limit: int) -> tuple[tuple[int, ...], tuple[WaitEdge, ...]]:
    """(victims, at most `limit` edges by which the lateness reaches them, nearest first). members: rows of MEMBER."""
    comms_of, ranks_of = _memberships(members)
    seen, told, edges = set(suspects), set[int](), list[WaitEdge]()
    front = sorted(suspects)
    while front:
        following = []
        for rank in front:
            for comm_id in [one for one in comms_of.get(rank, []) if one not in told]:
                told.add(comm_id)  # its members are reached with its first
                fresh = [other for other in ranks_of[comm_id] if other not in seen]
                seen.update(fresh)
                following += fresh
                edges += [WaitEdge(other, rank, comm_id, 0, "shares its ops, and gets on no faster") for other in fresh]
        front = following
    return tuple(sorted(seen - suspects)), tuple(edges[:limit])


def _memberships(members: Rows) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Rank → its communicators, and communicator → its known ranks."""
    comms_of, ranks_of = dict[int, list[int]](), dict[int, list[int]]()
    known = np.sort(members[members["rank"] >= 0], order=("comm_id", "comm_rank"))
    for comm_id, rank in zip(known["comm_id"].tolist(), known["rank"].tolist(), strict=True):
        comms_of.setdefault(rank, []).append(comm_id)
        ranks_of.setdefault(comm_id, []).append(rank)
    return comms_of, ranks_of
