"""Who of a node hands its ops to NCCL later than its mates: a host runs only so far ahead of its GPU.

    rank 44  enqueue ▪      ▪      ▪          its GPU is through with its work and waits for 46 inside the node
    rank 46  enqueue   ······▪ ······▪ ·····▪ its GPU is not, so its host cannot go on either

Ops inside a node have no times but that of being enqueued. Launches queue up in front of a GPU, a thousand at most, and a
host that has filled the queue, or waits for the end of a step, enqueues the next op when its GPU is through with an earlier
one. So the mate whose work takes longest enqueues last, and mates who all work more slowly enqueue as evenly as ever. A host
that never has to wait enqueues at its own pace: then nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from ingest.columns import Columns, picked, rows_at
from nccl_instrument.tables import FUNC_SEND
from rca.keys import Ints, Mask, Rows, distinct, is_p2p, mix
from rca.slow.cover import SHARE_MIN
from rca.slow.ops_of import ops_of
from rca.slow.slowdown import ITERATIONS_MIN, Slowdown
from rca.slow.streams import Floats

LEAD_MIN_NS = 300_000.0
LEAD_SPREAD = 3.0  # times as much as the others differ among themselves
LEAD_NOISE = 4.0  # deviations of a median over so many iterations
SHARE_OF_OP = 0.02  # of what an iteration loses, divided among its ops; not more, as a host is ahead most of the time
SHARE_OF_TWO = 0.1  # where only two meet, and nothing tells by how much those differ who are equally slow
ALONE_MIN_NS = (
    50_000.0  # by which those differ whose GPUs come to an op by themselves; a host's own pace varies by less
)
MADE_UP_MIN = 0.5  # of a lead
ABOUT_AS_MUCH = 0.8  # of a lead
ALIKE_MAX = 0.25  # of what an iteration loses, divided among its ops: one slow GPU alone leads by nearly all of it
DEVIATION = 1.4826  # times a median deviation
_TOLD: Final = ("rank", "node", "comm_id", "op", "func", "flags", "peer", "enqueued_ns")


@dataclass(frozen=True, slots=True)
class Meeting:
    """A communicator on one node. members: (M,) global ranks. later_ns: (K, M) by how much later than usual, compared with the
    middle of them, each enqueues its n-th op of an iteration. uneven_ns, uneven_now_ns, grown_ns: (K,) by how much each of
    them usually varies there, by how much now, and by how much later after the first of these ops they come to it now. n: (K,)
    iterations. is_let_go: whether they wait longest before an op of these where the op enqueued before it was one of all of
    them, which they left together."""

    members: Ints
    later_ns: Floats
    uneven_ns: Floats
    uneven_now_ns: Floats
    grown_ns: Floats
    n: Ints
    is_let_go: bool

    def is_moved(self, lost_ns: float) -> Mask:
        """(K,) the ops whose hosts follow their GPUs: of a step enqueued at once, all come later by the same, or by a whole
        iteration's delay."""
        part = (self.grown_ns / lost_ns) % 1.0
        found: Mask = (part >= SHARE_MIN) & (part <= 1 - SHARE_MIN)
        return found

    def own_ns(self) -> Floats:
        """(M,) by how much later each enqueues, on average over the ops. Unless they were let go together, without that by which
        it begins the whole iteration later: that may be inherited."""
        least = np.abs(self.later_ns).argmin(axis=0)
        began = self.later_ns[least, np.arange(len(self.members))]
        found: Floats = self.later_ns.mean(axis=0)
        return found if self.is_let_go else found - began


@dataclass(frozen=True, slots=True)
class Leads:
    """Rank → by how much it leads where it leads most, and where it leads least. led: who is led, and by whom."""

    most: dict[int, float]
    least: dict[int, float]
    led: set[tuple[int, int]]

    def is_led(self, rank: int) -> bool:
        """Whether somebody who leads leads this one."""
        return any((rank, other) in self.led for other in self.most)


def last_to_launch(slowdown: Slowdown, ranks: Ints) -> Ints:
    """Those of these global ranks (of one node) that enqueue clearly later than their mates in some communicator, more than
    they used to, and share none with somebody who does so by more, and may keep them late; () where nobody stands out."""
    return np.array(sorted(leads_ns(slowdown, ranks)), np.int64)


