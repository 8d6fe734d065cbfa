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

from rca.flows.calls import BeforeSends, Calls

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
ONCE: Final = 1.2  # an iteration, where the window begins and ends in the middle of one
BACK_TO_BACK: Final = 2  # gathers: of the gradients, and of the activations anew
GATHERED_TWICE: Final = 1.8  # per scatter: weights, before the forward and before the backward
BEFORE_STAGES: Final = (0.6, 0.75, 2.0)
"""Share of a stage's sends with a call of the group before: at most, of gradients; at least, of activations; of so many sends."""
BEFORE_EXPERTS: Final = (0.25, 0.35, 4.0)
"""The same of all-to-alls: between dispatch and combine there may be none."""
MORE_OFTEN: Final = 2.0
STAT_BYTES: Final = 2**20
TOLD_BY_PAIRS: Final = 4  # members: of three, a ring of neighbours is everybody to everybody

Ranks = list[frozenset[int]]


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
    it. ranks: global. calls: None where no member's are known. is_even: its sends are of a few sizes.
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
    calls: Calls | None = None
    is_even: bool = False


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
    pipelines = [one.ranks for one in groups if found.get(one.name) is Parallelism.PIPELINE]
    return found | _of_collectives(collective, found, pipelines)


def _is_small(group: GroupTraffic, most: float) -> bool:
    volume = max(group.collective_bytes, group.p2p_bytes)
    if group.p2p_bytes > SMALL_BYTES:  # no loss or norm is sent from one to another
        return group.n_ranks < 2
    each = group.collective_bytes / (group.n_collectives or 1.0)
    is_little = group.p2p_bytes <= 0 and each <= SMALL_BYTES and volume <= LITTLE_SHARE * most
    return (each <= STAT_BYTES and volume <= SMALL_SHARE * most) or is_little or group.n_ranks < 2


def _of_sends(group: GroupTraffic) -> Parallelism:
    """A chain has two neighbours at most; a full mesh nearly every ordered pair. Of two or three members both are the same pairs:
    there an all-to-all sends to all others, and receives from them, in each launch; where all of it is of a few sizes it may as
    well be context parallelism, keys and values going round a ring. Of more members that sends one way only.
    """
    n = group.n_ranks
    if n < TOLD_BY_PAIRS and group.whole_launches >= WHOLE_MIN:
        return Parallelism.UNKNOWN if group.is_even else Parallelism.EXPERT
    if n > 2 and _is_one_way(group.pairs):
        return Parallelism.UNKNOWN
    if n < TOLD_BY_PAIRS or _is_chain(group.pairs):
        return Parallelism.PIPELINE
    return Parallelism.EXPERT if len(group.pairs) >= FULL_MESH * n * (n - 1) else Parallelism.UNKNOWN


def _is_one_way(pairs: frozenset[tuple[int, int]]) -> bool:
    """Whether nobody sends back: what goes through a pipeline comes back as gradients."""
    return bool(pairs) and not any((there, here) in pairs for here, there in pairs)


def _is_chain(pairs: frozenset[tuple[int, int]]) -> bool:
    """Whether nobody has more than two neighbours, however they are numbered; a ring is a chain whose stages are interleaved."""
    neighbours = Counter(member for pair in {frozenset(one) for one in pairs} for member in pair)
    return max(neighbours.values(), default=0) <= 2


def _of_collectives(
    groups: list[GroupTraffic], others: dict[str, Parallelism], pipelines: Ranks
) -> dict[str, Parallelism]:
    """Gradients or activations, by how their calls come; a group that shows neither is what those laid out alike are, what it is
    beside others on its ranks, and what volumes say where these fit what is known. others: what the groups that send are.
    """
    sure = {one.name: told for one in groups if (told := _by_calls(one, others)) is not None}
    found = sure | _of_alike(groups, sure)
    wholes = [one.ranks for one in groups if found.get(one.name) is Parallelism.DATA]
    parts = {one.name: Parallelism.DATA for one in groups if one.ranks and any(one.ranks < whole for whole in wholes)}
    found |= {name: which for name, which in parts.items() if name not in sure}  # they reduce some of its weights
    beside = {
        one.name: told for one in groups if one.name not in found and (told := _beside(one, groups, found, pipelines))
    }
    found |= beside
    found |= {name: which for name, which in _of_alike(groups, found).items() if name not in found}
    return found | _of_rest(groups, found, pipelines)


