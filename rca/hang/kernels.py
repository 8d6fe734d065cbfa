"""What the GPUs say themselves: in which communicators a rank is inside a kernel, where NCCL was asked to report kernels.

    rank 5 ▬▬▬▬▮ stands        has begun 41 of the 44 ops it was given, and is in none     → waits for nobody there
    rank 6 ▬▬▬▬▬▬▬▮████████    is inside the 42nd: begun, not ended                        → may wait for a mate

A GPU that stands never begins its next kernel, while its mates wait in theirs. So a rank that is outside a communicator's
kernels waits for nobody there, whatever it has enqueued. One whose events got lost looks alike: it must have begun as many
ops as those of its mates that tell, or all but one, else nothing is concluded. Without kernel records nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rca.hang.known import Known
from rca.hang.mates import Mates
from rca.hang.members import Members
from rca.hang.waits import Edges, Why, edges
from rca.keys import Index, Ints, Mask, mix
from rca.settings import SECOND_NS, Settings

APART_NS: Final = 60 * SECOND_NS
"""Sends and receives are not numbered alike at all members: who told of no kernel for so long, while mates did, has lost some."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """(M,) of the members. begun: ops whose kernel the GPU has begun, 0 unknown. is_outside: surely in none there now.

    given: ops of both kinds enqueued, as told with `begun`. is_held: inside a collective that is over as far as flows tell.
    """

    begun: Ints
    given: Ints
    is_inside: Mask
    is_outside: Mask
    is_held: Mask
    by_rank: Index

    def of(self, at: Ints, comm: Ints) -> Ints:
        """(n,) member of each rank position and communicator position, -1 where none is."""
        return self.by_rank.find(mix(at, comm))

    def waiting(self, found: Edges) -> Edges:
        """The edges, without those of ranks that are outside the kernel in which they would have to wait."""
        member = self.of(found.waiter, found.comm)
        inside_only = (found.why == Why.IN_NODE) | (found.why == Why.NO_DATA)
        return found.where(~(inside_only & np.append(self.is_outside, False)[member]))


def kernels_of(known: Known, members: Members, settings: Settings) -> Kernels:
    """What the newest progress rows say of kernels. Ticks are on the one clock that the server made of all."""
    rows, n = known.progress, len(members.comm)
    mine = members.find(rows["comm_id"], rows["comm_rank"].astype(np.int64))
    rows, at, mine = rows[mine >= 0], known.progress_at[mine >= 0], mine[mine >= 0]
    begun, given, last = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    begun[mine], last[mine] = rows["kernels_begun"].astype(np.int64), rows["last_kernel_ns"]
    given[mine] = (rows["n_enqueued"] + rows["n_p2p_enqueued"]).astype(np.int64)
    is_alike = np.ones(n, bool)
    is_alike[mine] = rows["n_p2p_enqueued"] == 0
    is_told, is_open = np.zeros(n, bool), np.zeros(n, bool)
    is_open[mine] = rows["kernels_open"] > 0
    tick = rows["tick_ns"].astype(np.int64)
    is_fresh = tick >= known.ranks.seen_ns[at] - settings.fresh_ns
    is_told[mine] = (begun[mine] > 0) & is_fresh & (tick - last[mine] >= settings.still_ns)
    keeps_up = np.where(is_alike, begun >= _most(members, begun) - 1, last >= _most(members, last) - APART_NS)
    keeps_up &= np.bincount(members.comm[begun > 0], minlength=len(members.comm_ids) + 1)[members.comm] > 1
    is_over = np.zeros(n, bool)
    is_over[mine] = (rows["n_done"] >= rows["n_enqueued"]) & (rows["n_p2p_enqueued"] == 0)
    inside, outside = is_told & is_open, is_told & ~is_open & keeps_up
    return Kernels(begun, given, inside, outside, inside & is_over, Index(mix(members.rank_at, members.comm)))


def held_edges(kernels: Kernels, members: Members, mates: Mates) -> Edges:
    """Possible edges of ranks whose flows of a collective are through and whose kernel is not: to mates on the node inside it."""
    held = np.flatnonzero(kernels.is_held)
    asked, mate = mates.find(members.comm[held], members.rank_at[held])
    held = held[asked]
    keep = kernels.is_inside[mate] & (kernels.begun[mate] == kernels.begun[held])
    held, mate = held[keep], mate[keep]
    at, target = members.rank_at[held], members.rank_at[mate]
    return edges(at, target, Why.IN_NODE, members.comm[held], members.entered[held])


def _most(members: Members, values: Ints) -> Ints:
    """(M,) the largest of each member's communicator."""
    if not len(values):
        return values
    found: Ints = np.maximum.reduceat(values, members.first[:-1])[members.comm]
    return found


def inside_of(kernels: Kernels, members: Members, at: int) -> int:
    """The communicator (a position) inside whose kernel this rank's GPU is; -1 where it is in none or does not tell."""
    found = np.flatnonzero((members.rank_at == at) & kernels.is_inside)
    return int(members.comm[found[0]]) if len(found) else -1


@dataclass(frozen=True, slots=True)
class Unbegun:
    """A rank was given ops of a communicator (a position) that its GPU has not begun, and n_inside of its mates wait in one."""

    comm: int
    begun: int
    given: int
    n_inside: int
    n_mates: int


def unbegun(kernels: Kernels, members: Members, at: int) -> Unbegun | None:
    """What this rank has not begun, where most mates wait for it; None where nobody does or it is not told."""
    found = []
    for member in np.flatnonzero(
        (members.rank_at == at) & kernels.is_outside & (kernels.begun < kernels.given)
    ).tolist():
        comm = int(members.comm[member])
        inside = kernels.is_inside[members.of(comm)]
        numbers = int(kernels.begun[member]), int(kernels.given[member])
        found.append(Unbegun(comm, *numbers, int(inside.sum()), len(inside) - 1))
    most = max(found, key=lambda one: one.n_inside, default=None)
    return most if most and most.n_inside else None