def leads_ns(slowdown: Slowdown, ranks: Ints) -> dict[int, float]:
    """Rank → by how much it enqueues later than its mates, on average over the ops of an iteration; see last_to_launch."""
    meetings = meetings_of(slowdown, ranks)
    leads = _leads_of(slowdown, meetings)
    members = slowdown.window.members
    found, told_of = list[int](), list[int]()
    for rank in sorted(leads.most, key=lambda one: (_is_kept_late(one, leads), -leads.most[one])):
        shared = members["rank"][np.isin(members["comm_id"], members["comm_id"][members["rank"] == rank])]
        in_node = np.intersect1d(shared, ranks)  # whom it meets elsewhere does not make it later than its mates
        rivals = [one for one in _rivals(rank, leads) if one in in_node]
        late = _through({*leads.led, *((one, rank) for one in rivals)})
        if np.isin(told_of, in_node).any() or is_made_up_for(meetings, rank, leads.most[rank], in_node, late):
            continue
        told_of += [rank, *rivals]
        found += _clearly_last([rank, *rivals], leads)
    return {rank: leads.most[rank] for rank in found}


def leading_anywhere(slowdown: Slowdown, ranks: Ints) -> Ints:
    """Those of these global ranks (of one node) that enqueue clearly later than their mates in some communicator, and behind
    none of these elsewhere: they may be slow, or wait for whom they meet elsewhere."""
    leads = _leads_of(slowdown, meetings_of(slowdown, ranks))
    return np.array(sorted(one for one in leads.most if not leads.is_led(one)), np.int64)


def _leads_of(slowdown: Slowdown, meetings: Sequence[Meeting]) -> Leads:
    found = Leads({}, {}, set())
    for meeting in meetings:
        grown = meeting.own_ns()
        leader = leader_of(slowdown.lost_ns, meeting)
        if leader >= 0:
            rank = int(meeting.members[leader])
            lead_ns = float(grown[leader] - np.delete(grown, leader).max())
            found.most[rank] = max(found.most.get(rank, 0.0), lead_ns)
            found.least[rank] = min(found.least.get(rank, np.inf), lead_ns)
            found.led.update((int(other), rank) for other in meeting.members if other != rank)
    return found


