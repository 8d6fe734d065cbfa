"""Who of a node hands its ops to NCCL later than its mates: a host runs only so far ahead of its GPU.

    rank 44  enqueue ▪      ▪      ▪          its GPU is through with its work and waits for 46 inside the node
    rank 46  enqueue   ······▪ ······▪ ·····▪ its GPU is not, so its host cannot go on either

Ops inside a node have no times but that of being enqueued. Launches queue up in front of a GPU, a thousand at most, and a
host that has filled the queue, or waits for the end of a step, enqueues the next op when its GPU is through with an earlier
one. So the mate whose work takes longest enqueues last, and mates who all work more slowly enqueue as evenly as ever. A host
that never has to wait enqueues at its own pace: then nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rca.cover import SHARE_MIN
from rca.keys import Index, Ints, Mask, Rows, distinct, is_p2p, mix
from rca.slowdown import ITERATIONS_MIN, Slowdown
from rca.streams import Floats

LEAD_MIN_NS = 300_000.0
LEAD_SPREAD = 3.0  # times as much as the others differ among themselves
LEAD_NOISE = 4.0  # deviations of a median over so many iterations
SHARE_OF_OP = 0.02  # of what an iteration loses, divided among its ops; not more, as a host is ahead most of the time
SHARE_OF_TWO = 0.1  # where only two meet, and nothing tells by how much those differ who are equally slow
ALONE_MIN_NS = (
    50_000.0  # by which those differ whose GPUs come to an op by themselves; a host's own pace varies by less
)
ALIKE_MAX = 0.1  # of what an iteration loses, divided among its ops: one slow GPU alone leads by nearly all of it
NODES_ASKED = 8
OWN_MIN = 0.5  # of its lead
DEVIATION = 1.4826  # times a median deviation


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


def last_to_launch(slowdown: Slowdown, ranks: Ints) -> Ints:
    """Those of these global ranks (of one node) that enqueue clearly later than their mates in some communicator, more than
    they used to, and share none with somebody who does so by more, and may keep them late; () where nobody stands out."""
    return np.array(sorted(leads_ns(slowdown, ranks)), np.int64)


def leads_ns(slowdown: Slowdown, ranks: Ints) -> dict[int, float]:
    """Rank → by how much it enqueues later than its mates, on average over the ops of an iteration; see last_to_launch."""
    leads: dict[int, float] = {}
    for meeting in _meetings(slowdown, ranks):
        grown = meeting.own_ns()
        leader = leader_of(slowdown.lost_ns, meeting)
        if leader >= 0:
            rank = int(meeting.members[leader])
            leads[rank] = max(leads.get(rank, 0.0), float(grown[leader] - np.delete(grown, leader).max()))
    members = slowdown.window.members
    found = list[int]()
    for rank in sorted(leads, key=lambda one: -leads[one]):
        shared = members["rank"][np.isin(members["comm_id"], members["comm_id"][members["rank"] == rank])]
        in_node = np.intersect1d(shared, ranks)  # whom it meets elsewhere does not make it later than its mates
        if not np.isin(found, in_node).any():
            found.append(rank)
    return {rank: leads[rank] for rank in found}


def leads_anywhere_ns(slowdown: Slowdown) -> dict[int, float]:
    """leads_ns of all nodes of the job, of those who take longer from what ends last on their node to their next step: asked
    of the NODES_ASKED nodes where somebody stands out most at first sight."""
    node = np.append(slowdown.ranks.node, -1)[slowdown.ranks.position(_ranks_of(slowdown))]
    later = _at_first_sight_ns(slowdown)
    known = (node >= 0) & (later >= LEAD_MIN_NS)
    most = np.zeros(int(node.max(initial=-1)) + 1)
    np.maximum.at(most, node[known], later[known])
    asked = [int(one) for one in np.argsort(-most, kind="stable")[:NODES_ASKED] if most[one] > 0]
    found = dict[int, float]()
    for one in asked:
        there = slowdown.ranks.rank[slowdown.ranks.node == one]
        leads = leads_ns(slowdown, there)
        found |= {rank: lead for rank, lead in leads.items() if _takes_ns(slowdown, rank, there) >= OWN_MIN * lead}
    return found


def _takes_ns(slowdown: Slowdown, rank: int, there: Ints) -> float:
    """By how much longer a rank now takes to begin its steps, from the last end that any of `there`, its node, has seen. What
    lets mates go may itself end later for one of them."""
    rows = slowdown.window.rows("op")
    rows = rows[np.isin(rows["rank"], there)]
    start_ns = slowdown.iterations.start_ns
    ends = np.sort(rows["done_ns"][rows["done_ns"] > 0]) - start_ns
    mine = np.unique(rows["enqueued_ns"][(rows["rank"] == rank) & (rows["enqueued_ns"] > 0)]) - start_ns
    pause = np.diff(mine)
    if not len(pause):
        return 0.0
    longest = np.sort(pause)[-slowdown.iterations.n :]
    begins = mine[1:][pause >= 0.5 * np.median(longest)]
    last = np.searchsorted(ends, begins) - 1
    begins, last = begins[last >= 0], last[last >= 0]
    before, since = _times(slowdown, begins.astype(np.float64))
    took = begins - ends[last]
    return float(np.median(took[since]) - np.median(took[before])) if before.any() and since.any() else 0.0


def _ranks_of(slowdown: Slowdown) -> Ints:
    """(n,) the ranks that have enqueued collectives, sorted."""
    found: Ints = distinct(slowdown.window.rows("op")["rank"].astype(np.int64))
    return found[found >= 0]


def _at_first_sight_ns(slowdown: Slowdown) -> Floats:
    """(n,) by how much later each of `_ranks_of` enqueues than the mean of those it does so with, less what it used to: of
    all communicators that do not leave their node, at once."""
    rows, ranks = slowdown.window.rows("op"), _ranks_of(slowdown)
    at = np.flatnonzero((rows["enqueued_ns"] > 0) & (rows["rank"] >= 0) & ~is_p2p(rows))
    comm, enqueued = rows["comm_id"][at], rows["enqueued_ns"][at].astype(np.float64) - slowdown.iterations.start_ns
    rank_at = np.searchsorted(ranks, rows["rank"][at])
    _, of = np.unique(mix(comm, rows["op"][at]), return_inverse=True)
    n = np.bincount(of)
    later = enqueued - (np.bincount(of, weights=enqueued) / n)[of]
    local = Index(slowdown.window.members["comm_id"].astype(np.uint64)).find(comm)
    is_local = (local >= 0) & (slowdown.window.members["n_nodes"][local] == 1) & (n[of] > 1)
    before, since = _times(slowdown, enqueued)
    means = [_mean_of(rank_at, later, those & is_local, len(ranks)) for those in (since, before)]
    return means[0] - means[1]


def _mean_of(rank_at: Ints, values: Floats, those: Mask, n_ranks: int) -> Floats:
    total, n = (np.bincount(rank_at[those], weights=one, minlength=n_ranks) for one in (values[those], None))
    found: Floats = total / np.maximum(n, 1)
    return found


def launch_alike(slowdown: Slowdown, ranks: Ints) -> bool:
    """Whether these global ranks, of one node, keep pace where one that is slower alone would fall behind: each of them in an
    op that mates usually come to by themselves, and that they all come to later now."""
    kept = set[int]()
    for meeting in _meetings(slowdown, ranks):
        shows = meeting.is_moved(slowdown.lost_ns) & (meeting.uneven_ns >= ALONE_MIN_NS)
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


def _meetings(slowdown: Slowdown, ranks: Ints) -> Iterator[Meeting]:
    """The communicators in which two of these ranks are, and enqueue collectives."""
    rows = slowdown.window.rows("op")
    rows = rows[np.isin(rows["rank"], ranks) & (rows["enqueued_ns"] > 0)]
    rows = rows[~is_p2p(rows)]
    for comm in np.unique(rows["comm_id"]):
        mine = rows[rows["comm_id"] == comm]
        members = np.unique(mine["rank"]).astype(np.int64)
        if len(members) > 1:
            found = _meeting(slowdown, members, _table(mine, members, slowdown.iterations.start_ns))
            if len(found.n):
                yield found


def _table(rows: Rows, members: Ints, start_ns: int) -> Floats:
    """(members, ops) when each enqueued each op that all of them are known to have, ns since start_ns."""
    numbers, op = np.unique(rows["op"], return_inverse=True)
    found = np.full((len(members), len(numbers)), np.nan)
    found[np.searchsorted(members, rows["rank"]), op] = rows["enqueued_ns"] - start_ns
    whole: Floats = found[:, np.isfinite(found).all(axis=0)]
    return whole


def _meeting(slowdown: Slowdown, members: Ints, enqueued: Floats) -> Meeting:
    first_ns = enqueued.min(axis=0)
    later = enqueued - np.median(enqueued, axis=0)
    nth, into_ns = _within(slowdown, first_ns)
    before, since = _times(slowdown, first_ns)
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
        _is_let_go(slowdown, members, enqueued, nth),
    )  # fmt: skip


def _varies(later: Floats) -> tuple[Floats, float]:
    """(M,) the median of each of (M, n), and the deviation from these; of a few values about the median of them, a bit more."""
    typical, n = np.median(later, axis=1), later.shape[1]
    return typical, DEVIATION * float(np.median(np.abs(later - typical[:, None]))) * float(np.sqrt(n / (n - 1)))


def _is_let_go(slowdown: Slowdown, members: Ints, enqueued: Floats, nth: Ints) -> bool:
    """See Meeting. enqueued: (M, ops); nth: (ops,) the how many-th of its iteration each is."""
    tables = [slowdown.window.rows(name) for name in ("op", "live_op")]  # some ops are not over as far as rows tell
    pause, before = np.zeros(enqueued.shape), np.zeros(enqueued.shape, np.uint64)
    for at, rank in enumerate(members.tolist()):
        mine = [rows[(rows["rank"] == rank) & (rows["enqueued_ns"] > 0)] for rows in tables]
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


def _within(slowdown: Slowdown, at_ns: Floats) -> tuple[Ints, Floats]:
    """(ops,) the how many-th of its iteration each op is, and how long after the first of them it was enqueued."""
    begins = np.fmin.reduce(slowdown.iterations.began, axis=0)
    iteration = np.searchsorted(begins[np.isfinite(begins)], at_ns)
    first = np.searchsorted(iteration, iteration)
    return np.arange(len(at_ns)) - first, at_ns - at_ns[first]


def _times(slowdown: Slowdown, at_ns: Floats) -> tuple[Mask, Mask]:
    """Which ops were enqueued before the slowdown, and which since."""
    iterations = slowdown.iterations
    ended = np.nanmax(iterations.end[:, slowdown.usual])
    began = np.nanmin(iterations.began[:, slowdown.slow])
    return at_ns < ended, at_ns >= began