def _of_rest(groups: list[GroupTraffic], found: dict[str, Parallelism], pipelines: Ranks) -> dict[str, Parallelism]:
    """Of those that showed nothing: by volumes, if these say of the others what they are."""
    rest = {one.name for one in groups if one.name not in found}
    volumes = _by_volume([one for one in groups if one.name in rest or not _crosses(one, pipelines)])
    fits = all(volumes.get(name, which) is which for name, which in found.items())
    return {name: volumes[name] if fits else Parallelism.UNKNOWN for name in rest}


def _by_calls(group: GroupTraffic, others: dict[str, Parallelism]) -> Parallelism | None:
    """DATA or TENSOR, None where the calls do not show it."""
    calls, n = group.calls, group.n_collectives
    if calls is None:
        return None
    if n <= ONCE:  # a layer makes two calls at least, there and back
        return Parallelism.DATA
    if min(calls.n_gathers, calls.n_scatters) > 0:
        is_sharded = calls.returned <= ONCE or calls.scatter_run > 1 or calls.gather_run > BACK_TO_BACK
        is_sharded |= calls.n_gathers > GATHERED_TWICE * calls.n_scatters
        return Parallelism.DATA if is_sharded else Parallelism.TENSOR
    told = {which for one in calls.before if (which := _beside_sends(one, others.get(one.comm))) is not None}
    return told.pop() if len(told) == 1 else None


def _beside_sends(one: BeforeSends, which: Parallelism | None) -> Parallelism | None:
    """A stage sends what a microbatch's layers made, experts are asked in every layer: activations come before all of these."""
    limits = BEFORE_STAGES if which is Parallelism.PIPELINE else BEFORE_EXPERTS if which is Parallelism.EXPERT else None
    if limits is None or one.n < limits[2]:
        return None
    return Parallelism.TENSOR if one.share >= limits[1] else Parallelism.DATA if one.share <= limits[0] else None


def _of_alike(groups: list[GroupTraffic], sure: dict[str, Parallelism]) -> dict[str, Parallelism]:
    """Groups of one size whose ranks lie alike serve the same: what most of them show. Of several on the same ranks nobody knows
    which go together.
    """
    families: dict[tuple[int, ...], list[GroupTraffic]] = {}
    for one in groups:
        first = min(one.ranks, default=0)
        families.setdefault(tuple(sorted(rank - first for rank in one.ranks)), []).append(one)
    found: dict[str, Parallelism] = {}
    for family in families.values():
        votes = Counter(sure[one.name] for one in family if one.name in sure).most_common()
        is_one_kind = len({one.ranks for one in family}) == len(family)
        if is_one_kind and votes and (len(votes) == 1 or votes[0][1] > votes[1][1]):
            found |= {one.name: votes[0][0] for one in family}
    return found


def _beside(
    group: GroupTraffic, groups: list[GroupTraffic], found: dict[str, Parallelism], pipelines: Ranks
) -> Parallelism | None:
    """Of a group that shows nothing itself, by others on its ranks: activations, all alike, come more often than gradients."""
    if group.calls is None or _crosses(group, pipelines):
        return None
    near = [one for one in groups if one is not group and one.ranks & group.ranks and not _crosses(one, pipelines)]
    often = [one for one in near if found.get(one.name) is not Parallelism.DATA and one.n_alike >= ALIKE_MIN]
    if any(one.n_collectives >= MORE_OFTEN * group.n_collectives for one in often):
        return Parallelism.DATA
    seldom = [one.n_collectives for one in near if found.get(one.name) is not Parallelism.TENSOR]
    is_often = seldom and group.n_collectives >= MORE_OFTEN * max(seldom) and group.n_alike >= ALIKE_MIN
    return Parallelism.TENSOR if is_often else None


def _crosses(group: GroupTraffic, pipelines: Ranks) -> bool:
    """Whether it joins stages of a pipeline, as tied embeddings do: no stage's weights or activations."""
    return any(len(group.ranks & stages) > 1 for stages in pipelines)


def _by_volume(groups: list[GroupTraffic]) -> dict[str, Parallelism]:
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
