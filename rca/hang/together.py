"""Ranks of one node that stopped behind the same op: one GPU that does not come through it, not as many programs at once.

    rank 49  op 74 ▮▮▮ over   op 75 ▯ entered, waits for 48
    rank 48  op 74 ▮▮▮ over, as its flows tell                 no op entered since
    rank 52  op 74 ▮▮▮ nobody sees whether it is over          no op entered since
    rank 53  op 74 ▮▮▮ nobody sees whether it is over          no op entered since

Hosts that wait for their GPUs at the end of a step stop together when one GPU keeps its mates in an op's part inside the
node, which has no flows; so do programs that wait for something of their node, a file system say. Traces do not tell which.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.hang.progress import Progress
from rca.hang.sinks import Sink
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
    kept = [joined.get(sink.vertex, sink) for sink in found]
    return [sink for at, sink in enumerate(kept) if sink not in kept[:at]]


def _last_op(state: Progress, sink: Sink) -> Place | None:
    """Where a rank stopped that is in no op and of which nothing else tells why; None else."""
    if sink.link >= 0 or sink.nic >= 0 or len(sink.ranks) != 1 or sink.is_deadlock:
        return None
    at, ranks, members = sink.ranks[0], state.ranks, state.members
    is_told = ranks.is_gone[at] | ranks.is_stopped[at] | ranks.is_silent[at] | (ranks.seen_ns[at] == 0)
    is_told |= state.is_deaf[at] | state.is_cut[at] | (ranks.port[at] == PORT_DOWN)
    mine = np.flatnonzero((members.rank_at == at) & (members.last_enqueued_ns > 0))
    if is_told or not len(mine) or ranks.node[at] < 0 or (state.fronts.is_front & (state.fronts.at == at)).any():
        return None
    last = mine[members.last_enqueued_ns[mine].argmax()]
    return int(ranks.node[at]), int(members.comm[last]), int(members.entered[last])


def _joined(state: Progress, group: list[Sink]) -> Sink:
    tied = tuple(sorted(sink.ranks[0] for sink in group))
    reached = frozenset().union(*(sink.waiters for sink in group))
    return replace(group[0], vertex=tied[0], ranks=tied, tied=tied, waiters=reached - set(tied), is_in_node=True)


def _are_through(state: Progress, group: list[Sink], place: Place) -> bool:
    """Whether all of them are seen to be through the op, by the flows they have in it: then no GPU keeps them there."""
    _, comm, entered = place
    rows, at = state.known.progress, state.known.progress_at
    those = (state.members.comm_of(rows["comm_id"]) == comm) & (rows["n_done"].astype(np.int64) >= entered)
    return bool(np.isin([sink.ranks[0] for sink in group], at[those]).all())
