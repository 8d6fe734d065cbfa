"""Ranks of one node that stopped behind the same op: one GPU that does not come through it, not as many programs at once.

    rank 49  op 74 ▮▮▮ over   op 75 ▯ entered, waits for 48
    rank 48  op 74 ▮▮▮ over, as its flows tell                 no op entered since
    rank 52  op 74 ▮▮▮ nobody sees whether it is over          no op entered since
    rank 53  op 74 ▮▮▮ nobody sees whether it is over          no op entered since

Hosts that wait for their GPUs at the end of a step stop together when one GPU keeps its mates in an op's part inside the
node, which has no flows; so do programs that wait for something of their node, a file system say. Traces do not tell which.

Nor do several GPUs of a node stop at once, each in an op of its own, whose ranks meet there: the others wait for one of them
in what they exchange inside the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rca.hang.kernels import inside_of, unbegun
from rca.hang.progress import Progress
from rca.hang.sinks import Sink
from rca.keys import Ints, Mask
from rca.ranks import PORT_DOWN

Place = tuple[int, int, int]
"""A node, and the op that a rank enqueued last: its communicator and how many collectives it has entered there."""


def once_together(state: Progress, found: list[Sink]) -> list[Sink]:
    """The sinks, those of ranks that stopped behind the same op on their node as one tie, unless all are seen to be through."""
    groups: dict[Place, list[Sink]] = {}
    for sink in found:
        place = _last_op(state, sink)
        if place is not None:
            groups.setdefault(place, []).append(sink)
    joined = dict[int, Sink]()
    for place, group in groups.items():
        if len(group) > 1 and not _are_through(state, group, place):
            joined |= {sink.vertex: _joined(state, group) for sink in group}
    return _held_together(state, _with(joined, found))


def _held_together(state: Progress, found: list[Sink]) -> list[Sink]:
    """The sinks, those of a node whose ranks are all in ops that do not go on, and meet on the node, as one tie."""
    groups: dict[int, list[Sink]] = {}
    for sink in found:
        node = _held_on(state, sink)
        if node >= 0:
            groups.setdefault(node, []).append(sink)
    joined = {
        sink.vertex: _narrowed(state, _joined(state, group))
        for group in groups.values() if len(group) > 1 and _meet(state, group)
        for sink in group
    }  # fmt: skip
    return _with(joined, found)


def _with(joined: Mapping[int, Sink], found: list[Sink]) -> list[Sink]:
    """The sinks, each tie once in the place of the first that it was made of. joined: by the vertices of these."""
    kept = [joined.get(sink.vertex, sink) for sink in found]
    return [sink for at, sink in enumerate(kept) if sink not in kept[:at]]


def _narrowed(state: Progress, sink: Sink) -> Sink:
    """The tie as its first rank, where an op that passes through the node one by one, in the order of ranks, is behind all before
    it and before all from it on: it waits for none after it. Nor for mates, where one of each communicator that it has inside the
    node is through: ops there end for all at once."""
    ranks, members, tied = state.ranks, state.members, np.array(sink.tied)
    here, first = np.flatnonzero(ranks.node == ranks.node[tied[0]]), int(tied[0])
    before = here[here < first]
    if not len(before) or len(before) + len(tied) != len(here):
        return sink
    local = np.flatnonzero((members.rank_at == first) & members.is_local[members.comm])
    mates = [members.rank_at[members.of(int(members.comm[one]))] for one in local]
    is_met = bool(mates) and all(np.isin(one, before).any() for one in mates)
    if not is_met or not any(_parts(state, int(comm), before, tied) for comm in members.comm[members.rank_at == first]):
        return sink
    return replace(sink, ranks=(first,), tied=(), waiters=sink.waiters | {*sink.tied} - {first}, is_in_node=False)


def _parts(state: Progress, comm: int, before: Ints, since: Ints) -> bool:
    """Whether the op that all of these ranks enqueued last in this communicator is behind those before, and ahead of the others:
    whether their GPUs have run it."""
    members = state.members
    rows = np.flatnonzero((members.comm == comm) & np.isin(members.rank_at, np.concatenate([before, since])))
    at = members.rank_at[rows]
    if (
        len(rows) != len(before) + len(since)
        or np.ptp(members.entered[rows])
        or not members.last_enqueued_ns[rows].all()
    ):
        return False
    has_run = state.ran_ns[at] >= members.last_enqueued_ns[rows]
    return bool(has_run[np.isin(at, before)].all() and not has_run[np.isin(at, since)].any())


def _held_on(state: Progress, sink: Sink) -> int:
    """The node of ranks that are in an op that does not go on, where nothing else tells why; -1 else."""
    if sink.link >= 0 or sink.nic >= 0 or not sink.ranks or sink.is_deadlock or sink.is_by_ring:
        return -1
    at, fronts = np.array(sink.ranks), state.fronts
    nodes = np.unique(state.ranks.node[at])
    in_op = np.isin(at, fronts.at[fronts.is_front & ~fronts.is_mute])
    is_disputed = np.isin(at, state.disputed.at[~state.disputed.is_done])
    if (_is_told(state, at) | is_disputed | ~in_op).any() or len(nodes) != 1:
        return -1
    if any(
        unbegun(state.kernels, state.members, one) or inside_of(state.kernels, state.members, one) >= 0
        for one in sink.ranks
    ):
        return -1
    return int(nodes[0])


def _meet(state: Progress, group: list[Sink]) -> bool:
    """Whether communicators join the ranks of these sinks on their node: those inside it, and those of the ops that they are in.
    Another one, of the whole job say, joins nobody."""
    at = np.array(sorted({rank for sink in group for rank in sink.ranks}), np.int64)
    node, members, fronts = state.ranks.node, state.members, state.fronts
    in_question = fronts.comm[fronts.is_front & np.isin(fronts.at, at) & (fronts.comm >= 0)]
    joins = members.is_local[members.comm] | np.isin(members.comm, in_question)
    here = joins & (node[members.rank_at] == node[at[0]])
    rank, comm = members.rank_at[here], members.comm[here]
    reached = at[:1]
    while True:
        more = np.unique(rank[np.isin(comm, comm[np.isin(rank, reached)])])
        if len(more) == len(reached):
            return bool(np.isin(at, more).all())
        reached = more


def _is_told(state: Progress, at: Ints) -> Mask:
    """(n,) of which ranks something else tells why they do nothing."""
    ranks = state.ranks
    found = ranks.is_gone[at] | ranks.is_stopped[at] | ranks.is_silent[at] | (ranks.seen_ns[at] == 0)
    found |= state.is_deaf[at] | state.is_cut[at] | (ranks.port[at] == PORT_DOWN)
    return np.asarray(found, bool)


def _last_op(state: Progress, sink: Sink) -> Place | None:
    """Where a rank stopped that is in no op and of which nothing else tells why; None else."""
    if sink.link >= 0 or sink.nic >= 0 or len(sink.ranks) != 1 or sink.is_deadlock:
        return None
    at, ranks, members = sink.ranks[0], state.ranks, state.members
    is_told = _is_told(state, np.array([at]))[0]
    mine = np.flatnonzero((members.rank_at == at) & (members.last_enqueued_ns > 0))
    if is_told or not len(mine) or ranks.node[at] < 0 or (state.fronts.is_front & (state.fronts.at == at)).any():
        return None
    last = mine[members.last_enqueued_ns[mine].argmax()]
    return int(ranks.node[at]), int(members.comm[last]), int(members.entered[last])


def _joined(state: Progress, group: list[Sink]) -> Sink:
    tied = tuple(sorted({rank for sink in group for rank in sink.ranks}))
    reached = frozenset().union(*(sink.waiters for sink in group))
    return replace(group[0], vertex=tied[0], ranks=tied, tied=tied, waiters=reached - set(tied), is_in_node=True)


def _are_through(state: Progress, group: list[Sink], place: Place) -> bool:
    """Whether all of them are seen to be through the op, by the flows they have in it: then no GPU keeps them there."""
    _, comm, entered = place
    rows, at = state.known.progress, state.known.progress_at
    those = (state.members.comm_of(rows["comm_id"]) == comm) & (rows["n_done"].astype(np.int64) >= entered)
    return bool(np.isin([sink.ranks[0] for sink in group], at[those]).all())
