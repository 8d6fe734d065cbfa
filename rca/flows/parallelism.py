"""Which kind of parallelism each group serves, by what its ops look like on the wire (Pulse Figure 5).

Collectives belong to data or tensor parallelism, told by volume and count: gradients once an iteration, activations in
every layer. Sends belong to pipelines or experts, told by who sends to whom: a chain there and back, or everybody to
everybody. Groups that move little, to exchange a loss or a flag, serve none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

SMALL_SHARE: Final = 0.001  # of the largest group's volume in an iteration
FULL_MESH: Final = 0.5  # share of all ordered pairs that send
FEW_OPS: Final = 8.0  # an iteration: gradients are reduced a few times, activations in every layer
JUMP_MIN: Final = 2.0  # in volume per op, between the one kind and the other


class Parallelism(StrEnum):
    DATA = "DP"
    TENSOR = "TP"
    PIPELINE = "PP"
    EXPERT = "EP"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """A communicator in an average iteration. pairs: (sender, receiver) by place in the group, of its sends."""

    name: str
    n_ranks: int
    collective_bytes: float
    n_collectives: float
    p2p_bytes: float
    pairs: frozenset[tuple[int, int]]


def parallelism_of(groups: list[GroupTraffic]) -> dict[str, Parallelism]:
    """Group → what it serves."""
    most = max((max(one.collective_bytes, one.p2p_bytes) for one in groups), default=0.0)
    found: dict[str, Parallelism] = {}
    collective = []
    for one in groups:
        if max(one.collective_bytes, one.p2p_bytes) <= SMALL_SHARE * most or one.n_ranks < 2:
            found[one.name] = Parallelism.NONE
        elif one.p2p_bytes > one.collective_bytes:
            found[one.name] = _of_sends(one)
        else:
            collective.append(one)
    return found | _of_collectives(collective)


def _of_sends(group: GroupTraffic) -> Parallelism:
    """A chain has neighbours only; a full mesh nearly every ordered pair. Two ranks are both: a chain then."""
    n = group.n_ranks
    is_chain = all(abs(a - b) == 1 or {a, b} == {0, n - 1} for a, b in group.pairs)
    if is_chain:
        return Parallelism.PIPELINE
    return Parallelism.EXPERT if len(group.pairs) >= FULL_MESH * n * (n - 1) else Parallelism.PIPELINE


def _of_collectives(groups: list[GroupTraffic]) -> dict[str, Parallelism]:
    """Few ops of much volume are data parallel, many of less tensor parallel; split where volume per op jumps most."""
    if not groups:
        return {}
    each = sorted({one.collective_bytes / max(one.n_collectives, 1.0) for one in groups})
    jumps = [(later / max(earlier, 1.0), later) for earlier, later in pairwise(each)]
    ratio, border = max(jumps, default=(1.0, each[0]))
    if ratio < JUMP_MIN:  # one kind only
        border = each[0] if min(one.n_collectives for one in groups) <= FEW_OPS else float("inf")
    return {
        one.name: Parallelism.DATA
        if one.collective_bytes / max(one.n_collectives, 1.0) >= border
        else Parallelism.TENSOR
        for one in groups
    }
