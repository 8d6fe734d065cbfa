"""Both ends of every network flow in progress, side by side.

Most of what tells a local cause from a remote one is the difference between what the sender counted and what the
receiver counted (Mycroft §5.3). An end without a row is told apart here: it has not entered the op, has entered but its
proxy shows no flow, or has finished with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from nccl_instrument.tables import SEND
from rca.hang.known import Known
from rca.hang.members import Members
from rca.keys import Index, Ints, Keys, Mask, in_sorted, is_p2p, latest, mix

Counters = npt.NDArray[np.int64]

SEEN, ABSENT, NO_FLOWS, FINISHED, UNHEARD = range(5)
"""What is known of an end: its row; not entered; entered without any flow; finished; of who told nothing, or nothing there."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Arrays of (P,), one per flow that at least one end still reports.

    sender, receiver: rank positions, -1 unknown. sent: (P, 4) posted, GPU_ready, transmitted, done. taken: (P, 4) posted,
    received, flushed, consumed. Ends: SEEN … UNHEARD; the counters of a FINISHED end are all `total`, of others 0.
    still_ns: how long both ends had stood still at the older of their two ticks; negative while one still moved. A
    finished end moved last when it finished.
    """

    comm: Ints
    op: Ints
    key: Keys
    p2p: Mask
    channel: Ints
    transport: Ints
    sender: Ints
    receiver: Ints
    sent: Counters
    taken: Counters
    total: Ints
    sender_end: Ints
    receiver_end: Ints
    still_ns: Ints

    def __len__(self) -> int:
        return len(self.comm)

    def where(self, mask: Mask | Ints) -> Pairs:
        """The pairs that `mask` selects."""
        return Pairs(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})

    def oldest(self, mask: Mask) -> Ints:
        """Those that `mask` selects, without the ops queued behind an older one on the same connection; oldest op first."""
        chosen = np.flatnonzero(mask)
        connection = mix(self.comm, self.channel, self.sender, self.receiver, self.p2p)[chosen]
        first = chosen[latest(connection, -self.op[chosen])]
        return first[np.argsort(self.op[first], kind="stable")]


def paired_flows(known: Known, members: Members) -> Pairs:
    """Every flow of `known`, with both ends."""
    flow = known.flow
    sends = flow["direction"] == SEND
    mine, other = flow["comm_rank"].astype(np.int64), flow["peer"].astype(np.int64)
    sender, receiver = np.where(sends, mine, other), np.where(sends, other, mine)
    keys = mix(known.flow_key, flow["channel"], sender, receiver)
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    n = len(first)
    sent, sender_end = _ends(known, group, sends, n)
    taken, receiver_end = _ends(known, group, ~sends, n)
    total = np.zeros(n, np.int64)
    np.maximum.at(total, group, flow["total_chunks"].astype(np.int64))
    transport = np.zeros(n, np.int64)
    np.maximum.at(transport, group, flow["transport"].astype(np.int64))
    comm_id, key = flow["comm_id"][first], known.flow_key[first]
    moved, seen = _moved(known, group, n)
    sender_at = _rank_at(members, comm_id, sender[first])
    receiver_at = _rank_at(members, comm_id, receiver[first])
    pairs = Pairs(
        comm=members.comm_of(comm_id), op=flow["op"][first].astype(np.int64), key=key, p2p=is_p2p(flow[first]),
        channel=flow["channel"][first].astype(np.int64), transport=transport,
        sender=sender_at, receiver=receiver_at, sent=sent, taken=taken, total=total,
        sender_end=sender_end, receiver_end=receiver_end, still_ns=moved,
    )  # fmt: skip
    lookup = _EndLookup(known, members)
    for at, end, counters in (
        (pairs.sender, pairs.sender_end, pairs.sent),
        (pairs.receiver, pairs.receiver_end, pairs.taken),
    ):
        lookup.fill(pairs, at, end, counters)
        moved = np.maximum(moved, lookup.finished_at(pairs, at, end))
    return replace(pairs, still_ns=seen - moved)


def _ends(known: Known, group: Ints, mask: Mask, n: int) -> tuple[Counters, Ints]:
    """Counters and SEEN or ABSENT of one end of every pair."""
    counters, end = np.zeros((n, 4), np.int64), np.full(n, ABSENT, np.int64)
    counters[group[mask]] = known.flow["counters"][mask]
    end[group[mask]] = SEEN
    return counters, end


def _moved(known: Known, group: Ints, n: int) -> tuple[Ints, Ints]:
    """When a reported end of every pair last moved, and the older of their ticks."""
    tick = known.flow["tick_ns"]
    moved, seen = np.zeros(n, np.int64), np.full(n, np.iinfo(np.int64).max)
    np.maximum.at(moved, group, tick - known.flow["stuck_ns"])
    np.minimum.at(seen, group, tick)
    return moved, seen


def _rank_at(members: Members, comm_id: npt.NDArray[np.uint64], comm_rank: Ints) -> Ints:
    member = members.find(comm_id, comm_rank)
    return np.where(member >= 0, members.rank_at[member] if len(members.rank_at) else -1, -1)


class _EndLookup:
    """Tells what became of the ends that report no row."""

    def __init__(self, known: Known, members: Members) -> None:
        self.members = members
        self.finished = known.finished
        self.finished_ns = np.append(known.finished_ns, 0)
        self.by_finished = Index(known.finished)
        self.active_ns = np.zeros(len(known.ranks.rank) + 1, np.int64)
        np.maximum.at(self.active_ns, known.flow_at, known.flow["tick_ns"] - known.flow["stuck_ns"])
        self.live = np.sort(mix(known.live_at, known.live_key))
        self.has_flows = np.sort(mix(known.flow_at, known.flow_key))
        self.by_rank = Index(mix(members.comm, members.rank_at))

    def fill(self, pairs: Pairs, rank_at: Ints, end: Ints, counters: Counters) -> None:
        """Replaces ABSENT in `end` by what it really is, and sets the counters of finished ends, in place."""
        absent = np.flatnonzero(end == ABSENT)
        at, own = rank_at[absent], mix(rank_at[absent], pairs.key[absent])
        member = self.by_rank.find(mix(pairs.comm[absent], at))
        entered = self.members.entered[member] if len(self.members.entered) else np.zeros(len(absent), np.int64)
        has_flows = in_sorted(own, self.has_flows)
        is_in = in_sorted(own, self.live) | has_flows
        has_entered = ~pairs.p2p[absent] & (member >= 0) & (entered >= pairs.op[absent])
        # Entered, but the op is neither in progress nor shows this flow: it is over at this end.
        is_over = in_sorted(own, self.finished) | (has_entered & ~is_in) | has_flows
        end[absent[is_in & ~is_over]] = NO_FLOWS
        end[absent[is_over]] = FINISHED
        is_untold = (member >= 0) & np.append(self.members.is_untold, False)[member]
        end[absent[(at < 0) | (is_untold & ~is_over)]] = UNHEARD
        counters[absent[is_over]] = pairs.total[absent[is_over], None]

    def finished_at(self, pairs: Pairs, rank_at: Ints, end: Ints) -> Ints:
        """(P,) when each FINISHED end finished, at the latest; 0 for other ends, and for ops over before the window."""
        own = mix(rank_at, pairs.key)
        is_in = in_sorted(own, self.has_flows)
        finished = np.where(is_in, self.active_ns[rank_at], self.finished_ns[self.by_finished.find(own)])
        return np.where(end == FINISHED, finished, 0)