def _through(led: Set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The same, with those who are led by somebody who is led."""
    found, more = set(led), set(led)
    while more:
        more = {(one, last) for one, by in more for other, last in led if other == by and one != last} - found
        found |= more
    return found


def _rivals(rank: int, leads: Leads) -> list[int]:
    """Who leads others by about as much, is led by nobody who leads, and neither leads this one nor is led by it: one of the two
    waits for the other where all come together."""
    return [
        other
        for other, lead_ns in leads.most.items()
        if other != rank and lead_ns >= ABOUT_AS_MUCH * leads.most[rank]
        and not leads.is_led(other) and (rank, other) not in leads.led
    ]  # fmt: skip


def _clearly_last(ranks: list[int], leads: Leads) -> list[int]:
    """The one of these that also leads by more than the others where each leads least, if there is one: who waits for it is late
    for a part of the ops only."""
    order = sorted(ranks, key=lambda one: -leads.least[one])
    is_clear = len(order) == 1 or leads.least[order[1]] <= ABOUT_AS_MUCH * leads.least[order[0]]
    return order[:1] if is_clear else []


def _is_kept_late(rank: int, leads: Leads) -> bool:
    """Whether a mate leads it where they meet, and elsewhere by about as much as this one leads others: which of such two leads
    is the larger is chance."""
    return any(
        (rank, other) in leads.led and (other, rank) not in leads.led and lead_ns >= ABOUT_AS_MUCH * leads.most[rank]
        for other, lead_ns in leads.most.items()
    )


def is_made_up_for(
    meetings: Sequence[Meeting], rank: int, lead_ns: float, mates: Ints, led: Set[tuple[int, int]] = frozenset()
) -> bool:
    """Whether one of these mates is ahead of its own, in a meeting without the rank, by as much as the rank is behind: what the
    experts of one have more to do, those of the other have less, and on a node that is slower all of it takes longer. Not where
    those it is ahead of are led by the rank, which keeps them late. led: who is led, and by whom."""
    for meeting in meetings:
        if (meeting.members == rank).any():
            continue
        own = meeting.own_ns()
        is_kept = np.array([(int(one), rank) in led for one in meeting.members], bool)
        for at in np.flatnonzero(np.isin(meeting.members, mates)):
            is_ahead = np.delete(own, at).min(initial=np.inf) - own[at] >= MADE_UP_MIN * lead_ns
            if is_ahead and not np.delete(is_kept, at).any():
                return True
    return False


def launch_alike(slowdown: Slowdown, ranks: Ints) -> bool:
    """Whether these global ranks, of one node, keep pace where one that is slower alone would fall behind: each of them in an
    op that mates come to by themselves, usually and now, and that they all come to later now."""
    kept = set[int]()
    for meeting in meetings_of(slowdown, ranks):
        by_themselves = np.minimum(meeting.uneven_ns, meeting.uneven_now_ns) >= ALONE_MIN_NS
        shows = meeting.is_moved(slowdown.lost_ns) & by_themselves
        if not shows.any():
            continue
        most = max(LEAD_MIN_NS, ALIKE_MAX * slowdown.lost_ns / max(len(meeting.grown_ns), 1))
        if np.ptp(meeting.later_ns[shows].mean(axis=0)) > most:
            return False
        if leader_of(slowdown.lost_ns, meeting) >= 0:
            return False  # in ops that do not show it somebody is behind, if too little to be told
        kept.update(meeting.members.tolist())
    return kept >= set(ranks.tolist())


def _least_ns(lost_ns: float, meeting: Meeting) -> float:
    share = SHARE_OF_OP if len(meeting.members) > 2 else SHARE_OF_TWO
    return max(LEAD_MIN_NS, share * lost_ns / max(len(meeting.grown_ns), 1))


def leader_of(lost_ns: float, meeting: Meeting) -> int:
    """Position of the member that enqueues last, -1 where none clearly does. lost_ns: by which an iteration is longer."""
    grown = meeting.own_ns()
    order = np.argsort(grown, kind="stable")
    others = grown[order[:-1]]
    uneven = np.maximum(meeting.uneven_ns, meeting.uneven_now_ns)  # who works more slowly also varies by more
    noise = LEAD_NOISE * float((uneven / np.sqrt(meeting.n)).max())
    least = max(_least_ns(lost_ns, meeting), LEAD_SPREAD * float(np.ptp(others)), noise)
    return int(order[-1]) if grown[order[-1]] - others[-1] >= least else -1


def meetings_of(slowdown: Slowdown, ranks: Ints) -> tuple[Meeting, ...]:
    """The communicators in which two of these ranks are, and enqueue collectives or exchanges of all with all (experts' tokens).
    Kept, as several questions begin with them."""
    kept, key = _MEETINGS.setdefault(slowdown, {}), ranks.astype(np.int64).tobytes()
    if key not in kept:
        kept[key] = tuple(_meetings_of(slowdown, ranks))
    return kept[key]


_MEETINGS: Final[WeakKeyDictionary[Slowdown, dict[bytes, tuple[Meeting, ...]]]] = WeakKeyDictionary()


def _meetings_of(slowdown: Slowdown, ranks: Ints) -> Iterator[Meeting]:
    told = _told_of(slowdown, ranks)
    is_pair = is_p2p(told[0])
    rows = rows_at(told[0], ~is_pair | _is_exchange(told[0], is_pair))
    for comm in np.unique(rows["comm_id"]):
        mine = rows_at(rows, rows["comm_id"] == comm)
        members = np.unique(mine["rank"]).astype(np.int64)
        if len(members) > 1:
            found = _meeting(slowdown, members, _table(mine, members, slowdown.iterations.start_ns), told)
            if len(found.n):
                yield found


def _is_exchange(rows: Rows, is_pair: Mask) -> Mask:
    """(n,) sends of communicators in which each of these ranks sends to as many peers as there are others: they are enqueued at
    once, and those of one number are one exchange."""
    found = np.zeros(len(rows), bool)
    sends = np.flatnonzero(is_pair & (rows["func"] == FUNC_SEND))
    for comm in np.unique(rows["comm_id"][sends]):
        mine = sends[rows["comm_id"][sends] == comm]
        n_ranks = len(np.unique(rows["rank"][mine]))
        n_peers = len(np.unique(rows["peer"][mine]))
        n_pairs = len(distinct(mix(rows["rank"][mine], rows["peer"][mine])))
        found[mine] = n_ranks > 1 and n_peers == n_ranks and n_pairs == n_ranks * (n_ranks - 1)
    return found


def _table(rows: Rows, members: Ints, start_ns: int) -> Floats:
    """(members, ops) when each enqueued each op that all of them are known to have, ns since start_ns, in the order of time.
    Exchanges are numbered by themselves."""
    numbers, op = np.unique(rows["op"].astype(np.uint64) * np.uint64(2) + is_p2p(rows), return_inverse=True)
    found = np.full((len(members), len(numbers)), np.nan)
    found[np.searchsorted(members, rows["rank"]), op] = rows["enqueued_ns"] - start_ns
    whole: Floats = found[:, np.isfinite(found).all(axis=0)]
    return whole[:, np.argsort(whole.min(axis=0, initial=np.inf), kind="stable")]


def _meeting(slowdown: Slowdown, members: Ints, enqueued: Floats, told: Sequence[Rows]) -> Meeting:
    first_ns = enqueued.min(axis=0)
    later = enqueued - np.median(enqueued, axis=0)
    nth, into_ns = _within(slowdown, first_ns)
    before, since = before_and_since(slowdown, first_ns)
    found = []
    for one in range(int(nth.max(initial=-1)) + 1):
        usual, slow = before & (nth == one), since & (nth == one)
        n = int(min(usual.sum(), slow.sum()))
        if n >= ITERATIONS_MIN:
            (typical, uneven), (now, uneven_now) = (_varies(later[:, those]) for those in (usual, slow))
            grown = float(np.median(into_ns[slow]) - np.median(into_ns[usual]))
            found.append((now - typical, uneven, uneven_now, grown, n))
    apart, uneven_ns, now_ns, grown_ns, numbers = zip(*found, strict=True) if found else ((),) * 5
    shaped = np.array(apart).reshape(len(found), len(members))
    return Meeting(
        members, shaped, np.array(uneven_ns), np.array(now_ns), np.array(grown_ns), np.array(numbers, np.int64),
        _is_let_go(slowdown, members, enqueued, nth, told),
    )  # fmt: skip


def _varies(later: Floats) -> tuple[Floats, float]:
    """(M,) the median of each of (M, n), and the deviation from these; of a few values about the median of them, a bit more."""
    typical, n = np.median(later, axis=1), later.shape[1]
    return typical, DEVIATION * float(np.median(np.abs(later - typical[:, None]))) * float(np.sqrt(n / (n - 1)))


def _is_let_go(slowdown: Slowdown, members: Ints, enqueued: Floats, nth: Ints, told: Sequence[Rows]) -> bool:
    """See Meeting. enqueued: (M, ops); nth: (ops,) the how many-th of its iteration each is. told: see _told_of."""
    pause, before = np.zeros(enqueued.shape), np.zeros(enqueued.shape, np.uint64)
    for at, rank in enumerate(members.tolist()):
        mine = [rows_at(rows, rows["rank"] == rank) for rows in told]
        since, first = np.unique(np.concatenate([rows["enqueued_ns"] for rows in mine]), return_index=True)
        since = since - slowdown.iterations.start_ns
        last = np.maximum(np.searchsorted(since, enqueued[at]) - 1, 0)
        pause[at] = enqueued[at] - since[last]
        before[at] = np.concatenate([rows["comm_id"] for rows in mine])[first][last]
    longest = [float(np.median(pause[:, nth == one])) for one in range(int(nth.max(initial=-1)) + 1)]
    if not longest:
        return False
    is_first = nth == int(np.argmax(longest))
    is_shared = (before[:, is_first] == before[0, is_first]).all(axis=0)
    return bool(is_shared.mean() >= 0.5)


def _told_of(slowdown: Slowdown, ranks: Ints) -> tuple[Rows, Rows]:
    """What is told of the ops that these ranks, of a node, enqueued: those that are over, and, as some are not as far as rows
    tell, those in progress on that node."""
    ops = _narrow(slowdown.window.rows("op"), ops_of(slowdown.window, ranks))
    live = slowdown.window.rows_on("live_op", distinct(ops["node"].astype(np.int64)))
    return rows_at(ops, ops["enqueued_ns"] > 0), _narrow(live, np.flatnonzero(live["enqueued_ns"] > 0))


def _narrow(rows: Rows | Columns, at: Ints) -> Rows:
    return np.asarray(picked(rows, at, _TOLD))


def _within(slowdown: Slowdown, at_ns: Floats) -> tuple[Ints, Floats]:
    """(ops,) the how many-th of its iteration each op is, and how long after the first of them it was enqueued."""
    begins = np.fmin.reduce(slowdown.iterations.began, axis=0)
    iteration = np.searchsorted(begins[np.isfinite(begins)], at_ns)
    first = np.searchsorted(iteration, iteration)
    return np.arange(len(at_ns)) - first, at_ns - at_ns[first]


def before_and_since(slowdown: Slowdown, at_ns: Floats) -> tuple[Mask, Mask]:
    """Which ops were enqueued before the slowdown, and which since."""
    iterations = slowdown.iterations
    ended = np.nanmax(iterations.end[:, slowdown.usual])
    began = np.nanmin(iterations.began[:, slowdown.slow])
    return at_ns < ended, at_ns >= began
