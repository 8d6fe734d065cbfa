"""Which kind of parallelism each group serves, by what its ops look like on the wire (Pulse Figure 5).

Collectives belong to data or tensor parallelism, told by volume and count: gradients once an iteration, activations in
every layer. Sends belong to pipelines or experts, told by who sends to whom: a chain there and back, or everybody to
everybody. Groups that move little, to exchange a loss or a flag, serve none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import isnan
from typing import Final

SMALL_SHARE: Final = 0.001  # of the largest group's volume in an iteration
SMALL_BYTES: Final = 131_072  # an op: a loss, a norm or a flag, if all of them together are
LITTLE_SHARE: Final = 0.1  # or less
FULL_MESH: Final = 0.5  # share of all ordered pairs that send
FEW_OPS: Final = 8.0  # an iteration: gradients are reduced a few times, activations in every layer
GAP_MIN: Final = 0.45  # of the iteration, without an op of a group that has few: gradients come at its end
ALIKE_MIN: Final = (
    3.0  # ops of one size, of a group that has many: layers and microbatches are alike, buckets of gradients not
)
JUMP_MIN: Final = 2.5  # in volume per op over how many there are, between the one kind and the other
WHOLE_MIN: Final = 0.9  # of the launches: an all-to-all sends to all others each time
TOLD_BY_PAIRS: Final = 4  # members: of three, a ring of neighbours is everybody to everybody


class Parallelism(StrEnum):
    DATA = "DP"
    TENSOR = "TP"
    PIPELINE = "PP"
    EXPERT = "EP"
    NONE = "None"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """A communicator in an average iteration, bytes and ops of a rank. pairs: (sender, receiver) by place in the group, of its
    sends. whole_launches: share of the launches that send to, and receive from, all others at once. longest_gap: the
    longest time without one of its collectives, as a share of the iteration. n_alike: how often an op of the same size comes in
    it. ranks: global.
    """

    name: str
    n_ranks: int
    collective_bytes: float
    n_collectives: float
    p2p_bytes: float
    pairs: frozenset[tuple[int, int]]
    whole_launches: float = 0.0
    longest_gap: float = float("nan")
    n_alike: float = float("nan")
    ranks: frozenset[int] = frozenset()


def parallelism_of(groups: list[GroupTraffic]) -> dict[str, Parallelism]:
    """Group → what it serves."""
    most = max((max(one.collective_bytes, one.p2p_bytes) for one in groups), default=0.0)
    found: dict[str, Parallelism] = {}
    collective = []
    for one in groups:
        if _is_small(one, most):
            found[one.name] = Parallelism.NONE
        elif one.p2p_bytes > one.collective_bytes:
            found[one.name] = _of_sends(one)
        else:
            collective.append(one)
    return found | _of_collectives(collective)


def _is_small(group: GroupTraffic, most: float) -> bool:
    volume = max(group.collective_bytes, group.p2p_bytes)
    if group.p2p_bytes > SMALL_BYTES:  # no loss or norm is sent from one to another
        return group.n_ranks < 2
    each = group.collective_bytes / (group.n_collectives or 1.0)
    is_little = group.p2p_bytes <= 0 and each <= SMALL_BYTES and volume <= LITTLE_SHARE * most
    return volume <= SMALL_SHARE * most or is_little or group.n_ranks < 2


def _of_sends(group: GroupTraffic) -> Parallelism:
    """A chain has two neighbours at most; a full mesh nearly every ordered pair. Of two or three members both are the same pairs:
    there an all-to-all sends to all others, and receives from them, in each launch.
    """
    n = group.n_ranks
    if n < TOLD_BY_PAIRS:
        return Parallelism.EXPERT if group.whole_launches >= WHOLE_MIN else Parallelism.PIPELINE
    if _is_chain(group.pairs):
        return Parallelism.PIPELINE
    return Parallelism.EXPERT if len(group.pairs) >= FULL_MESH * n * (n - 1) else Parallelism.UNKNOWN


def _is_chain(pairs: frozenset[tuple[int, int]]) -> bool:
    """Whether nobody has more than two neighbours, however they are numbered; a ring is a chain whose stages are interleaved."""
    neighbours = Counter(member for pair in {frozenset(one) for one in pairs} for member in pair)
    return max(neighbours.values(), default=0) <= 2


def _of_collectives(groups: list[GroupTraffic]) -> dict[str, Parallelism]:
    """Few ops of much volume are data parallel, many of less tensor parallel; split where volume per op and how seldom they
    come jump most together. What is a part of a data-parallel group reduces the gradients of some of its weights.
    """
    if not groups:
        return {}
    weight = {one.name: _weight(one) for one in groups}
    each = sorted(set(weight.values()))
    jumps = [(later / max(earlier, 1e-9), later) for earlier, later in pairwise(each)]
    ratio, border = max(jumps, default=(1.0, each[0]))
    if ratio < JUMP_MIN:  # one kind only
        border = each[0] if _is_rare(min(groups, key=lambda one: one.n_collectives)) else float("inf")
    is_data = {one.name for one in groups if weight[one.name] >= border}
    wholes = [one.ranks for one in groups if one.name in is_data]
    is_data |= {one.name for one in groups if any(one.ranks and one.ranks < whole for whole in wholes)}
    return {one.name: Parallelism.DATA if one.name in is_data else Parallelism.TENSOR for one in groups}


def _is_rare(group: GroupTraffic) -> bool:
    """Whether a kind of group that is alone is data parallel: its ops come at the end of an iteration, each size a few times."""
    is_few = group.n_collectives <= FEW_OPS
    if isnan(group.longest_gap) or isnan(group.n_alike):
        return is_few
    return group.longest_gap >= GAP_MIN if is_few else group.n_alike < ALIKE_MIN


def _weight(group: GroupTraffic) -> float:
    """Bytes of an op over how many there are: the two marks of Figure 5 in one number."""
    n = group.n_collectives or 1.0
    return group.collective_bytes / n / n
