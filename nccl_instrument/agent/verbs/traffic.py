"""What each op of a process moved, from queue pairs and calls alone: rows of `traffic` where NCCL has no profiler interface.

Sends say their peer and volume. Of a collective neither algorithm, protocol nor channels are known: NCCL chooses them by
function and size, so each such kind of op is learned for itself (Pulse §5.1). Where the first calls' bytes, cut by silence, are
what rings or trees would move, flags of LL or LL128 included, if all channels left the node, later ones are cut by that; a kind
that comes later is learned from its first op. Where nothing fits no op is named, and a row says what moved in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nccl_instrument.agent.verbs.pairs import NO_PEER, Ints, Owner, Pair, Pairs
from nccl_instrument.agent.verbs_kinds import CHOICES, Choice, Kind, Wired, bursts, kind_of, most
from nccl_instrument.flows.association import MOVED, PeerStream, active_counts, summed
from nccl_instrument.flows.segmentation import DELTA_NS, OPS_MAX, segment
from nccl_instrument.tables import (
    FUNC_RECV,
    FUNC_SEND,
    NO_OP,
    OP_API,
    OP_P2P,
    OP_STOPS_LOST,
    TRAFFIC_SOURCES,
    empty_rows,
)
from nccl_instrument.verbs.reading import Block
from nccl_instrument.wire import Rows

VERBS: Final = TRAFFIC_SOURCES.index("verbs")
LEARNED_FROM: Final = 3
GIVEN_UP_AFTER: Final = 16
CELLS_HELD_MAX: Final = 500_000
SILENT_NS: Final = 1_000_000_000

Fed = list[tuple[Pair, Ints, Ints]]


@dataclass
class _Member:
    """One communicator's connections of one owner (all its collectives, or its sends to one peer).

    ops: OP rows, those not expected yet. fed: epochs that wait until it is known how to cut them. lost_ns: when something of it
    was lost, 0 when ops can be told; newest_ns, called_ns: its last byte and its last call.
    """

    comm: np.void
    ops: list[np.void] = field(default_factory=list)
    fed: Fed = field(default_factory=list)
    streams: dict[bytes, PeerStream] = field(default_factory=dict)
    choices: dict[Kind, Choice] = field(default_factory=dict)
    n_channels: int = 0
    is_untold: bool = False
    newest_ns: int = 0
    called_ns: int = 0
    lost_ns: int = 0
    given_up: list[Rows] = field(default_factory=list)
    told: tuple[int, int] = (-1, -1)
    next_op: int = 1


class VerbsTraffic:
    """Of one process: `rows` at each cut with what is new."""

    def __init__(self, epoch_ns: int) -> None:
        self.epoch_ns, self.pairs = epoch_ns, Pairs()
        self._members: dict[Owner, _Member] = {}
        self._newest: dict[tuple[int, int, int], int] = {}
        self._n_refused = 0

    def rows(self, blocks: Sequence[Block], comms: Rows, ops: Rows) -> Rows:
        """comms: COMM rows; ops: OP rows, over or under way, in any order, also such as were given before."""
        ours = comms[(comms["abi"] == 0) & (comms["comm_id"] != 0) & (comms["comm_rank"] >= 0)]
        if not len(ours):
            return empty_rows("traffic")
        self._forget(set(ours["comm_id"].tolist()))
        new = self._new(ops[(ops["flags"] & OP_API) != 0])
        self.pairs.note_calls(new)
        self.pairs.feed(list(blocks), ours)
        for row in new:
            self._note(row, ours)
        if self.pairs.has_lost():
            for member in self._members.values():
                self._lose(member, self.pairs.until_ns)
        until, found = self.pairs.until_ns // self.epoch_ns, [empty_rows("traffic")]
        fed: dict[Owner, Fed] = {}
        for pair in self.pairs.known.values():
            if pair.owner is not None:
                fed.setdefault(pair.owner, []).append((pair, *pair.take(until)))
        for owner, member in self._members.items():
            found.append(self._cut(owner, member, fed.get(owner, [])))
        return np.concatenate(found)

    def refused(self) -> int:
        """How many epochs and ops found no room since this was last asked."""
        found, self._n_refused = self._n_refused, 0
        return found + self.pairs.refused()

    def _forget(self, comm_ids: set[int]) -> None:
        """Communicators that are gone: a job that makes them again and again must not fill the node."""
        self.pairs.forget(comm_ids)
        self._members = {owner: one for owner, one in self._members.items() if owner.comm_id in comm_ids}
        self._newest = {key: number for key, number in self._newest.items() if key[0] in comm_ids}

    def _new(self, ops: Rows) -> Rows:
        """Those not seen before, in the order in which they were enqueued. Launched ones alone: a call may still be refused."""
        ops = ops[(ops["comm_id"] != 0) & (ops["launched_ns"] > 0) & (ops["flags"] & OP_STOPS_LOST == 0)]
        kept = []
        for row in ops[np.lexsort((ops["ordinal"], ops["enqueued_ns"]))]:
            is_p2p = bool(row["flags"] & OP_P2P)
            key = int(row["comm_id"]), int(row["func"]) if is_p2p else -1, int(row["peer"]) if is_p2p else -1
            if int(row["op"]) > self._newest.get(key, 0):
                self._newest[key] = int(row["op"])
                kept.append(row)
        return np.array(kept, ops.dtype) if kept else ops[:0]

    def _note(self, row: np.void, comms: Rows) -> None:
        mine = comms[comms["comm_id"] == row["comm_id"]]
        if not len(mine) or row["func"] == FUNC_RECV:
            return
        owner = Owner(int(row["comm_id"]), int(row["peer"]) if row["func"] == FUNC_SEND else NO_PEER)
        member = self._members.setdefault(owner, _Member(mine[0].copy()))
        if (
            int(row["op"]) != member.next_op
        ):  # its first ones were before our time, or one is lost: which bytes are whose?
            self._lose(member, int(row["enqueued_ns"]))
        member.next_op = int(row["op"]) + 1
        member.ops.append(row.copy())

    def _cut(self, owner: Owner, member: _Member, fed: Fed) -> Rows:
        member.fed += [one for one in fed if len(one[1])]
        if member.lost_ns:
            return self._lost(owner, member)
        if owner.peer == NO_PEER and not member.choices and not member.is_untold:
            self._learn(member)
            if not member.choices and not member.is_untold:
                return empty_rows("traffic")
        if member.is_untold:
            member.ops.clear()
            return self._untold(owner, member)
        return self._told(owner, member)

    # ---- after a loss ----

    def _lose(self, member: _Member, at_ns: int) -> None:
        """Nothing says any more whose bytes come: what is open is given up, marked."""
        member.lost_ns = max(member.lost_ns, at_ns)
        member.given_up += [stream.lose(NO_OP, self.pairs.until_ns) for stream in member.streams.values()]
        self._n_refused += sum(stream.n_refused for stream in member.streams.values())
        member.streams = {}

    def _lost(self, owner: Owner, member: _Member) -> Rows:
        """Until a call that surely begins the next bytes, rows without an op; from there on ops again."""
        found = [self._named(owner, member, one) for one in member.given_up]
        member.given_up = []
        if not self._is_complete(member):
            return np.concatenate([*found, self._untold(owner, member)])
        begin_ns, fed = int(member.ops[0]["enqueued_ns"]), member.fed
        begin = begin_ns // self.epoch_ns
        member.fed = [(pair, epochs[epochs < begin], n[epochs < begin]) for pair, epochs, n in fed if epochs[0] < begin]
        found.append(self._untold(owner, member))
        member.fed = [
            (pair, epochs[epochs >= begin], n[epochs >= begin]) for pair, epochs, n in fed if epochs[-1] >= begin
        ]
        member.lost_ns = 0
        return np.concatenate([*found, self._cut(owner, member, [])])

    def _is_complete(self, member: _Member) -> bool:
        """Whether there is an op before whose call everything was over: the bytes of the call before it had come, and for a
        second there was neither byte nor call. The ops before it are dropped.

        A host enqueues ahead of its GPU: a pause alone may be that of a call that has not moved anything.
        """
        epochs = np.unique(np.concatenate([np.zeros(0, np.int64), *(one[1] for one in member.fed)]))
        ends_ns = np.append(member.newest_ns, (epochs + 1) * self.epoch_ns)
        while member.ops and int(member.ops[0]["enqueued_ns"]) < self.pairs.until_ns:
            at_ns = int(member.ops[0]["enqueued_ns"])
            moved_ns = int(ends_ns[ends_ns <= at_ns].max(initial=0))
            is_over = moved_ns > member.called_ns > 0
            if is_over and at_ns - max(moved_ns, member.lost_ns) >= SILENT_NS:
                return True
            member.called_ns = at_ns
            member.ops.pop(0)
        if len(epochs):
            member.newest_ns = max(member.newest_ns, int(ends_ns[-1]))
        return False

    # ---- what a collective is ----

    def _learn(self, member: _Member) -> None:
        """Try what the first calls may have been."""
        channels = {pair.key for pair, _, _ in member.fed}
        n_cells = sum(len(epochs) for _, epochs, _ in member.fed)
        member.is_untold = n_cells > CELLS_HELD_MAX
        if len(member.ops) < LEARNED_FROM or member.is_untold:
            return
        for choices in self._proposals(member, len(channels)):
            if self._fits(member, choices, len(channels)):
                member.choices, member.n_channels = choices, len(channels)
                return
        member.is_untold = len(member.ops) > GIVEN_UP_AFTER

    def _proposals(self, member: _Member, n_channels: int) -> list[dict[Kind, Choice]]:
        """What the kinds of the first ops may be: the n-th op the n-th burst, else all of them alike."""
        kinds = {kind_of(row) for row in member.ops}
        alike = [dict.fromkeys(kinds, choice) for choice in CHOICES]
        aligned = self._aligned(member, n_channels) if len(kinds) > 1 else {}
        return [alike[0], aligned, *alike[1:]] if len(aligned) == len(kinds) else alike

    def _aligned(self, member: _Member, n_channels: int) -> dict[Kind, Choice]:
        """Kind → what most of its ops would be if each were one burst, to the first destination."""
        destination = member.fed[0][0].destination
        seen = bursts(*_summed([one for one in member.fed if one[0].destination == destination]), self.epoch_ns)
        wired = self._wired(member, n_channels)
        votes: dict[Kind, Counter[Choice]] = {}
        for row, n_bytes in zip(member.ops, seen, strict=False):
            fitting = wired.fitting(row, {destination: n_bytes})
            if fitting is not None:
                votes.setdefault(kind_of(row), Counter())[fitting] += 1
        return {kind: found.most_common(1)[0][0] for kind, found in votes.items()}

    def _fits(self, member: _Member, choices: dict[Kind, Choice], n_channels: int) -> bool:
        """Whether the first ops, cut by silence, moved what they would have by these choices, to every destination."""
        wired, by_destination = self._wired(member, n_channels), dict[bytes, Fed]()
        for one in member.fed:
            by_destination.setdefault(one[0].destination, []).append(one)
        for destination, mine in by_destination.items():
            volumes = [wired.volumes(row, choices[kind_of(row)]).get(destination, 0.0) for row in member.ops]
            volumes = [volume for volume in volumes if volume > 0]
            if not self._are_ops(volumes, *_summed(mine)):
                return False
        return bool(by_destination)

    def _are_ops(self, volumes: list[float], epochs: Ints, n_bytes: Ints) -> bool:
        """Whether the bytes, cut by silence, are these ops: all of their volume, most of them, three at least, without a pause.

        An op may pause for a late peer; but where every one does, what is taken for one op is two. What was cut by volume alone
        says nothing here.
        """
        found = segment(epochs, n_bytes, volumes, epoch_ns=self.epoch_ns, now_ns=self.pairs.until_ns)[: len(volumes)]
        clear = [
            (one, volume) for one, volume in zip(found, volumes, strict=False) if one.is_finished and not one.is_cut
        ]
        pauses = epochs[1:][np.diff(epochs) * self.epoch_ns - self.epoch_ns >= DELTA_NS] * self.epoch_ns
        n_whole = sum(not ((pauses > one.start_ns) & (pauses < one.end_ns)).any() for one, _ in clear)
        is_like = all(volume <= one.n_bytes <= most(volume) for one, volume in clear)
        return is_like and n_whole >= max(LEARNED_FROM, (len(clear) + 1) // 2)

    def _wired(self, member: _Member, n_channels: int) -> Wired:
        pairs = self._pairs_of(Owner(int(member.comm["comm_id"]), NO_PEER))
        connections = Counter(pair.destination for pair in pairs)
        return Wired(int(member.comm["n_ranks"]), int(member.comm["comm_rank"]), connections, n_channels)

    # ---- rows ----

    def _told(self, owner: Owner, member: _Member) -> Rows:
        self._expect(owner, member)
        if member.lost_ns:
            return self._lost(owner, member)
        fed, member.fed = member.fed, []
        counts = active_counts([epochs for _, epochs, _ in fed])
        for (pair, epochs, n_bytes), n_active in zip(fed, counts, strict=True):
            self._stream(member, pair.destination).feed(pair.channel, epochs, n_bytes, n_active)
            member.newest_ns = max(member.newest_ns, (int(epochs[-1]) + 1) * self.epoch_ns)
        moved = self._polled(owner, member)
        if member.lost_ns:
            return np.concatenate([self._named(owner, member, moved), self._lost(owner, member)])
        if any(stream.n_refused for stream in member.streams.values()):
            self._lose(member, self.pairs.until_ns)
        return self._named(owner, member, np.concatenate([moved, self._standing(member)]))

    def _polled(self, owner: Owner, member: _Member) -> Rows:
        """MOVED rows of the ops that are over; a kind of op that is learned now has been waited for by those after it."""
        found = [np.zeros(0, MOVED)]
        n_waiting = len(member.ops) + 1
        while len(member.ops) < n_waiting and not member.lost_ns:
            n_waiting = len(member.ops)
            found += [stream.poll(self.pairs.until_ns) for stream in member.streams.values()]
            self._expect(owner, member)
        return np.concatenate(found)

    def _expect(self, owner: Owner, member: _Member) -> None:
        """Calls whose bytes may have been seen by now; up to one of which nobody knows yet how it runs."""
        while member.ops and int(member.ops[0]["enqueued_ns"]) < self.pairs.until_ns:
            row = member.ops[0]
            if owner.peer == NO_PEER and kind_of(row) not in member.choices and not self._recognise(member, row):
                self._limit(member)
                return
            member.ops.pop(0)
            member.called_ns = int(row["enqueued_ns"])
            if owner.peer != NO_PEER:
                volumes = {pair.destination: float(row["bytes"]) for pair in self._pairs_of(owner)}
            else:
                volumes = self._wired(member, member.n_channels).volumes(row, member.choices[kind_of(row)])
            for destination, volume in volumes.items():
                stream = self._stream(member, destination)
                stream.expect(np.array([row["op"]], np.int64), np.array([volume]), np.array([owner.peer != NO_PEER]))

    def _limit(self, member: _Member) -> None:
        """Calls that wait for one of which nobody knows how it runs must not fill the node."""
        if len(member.ops) > OPS_MAX:
            self._n_refused += len(member.ops)
            member.ops.clear()
            self._lose(member, self.pairs.until_ns)

    def _recognise(self, member: _Member, row: np.void) -> bool:
        """Learn a kind of op that comes later: all ops before it are over, so the first burst held for nobody is its. What
        fits nothing is a loss: nobody knows then whose the next bytes are.
        """
        held = {destination: stream.unexpected() for destination, stream in member.streams.items()}
        moved: dict[bytes, int] = {}
        for destination, seen in held.items():
            if seen is None:
                return False
            over = bursts(*seen, self.epoch_ns, self.pairs.until_ns)
            if len(seen[0]) and not over:
                return False  # it may go on
            if over:
                moved[destination] = over[0]
        if not moved:
            return False
        choice = self._wired(member, member.n_channels).fitting(row, moved)
        if choice is None:
            self._lose(member, self.pairs.until_ns)
            return False
        member.choices[kind_of(row)] = choice
        return True

    def _standing(self, member: _Member) -> Rows:
        """The op under way, when it has moved nothing for long: told once."""
        if self.pairs.until_ns - member.newest_ns < SILENT_NS:
            return np.zeros(0, MOVED)
        found = np.concatenate([np.zeros(0, MOVED), *(stream.open() for stream in member.streams.values())])
        state = (int(found["op"].max(initial=-1)), int(found["n_bytes"].sum()))
        if not len(found) or state == member.told:
            return found[:0]
        member.told = state
        return found

    def _untold(self, owner: Owner, member: _Member) -> Rows:
        """A row per queue pair: what moved in all since the last cut."""
        fed, member.fed = member.fed, []
        moved = np.zeros(len(fed), MOVED)
        for row, (pair, epochs, n_bytes) in zip(moved, fed, strict=True):
            row["op"], row["channel"], row["share_ns"] = NO_OP, pair.channel, -1
            row["start_ns"], row["end_ns"] = epochs[0] * self.epoch_ns, (epochs[-1] + 1) * self.epoch_ns
            row["actual_ns"], row["n_bytes"] = len(epochs) * self.epoch_ns, n_bytes.sum()
        return self._named(owner, member, moved)

    def _named(self, owner: Owner, member: _Member, moved: Rows) -> Rows:
        rows = empty_rows("traffic", len(moved))
        for name in set(MOVED.names or ()) & set(rows.dtype.names or ()):
            rows[name] = moved[name]
        pairs = {pair.channel: pair for pair in self._pairs_of(owner)}
        for row in rows:
            pair = pairs[int(row["channel"])]
            row["queue_pair"], row["nic"], row["slice_bytes"] = pair.key[1], pair.card, min(pair.slice_bytes, 2**31 - 1)
        n_ranks, rank = int(member.comm["n_ranks"]), int(member.comm["comm_rank"])
        rows["comm_id"], rows["comm_rank"] = member.comm["comm_id"], rank
        rows["peer"] = owner.peer if owner.peer != NO_PEER else 1 - rank if n_ranks == 2 else -1
        rows["epoch_ns"], rows["source"] = self.epoch_ns, VERBS
        return rows

    def _stream(self, member: _Member, destination: bytes) -> PeerStream:
        return member.streams.setdefault(destination, PeerStream(self.epoch_ns))

    def _pairs_of(self, owner: Owner) -> list[Pair]:
        return [pair for pair in self.pairs.known.values() if pair.owner == owner]


def _summed(fed: Fed) -> tuple[Ints, Ints]:
    """Bytes by epoch, rising, of several queue pairs."""
    return summed(np.concatenate([one for _, one, _ in fed]), np.concatenate([one for _, _, one in fed]))
